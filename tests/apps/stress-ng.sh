# stress-ng's stressors of threads and mutexes; few threads at a time, for machines that limit them.
set -euo pipefail
stress-ng --quiet --temp-path "$PWD" --timeout 60 --pthread 2 --pthread-ops 4000 --pthread-max 32 --mutex 2 --mutex-ops 40000 --mutex-procs 4
echo threads and mutexes: done
