# What lock policies do on this machine: `python3 eval/policies.py [POLICY...]`.
#
# A program (policies.c) runs on the lock `fifo`; a policy is loaded and unloaded by turns. Each round measures both, in an order that alternates.
# It prints medians, the ratio within rounds with its quartiles, and in how many rounds the figure rose.
# LIBRARY and COMMAND name the library and the `lockwright` command. ROUNDS is the number of rounds, LENGTH the length of a slice (seconds).
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

LIBRARY = os.path.abspath(os.environ.get("LIBRARY", "target/release/liblockwright.so"))
COMMAND = os.path.abspath(os.environ.get("COMMAND", "target/release/lockwright"))
ROUNDS = int(os.environ.get("ROUNDS", "12"))
LENGTH = float(os.environ.get("LENGTH", "0.8"))


def sections(counts):
    return sum(count[0] for count in counts)


def share(counts):
    return 100 * counts[0][2] / sum(count[2] for count in counts)


def wait(counts):
    return sum(count[1] for count in counts) / max(sections(counts), 1) / 1000


# What the program does, with how many threads; tags of threads by name; figures of the threads' counts in a slice and its seconds.
EFFECTS = {
    "scl": ("long-first", 4, {}, {"share of lock time, long sections, %": lambda counts, _: share(counts)}),
    "tenants": ("flat", 7, {"first": "7", "other*": "8"}, {"share of lock time, single thread, %": lambda counts, _: share(counts)}),
    "priority": ("flat", 8, {"first": "7"}, {
        "mean wait, thread with a tag, us": lambda counts, _: wait(counts[:1]),
        "mean wait, the others, us": lambda counts, _: wait(counts[1:]),
        "tagged, of the others'": lambda counts, _: wait(counts[:1]) / wait(counts[1:]),
    }),
    "inheritance": ("nest", 8, {}, {
        "sections/s, threads that nest": lambda counts, seconds: sections(counts[:4]) / seconds,
        "of theirs, for one of another": lambda counts, _: sections(counts[:4]) / sections(counts[4:]),
        "sections/s, the others": lambda counts, seconds: sections(counts[4:]) / seconds,
    }),
}


def command(*words):
    done = subprocess.run([COMMAND, "policy", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"lockwright policy {' '.join(words)}: {done.stderr}")


def measure(program, file, policy):
    shape, threads, tags, figures = EFFECTS[policy]
    env = {**os.environ, "LD_PRELOAD": LIBRARY, "LOCKWRIGHT_LOCK": "fifo"}
    child = subprocess.Popen([program, shape, str(threads), file], env=env, stdin=subprocess.PIPE)
    try:
        time.sleep(0.5)
        pid = str(child.pid)
        for name, tag in tags.items():
            command("tag", "--name", name, tag, "--pid", pid)

        def look():
            with open(file, "rb") as counts:
                return [struct.unpack("3Q", counts.read(24)) for _ in range(threads)]

        rounds, is_loaded = [], 0
        for number in range(ROUNDS):
            pair = [None, None]
            for which in [0, 1] if number % 2 == 0 else [1, 0]:
                if which != is_loaded:
                    command(*(["unload"] if is_loaded else ["load", policy, "--quiet"]), "--pid", pid)
                    is_loaded = which
                time.sleep(0.1)
                before, begun = look(), time.monotonic()
                time.sleep(LENGTH)
                after, seconds = look(), time.monotonic() - begun
                since = [[new - old for new, old in zip(*both)] for both in zip(after, before)]
                pair[which] = {name: figure(since, seconds) for name, figure in figures.items()}
            rounds.append(pair)
        return rounds
    finally:
        child.kill()
        child.wait()


def main():
    policies = sys.argv[1:] or list(EFFECTS)
    for policy in policies:
        if policy not in EFFECTS:
            raise SystemExit(f"no '{policy}' among {', '.join(EFFECTS)}")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "policies")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "policies.c")
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
        for policy in policies:
            rounds = measure(program, os.path.join(folder, "counts"), policy)
            print(f"{policy}: {ROUNDS} rounds of {LENGTH} s")
            for name in EFFECTS[policy][3]:
                old, new = ([pair[which][name] for pair in rounds] for which in (0, 1))
                ratios = [b / a for a, b in zip(old, new)]
                low, middle, high = statistics.quantiles(ratios, n=4)
                rose = sum(ratio > 1 for ratio in ratios)
                print(f"  {name}: {statistics.median(old):.4g} -> {statistics.median(new):.4g}, "
                      f"ratio {middle:.2f} [{low:.2f} to {high:.2f}], rose in {rose} of {ROUNDS}")


main()
