"""A local cluster of four workers, two of which are killed while they work, makes the report of one process.

LOCKWRIGHT is the command to test.
"""

import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from distributed import Client, LocalCluster

import lockwright_dask

SHARDS = 8
LOCKWRIGHT = os.environ["LOCKWRIGHT"]
#: 48 runs.
STUDY = [
    LOCKWRIGHT, "sim", "--machine", "m1", "--lock", "mcs,tas,fifo", "--threads", "max", "--seeds", "4",
    "--sweep", "gap=0,100,1k,10k", "--duration", "10ms",
]


class Killer(threading.Thread):
    """Kills a worker as soon as its shard has a result and lacks another, until it has killed two."""

    def __init__(self, cluster, client, scratch):
        super().__init__(daemon=True)
        self.cluster, self.client, self.scratch = cluster, client, scratch
        self.killed, self.is_over = [], False

    def run(self):
        while len(self.killed) < 2 and not self.is_over:
            for worker, keys in self.client.processing().items():
                number = int(str(keys[0]).split("-")[1]) if keys else None
                if number and number not in self.killed and self.kill(worker, number):
                    break
            time.sleep(0.002)

    def kill(self, worker, number):
        try:
            lines = (self.scratch / f"shard-{number}-of-{SHARDS}.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return False
        # A header, and of six results some.
        if not 2 <= lines < 6:
            return False
        nanny = next((n for n in self.cluster.workers.values() if n.worker_address == worker), None)
        if not nanny or not nanny.pid:
            return False
        os.kill(nanny.pid, signal.SIGKILL)
        self.killed.append(number)
        return True


def files(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


class Driver(unittest.TestCase):
    def test_two_workers_killed(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            one, two = Path(one), Path(two)
            whole = subprocess.run([*STUDY, "--output", "report"], cwd=one, capture_output=True)
            self.assertEqual(whole.returncode, 0, whole.stderr)
            shards, scratch = two / "shards", two / "scratch"
            with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster, \
                    Client(cluster) as client:
                killer = Killer(cluster, client, scratch)
                killer.start()
                lockwright_dask.run(client, STUDY, SHARDS, shards, keep=scratch)
                killer.is_over = True
                killer.join()
            self.assertEqual(len(killer.killed), 2, "two workers died")
            merged = subprocess.run(
                [LOCKWRIGHT, "sim", "--merge", "shards", "--output", "report"], cwd=two, capture_output=True
            )
            self.assertEqual(merged.returncode, 0, merged.stderr)
            self.assertEqual(merged.stdout, whole.stdout)
            self.assertEqual(files(two / "report"), files(one / "report"))

    def test_the_command_line(self):
        with tempfile.TemporaryDirectory() as folder:
            one = [LOCKWRIGHT, "sim", "--machine", "m1", "--lock", "mcs", "--seed", "1", "--duration", "1ms"]
            output = Path(folder) / "report"
            code = lockwright_dask.main(["--shards", "2", "--workers", "1", "--output", str(output), "--", *one])
            self.assertEqual(code, 0)
            self.assertIn("report.html", files(output))
            self.assertFalse(lockwright_dask.scratch(one, 2).exists(), "workers clean up")
            # The shards of before are not among those of another number.
            code = lockwright_dask.main(["--shards", "3", "--workers", "1", "--output", str(output), "--", *one])
            self.assertEqual(code, 0)
            self.assertEqual(sorted(file.name for file in (output / "shards").iterdir()), ["2", "3"])

    def test_a_stale_shard_is_made_anew(self):
        one = [LOCKWRIGHT, "sim", "--machine", "m1", "--lock", "mcs", "--duration", "1ms"]
        new, old = [*one, "--seed", "2"], [*one, "--seed", "1"]
        with tempfile.TemporaryDirectory() as folder, mock.patch("tempfile.tempdir", folder):
            scratch = lockwright_dask.scratch(new, 1)
            lockwright_dask.own(scratch)
            subprocess.run([*old, "--output", scratch, "--shard", "1/1"], check=True, capture_output=True)
            # Workers are threads: they have the same folder of temporary files.
            with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster, \
                    Client(cluster) as client:
                lockwright_dask.run(client, new, 1, Path(folder) / "shards", tries=1)
            header = (Path(folder) / "shards" / "shard-1-of-1.jsonl").read_text().splitlines()[0]
            self.assertIn('"--seed","2"', header)

    def test_the_scratch_is_of_the_command_the_build_and_the_files(self):
        with tempfile.TemporaryDirectory() as folder:
            program, machine = Path(folder) / "program", Path(folder) / "own.toml"
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
            machine.write_text("one")
            name = lambda: lockwright_dask.scratch([str(program), "sim", f"--machine=m1,{machine}"], 8)
            first = name()
            self.assertEqual(name(), first)
            machine.write_text("two")
            second = name()
            program.write_text("#!/bin/sh\ntrue\n")
            self.assertEqual(len({first, second, name()}), 3)
            self.assertIn(f"-{os.getuid()}-", first.name)

    def test_the_scratch_is_ours_alone(self):
        with tempfile.TemporaryDirectory() as above:
            above = Path(above)
            lockwright_dask.own(above / "new")
            self.assertEqual((above / "new").stat().st_mode & 0o777, 0o700)
            lockwright_dask.own(above / "new")
            (above / "link").symlink_to(above / "new")
            (above / "file").write_text("")
            (above / "open").mkdir()
            (above / "open").chmod(0o777)
            for other in ("link", "file", "open"):
                with self.assertRaisesRegex(RuntimeError, "we alone can write to"):
                    lockwright_dask.own(above / other)

    def test_an_error_without_a_message_has_a_line(self):
        self.assertEqual(lockwright_dask.first_line(KeyError()), "KeyError")
        self.assertEqual(lockwright_dask.first_line(ValueError("one\ntwo")), "one")

    def test_a_shard_that_cannot_be_done(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = [LOCKWRIGHT, "sim", "--machine", "m9", "--lock", "mcs"]
            words = ["--shards", "2", "--workers", "1", "--tries", "2", "--output", folder, "--", *wrong]
            with self.assertRaisesRegex(SystemExit, "unknown machine 'm9'"):
                lockwright_dask.main(words)


if __name__ == "__main__":
    unittest.main()
