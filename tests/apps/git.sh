# git: packing, verifying and searching with four threads each, in a repository made here.
set -euo pipefail
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null HOME=$PWD
git init -q repo
cd repo
awk 'BEGIN {
  for (c = 1; c <= 250; c++) {
    print "commit refs/heads/main"
    print "committer A <a@example.org> " 1700000000 + c " +0000"
    message = "commit " c
    print "data " length(message); print message
    for (f = 0; f < 8; f++) {
      text = ""
      for (l = 0; l < 60; l++) text = text "line " l " of file " f (l % 9 == c % 9 ? " changed in " c : "") "\n"
      print "M 100644 inline dir" (c * 7 + f) % 40 "/file" f ".txt"
      print "data " length(text); printf "%s\n", text
    }
  }
}' | git fast-import --quiet
git config pack.threads 4
git config grep.threads 4
git config index.threads 4
git repack -q -adf --depth=50 --window=30
git fsck --full --no-progress 2>&1
git index-pack --threads=4 --strict -o copy.idx .git/objects/pack/pack-*.pack >/dev/null
cmp copy.idx .git/objects/pack/pack-*.idx && echo same index
git verify-pack .git/objects/pack/pack-*.idx && echo verified
git checkout -q main
git grep -c 'changed in 2[0-9]*' | sort | sha256sum
git rev-list --objects --all | cut -d' ' -f1 | git cat-file --batch-check | sort | sha256sum
git status --short | wc -l
