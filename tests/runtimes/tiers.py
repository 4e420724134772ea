"""Drives a runtime's storage class in a process of its own, and asks the mount what it knows."""

import contextlib
import errno
import json
import os
import select
import subprocess

import kvmount

HERE = os.path.dirname(os.path.abspath(__file__))
ANSWER_LIMIT_S = 60  # One request of some tens of MiB, on a busy machine.


class Tier:
    """A process of workers/NAME.py, which says what it can do in serve.py. A context manager."""

    def __init__(self, python, name, settings, environment=None):
        self.name = name
        self.process = subprocess.Popen(
            [python, os.path.join(HERE, "workers", name + ".py"), json.dumps(settings)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})})
        self.received = b""
        self.about = None

    def ready(self):
        """Waits until it has opened its directory."""
        self.about = self._receive()["ready"]
        return self

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.end()
        else:
            self.kill()

    def _receive(self):
        while b"\n" not in self.received:
            if not select.select([self.process.stdout], [], [],
                                 ANSWER_LIMIT_S * kvmount.SLOWNESS)[0]:
                raise TimeoutError(f"{self.name} does not answer")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise AssertionError(f"{self.name} ended: exit {self.process.wait()}")
            self.received += part
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line)

    def tell(self, do, *numbers, **words):
        """Sends a request; blocks may be given as numbers. Whoever tells asks for the answer()."""
        if numbers:
            words["numbers"] = list(*numbers)
        self.process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        """{"answer": …, "began": …, "ended": …} of the oldest request without one."""
        return self._receive()

    def ask(self, do, *numbers, **words):
        self.tell(do, *numbers, **words)
        return self.answer()["answer"]

    def end(self):
        """Its input ends, and so does it."""
        self.process.stdin.close()
        code = self.process.wait(ANSWER_LIMIT_S * kvmount.SLOWNESS)
        self.process.stdout.close()
        assert code == 0, f"{self.name}: exit {code}"

    def kill(self):
        """As the out-of-memory killer does it."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()


def together(tiers, do, numbers):
    """The same request to several processes, sent to all before any answer is read. Returns their
    answers and whether they were at work at the same time."""
    for tier in tiers:
        tier.tell(do, numbers)
    answers = [tier.answer() for tier in tiers]
    overlap = max(one["began"] for one in answers) < min(one["ended"] for one in answers)
    return [one["answer"] for one in answers], overlap


def files(root):
    """Paths of all regular files below root."""
    return sorted(os.path.join(top, name) for top, _, names in os.walk(root) for name in names)


def known(path, what):
    """What the mount knows of a file: user.kvcachefs.<what>, None where it knows nothing."""
    try:
        return os.getxattr(path, f"user.kvcachefs.{what}").decode()
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return None


def by_prefix(root):
    """{prefix hash: its files} of everything below root, as the mount knows it."""
    found = {}
    for path in files(root):
        prefix = known(path, "prefix")
        if prefix is not None:
            found.setdefault(prefix, []).append(path)
    return found


def files_of_prefix(mount_point, prefix):
    """The files to which .kvcachefs/by-prefix resolves a hash."""
    found = os.path.join(mount_point, ".kvcachefs", "by-prefix", prefix)
    links = [found] if os.path.islink(found) else [os.path.join(found, name)
                                                  for name in os.listdir(found)]
    return [os.path.realpath(link) for link in links]
