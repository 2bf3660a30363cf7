# What observation costs, and whether it stays within its memory: `python3 eval/observe.py`.
#
# LIBRARY and COMMAND name the library and the `lockwright` command. ROUNDS is how often each level runs, LENGTH how long (seconds), COUNT how
# many locks are made and destroyed, and OUT a file for the figures (JSON). The levels run in an order that rotates; ratios are within a round.
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

LIBRARY = os.path.abspath(os.environ.get("LIBRARY", "target/release/liblockwright.so"))
COMMAND = os.path.abspath(os.environ.get("COMMAND", "target/release/lockwright"))
ROUNDS = int(os.environ.get("ROUNDS", "25"))
LENGTH = float(os.environ.get("LENGTH", "0.5"))
COUNT = int(os.environ.get("COUNT", "10000000"))
OUT = os.environ.get("OUT")
LEVELS = ["off", "counters", "full"]
# Threads, turns of the loop within a section, and turns between sections.
LOADS = [(2, 50, 50), (2, 500, 500), (8, 50, 50), (8, 500, 500)]


def run(program, level, *words):
    env = {**os.environ, "LD_PRELOAD": LIBRARY, "LOCKWRIGHT_OBSERVE": level}
    return float(subprocess.run([program, *map(str, words)], env=env, check=True, capture_output=True, text=True).stdout)


def costs(program):
    figures = []
    for load in LOADS:
        rounds = []
        for at in range(ROUNDS):
            order = LEVELS[at % 3:] + LEVELS[:at % 3]
            rounds.append({level: run(program, level, "throughput", LENGTH, *load) for level in order})
        figure = {"threads": load[0], "turns": load[1], "gap": load[2], "rounds": rounds}
        words = f"{load[0]} threads, {load[1]} turns"
        for level in LEVELS[1:]:
            ratios = sorted(one[level] / one["off"] for one in rounds)
            figure[level] = statistics.median(ratios)
            low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
            words += f"; {level} {figure[level]:.3f} ({low:.2f} to {high:.2f})"
        print(words, flush=True)
        figures.append(figure)
    return figures


def resident(pid):
    """Its own memory, KiB, without shared memory."""
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("RssAnon:"):
            return int(line.split()[1])


def room(program, folder):
    env = {**os.environ, "LD_PRELOAD": LIBRARY, "LOCKWRIGHT_OBSERVE": "full", "LOCKWRIGHT_OBSERVE_DIR": folder}
    begun = time.monotonic()
    child = subprocess.Popen([program, "locks", str(COUNT), "100"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    waits = int(child.stdout.readline())
    took = time.monotonic() - begun
    (segment,) = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".observe")]
    size, own = os.stat(segment).st_blocks * 512, resident(child.pid)
    said = subprocess.run([COMMAND, "profile", "--read", segment, "--format", "json"], check=True, capture_output=True, text=True)
    child.communicate()
    (process,) = json.loads(said.stdout)["processes"]
    counted = sum(lock["contended"] for lock in process["locks"])
    figure = {"locks": COUNT, "waits": waits, "counted": counted, "segment_bytes": size, "resident_kib": own, "seconds": took,
              "lost": process["lost"]}
    print(f"{COUNT} locks in {took:.0f} s: {waits} waits, {counted} counted; segment {size / 1e6:.1f} MB, own memory {own} KiB", flush=True)
    print(f"  not counted, or not told apart: {process['lost']}")
    return figure


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "observe")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "observe.c")
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
        segments = os.path.join(folder, "segments")
        os.mkdir(segments, 0o700)
        print(f"load average {os.getloadavg()[0]:.2f}")
        figures = {"load": os.getloadavg(), "cost": costs(program), "room": room(program, segments)}
    if OUT:
        with open(OUT, "w") as file:
            json.dump(figures, file, indent=1)
    return 0


sys.exit(main())
