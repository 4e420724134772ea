"""One user's calls do not stop everybody's."""

import errno
import os
import threading

import pytest

import kvmount
import onlooker

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="who waits for whom in the daemon")

SECONDS = 8 if kvmount.FULL else 3


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
