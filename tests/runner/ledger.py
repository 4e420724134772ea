"""Lateness, tried again: three times beside a load, and kept in a ledger.

Only a test whose failure is `kvmount.Late` alone comes here: a bound on time was exceeded, and
nothing else was wrong. The test has to pass three times beside two processes that compute and
one that writes. A test that was late twice within twenty runs fails: it is not chance any more.
Only runs count that ran the test."""

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
    """A file of the machine: a line for each lateness of a test, and for each later run that
    ran the test."""

    def __init__(self, directory, run):
        self.path = os.path.join(directory, "flakes")
        self.run = run

    def _append(self, **line):
        with open(self.path, "a") as file:
            file.write(json.dumps({"run": self.run, **line}) + "\n")

    def _recent(self):
        """Returns for each test whether it was late, for each of the last RUNS runs that ran
        it."""
        found = {}
        if os.path.exists(self.path):
            with open(self.path) as file:
                for line in file:
                    try:
                        line = json.loads(line)
                    except ValueError:
                        continue  # Another run was killed while it wrote.
                    if "test" in line:
                        runs = found.setdefault(line["test"], {})
                        runs[line["run"]] = runs.get(line["run"], False) or line.get("late", True)
        return {test: list(runs.values())[-RUNS:] for test, runs in found.items()}

    def was_late(self, test):
        """Returns true when the test was late in one of the last RUNS runs that ran it, this
        run included."""
        return any(self._recent().get(test, []))

    def add(self, test):
        """Writes that the test was late in this run."""
        self._append(test=test, late=True, commit=output_of(["git", "rev-parse", "--short", "HEAD"]))

    def ran(self, tests):
        """Writes that this run ran these tests. Only those that were late before need a
        line."""
        late = {test for test, runs in self._recent().items() if any(runs)}
        for test in sorted(late.intersection(tests)):
            self._append(test=test, late=False)
