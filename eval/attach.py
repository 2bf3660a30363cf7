# Attaches to real programs under load and detaches again, 20 times each: `python3 eval/attach.py [PROGRAM...]`.
#
# The load generators check every reply. A reply that is wrong, or late by 20 s, ends everything, and so does an attach that is
# refused. Throughput is counted before each attach, while attached, and after the detach. LOCKWRIGHT names the command,
# LOCK the lock, ROUNDS the number of rounds, and WINDOW the length of a count in seconds.
import http.server
import json
import multiprocessing
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

COMMAND = os.environ.get("LOCKWRIGHT", "target/release/lockwright")
LOCK = os.environ.get("LOCK", "auto")
ROUNDS = int(os.environ.get("ROUNDS", "20"))
WINDOW = float(os.environ.get("WINDOW", "1.5"))
LATE = 20


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def connect(port):
    for _ in range(1000):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=LATE)
        except OSError:
            time.sleep(0.02)
    raise SystemExit("the server does not answer")


class Program:
    """A program and its load. The load's processes count in `replies`, and write what went wrong to `wrong`."""

    clients = 3

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="attach-")
        self.port = free_port()
        self.replies = [multiprocessing.Value("Q", 0) for _ in range(self.clients)]
        self.wrong = multiprocessing.Queue()
        self.load = []
        self.begin()

    def begin(self):
        self.server = subprocess.Popen(
            self.server_command(), cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        connect(self.port).close()
        for me in range(self.clients):
            process = multiprocessing.Process(target=self.client, args=(me,), daemon=True)
            process.start()
            self.load.append(process)

    def client(self, me):
        try:
            with connect(self.port) as sock, sock.makefile("rwb") as stream:
                number = 0
                while True:
                    self.ask(stream, me, number)
                    number += 1
                    self.replies[me].value = number
        except Exception as error:
            self.wrong.put(f"client {me}, request {number}: {error!r}")

    def pids(self):
        return [self.server.pid]

    def count(self):
        return sum(replies.value for replies in self.replies)

    def problem(self):
        if self.server.poll() is not None:
            return f"it has ended: {self.server.returncode}"
        return None if self.wrong.empty() else self.wrong.get()

    def end(self):
        for process in self.load:
            process.kill()
        self.server.kill()
        self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Memcached(Program):
    def server_command(self):
        return ["memcached", "-u", "nobody", "-t", "4", "-p", str(self.port), "-l", "127.0.0.1", "-U", "0"]

    def ask(self, stream, me, number):
        key, value = f"{me}-{number % 50}".encode(), f"{me}:{number}".encode() * 10
        stream.write(b"set %s 0 0 %d\r\n%s\r\nget %s\r\n" % (key, len(value), value, key))
        stream.flush()
        stored, head, body, end = (stream.readline() for _ in range(4))
        if (stored, body, end) != (b"STORED\r\n", value + b"\r\n", b"END\r\n"):
            raise ValueError((stored, head, body, end))


class Redis(Program):
    def server_command(self):
        options = ["--save", "", "--io-threads", "2", "--io-threads-do-reads", "yes", "--bind", "127.0.0.1"]
        return ["redis-server", "--port", str(self.port), *options]

    def ask(self, stream, me, number):
        value = f"{me}:{number}".encode() * 10
        stream.write(b"SET k%d %s\r\nGET k%d\r\nINCR n%d\r\n" % (me, value, me, me))
        stream.flush()
        stored, head, body, count = (stream.readline() for _ in range(4))
        if (stored, body, count) != (b"+OK\r\n", value + b"\r\n", b":%d\r\n" % (number + 1)):
            raise ValueError((stored, head, body, count))


class MariaDb(Program):
    """sysbench checks each reply: any error except a deadlock of transactions ends it."""

    clients = 0

    def begin(self):
        data, file = f"{self.folder}/data", f"{self.folder}/socket"
        os.chmod(self.folder, 0o755)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", "--user=root", "--auth-root-authentication-method=normal",
             f"--datadir={data}", "--skip-test-db"], check=True, **quiet)
        self.server = subprocess.Popen(
            ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={file}",
             f"--port={self.port}", "--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0"], **quiet)
        connect(self.port).close()
        client = ["mariadb", "--no-defaults", f"--socket={file}", "-uroot"]
        subprocess.run([*client, "-e", "create database sbtest"], check=True)
        common = ["sysbench", "--db-driver=mysql", f"--mysql-socket={file}", "--mysql-user=root",
                  "--tables=4", "--table-size=5000", "--threads=8"]
        subprocess.run([*common, "oltp_read_write", "prepare"], check=True, **quiet)
        self.total, self.ended = 0, None
        self.bench = subprocess.Popen(
            [*common, "--time=0", "--report-interval=1", "oltp_read_write", "run"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.bench.stdout:
            if found := re.search(r"qps: ([0-9.]+).*reconn/s: ([0-9.]+)", line):
                self.total += float(found[1])
                if float(found[2]):
                    self.ended = line
            elif "FATAL" in line:
                self.ended = line
        self.ended = self.ended or "sysbench has ended"

    def count(self):
        now = self.total  # once a second: wait for the next line
        for _ in range(LATE * 100):
            if self.total != now or self.ended:
                return self.total
            time.sleep(0.01)
        self.ended = f"no reply in {LATE} s"
        return self.total

    def problem(self):
        return self.ended or super().problem()

    def end(self):
        self.bench.kill()
        super().end()


class Python(Program):
    """Eight threads pass numbers through queues, under locks and semaphores, and check them."""

    clients = 0
    SOURCE = """
import queue, sys, threading, time
tasks, answers, lock, done = queue.Queue(16), queue.Queue(), threading.RLock(), [0]
def work():
    while True:
        number = tasks.get()
        with lock:
            with lock:
                done[0] += 1
        answers.put((number, sum(range(number % 500))))
def feed():
    number = 0
    while True:
        tasks.put(number)
        number += 1
for job in [feed] + [work] * 6:
    threading.Thread(target=job, daemon=True).start()
missing, next_one, checked, last = set(), 0, 0, time.time()
while True:
    number, answer = answers.get(timeout=20)
    assert answer == (number % 500) * (number % 500 - 1) // 2, number
    assert number not in missing and number >= next_one, number
    missing.add(number)
    while next_one in missing:
        missing.remove(next_one)
        next_one += 1
    assert len(missing) < 1000, "a number is lost"
    checked += 1
    if checked % 500 == 0:
        print(checked, flush=True)
"""

    def begin(self):
        self.total = 0
        self.server = subprocess.Popen(
            ["/usr/bin/python3", "-c", self.SOURCE], stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.server.stdout:
            self.total = int(line)

    def count(self):
        return self.total


class Chromium(Program):
    """A page asks a server for numbers, from four loops and two workers, and checks each answer."""

    clients = 0
    PAGE = b"""<!doctype html><title>page</title><script>
const ask = `async (name) => {
  for (let i = 0; ; i++) {
    let sum = 0;
    for (let k = 0; k < 20000; k++) sum = (sum * 31 + k) % 1000003;
    const reply = await fetch(origin + '/n/' + name + '/' + i, {cache: 'no-store'});
    const text = await reply.text();
    if (text !== 'reply ' + name + ' ' + i) { await fetch(origin + '/wrong/' + encodeURIComponent(text)); return; }
  }
}`;
const begin = 'const origin = "' + location.origin + '";(' + ask + ')';
for (let i = 0; i < 4; i++) eval(begin + '("page' + i + '")');
for (let i = 0; i < 2; i++)
  new Worker(URL.createObjectURL(new Blob([begin + '("worker' + i + '")'])));
</script>"""

    def begin(self):
        program = self
        self.total, self.ended, self.expected = 0, None, {}

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # chromium has gone

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                parts = self.path.split("/")
                text = program.PAGE
                if parts[1] == "n":
                    if program.expected.get(parts[2], 0) != int(parts[3]):
                        program.ended = f"asked {self.path}, expected {program.expected.get(parts[2])}"
                    program.expected[parts[2]] = int(parts[3]) + 1
                    program.total += 1
                    text = f"reply {parts[2]} {parts[3]}".encode()
                elif parts[1] == "wrong":
                    program.ended = self.path
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.http = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        # Without the sandbox, because attach refuses confined processes.
        options = ["--headless", "--disable-gpu", "--no-sandbox", "--no-first-run", "--disable-background-networking",
                   "--disable-component-update", "--disable-sync", f"--user-data-dir={self.folder}/profile",
                   "--remote-debugging-port=0", f"http://127.0.0.1:{self.port}/"]
        self.server = subprocess.Popen(
            ["chromium", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(3000):
            if len(self.expected) == 6:
                return
            time.sleep(0.02)
        raise SystemExit("chromium does not start")

    def pids(self):
        """The browser and its children, without the zygotes, which only fork."""
        marker, pids, family = f"{self.folder}/profile".encode(), [], set()

        def parent(pid):
            with open(f"/proc/{pid}/stat") as file:
                return int(file.read().rsplit(")", 1)[1].split()[1])

        for entry in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    line = file.read()
            except OSError:
                continue
            is_ours = b"chromium/chromium" in line and (marker in line or parent(entry) in family)
            if is_ours:
                family.add(int(entry))
                if b"=zygote" not in line and b"=crashpad" not in line:
                    pids.append(int(entry))
        return pids

    def count(self):
        return self.total

    def problem(self):
        return self.ended or super().problem()

    def end(self):
        for pid in self.pids():
            os.kill(pid, 9)
        super().end()
        self.http.shutdown()


PROGRAMS = {"memcached": Memcached, "redis": Redis, "mariadb": MariaDb, "python": Python, "chromium": Chromium}


def rate(program):
    begin, before = time.time(), program.count()
    time.sleep(WINDOW)
    after, end = program.count(), time.time()
    if after == before:
        raise SystemExit(f"no reply in {WINDOW} s: {program.problem()}")
    return (after - before) / (end - begin)


def do(command, pid, *options):
    """Runs the command. Returns for how long the process was stopped, ms. A process that has ended isn't counted."""
    outcome = subprocess.run([COMMAND, *command.split(), str(pid), *options], capture_output=True, text=True)
    if outcome.returncode and os.path.exists(f"/proc/{pid}/exe"):
        raise RuntimeError(outcome.stderr.split("\n")[0])
    told = re.findall(r"were stopped for ([0-9.]+) (µs|ms|s)", outcome.stdout)
    if not told and outcome.returncode == 0:
        raise RuntimeError(f"no time in: {outcome.stdout}")
    return [float(number) * {"µs": 0.001, "ms": 1, "s": 1000}[unit] for number, unit in told]


def measure(name):
    program = PROGRAMS[name]()
    rates, still, took = [], [], []
    try:
        time.sleep(5)  # until it has all its threads and processes
        pids = program.pids()
        for number in range(ROUNDS):
            before = rate(program)
            begin = time.time()
            try:
                for pid in pids:
                    still += do("attach", pid, "--lock", LOCK)
                took.append((time.time() - begin) / len(pids))
                attached = rate(program)
                for pid in pids:
                    still += do("attach --undo", pid)
            except RuntimeError as error:
                raise SystemExit(f"{name}, round {number + 1}: {error}")
            after = rate(program)
            if problem := program.problem():
                raise SystemExit(f"{name}, round {number + 1}: {problem}")
            rates.append((before, attached, after))
        return {
            "program": name, "processes": len(pids), "rounds": len(rates),
            "replies": int(program.count()), "lock": LOCK,
            "before_per_s": statistics.median(b for b, _, _ in rates),
            "attached_to_before": statistics.median(a / b for b, a, _ in rates),
            "after_to_before": statistics.median(a / b for b, _, a in rates),
            "after_to_before_range": [min(a / b for b, _, a in rates), max(a / b for b, _, a in rates)],
            "still_ms_median": statistics.median(still), "still_ms_longest": max(still),
            "attach_ms": statistics.median(took) * 1000,
        }
    finally:
        program.end()


if __name__ == "__main__":
    for name in sys.argv[1:] or PROGRAMS:
        print(json.dumps(measure(name)), flush=True)
