"""readdir: every name that stays is listed exactly once while others come and go."""

import os
import threading

import pytest

import kvmount

STAYING = 20_000 if kvmount.FULL else 1000
ROUNDS = 40 if kvmount.FULL else 8


def fill(directory, count):
    for index in range(count):
        os.mknod(f"{directory}/stays-{index:06}")


class Churn:
    """Creates, renames and unlinks names beside the ones that stay, until stopped."""

    def __init__(self, directory):
        self.directory, self.halt, self.cycles = directory, threading.Event(), 0
        self.error = None
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(2)]

    def run(self, number):
        cycle = 0
        try:
            while not self.halt.is_set():
                cycle += 1
                name = f"{self.directory}/goes-{number}-{cycle}"
                os.mknod(name)
                os.rename(name, name + "-" + "x" * (cycle % 100))
                if cycle > 50:
                    gone = cycle - 50
                    os.unlink(f"{self.directory}/goes-{number}-{gone}-" + "x" * (gone % 100))
                self.cycles += 1
        except OSError as error:
            self.error = error

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        kvmount.wait_until(lambda: self.cycles > 100 or self.error, 30, "churn")
        return self

    def __exit__(self, *_):
        self.halt.set()
        for thread in self.threads:
            thread.join()
        if self.error:
            raise self.error


@pytest.mark.gate
@pytest.mark.short
def test_listing_during_churn(shared_mount, seed):
    directory = f"{shared_mount.mnt}/churn-{seed}"
    os.mkdir(directory)
    fill(directory, STAYING)
    with Churn(directory) as churn:
        for _ in range(ROUNDS):
            before = churn.cycles
            names = os.listdir(directory)
            staying = [n for n in names if n.startswith("stays-")]
            assert len(staying) == len(set(staying)) == STAYING, "names doubled or missed"
            assert len(names) == len(set(names)), "a name was listed twice"
            kvmount.wait_until(lambda: churn.cycles > before or churn.error, 30, "churn")


@pytest.mark.short
def test_paused_listing(shared_mount, seed):
    """A reader that pauses between batches, while what it has seen and will see is unlinked."""
    directory = f"{shared_mount.mnt}/paused-{seed}"
    os.mkdir(directory)
    fill(directory, STAYING)
    for index in range(STAYING):
        os.mknod(f"{directory}/goes-{index:06}")
    seen, removed = [], 0
    with os.scandir(directory) as entries:
        for position, entry in enumerate(entries):
            seen.append(entry.name)
            if position % 10 == 0 and removed < STAYING:
                os.unlink(f"{directory}/goes-{removed:06}")
                os.mknod(f"{directory}/new-{removed:06}")
                removed += 1
    staying = [n for n in seen if n.startswith("stays-")]
    assert len(staying) == len(set(staying)) == STAYING
    assert len(seen) == len(set(seen))
    assert removed > 0


@pytest.mark.gate
@pytest.mark.short
def test_removal_while_listing(shared_mount, seed):
    """rm -rf's way: unlink what each batch gave, and rewind until nothing is left."""
    directory = f"{shared_mount.mnt}/emptied-{seed}"
    os.mkdir(directory)
    fill(directory, STAYING)
    with os.scandir(directory) as entries:
        count = 0
        for entry in entries:
            os.unlink(entry.path)
            count += 1
    assert count == STAYING
    assert os.listdir(directory) == []
    os.rmdir(directory)


def test_two_readers_one_descriptor(shared_mount, seed):
    """A duplicated descriptor shares its position; a rewind starts over."""
    directory = f"{shared_mount.mnt}/shared-{seed}"
    os.mkdir(directory)
    fill(directory, STAYING)
    fd = os.open(directory, os.O_RDONLY)
    try:
        assert len(os.listdir(fd)) == STAYING
        copy = os.dup(fd)
        assert len(os.listdir(copy)) == STAYING
        os.close(copy)
        os.unlink(f"{directory}/stays-000000")
        assert len(os.listdir(fd)) == STAYING - 1
    finally:
        os.close(fd)


def test_a_big_directory_after_a_remount(shared_mount, seed):
    directory = f"{shared_mount.mnt}/big-{seed}"
    os.mkdir(directory)
    fill(directory, STAYING)
    before = {entry.name: entry.inode() for entry in os.scandir(directory)}
    shared_mount.remount()
    kvmount.drop_caches(2)
    after = {entry.name: entry.inode() for entry in os.scandir(directory)}
    assert before == after
    assert all(os.stat(f"{directory}/{name}").st_ino == inode
               for name, inode in list(after.items())[::50])
