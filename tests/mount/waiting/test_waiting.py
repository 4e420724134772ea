"""Callers that wait for long must not make others wait: locks, FIFOs, and an idle daemon."""

import fcntl
import os
import signal
import statistics
import struct
import threading
import time

import pytest

import kvmount

MANY = 1000
SAMPLES = 1500
FLOCK, FCNTL, OPENAT = 73, 72, 257  # System call numbers of x86-64, as /proc/PID/syscall has them.
F_OFD_SETLKW = 38


def wait_flock(directory):
    fcntl.flock(os.open(f"{directory}/lock", os.O_RDONLY), fcntl.LOCK_EX)


def wait_fcntl(directory):
    """An OFD lock: it conflicts between threads of one process, as POSIX locks do between
    processes, and blocks in the same code."""
    fd = os.open(f"{directory}/lock", os.O_RDWR)
    fcntl.fcntl(fd, F_OFD_SETLKW, struct.pack("hh4xqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))


def wait_fifo(directory):
    os.open(f"{directory}/fifo", os.O_RDONLY)


KINDS = {"flock": (wait_flock, FLOCK), "fcntl": (wait_fcntl, FCNTL), "fifo": (wait_fifo, OPENAT)}


class Waiters:
    """`count` threads of a process of nobody that block in a call on `directory`'s lock or FIFO."""

    def __init__(self, directory, kind, count):
        self.directory, self.count = directory, count
        self.function, self.number = KINDS[kind]

    def __enter__(self):
        os.mkdir(self.directory)
        os.mkfifo(f"{self.directory}/fifo", 0o666)
        os.chmod(f"{self.directory}/fifo", 0o666)
        self.holder = os.open(f"{self.directory}/lock", os.O_CREAT | os.O_RDWR, 0o666)
        os.chmod(f"{self.directory}/lock", 0o666)
        fcntl.flock(self.holder, fcntl.LOCK_EX)
        fcntl.fcntl(self.holder, F_OFD_SETLKW,
                    struct.pack("hh4xqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        self.child = kvmount.Child(self.block, uid=kvmount.NOBODY)
        try:
            self.wait_blocked()
        except BaseException:
            self.__exit__()
            raise
        return self

    def block(self):
        threading.stack_size(256 << 10)
        threads = [threading.Thread(target=self.function, args=(self.directory,))
                   for _ in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def wait_blocked(self):
        """Twice in a row: a thread on its way into the call, with the processor taken from it, is
        counted as well, and not a moment later when it runs again."""
        kvmount.wait_until(lambda: self.blocked() >= self.count and self.blocked() >= self.count,
                           60, f"{self.count} waiters in system call {self.number}")

    def blocked(self):
        """How many threads of the child are in the call."""
        found = 0
        tasks = f"/proc/{self.child.pid}/task"
        for task in os.listdir(tasks):
            try:
                with open(f"{tasks}/{task}/syscall") as call:
                    found += call.read().split(" ", 1)[0] == str(self.number)
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found

    def __exit__(self, *_):
        self.child.end()
        os.close(self.holder)


def latencies(directory, tag):
    """Seconds of root's stats: names that are there, and misses, which always reach the daemon."""
    for index in range(50):
        with open(f"{directory}/{tag}-{index}", "wb") as file:
            file.write(b"x")
    taken = []
    for index in range(SAMPLES):
        path = f"{directory}/{tag}-{index % 50}" if index % 2 else f"{directory}/no-{tag}-{index}"
        begin = time.perf_counter()
        try:
            os.stat(path)
        except FileNotFoundError:
            pass
        taken.append(time.perf_counter() - begin)
    return taken


def p99(taken):
    return statistics.quantiles(taken, n=100)[98]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [pytest.param(100, marks=[pytest.mark.short, pytest.mark.promise(2, 8)]), MANY])
def test_waiters_do_not_slow_others(mounts, transport, kind, count):
    mount = mounts(transport=transport)
    os.chmod(mount.mnt, 0o755)
    with Waiters(f"{mount.mnt}/w", kind, count), \
            Waiters(f"{mount.control}/w", kind, count):
        ours = p99(latencies(mount.mnt, "s"))
        ext4 = p99(latencies(mount.control, "s"))
        print(f"{kind} x {count}, {transport}: p99 {ours * 1e3:.3f} ms, ext4 {ext4 * 1e3:.3f} ms")
        kvmount.check_time(ours, 0.010, "p99 of stats", ext4)
        os.mkdir(f"{mount.mnt}/others-work-too")
        with open(f"{mount.mnt}/others-work-too/f", "wb") as file:
            file.write(b"x" * 100_000)
        with open(f"{mount.mnt}/others-work-too/f", "rb") as file:
            assert len(file.read()) == 100_000
    if not kvmount.PLAIN:
        mode = mount.status()["transport"]["mode"]
        assert mode == {"uring": "io_uring", "dev": "dev_fuse"}[transport]


@pytest.mark.gate
@pytest.mark.short
def test_a_killed_waiter_goes_at_once(mounts, transport):
    """A waiter is killable: nothing of it is parked in the daemon."""
    mount = mounts(transport=transport)
    os.chmod(mount.mnt, 0o755)
    for kind in KINDS:
        with Waiters(f"{mount.mnt}/{kind}", kind, 10) as waiters:
            begin = time.monotonic()
            signal.pidfd_send_signal(waiters.child.pidfd, signal.SIGKILL)
            assert kvmount.wait_pidfd(waiters.child.pidfd, 5)
            print(f"{kind}: gone after {time.monotonic() - begin:.3f} s")


@pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no daemon")
def test_an_idle_daemon_uses_no_cpu(mounts, transport):
    mount = mounts(transport=transport)
    for index in range(20):
        with open(f"{mount.mnt}/{index}", "wb") as file:
            file.write(b"x" * 100_000)
    pid = mount.pid()

    def used_in(seconds):
        before = kvmount.cpu_seconds(pid)
        time.sleep(seconds)  # A measurement window.
        return kvmount.cpu_seconds(pid) - before

    # It looks at its disks once a second: .2 ms. Seals and the database's own start-up work are over first.
    kvmount.wait_until(lambda: used_in(1) < .002 * kvmount.SLOWNESS, 20, "an idle daemon")
    used = used_in(5)
    print(f"{used * 1e3:.2f} ms in 5 s")
    assert used < .010 * kvmount.SLOWNESS
