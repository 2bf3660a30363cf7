# stress-ng's stressors of threads and mutexes; few threads at a time, for machines that limit them.
set -euo pipefail
common=(--quiet --temp-path "$PWD" --timeout 60)
stress-ng "${common[@]}" --pthread 2 --pthread-ops 4000 --pthread-max 32
# One instance and many operations: this version fails by itself if they are done before the threads are.
stress-ng "${common[@]}" --mutex 1 --mutex-ops 400000 --mutex-procs 4
echo threads and mutexes: done
