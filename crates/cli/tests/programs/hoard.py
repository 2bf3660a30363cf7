"""20 locks, and one place that holds one of them for long: hoard()."""

import sys
import threading
import time

make = getattr(threading, sys.argv[2] if len(sys.argv) > 2 else "Lock")
locks = [make() for _ in range(20)]
is_helped = len(sys.argv) > 3
stop = False
total = 0


def quick(which):
    global total
    with locks[which]:
        total += which


def help():
    for _ in range(10):
        time.sleep(0.0001)


def hoard():
    with locks[13]:
        if is_helped:
            help()
        else:
            time.sleep(0.001)


def quickly(seed):
    following = seed
    while not stop:
        following = (following * 1103515245 + 12345) % (1 << 32)
        quick((following >> 16) % 20)
        time.sleep(0.00002)


def slowly(rounds):
    global stop
    for _ in range(rounds):
        hoard()
        time.sleep(0.0005)
    stop = True


rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
threads = [threading.Thread(target=quickly, args=(seed,)) for seed in range(1, 4)]
threads.append(threading.Thread(target=slowly, args=(rounds,)))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
