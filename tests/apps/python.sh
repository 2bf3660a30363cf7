# CPython's own tests of threads, locks and queues. Their results, without the times, in a fixed order.
#
# Some of them fail if the machine stands still for a third of a second. What failed is run again by itself, and has failed
# if it does so three times more.
set -uo pipefail
/usr/bin/python3 -m unittest -v test.test_thread test.test_threading_local test.test_queue test.test_threading > log 2>&1
code=$?
# A test's name and its result; a warning may stand in between.
/usr/bin/python3 - <<'PY'
import re
text = open('log', errors='replace').read()
for name in sorted(set(re.findall(r'^(test\w+ \([\w.]+\))', text, re.M))):
    print(name)
print(re.findall(r'^Ran (\d+) tests', text, re.M))
print(re.findall(r'^(?:OK|FAILED) \(.*(skipped=\d+)', text, re.M))
with open('failed', 'w') as failed:
    for name in sorted(set(re.findall(r'^(?:FAIL|ERROR): .*?\(([\w.]+)\)', text, re.M))):
        print(name, file=failed)
PY
if [ $code -eq 1 ] && [ -s failed ]; then
    code=0
    while read -r name; do
        for try in 1 2 3; do
            /usr/bin/python3 -m unittest -v "$name" > again 2>&1 && continue 2
        done
        echo "failed: $name"
        tail -n 40 again >&2
        code=1
    done < failed
fi
[ $code -eq 0 ] || tail -n 40 log >&2
exit $code
