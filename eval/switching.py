# Switches the locks of a program under stress a thousand times a second, among all front locks: `python3 eval/switching.py`.
#
# The program (tests/stress/switching.c) checks mutual exclusion, wake-ups, timed waits and children of forks, and ends at a violation.
# First it runs under each lock alone, then while we switch. We write to its mailbox as `lockwright switch` does (crates/contract/src/mailbox.rs).
# LIBRARY names the library. SECONDS is the length of the run with switches, FIXED that of each run under one lock, RATE the number of switches
# per second, and OUT a file for the figures (JSON). The last lines say whether the bars are met.
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time

LIBRARY = os.path.abspath(os.environ.get("LIBRARY", "target/release/liblockwright.so"))
SECONDS = float(os.environ.get("SECONDS", "60"))
FIXED = float(os.environ.get("FIXED", "5"))
RATE = float(os.environ.get("RATE", "1000"))
OUT = os.environ.get("OUT")
RULES = ["auto", "barging", "fifo", "slo", "asl", "asl-max", "asl-opt", "asl-pthread", "pb10", "malthusian", "cal", "mutexee"]
MAGIC, LEN, SINCE, STATE, TEXT = 0, 12, 16808, 16852, 16
EMPTY, POSTED, DONE, REFUSED, POST = 0, 1, 3, 4, 8


class Program:
    def __init__(self, program, lock):
        self.child = subprocess.Popen(
            [program], env={**os.environ, "LD_PRELOAD": LIBRARY, "LOCKWRIGHT_LOCK": lock},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.mailbox = int(self.child.stdout.readline().split()[0], 16)
        self.memory = os.open(f"/proc/{self.child.pid}/mem", os.O_RDWR)
        if os.pread(self.memory, 8, self.mailbox + MAGIC) != b"lockwr.7":
            raise SystemExit("another version's library")

    def sections(self):
        """The number of sections so far, and the time."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit(f"a violation: the program has ended with {self.child.wait()}")
        return int(line), time.monotonic()

    def word(self, at):
        return struct.unpack("<I", os.pread(self.memory, 4, self.mailbox + at))[0]

    def set(self, at, value):
        os.pwrite(self.memory, struct.pack("<I", value), self.mailbox + at)

    def post(self, lock):
        """Posts a table. Returns its number and the time. The one before has been taken."""
        number = ((self.word(STATE) + POST) & 0xffffffff) & ~7
        text = f"{lock}\n".encode()
        self.set(STATE, number | EMPTY)
        os.pwrite(self.memory, text, self.mailbox + TEXT)
        self.set(LEN, len(text))
        posted = time.monotonic_ns()
        self.set(STATE, number | POSTED)
        return number, posted

    def end(self):
        """Ends the program. Returns its counts: sections, trylocks, timed locks, waits for tokens, children."""
        out, _ = self.child.communicate()
        os.close(self.memory)
        counts, ok = out.strip().split("\n")
        if self.child.returncode or ok != "ok":
            raise SystemExit(f"a violation: the program has ended with {self.child.returncode}, {ok}")
        return [int(word) for word in counts.split()]


def fixed(program, lock):
    running = Program(program, lock)
    time.sleep(0.3)
    (first, begun), _ = running.sections(), time.sleep(FIXED)
    last, ended = running.sections()
    running.end()
    return (last - first) / (ended - begun)


def switching(program):
    running = Program(program, "auto")
    time.sleep(0.3)
    taken = late = 0
    delays = []
    first, begun = running.sections()
    following = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        following += 1 / RATE
        number, posted = running.post(RULES[taken % len(RULES)])
        at = time.monotonic()
        while (state := running.word(STATE)) != number | DONE:
            if state == number | REFUSED or time.monotonic() - at > 60:
                raise SystemExit(f"a switch was {'refused' if state == number | REFUSED else 'not taken for 60 s'}")
            time.sleep(1e-4)
        # By the process's own clock, because we may have had to wait for a CPU before we saw it.
        (since,) = struct.unpack("<Q", os.pread(running.memory, 8, running.mailbox + SINCE))
        delays.append((since - posted) / 1e9)
        taken += 1
        late += time.monotonic() > following
        time.sleep(max(0, following - time.monotonic()))
    last, ended = running.sections()
    counts = running.end()
    delays.sort()
    part = lambda share: 1e6 * delays[min(len(delays) - 1, int(share * len(delays)))]
    return {
        "seconds": ended - begun, "taken": taken, "late": late, "load_average": os.getloadavg()[0],
        "taken_per_s": taken / (ended - begun), "sections_per_s": (last - first) / (ended - begun),
        "delay_us": {"count": len(delays), "p50": part(0.5), "p99": part(0.99), "p999": part(0.999), "max": 1e6 * delays[-1],
                     "within_1ms": sum(delay <= 1e-3 for delay in delays) / len(delays)},
        "trylocks": counts[1], "timed": counts[2], "waits": counts[3], "children": counts[4],
    }


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/switching"
        here = os.path.dirname(os.path.abspath(__file__))
        subprocess.run(["cc", "-O2", "-pthread", f"{here}/../tests/stress/switching.c", "-o", program], check=True)
        alone = {}
        for lock in RULES:
            alone[lock] = fixed(program, lock)
            print(f"{lock:12} alone {alone[lock] / 1e6:6.3f} M sections/s", flush=True)
        seen = switching(program)
    slowest = min(alone, key=alone.get)
    to_slowest = seen["sections_per_s"] / alone[slowest]
    to_median = seen["sections_per_s"] / statistics.median(alone.values())
    delay = seen["delay_us"]
    print(f"switching    {seen['taken_per_s']:.0f} switches/s for {seen['seconds']:.1f} s; load average {seen['load_average']:.1f}")
    print(f"             {seen['sections_per_s'] / 1e6:6.3f} M sections/s: {to_slowest:.2f} of the slowest lock alone ({slowest}), "
          f"{to_median:.2f} of the median")
    print(f"             taken after {delay['p50']:.0f} µs (P50), {delay['p99']:.0f} µs (P99), {delay['max']:.0f} µs at most; "
          f"{100 * delay['within_1ms']:.1f} % within 1 ms")
    print(f"             {seen['trylocks']} trylocks, {seen['timed']} timed, {seen['waits']} waits for condvars, "
          f"{seen['children']} children; no violation")
    if OUT:
        with open(OUT, "w") as file:
            json.dump({"alone_per_s": alone, "switching": seen, "to_slowest": to_slowest, "to_median": to_median}, file, indent=1)
            file.write("\n")
    bars = {"1000 switches a second": seen["taken_per_s"] >= 0.99 * RATE, "0.8 of the slower lock": to_slowest >= 0.8,
            "taken within 1 ms (P99)": delay["p99"] <= 1000}
    for bar, is_met in bars.items():
        print(f"{'met' if is_met else 'MISSED'}: {bar}")
    return 0 if all(bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
