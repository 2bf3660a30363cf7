# Chromium, headless and in its sandbox (a zygote that forks by raw clone, in namespaces of its own), shows a page whose
# script builds what it prints. Not as root: that has no sandbox.
set -euo pipefail
cat > page.html <<'HTML'
<!doctype html>
<title>page</title>
<ul id="list"></ul>
<script>
  let sum = 0;
  for (let i = 0; i < 200; i++) {
    for (let k = 0; k < 5000; k++) sum = (sum * 31 + i * k) % 1000003;
    if (i % 20 === 0) {
      const item = document.createElement("li");
      item.textContent = "after " + i + ": " + sum;
      document.getElementById("list").append(item);
    }
  }
</script>
HTML
options=(--headless --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --user-data-dir="$PWD/profile" --dump-dom "file://$PWD/page.html")
run=(chromium)
if [ "$(id -u)" = 0 ]; then
    # Somebody without rights must be able to read what the test has.
    if [ -n "${LD_PRELOAD:-}" ]; then
        cp "$LD_PRELOAD" library.so
        export LD_PRELOAD=$PWD/library.so
    fi
    chmod -R a+rX . && chown -R nobody .
    run=(runuser -u nobody -- env HOME="$PWD" chromium)
fi
"${run[@]}" "${options[@]}" 2> log || { code=$?; tail -n 20 log >&2; exit $code; }
