# A thread pool of the kind that Python programs use: tasks through concurrent.futures, with their answers checked.
#
# Each task digests 32 KiB, which releases the interpreter's lock meanwhile, and then counts words, which doesn't.
# The pool's queue, its semaphore and the interpreter's lock are all made of pthread mutexes and condition variables.
# Prints what the database drivers print: operations, times, and latencies from submission to completion.
import hashlib
import json
import os
import platform
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

seconds, workers = float(sys.argv[1]), int(sys.argv[2])
BLOCK = bytes(range(256)) * 128
WORDS = "to be or not to be that is the question".split() * 20
DIGEST = hashlib.sha256(BLOCK).hexdigest()


def task():
    counts = {}
    digest = hashlib.sha256(BLOCK).hexdigest()
    for word in WORDS:
        counts[word] = counts.get(word, 0) + 1
    return digest == DIGEST and counts["be"] == 40


room = threading.BoundedSemaphore(4 * workers)
latencies = []
wrong = []


def submit(pool):
    began = time.perf_counter_ns()

    def done(future):
        latencies.append(time.perf_counter_ns() - began)
        if future.result() is not True:
            wrong.append(future)
        room.release()

    pool.submit(task).add_done_callback(done)


with ThreadPoolExecutor(workers) as pool:
    start, cpu = time.perf_counter(), time.process_time()
    submitted = 0
    while time.perf_counter() - start < seconds:
        room.acquire()
        submit(pool)
        submitted += 1
took, cpu = time.perf_counter() - start, time.process_time() - cpu
if wrong or len(latencies) != submitted:
    sys.exit(f"wrong answer: {len(wrong)} tasks, {len(latencies)} of {submitted} done")
print(
    json.dumps(
        {
            "operations": submitted,
            "operations_per_second": submitted / took,
            "cpu_seconds": cpu,
            "process_cpu_seconds": time.process_time(),
            "engine": "Python " + platform.python_version(),
            "libc": os.confstr("CS_GNU_LIBC_VERSION"),
            "latency_counts": [[ns, 1] for ns in sorted(latencies)],
        }
    )
)
