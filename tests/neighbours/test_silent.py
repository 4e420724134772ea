"""A disk that gives nothing, takes nothing, and gives no error, as one does whose controller is being reset: it holds up who reads
its own files, and nobody else.

The disk is a loop device on a file of another mount, whose daemon is stopped: every request to it waits until the daemon goes on.
"""

import collections
import contextlib
import os
import platform
import signal
import threading
import time

import pytest

import kvmount
import onlooker
import pools

pytestmark = [pytest.mark.skipif(kvmount.PLAIN, reason="who waits for whom in the daemon"), pytest.mark.alone]

KIB = 1 << 10
FILES = 96
# The number of the call, as /proc/PID/syscall has it.
FSYNC = {"x86_64": "74", "aarch64": "82"}[platform.machine()]


def size_of(number):
    """Each its own, so that a backing file tells whose it is."""
    return 64 * KIB + 4 * KIB * number


def bytes_of(number):
    return bytes([number]) * size_of(number)


class Disks:
    """A mount with two disks, of which one falls silent while a `with silence()` lasts."""

    def __init__(self, stack, transport, data_path, size="", options=()):
        """`size`: of each disk's budget; `options`: of the mount."""
        self.below = stack.enter_context(kvmount.Mount("below", data_path="daemon", transport="dev"))
        healthy = stack.enter_context(kvmount.LoopFs("ext4", size=512 << 20))
        sick = stack.enter_context(
            kvmount.LoopFs("ext4", size=512 << 20, direct=True, image=f"{self.below.mnt}/image"))
        self.nvme = [f"{disk.path}/nvme" for disk in (healthy, sick)]
        for path in self.nvme:
            os.mkdir(path, 0o700)
        self.control = f"{healthy.path}/control"
        os.mkdir(self.control)
        self.mount = stack.enter_context(
            kvmount.Mount("above", nvme=self.nvme[0], size=size[1:] or None, state=f"{healthy.path}/state",
                          options=["--nvme", self.nvme[1] + size, *options], transport=transport, data_path=data_path))
        self.directory = f"{self.mount.mnt}/d"

    def fill(self):
        """The numbers of the files on the healthy disk, and of those on the other; nothing of them is in memory."""
        os.mkdir(self.directory)
        for number in range(FILES):
            for directory in (self.directory, self.control):
                with open(f"{directory}/f{number}", "wb") as file:
                    file.write(bytes_of(number))
        self.mount.flush()
        at = {}
        for which, nvme in enumerate(self.nvme):
            for folder, _, names in os.walk(f"{nvme}/objects"):
                at.update({os.stat(f"{folder}/{name}").st_size: which for name in names})
        numbers = [[n for n in range(FILES) if at[size_of(n)] == which] for which in (0, 1)]
        assert min(map(len, numbers)) >= FILES // 4, numbers
        self.mount.stop()
        self.mount.start()
        # The walk over all files at the start looks at each.
        kvmount.wait_until(lambda: all(tier["objects"] is not None for tier in self.mount.status()["tiers"]), 60, "the walk")
        kvmount.drop_caches()
        return numbers

    @contextlib.contextmanager
    def silence(self):
        pid = self.below.pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            kvmount.wait_until(lambda: kvmount.is_stopped(pid), 20, "the end of answers")
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def read(directory, number):
    with open(f"{directory}/f{number}", "rb", buffering=0) as file:
        return file.read(size_of(number)) == bytes_of(number)


def read_them(_, which, directory, numbers):
    """Of a process that holds its own end up: it reads what it finds."""
    told = collections.Counter()
    for number in numbers[which % len(numbers):]:
        try:
            told[read(directory, number)] += 1
        except FileNotFoundError:
            told["miss"] += 1
    return told


def timed(function, *arguments):
    began = time.monotonic()
    result = function(*arguments)
    return time.monotonic() - began, result


def store(directory, number):
    with open(f"{directory}/new", "wb", buffering=0) as file:
        file.write(bytes_of(number))
    os.rename(f"{directory}/new", f"{directory}/s{number}")


def look(directory, number):
    try:
        return os.stat(f"{directory}/f{number}").st_size == size_of(number)
    except FileNotFoundError:
        return "miss"


def use_the_healthy_one(directory, control, numbers):
    """By turns with the plain directory: the longest time of each call, ours and the control's."""
    longest = collections.defaultdict(lambda: [0.0, 0.0])
    for number in numbers:
        for call in (look, read):
            for which, place in enumerate((directory, control)):
                taken, is_right = timed(call, place, number)
                assert is_right is True, f"{call.__name__} of {place}/f{number}: {is_right}"
                longest[call.__name__][which] = max(longest[call.__name__][which], taken)
    for number in range(20):
        for which, place in enumerate((directory, control)):
            longest["store"][which] = max(longest["store"][which], timed(store, place, number)[0])
    return dict(longest)


def judge(longest):
    for call, (ours, control) in longest.items():
        print(f"{call}: the longest {ours * 1e3:.1f} ms; ext4 {control * 1e3:.1f} ms")
        # A store may have come to the disk before its silence was known.
        kvmount.check_time(ours, 2 if call == "store" else 1, f"the longest {call}", control, times=5)


@pytest.mark.gate
@pytest.mark.by_seed
def test_a_silent_disk_holds_up_its_own_files_alone(transport, data_path):
    with contextlib.ExitStack() as stack:
        disks = Disks(stack, transport, data_path)
        healthy, sick = disks.fill()
        mount = disks.mount
        with contextlib.ExitStack() as waiting:
            with disks.silence():
                # More than there are threads for one user, and than for two.
                readers = [waiting.enter_context(onlooker.hogs(read_them, disks.directory, sick, count=12, uid=uid))
                           for uid in (0, kvmount.NOBODY, kvmount.NOBODY - 1)]
                said = kvmount.wait_until(lambda: line_of(mount, "has given nothing for"), 20, "a complaint")
                print(said)
                longest = kvmount.run_as(use_the_healthy_one, disks.directory, disks.control, healthy, seconds=60)
                looks = kvmount.run_as(look_at_all, disks.directory, sick, seconds=60)
            kvmount.wait_until(lambda: not line_of(mount, "has given nothing for"), 20, "the end of the complaint")
        judge(longest)
        print(f"looks at the silent disk's: the longest {max(t for t, _ in looks) * 1e3:.1f} ms, "
              f"{collections.Counter(str(found) for _, found in looks)}")
        kvmount.check_time(max(t for t, _ in looks), 3, "the longest look at a file of the silent disk")
        told = sum((child.returned for group in readers for child in group), collections.Counter())
        print(f"readers of the silent disk: {told}")
        assert False not in told, "a reader got other bytes"
        # Nothing was lost by it.
        for number in range(FILES):
            assert read(disks.directory, number), number
        assert not any(dropped["files"] for dropped in mount.status()["dropped"].values())


def read_open(fd, number, told):
    told.append(os.pread(fd, size_of(number), 0) == bytes_of(number))


@pytest.mark.gate
def test_reads_of_what_is_open_on_a_silent_disk_hold_nobody_up(transport):
    """Of files that the daemon serves: each read is a request of its own."""
    with contextlib.ExitStack() as stack:
        disks = Disks(stack, transport, "daemon")
        healthy, sick = disks.fill()
        files = [(stack.enter_context(open(f"{disks.directory}/f{number}", "rb", buffering=0)), number) for number in sick]
        kvmount.drop_caches(1)
        told = []
        readers = [threading.Thread(target=read_open, args=(file.fileno(), number, told)) for file, number in files]
        try:
            with disks.silence():
                for reader in readers:
                    reader.start()
                print(kvmount.wait_until(lambda: line_of(disks.mount, "has given nothing for"), 20, "a complaint"))
                longest = kvmount.run_as(use_the_healthy_one, disks.directory, disks.control, healthy, seconds=60)
        finally:
            for reader in readers:
                reader.join(60)
        judge(longest)
        assert told == [True] * len(sick)


def sync_one(_, which, descriptors):
    os.fsync(descriptors[which])
    return True


def in_fsync(groups):
    """How many of the processes are in that call."""
    count = 0
    for child in (child for group in groups for child in group):
        with open(f"/proc/{child.pid}/syscall") as file:
            count += file.read().split()[0] == FSYNC
    return count


def change_and_sync(descriptor):
    os.pwrite(descriptor, b"changed", 0)
    os.fsync(descriptor)


@pytest.mark.by_seed
def test_fsyncs_that_mean_the_pool_wait_for_no_other_disk(transport, data_path):
    """An fsync waits for its disk first, and for the pool then."""
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(pools.Pool("dir"))
        disks = Disks(stack, transport, data_path, options=["--pool", pool.uri, "--pool-sync", "pool"])
        healthy, sick = disks.fill()

        def opened(directory, numbers):
            return [stack.enter_context(open(f"{directory}/f{number}", "r+b", buffering=0)).fileno() for number in numbers]

        descriptors, ours, control = opened(disks.directory, sick), opened(disks.directory, healthy), opened(disks.control, healthy)
        for descriptor in descriptors:
            os.pwrite(descriptor, b"changed", 0)
        longest = [0.0, 0.0]
        with contextlib.ExitStack() as waiting:
            with disks.silence():
                # More of each of two users than one may have threads. The kernel lets one fsync
                # of a file through at a time.
                syncs = [waiting.enter_context(onlooker.hogs(sync_one, descriptors[at:at + 12], count=12, uid=kvmount.NOBODY - at))
                         for at in (0, 12)]
                kvmount.wait_until(lambda: in_fsync(syncs) == 24, 20, "all of them to have called it")
                for pair in zip(ours[:20], control):
                    for which, descriptor in enumerate(pair):
                        taken, _ = timed(kvmount.run_as, change_and_sync, descriptor)
                        longest[which] = max(longest[which], taken)
                waiting_still = in_fsync(syncs)
        print(f"fsync: the longest {longest[0] * 1e3:.1f} ms; ext4 {longest[1] * 1e3:.1f} ms; {waiting_still} wait")
        assert waiting_still >= 16, "the silent disk's were to fill the threads of two users"
        kvmount.check_time(longest[0], 2, "the longest fsync", longest[1], times=5)
        assert all(child.returned for group in syncs for child in group)


def store_more(directory, count):
    """The seconds that each store of 1 MiB took."""
    data = os.urandom(1 << 20)

    def store_one(number):
        with open(f"{directory}/m{number}.new", "wb", buffering=0) as file:
            file.write(data)
        os.rename(f"{directory}/m{number}.new", f"{directory}/m{number}")

    return [timed(store_one, number)[0] for number in range(count)]


@pytest.mark.by_seed
def test_room_is_made_on_the_other_disk(transport, data_path):
    """Both disks are full of what may go; one falls silent, with nothing of it in memory."""
    with contextlib.ExitStack() as stack:
        disks = Disks(stack, transport, data_path, size=":128MiB")
        os.mkdir(disks.directory)
        mount = disks.mount
        kvmount.run_as(store_more, disks.directory, 320, seconds=120)
        mount.flush()
        assert mount.status()["dropped"]["room"]["files"] > 0
        kvmount.drop_caches()
        with disks.silence():
            taken = kvmount.run_as(store_more, disks.directory, 320, seconds=120)
        control = kvmount.run_as(store_more, disks.control, 320, seconds=120)
        print(f"320 stores: {sum(taken):.2f} s, the longest {max(taken):.2f} s; ext4 {sum(control):.2f} s, the longest "
              f"{max(control):.2f} s")
        kvmount.check_time(max(taken), 3, "the longest store", max(control), times=5)


def look_at_all(directory, numbers):
    return [timed(look, directory, number) for number in numbers]


def line_of(mount, text):
    """The first line of `kvcachefs status`, where it has that text; else None."""
    first = mount.cli("status", mount.mnt).stdout.partition("\n")[0]
    return first if text in first else None
