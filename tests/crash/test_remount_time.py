"""A mount with many names is back soon after kill -9: nothing is scanned before it answers."""

import os
import random
import time

import pytest

import crashes
import kvmount

NAMES = crashes.count(full=1_000_000, normal=60_000, short=10_000)
PER_DIRECTORY = 5_000
UNSEALED = PER_DIRECTORY
SAMPLE = 200


def create(root, first, last):
    for number in range(first, last):
        directory = os.path.join(root, f"d{number // PER_DIRECTORY:04d}")
        if number % PER_DIRECTORY == 0:
            os.mkdir(directory)
        fd = os.open(os.path.join(directory, f"{number:07d}"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(fd, b"%d" % number)
        os.close(fd)


def check(root, seed):
    directories = sorted(os.listdir(root))
    assert len(directories) == -(-NAMES // PER_DIRECTORY)
    found = sum(sum(1 for _ in os.scandir(os.path.join(root, d))) for d in directories)
    assert found == NAMES, f"{found} of {NAMES} names are left"
    for number in random.Random(seed).sample(range(NAMES), SAMPLE):
        path = os.path.join(root, f"d{number // PER_DIRECTORY:04d}", f"{number:07d}")
        with open(path, "rb") as f:
            assert f.read() == b"%d" % number, path


def remove(root, first):
    for number in range(first, NAMES):
        os.unlink(os.path.join(root, f"d{number // PER_DIRECTORY:04d}", f"{number:07d}"))


def kill_and_start(mount):
    mount.kill(unmount=False)
    begin = time.monotonic()
    mount.start()
    return time.monotonic() - begin


@pytest.mark.promise(7)
@pytest.mark.limit(600 if not kvmount.FULL else 2400)
def test_remount_with_many_names(seed):
    with kvmount.Mount("many-names", foreground=False) as mount:
        sealed = NAMES - UNSEALED
        kvmount.run_as(create, mount.mnt, 0, sealed, seconds=1200)
        mount.wait_sealed(600)
        # And some in flight: what a recovery has to look at.
        kvmount.run_as(create, mount.mnt, sealed, NAMES, seconds=60)
        # Best of three: what counts is the work of a start, not what else the machine does.
        seconds = min(kill_and_start(mount) for _ in range(3))
        resident = kvmount.rss_bytes(mount.pid())
        print(f"{NAMES} names: back after {seconds:.3f} s, {resident >> 20} MiB resident, "
              f"{mount.status()['recovery']}")
        crashes.check_remount_time(seconds)
        kvmount.run_as(check, mount.mnt, seed, seconds=300)
        # Killed in the middle of a large removal: what the last run had not reaped goes beside the first
        # requests of the next one.
        kvmount.run_as(remove, mount.mnt, NAMES // 2, seconds=600)
        seconds = kill_and_start(mount)
        left = len(mount.backing_files()) - NAMES // 2
        print(f"{left} files still to be removed: back after {seconds:.3f} s")
        crashes.check_remount_time(seconds)
        kvmount.wait_until(lambda: len(mount.backing_files()) == NAMES // 2, 300, "the removal")
        assert mount.status()["counts"]["unsealed"] == 0
