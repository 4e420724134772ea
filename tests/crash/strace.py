"""Runs or watches the daemon under strace: counts its system calls, kills it at the Nth of one.

strace counts per thread, so "the Nth" is the Nth of that call in any one thread.
"""

import collections
import os
import re
import subprocess

import kvmount

_LINE = re.compile(r"^(\d+) +([a-z_0-9]+)\(")
# strace cannot inject into these; restarted ones would be counted twice.
_SKIPPED = {"restart_syscall", "exit", "exit_group", "rt_sigreturn"}


def _quiet(trace_file):
    return ["strace", "-f", "-qq", "-o", trace_file]


def record_command(trace_file):
    return _quiet(trace_file)


def kill_command(trace_file, call, nth):
    return _quiet(trace_file) + ["-e", f"trace={call}",
                                 "-e", f"inject={call}:signal=KILL:when={nth}"]


def delay_command(trace_file, call, seconds):
    """Each of these calls returns that much later."""
    return _quiet(trace_file) + ["-e", f"trace={call}",
                                 "-e", f"inject={call}:delay_exit={int(seconds * 1e6)}"]


def counts(trace_file):
    """From a recording: the most often that one thread made each call."""
    seen = collections.Counter()
    with open(trace_file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = _LINE.match(line)
            if found and found[2] not in _SKIPPED:
                seen[found[1], found[2]] += 1
    most = {}
    for (_, call), number in seen.items():
        most[call] = max(number, most.get(call, 0))
    return most


class Attached:
    """strace attached to every thread of a running daemon; ends when the daemon does."""

    def __init__(self, pid, command):
        self._process = subprocess.Popen(command + ["-p", str(pid)], stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         text=True)

        def traced():
            if self._process.poll() is not None:
                # A thread may make the chosen call while strace attaches: then that was it.
                if not os.path.exists(f"/proc/{pid}/task") or _ended(pid):
                    return True
                raise AssertionError(f"strace ended: {self._process.stdout.read()}")
            return all(_tracer(pid, t) == self._process.pid for t in _threads(pid))

        kvmount.wait_until(traced, 15, "strace to attach")

    def detach(self):
        """Lets go of a daemon that lives on."""
        self._process.terminate()
        self.wait()

    def wait(self):
        """Until strace has ended. Sometimes it goes on waiting for a thread that is dead or does
        not stop; then it is ended itself, which lets go of everything it traced."""
        try:
            self._process.wait(10 * kvmount.SLOWNESS)
        except subprocess.TimeoutExpired:
            self.end()

    def end(self):
        """Lets go at once of everything it traces, dead or alive."""
        self._process.kill()
        self._process.wait()


def _ended(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _threads(pid):
    try:
        return os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return []


def _tracer(pid, thread):
    try:
        with open(f"/proc/{pid}/task/{thread}/status", encoding="utf-8") as status:
            return int(re.search(r"TracerPid:\t(\d+)", status.read())[1])
    except (FileNotFoundError, ProcessLookupError):
        return -1
