"""Random operation sequences on the mount and on ext4, as root and as nobody, with remounts."""

import os

import pytest

import kvmount
from random_ops import DIRECTORIES, Twin

CALLS = 20_000 if kvmount.FULL else 600
SEEDS = 10 if kvmount.FULL else 3


def play(target, control, seed, count):
    """For a child process: one stretch. Returns how many (operation, succeeded) pairs it met."""
    twin = Twin(target, control, seed)
    try:
        twin.run(count)
    finally:
        twin.close_all()
    return len(twin.done)


def numbers(root):
    """path -> inode number."""
    return {os.path.join(base, name): os.lstat(os.path.join(base, name)).st_ino
            for base, directories, files in os.walk(root) for name in directories + files}


def sequence(mount, seed, user, count, stretches=3):
    uid = kvmount.NOBODY if user == "nobody" else 0
    roots = []
    for root in (mount.mnt, mount.control):
        home = f"{root}/random-{user}-{seed}"
        for directory in DIRECTORIES:
            os.makedirs(os.path.join(home, directory), exist_ok=True)
            os.chown(os.path.join(home, directory), uid, uid)
        roots.append(home)
    met = 0
    for stretch in range(stretches):
        met = max(met, kvmount.run_as(play, *roots, seed + stretch, count // stretches, uid=uid,
                                      seconds=3000 if kvmount.FULL else 60))
        before = numbers(roots[0])
        mount.remount()
        assert numbers(roots[0]) == before, "inode numbers changed in a remount"
    assert met > 25, f"only {met} kinds of results: the sequence proved little"


@pytest.mark.gate
@pytest.mark.short
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_one_sequence(shared_mount, seed, user):
    sequence(shared_mount, seed, user, 240, stretches=2)


@pytest.mark.limit(3600 if kvmount.FULL else 90)
@pytest.mark.parametrize("user", ["root", "nobody"])
@pytest.mark.parametrize("number", range(SEEDS))
def test_sequences(shared_mount, seed, user, number):
    sequence(shared_mount, seed + 1000 * (number + 1), user, CALLS)
