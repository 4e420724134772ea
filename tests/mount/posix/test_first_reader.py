"""Without passthrough the first reader of a large file gets it past the page cache, later ones from
it: whatever the order of readers, mappings and writers, they see the same bytes."""

import mmap
import os
import random
import select

import pytest

import kvmount

SIZE = 3 << 20


def read_all(path, step):
    parts = []
    with open(path, "rb", buffering=0) as file:
        while part := file.read(step):
            parts.append(part)
    return b"".join(parts)


def map_all(path, flags):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ) as view:
        return bytes(view)


def read_the_end(path, began, stop):
    """Reads the last page again and again, as who waits for more does, until it is told to stop."""
    at = 0
    with open(path, "rb", buffering=0) as file:
        os.write(began, b".")
        while not select.select([stop], [], [], 0)[0]:
            for _ in range(100):
                at += 4096 if len(os.pread(file.fileno(), 8192, at)) > 4096 else 0


def record(number):
    return f"{number:099}\n".encode()


READERS = {
    "whole": lambda path: read_all(path, SIZE),
    "pieces": lambda path: read_all(path, 100_001),
    "shared map": lambda path: map_all(path, mmap.MAP_SHARED),
    "private map": lambda path: map_all(path, mmap.MAP_PRIVATE),
}


@pytest.mark.gate
@pytest.mark.short
@pytest.mark.parametrize("first", READERS)
def test_readers_of_any_kind_and_order(shared_mount, first, seed):
    chance = random.Random(seed)
    path = f"{shared_mount.mnt}/first {first}"
    content = chance.randbytes(SIZE)
    with open(path, "wb") as file:
        file.write(content)
    assert READERS[first](path) == content
    for round_number in range(4):
        order = list(READERS)
        chance.shuffle(order)
        # One stays open while others come and go, and a writer changes bytes under it.
        with open(path, "rb", buffering=0) as stays:
            for name in order:
                assert READERS[name](path) == content, (round_number, name)
            at, change = chance.randrange(SIZE - 5000), chance.randbytes(5000)
            with open(path, "r+b", buffering=0) as writer:
                writer.seek(at)
                assert writer.write(change) == len(change)
            content = content[:at] + change + content[at + len(change):]
            assert os.pread(stays.fileno(), SIZE, 0) == content
            for name in order:
                assert READERS[name](path) == content, (round_number, name, "after a write")


@pytest.mark.short
@pytest.mark.parametrize("opened", ["before", "after"])
def test_who_reads_the_end_of_a_file_that_grows(shared_mount, opened):
    """Pages that are read while somebody writes to them do not keep the old end."""
    path, count = f"{shared_mount.mnt}/grows {opened}", 3000
    with open(path, "wb") as file:
        file.write(record(0))
    stop, stopping = os.pipe()
    has_begun, began = os.pipe()
    reader = os.open(path, os.O_RDONLY) if opened == "before" else None
    with open(path, "ab", buffering=0) as writer:
        waiting = kvmount.Child(read_the_end, path, began, stop)
        os.read(has_begun, 1)
        reader = reader or os.open(path, os.O_RDONLY)
        for number in range(1, count):
            writer.write(record(number))
            assert os.pread(reader, 200, (number - 1) * 100) == record(number - 1) + record(number)
    os.write(stopping, b".")
    waiting.result(60)
    assert os.pread(reader, count * 100, 0) == b"".join(map(record, range(count)))
    os.close(reader)
    for fd in (stop, stopping, has_begun, began):
        os.close(fd)
