# stress-ng's stressors of threads and mutexes; few threads at a time, for machines that limit them.
set -euo pipefail
common=(--quiet --temp-path "$PWD" --timeout 60)
stress-ng "${common[@]}" --pthread 2 --pthread-ops 4000 --pthread-max 32
# One instance and many operations: this version fails by itself, with code 3, if they are done before the threads are.
# So it may where the machine has other work.
for try in 1 2 3 4 5; do
    code=0
    stress-ng "${common[@]}" --mutex 1 --mutex-ops 400000 --mutex-procs 4 || code=$?
    [ $code = 3 ] || break
done
[ $code = 0 ]
echo threads and mutexes: done
