#!/usr/bin/env python3
"""Runs an experiment of lockwright in shards on a Dask cluster, and merges them into one report.

    lockwright_dask.py --shards 8 --workers 4 --output report -- lockwright sim --machine m1 --lock all
    lockwright_dask.py --shards 64 --scheduler tcp://head:8786 --output report -- lockwright reproduce all

The command is given without --output. Workers need the same build of lockwright, and no common file system. docs/shards.md of
the project has more.
"""

import argparse
import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster, as_completed, get_worker

#: How long a shard waits until a process that is being killed has released its file, s.
PATIENCE = 10

#: What lockwright says of a file that it can't continue, such as one of another build of `cargo xtask`. (`scratch` can't tell its
#: builds apart.)
STALE = ("was made by another build", "belongs to another plan")


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="how many parts")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="the report's folder")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", metavar="ADDRESS", help="of a running Dask cluster")
    where.add_argument("--workers", type=int, metavar="N", help="start N workers on this machine")
    parser.add_argument("--tries", type=int, default=4, metavar="N", help="of each shard [default: 4]")
    parser.add_argument(
        "--scratch", type=Path, metavar="DIR",
        help="where workers keep results meanwhile [default: below their folder of temporary files]",
    )
    parser.add_argument("command", nargs="+", help="the experiment, after --")
    args = parser.parse_args(arguments)
    if not 1 <= args.shards <= 100_000:
        parser.error("--shards: not within 1 to 100000")
    return args


def scratch(command, shards):
    """On a worker: the folder of this command, this build and these input files. If one of them differs, so does the folder. If all
    are the same, a run continues the one before."""
    digest = hashlib.sha256(repr((command, shards)).encode())
    # Machines and traces are words, or parts of words.
    parts = [part for word in command[1:] for part in re.split("[=,]", word)]
    for file in filter(os.path.isfile, [shutil.which(command[0]) or "", *parts]):
        digest.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return Path(tempfile.gettempdir()) / f"lockwright-shards-{os.getuid()}-{digest.hexdigest()[:16]}"


def own(folder):
    """Makes the folder. Others may write to its parent, so an existing folder may be theirs. Then it is refused."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RuntimeError(
            f"'{folder}' is not a folder that we alone can write to\nhint: ls -ld '{folder}'; or --scratch DIR"
        )


def clean(command, shards):
    """On a worker: removes its results; the client has them."""
    shutil.rmtree(scratch(command, shards), ignore_errors=True)


def first_line(error):
    """Of its message, if it has any."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def run_shard(command, number, shards, folder):
    """On a worker: does one shard, and returns its file's name and bytes."""
    is_ours = not folder
    folder = Path(folder) if folder else scratch(command, shards)
    if is_ours:
        own(folder)
    file = folder / f"shard-{number}-of-{shards}.jsonl"
    words = [*command, "--output", str(folder), "--shard", f"{number}/{shards}", "--resume"]
    if shutil.which("setpriv"):
        # If the worker dies, so does the process. Otherwise it would still hold the shard's file.
        words = ["setpriv", "--pdeathsig", "KILL", "--", *words]
    end = time.monotonic() + PATIENCE
    while True:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode == 0:
            break
        if is_ours and file.exists() and any(stale in done.stderr for stale in STALE):
            file.unlink()
            continue
        if "another process works on" not in done.stderr or time.monotonic() > end:
            raise RuntimeError(f"shard {number}/{shards}: {done.stderr.strip()}")
        time.sleep(0.2)
    return number, file.name, file.read_bytes(), get_worker().address


def run(client, command, shards, folder, tries=4, keep=None, say=print):
    """Does all shards on the client's cluster. Afterwards their files are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    keep = str(keep) if keep else None

    def submit(number):
        # Impure: a shard that is tried again must not be answered from memory.
        return client.submit(
            run_shard, command, number, shards, keep, key=f"shard-{number}-of-{shards}-{os.urandom(4).hex()}", pure=False
        )

    numbers = {submit(number): number for number in range(1, shards + 1)}
    tried = dict.fromkeys(numbers.values(), 1)
    waiting = as_completed(numbers)
    done = 0
    for future in waiting:
        number = numbers.pop(future)
        if future.status != "finished":
            if tried[number] == tries:
                raise SystemExit(f"error: {str(future.exception()) or first_line(future.exception())}\nhint: run it again: it goes on where it was")
            tried[number] += 1
            say(f"shard {number}/{shards} failed, once more: {first_line(future.exception())}")
            again = submit(number)
            numbers[again] = number
            waiting.add(again)
            continue
        _, name, content, worker = future.result()
        (folder / name).write_bytes(content)
        done += 1
        say(f"{done} of {shards} shards: {number}/{shards} done by {worker}")


def merge(command, folder, output):
    """Makes the report; the exit code is the experiment's."""
    program = command[:2] if Path(command[0]).name == "cargo" else command[:1]
    # `cargo xtask` has a command for it.
    merge = ["merge"] if Path(command[0]).name == "cargo" else ["sim", "--merge"]
    return subprocess.run([*program, *merge, str(folder), "--output", str(output)]).returncode


def main(arguments=None):
    args = parse(arguments)
    if any(word.split("=")[0] in ("--output", "--shard", "--resume") for word in args.command):
        raise SystemExit(
            f"error: {shlex.join(args.command)}: --output, --shard and --resume are added here\n"
            "hint: leave them out of the command"
        )
    if args.scheduler:
        cluster, client = None, Client(args.scheduler)
    else:
        cluster = LocalCluster(n_workers=args.workers, threads_per_worker=1, dashboard_address=None)
        client = Client(cluster)
    try:
        say = lambda text: print(text, file=sys.stderr, flush=True)
        # A folder for each number of shards, so that those of an earlier run don't get mixed in.
        folder = args.output / "shards" / str(args.shards)
        run(client, args.command, args.shards, folder, args.tries, args.scratch, say)
        if not args.scratch:
            client.run(clean, args.command, args.shards)
    finally:
        client.close()
        if cluster:
            cluster.close()
    return merge(args.command, folder, args.output)


if __name__ == "__main__":
    sys.exit(main())
