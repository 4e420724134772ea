"""Data checks: nothing that any way of writing left may be read back differently."""

import os
import threading

import pytest

import kvmount
from fsx import Exerciser, Wrong

OPERATIONS = 100_000 if kvmount.FULL else 3000
ROUNDS = 8 if kvmount.FULL else 3


@pytest.mark.promise(1)
@pytest.mark.short
def test_short(shared_mount, seed):
    exerciser = Exerciser(f"{shared_mount.mnt}/short-{seed}", seed)
    exerciser.run(1500)
    exerciser.close()


@pytest.mark.limit(600 if kvmount.FULL else 90)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_random_data(shared_mount, seed, number):
    exerciser = Exerciser(f"{shared_mount.mnt}/long-{seed}-{number}", seed + number)
    exerciser.run(OPERATIONS)
    exerciser.close()


def test_four_files_at_once(shared_mount, seed):
    """Threads on different files do not disturb each other."""
    errors = []

    def worker(number):
        try:
            exerciser = Exerciser(f"{shared_mount.mnt}/par-{seed}-{number}", seed + number)
            exerciser.run(OPERATIONS // 4)
            exerciser.close()
        except (Wrong, OSError) as error:
            errors.append(error)

    threads = [threading.Thread(target=worker, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_remounts_between(shared_mount, data_path, seed):
    """The file goes on after clean remounts, each in the other data path."""
    remounts = []

    def remount():
        if len(remounts) < 4:
            other = {"passthrough": "daemon", "daemon": "passthrough"}[shared_mount.data_path]
            allowed = os.environ.get("KVCACHEFS_DATA_PATHS", "passthrough,daemon").split(",")
            shared_mount.remount(data_path=other if other in allowed else data_path)
            remounts.append(other)

    path = f"{shared_mount.mnt}/remounted-{seed}"
    exerciser = Exerciser(path, seed, reopen=remount)
    while len(remounts) < 4:
        exerciser.run(50)
    exerciser.run(500)
    exerciser.close()
    shared_mount.remount(data_path=data_path)
    with open(path, "rb") as file:
        assert file.read() == bytes(exerciser.model)
