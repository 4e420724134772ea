"""Lateness, tried again: three times beside a load, and kept in a ledger.

Only a test whose failure is `kvmount.Late` alone comes here: a bound on time was exceeded, and nothing else was wrong. It
has to pass three times beside two processes that compute and one that writes. A test that was late twice within twenty runs
fails: it is not chance any more."""

import json
import os
import subprocess
import sys
import tempfile

from context import output_of

TIMES = 3
RUNS = 20


class Load:
    """`with Load():` two processes that compute and one that writes to the disk of the tests."""

    COMPUTE = "while True: pass"
    WRITE = ("import os, sys\n"
             "data = os.urandom(1 << 20)\n"
             "while True:\n"
             "    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)\n"
             "    for _ in range(64): os.write(fd, data)\n"
             "    os.fsync(fd)\n"
             "    os.close(fd)\n")

    def __enter__(self):
        handle, self.path = tempfile.mkstemp(prefix="kvcachefs-load-", dir="/var/tmp")
        os.close(handle)
        self.processes = [subprocess.Popen([sys.executable, "-c", *words], stdin=subprocess.DEVNULL)
                          for words in ([self.COMPUTE], [self.COMPUTE], [self.WRITE, self.path])]
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        os.unlink(self.path)


class Ledger:
    """The file of a machine: a line for each run, and one for each test that was late in it."""

    def __init__(self, directory, run):
        self.path = os.path.join(directory, "flakes")
        self.run = run
        self._append({"run": run, "commit": output_of(["git", "rev-parse", "--short", "HEAD"])})

    def _append(self, line):
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")

    def _lines(self):
        with open(self.path) as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:
                    continue  # Another run was killed while it wrote.

    def was_late(self, test):
        """Whether the test is in the ledger for one of the last RUNS runs, this one left out."""
        lines = list(self._lines())
        recent = [line["run"] for line in lines if "test" not in line and line["run"] != self.run][-RUNS:]
        return any(line.get("test") == test and line["run"] in recent for line in lines)

    def add(self, test):
        self._append({"run": self.run, "test": test})
