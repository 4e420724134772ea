"""More calls on a disk that does not answer than the kernel has on their way for a mount at a time (max_background, 64 at most), and
than a ring has entries: of what the daemon serves, all from one CPU, on which somebody else uses the other disk.
"""

import collections
import contextlib
import ctypes
import errno
import mmap
import os
import socket
import threading

import pytest

import kvmount
from sick_disk import Disks, bytes_of, frozen, judge, line_of, size_of, use_the_healthy_one

pytestmark = [pytest.mark.skipif(kvmount.PLAIN, reason="who waits for whom in the daemon"), pytest.mark.alone]

PARTS = 4
PART = 16 << 10
NEW = b"\xff" * PART
WAITING = 150
LIBC = ctypes.CDLL(None, use_errno=True)
MS_SYNC = 4  # asm-generic/mman-common.h


@contextlib.contextmanager
def one_cpu():
    """Threads and processes that begin meanwhile run on the first CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Callers:
    """A process of another user with threads that each make one call; `told` of each is what the call gave, or its errno."""

    def __init__(self, prepare, *arguments):
        """`prepare(*arguments)`, in that process, gives the calls: a function and its arguments each."""
        self.begun = mmap.mmap(-1, 4)
        self.gates = [os.pipe(), os.pipe()]
        self.child = kvmount.Child(self.run, prepare, arguments, uid=kvmount.NOBODY)
        self.told = None

    def run(self, prepare, arguments):
        calls, told, lock = prepare(*arguments), [], threading.Lock()

        def make(function, *rest):
            with lock:
                self.begun[:] = (self.count() + 1).to_bytes(4, "little")
            try:
                told.append(function(*rest))
            except OSError as error:
                told.append(error.errno)

        threads = [threading.Thread(target=make, args=call) for call in calls]
        os.write(self.gates[0][1], b".")
        os.read(self.gates[1][0], 1)
        with one_cpu():
            for thread in threads:
                thread.start()
        for thread in threads:
            thread.join()
        return told

    def count(self):
        return int.from_bytes(self.begun[:], "little")

    @contextlib.contextmanager
    def waiting(self, silent, calls):
        """They call when the disk has fallen silent, so many, and have ended after it."""
        os.read(self.gates[0][0], 1)
        with silent:
            os.write(self.gates[1][1], b".")
            kvmount.wait_until(lambda: self.count() == calls, 20, "all calls")
            yield
        self.told = self.child.result()
        print(collections.Counter(self.told))
        assert len(self.told) == calls


def use(disks, healthy, stores=20):
    with one_cpu():
        return kvmount.run_as(use_the_healthy_one, disks.directory, disks.control, healthy, stores, seconds=60)


def use_while_frozen(disks, healthy, callers, calls, stores=20):
    with callers.waiting(frozen(disks.paths[1]), calls):
        longest = use(disks, healthy, stores)
    judge(longest, is_known=False)


def close(descriptor):
    # It tells what became of stores through a mapping.
    with contextlib.suppress(OSError):
        os.close(descriptor)


def opened(stack, disks, numbers, flags):
    descriptors = []
    for number in numbers:
        descriptors.append(os.open(f"{disks.directory}/f{number}", flags))
        stack.callback(close, descriptors[-1])
    return descriptors


def read_part(descriptor, number, part):
    size = size_of(number) // PARTS
    return os.pread(descriptor, size, part * size) == bytes_of(number)[:size]


@pytest.mark.gate
@pytest.mark.by_seed
def test_reads_of_a_silent_disk(transport):
    with contextlib.ExitStack() as stack:
        disks = Disks(stack, transport, "daemon")
        healthy, sick = disks.fill()
        descriptors = opened(stack, disks, sick, os.O_RDONLY)
        kvmount.drop_caches(1)
        readers = Callers(lambda: [(read_part, fd, number, part) for fd, number in zip(descriptors, sick) for part in range(PARTS)])
        with readers.waiting(disks.silence(), PARTS * len(sick)):
            print(kvmount.wait_until(lambda: line_of(disks.mount, "has given nothing for"), 20, "a complaint"))
            longest = use(disks, healthy)
        judge(longest)
        # What is beyond the bound is refused as long as the disk is silent.
        assert set(readers.told) <= {True, errno.EIO}
        assert readers.told.count(True) >= 8
        # Nothing was lost by it.
        for descriptor, number in zip(descriptors, sick):
            assert os.pread(descriptor, size_of(number), 0) == bytes_of(number)


def write(descriptor, data):
    return os.pwrite(descriptor, data, 0) == PART


def written_directly(descriptors):
    data = mmap.mmap(-1, PART)
    data[:] = NEW
    return [(write, descriptor, data) for descriptor in descriptors]


def flush(mapping):
    # mmap.flush() keeps Python's other threads from running.
    if LIBC.msync(ctypes.byref(ctypes.c_char.from_buffer(mapping)), PART, MS_SYNC) != 0:
        return ctypes.get_errno()
    return True


def written_by_mapping(descriptors):
    calls = []
    for descriptor in descriptors:
        mapping = mmap.mmap(descriptor, PART)
        mapping[:] = NEW
        calls.append((flush, mapping))
    return calls


@pytest.mark.by_seed
@pytest.mark.parametrize("how", [written_directly, written_by_mapping])
def test_writes_to_a_frozen_disk(transport, how):
    """O_DIRECT and what was stored through a mapping, which the kernel has in the background as it has reads ahead."""
    with contextlib.ExitStack() as stack:
        disks = Disks(stack, transport, "daemon")
        healthy, sick = disks.fill(files=200)
        flags = os.O_DIRECT if how == written_directly else 0
        descriptors = opened(stack, disks, sick, os.O_RDWR | flags)
        writers = Callers(how, descriptors)
        use_while_frozen(disks, healthy, writers, len(sick))
        assert set(writers.told) <= {True, errno.EIO}
        assert writers.told.count(True) >= 8
        # Of what was refused the old bytes are there.
        new = 0
        for number in sick:
            found = read_bytes(f"{disks.directory}/f{number}")
            new += found[:PART] == NEW
            assert found[:PART] in (NEW, bytes_of(number)[:PART])
            assert found[PART:] == bytes_of(number)[PART:]
        assert new >= writers.told.count(True)


def read_bytes(path):
    with open(path, "rb", buffering=0) as file:
        return file.read()


def sent_away(directory):
    """Files that are open by messages alone that nobody has received: their end is no close(2) of theirs."""
    calls = []
    for number in range(WAITING):
        ours, theirs = socket.socketpair()
        with open(f"{directory}/m{number}", "wb") as file:
            file.write(b"m" * PART)
            file.flush()
            socket.send_fds(ours, [b"."], [file.fileno()])
        calls.append((close_both, ours, theirs))
    return calls


def close_both(ours, theirs):
    ours.close()
    theirs.close()
    return True


def for_others(disks, names):
    paths = [f"{disks.mount.mnt}/{name}" for name in names]
    for path in paths:
        os.mkdir(path)
        os.chmod(path, 0o777)
    return paths


@pytest.mark.by_seed
def test_last_closes_with_the_state_on_a_frozen_disk(transport, data_path):
    """What is written at a file's last close is waited for by nobody."""
    with contextlib.ExitStack() as stack:
        disks = Disks(stack, transport, data_path, state_on=1)
        healthy, _ = disks.fill()
        (directory,) = for_others(disks, ["m"])
        closers = Callers(sent_away, directory)
        use_while_frozen(disks, healthy, closers, WAITING, stores=0)
        assert closers.told == [True] * WAITING
        kvmount.wait_until(lambda: disks.mount.status()["counts"]["open_files"] == 0, 20, "all to be closed")
        for number in range(WAITING):
            with open(f"{directory}/m{number}", "rb") as file:
                assert file.read() == b"m" * PART


def make(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    return True


@pytest.mark.by_seed
def test_creates_with_the_state_on_a_frozen_disk(transport, data_path):
    """Each in a directory of its own: the kernel makes one name at a time in each."""
    with contextlib.ExitStack() as stack:
        disks = Disks(stack, transport, data_path, state_on=1)
        healthy, _ = disks.fill()
        directories = for_others(disks, [f"c{number}" for number in range(2 * WAITING)])
        makers = Callers(lambda: [(make, f"{directory}/new") for directory in directories])
        use_while_frozen(disks, healthy, makers, 2 * WAITING, stores=0)
        assert set(makers.told) <= {True, errno.EIO}
        assert makers.told.count(True) >= 8
