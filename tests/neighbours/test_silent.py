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
from sick_disk import FILES, Disks, judge, line_of, look, read, size_of, timed, use_the_healthy_one

pytestmark = [pytest.mark.skipif(kvmount.PLAIN, reason="who waits for whom in the daemon"), pytest.mark.alone]

# The number of the call, as /proc/PID/syscall has it.
FSYNC = {"x86_64": "74", "aarch64": "82"}[platform.machine()]


def read_them(_, which, directory, numbers):
    """Of a process that holds its own end up: it reads what it finds."""
    told = collections.Counter()
    for number in numbers[which % len(numbers):]:
        try:
            told[read(directory, number)] += 1
        except FileNotFoundError:
            told["miss"] += 1
    return told


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
        # It may have made its file there, which it gives up after a second, and have needed room, for which a victim of the silent
        # disk is looked at for two.
        kvmount.check_time(max(taken), 3 + 1, "the longest store", max(control), times=5)


def look_at_all(directory, numbers):
    return [timed(look, directory, number) for number in numbers]
