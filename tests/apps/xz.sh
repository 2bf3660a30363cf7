# xz: compress and decompress with four threads, round trip.
set -euo pipefail
awk 'BEGIN { srand(7); for (i = 0; i < 400000; i++) print i, int(rand() * 1000000), "some text that repeats" }' > plain
xz -2 -k -T4 --block-size=1MiB plain
sha256sum < plain.xz
xz -l --robot plain.xz | grep ^totals | cut -f2,3
xz -dc -T4 plain.xz | cmp - plain && echo same
xz -t -T4 plain.xz && echo sound
