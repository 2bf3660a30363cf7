# CPython's own tests of threads, locks and queues. Their results, without the times, in a fixed order.
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
print(sorted(re.findall(r'^(?:FAIL|ERROR): .*', text, re.M)))
print(re.findall(r'^(?:OK|FAILED).*', text, re.M))
PY
[ $code -eq 0 ] || tail -n 40 log >&2
exit $code
