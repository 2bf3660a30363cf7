# stress-ng's stressors of threads and mutexes.
set -euo pipefail
stress-ng --quiet --temp-path "$PWD" --timeout 60 --pthread 2 --pthread-ops 4000 --mutex 2 --mutex-ops 40000
echo threads and mutexes: done
