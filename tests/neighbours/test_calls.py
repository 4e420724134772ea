"""One user's calls do not stop everybody's."""

import errno
import os
import threading
import time

import pytest

import kvmount
import onlooker
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="who waits for whom in the daemon")

SECONDS = 8 if kvmount.FULL else 3
MIB = 1 << 20


@pytest.fixture(name="shared")
def made_shared():
    """A mount with a directory of somebody else's."""
    with kvmount.Mount("calls") as mount:
        theirs = os.path.join(mount.mnt, "theirs")
        os.mkdir(theirs)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        yield mount, theirs


def copy_sparse(goes_on, number, directory):
    size = 1 << 30
    source = os.open(f"{directory}/source-{number}", os.O_RDWR | os.O_CREAT)
    target = os.open(f"{directory}/target-{number}", os.O_RDWR | os.O_CREAT)
    os.ftruncate(source, size)
    os.pwrite(source, b"end", size - 3)
    while goes_on():
        at = 0
        while at < size and goes_on():
            at += os.copy_file_range(source, target, size - at, at, at) or size


@pytest.mark.gate
def test_sparse_copies_hold_nobody_up(shared):
    mount, theirs = shared
    looker = onlooker.Onlooker(mount)
    with kvmount.Beside() as beside:
        with onlooker.hogs(copy_sparse, theirs, count=16):
            looker.during(SECONDS, ("stat", "open", "create", "fsync"))
        # Sixteen that compute take the CPUs from whoever answers a stat; what a copy held was the threads that wait.
        looker.judge(beside, "16 copies of sparse files", calls=("fsync",))


def sync_without_end(goes_on, number, directory, threads):
    """So many threads of one process that each write a little and sync it; counts those that were told to ask again."""
    again = [0]

    def work(which):
        fd = os.open(f"{directory}/f-{number}-{which}", os.O_WRONLY | os.O_CREAT)
        while goes_on():
            os.pwrite(fd, os.urandom(4096), 0)
            try:
                os.fsync(fd)
            except OSError as error:
                assert error.errno == errno.EINTR, error
                again[0] += 1
        os.close(fd)

    workers = [threading.Thread(target=work, args=(which,)) for which in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return again[0]


@pytest.mark.gate
def test_hundreds_of_syncs_hold_nobody_up(shared):
    """More of them than may be parked: their user waits, and nobody else does."""
    mount, theirs = shared
    looker = onlooker.Onlooker(mount)
    with kvmount.Beside() as beside:
        with onlooker.hogs(sync_without_end, theirs, 100, count=4, seconds=120):
            looker.during(SECONDS)
        looker.judge(beside, "400 threads that sync")


def rename_without_end(goes_on, number, directory, names):
    """A directory with so many names, to and fro."""
    tree, other = f"{directory}/tree-{number}", f"{directory}/other-{number}"
    os.mkdir(tree)
    for name in range(names):
        os.close(os.open(f"{tree}/{name}", os.O_WRONLY | os.O_CREAT))
    renames = 0
    while goes_on():
        os.rename(tree, other)
        os.rename(other, tree)
        renames += 2
    return renames


def cpu_of_threads(pid):
    """name -> seconds of CPU, of the daemon's threads of that name together."""
    took = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii") as stat:
            name, rest = stat.read().split("(", 1)[1].rsplit(")", 1)
        fields = rest.split()
        took[name] = took.get(name, 0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return took


@pytest.mark.gate
def test_who_renames_without_end_keeps_nobody_from_being_read(shared):
    """The names below a directory that was renamed are read anew; somebody else's renames do not put that off for ever, and
    cost no more than a part of one CPU."""
    mount, theirs = shared
    blocks, hashes = 300, []
    mine = f"{mount.mnt}/mine"
    os.mkdir(mine)
    for number in range(blocks):
        hashes.append(f"{number + 0xabc:064x}")
        pools.store(mine, f"{hashes[-1]}_p.bin", b"bytes")
    moved = f"{mount.mnt}/moved"
    with onlooker.hogs(rename_without_end, theirs, 3000, count=2, seconds=120) as hogs:
        kvmount.wait_until(lambda: len(os.listdir(theirs)) == len(hogs), 60, "the hogs' begin")
        os.rename(mine, moved)

        def is_read():
            links = [os.path.join(mount.mnt, ".kvcachefs", "by-prefix", text) for text in hashes]
            return all(os.path.islink(link) and os.readlink(link).startswith("../../moved/") for link in links)

        kvmount.wait_until(is_read, 60, "the end of the reading of what was renamed")
        before, begin = cpu_of_threads(mount.pid()), time.monotonic()
        time.sleep(SECONDS)  # What is measured takes that long.
        after, took = cpu_of_threads(mount.pid()), time.monotonic() - begin
        keeper = sum(after.get(name, 0) - before.get(name, 0) for name in ("kv-blocks", "kv-count"))
        print(f"read anew: {keeper:.2f} s of CPU in {took:.1f} s")
        assert keeper < 0.6 * took


def flip_without_end(goes_on, number, directory, files):
    """A directory with so many files, whose policy is told anew each time."""
    own = f"{directory}/own-{number}"
    os.mkdir(own)
    for name in range(files):
        with open(f"{own}/{name}", "wb") as file:
            file.write(b"kept")
    told = 0
    while goes_on():
        os.setxattr(own, "user.kvcachefs.policy", (b"keep", b"cache")[told % 2])
        told += 1
    return told


@pytest.mark.gate
def test_who_tells_policies_without_end_keeps_nobody_from_being_served():
    """Each word has the files below counted anew, and what the evictor passed over looked at again: a part of one CPU at most,
    and room for others is made all the while."""
    with kvmount.Mount("told", size=64 * MIB, options=["--lease", "1s"]) as mount:
        theirs = os.path.join(mount.mnt, "theirs")
        os.mkdir(theirs)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        looker = onlooker.Onlooker(mount)
        os.setxattr(f"{mount.mnt}/of-root", "user.kvcachefs.policy", b"pin")
        with kvmount.Beside() as beside:
            with onlooker.hogs(flip_without_end, theirs, 3000, count=2, seconds=120) as hogs:
                kvmount.wait_until(lambda: len(os.listdir(theirs)) == len(hogs), 60, "the hogs' begin")
                before, begin = cpu_of_threads(mount.pid()), time.monotonic()
                for number in range(100):  # More than there is room for.
                    with open(f"{mount.mnt}/{number}", "wb", buffering=0) as file:
                        file.write(os.urandom(MIB))
                    looker.during(SECONDS / 100)
                after, took = cpu_of_threads(mount.pid()), time.monotonic() - begin
            looker.judge(beside, "two who tell policies", calls=("stat", "open"))
        walks = sum(after.get(name, 0) - before.get(name, 0) for name in ("kv-blocks", "kv-count", "kv-evict"))
        print(f"told {[hog.returned for hog in hogs]} times; walks {walks:.2f} s of CPU in {took:.1f} s")
        assert walks < 0.6 * took
        assert os.path.exists(f"{mount.mnt}/99") and mount.status()["dropped"]["room"]["files"] > 0
