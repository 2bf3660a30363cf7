# memcached with four threads: six clients of our own, whose every answer is checked, then memcslap.
import os
import signal
import socket
import subprocess
import sys
import threading
import time


def port_of(server, file):
    # It says in a file of its own which port it was given. A free one that we chose might be another test's by now.
    for _ in range(1000):
        if os.path.exists(file):
            with open(file) as lines:
                return int(lines.readline().split()[-1])
        if server.poll() is not None:
            break
        time.sleep(0.02)
    sys.exit("memcached does not start")


def connect(port):
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=20)
        except OSError:
            time.sleep(0.02)
    sys.exit("memcached does not answer")


def line(stream):
    return stream.readline().rstrip(b"\r\n").decode()


def client(port, me, problems):
    with connect(port) as sock, sock.makefile("rwb") as stream:
        for i in range(1500):
            key, value = f"key-{me}-{i % 200}", f"{me}:{i}:" + "x" * (i % 300)
            stream.write(f"set {key} 0 0 {len(value)}\r\n{value}\r\n".encode())
            stream.write(f"get {key}\r\nincr shared 1\r\n".encode())
            stream.flush()
            answers = [line(stream) for _ in range(4)]
            if answers != ["STORED", f"VALUE {key} 0 {len(value)}", value, "END"]:
                problems.append((me, i, answers))
                return
            int(line(stream))
            if i % 10 == 9:
                stream.write(f"delete {key}\r\nget {key}\r\n".encode())
                stream.flush()
                if [line(stream), line(stream)] != ["DELETED", "END"]:
                    problems.append((me, i, "deleted"))
                    return


server = subprocess.Popen(
    ["memcached", "-l", "127.0.0.1", "-p", "-1", "-U", "0", "-t", "4", "-m", "64", "-u", "root"],
    env=os.environ | {"MEMCACHED_PORT_FILENAME": "port"},
)
try:
    port = port_of(server, "port")
    with connect(port) as sock, sock.makefile("rwb") as stream:
        stream.write(b"set shared 0 0 1\r\n0\r\n")
        stream.flush()
        print(line(stream))
    problems = []
    clients = [threading.Thread(target=client, args=(port, me, problems)) for me in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    print("problems:", problems)
    with connect(port) as sock, sock.makefile("rwb") as stream:
        stream.write(b"get shared\r\n")
        stream.flush()
        print(line(stream), line(stream).strip(), line(stream))
        stream.write(b"stats\r\n")
        stream.flush()
        stats = {}
        while (answer := line(stream)) != "END":
            _, name, value = answer.split(" ", 2)
            stats[name] = value
        for name in ["threads", "cmd_get", "cmd_set", "get_hits", "get_misses", "curr_items", "delete_hits"]:
            print(name, stats[name])
    for kind in ["set", "get"]:
        slap = ["memcslap", f"--servers=127.0.0.1:{port}", "--concurrency=4", "--execute-number=1000",
                "--initial-load=500", f"--test={kind}"]
        code = subprocess.run(slap, stdout=subprocess.DEVNULL, timeout=60).returncode
        print("memcslap", kind, code)
        if code:
            sys.exit(1)
finally:
    server.send_signal(signal.SIGTERM)
    code = server.wait(timeout=20)
    print("memcached", code)
sys.exit(1 if problems or code else 0)
