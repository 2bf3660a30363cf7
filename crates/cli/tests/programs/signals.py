"""What Python programs do with semaphores that are no locks: queues, conditions, events, ends of threads."""

import queue
import sys
import threading

rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
work, simple, done = queue.Queue(maxsize=2), queue.SimpleQueue(), []
turn, whose = threading.Condition(), 0


def produce():
    for number in range(rounds):
        work.put(number)
        simple.put(number)
    for each in (work, simple):
        each.put(None)


def consume(each):
    total = 0
    while (number := each.get()) is not None:
        total += number
    done.append(total)


def alternate(who):
    global whose
    for _ in range(rounds):
        with turn:
            turn.wait_for(lambda: whose == who)
            whose = 1 - whose
            turn.notify_all()


def begin(target, *words):
    threads.append(threading.Thread(target=target, args=words))
    threads[-1].start()


threads = []
begin(consume, work)
begin(consume, simple)
begin(alternate, 0)
begin(alternate, 1)
begin(produce)
for thread in threads:
    thread.join()
event = threading.Event()
timer = threading.Timer(0.05, event.set)
timer.start()
print(event.wait(20), threading.Semaphore(0).acquire(timeout=0.05), *done)
