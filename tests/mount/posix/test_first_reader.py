"""Without passthrough the first reader of a large file gets it past the page cache, later ones from
it: whatever the order of readers, mappings and writers, they see the same bytes."""

import mmap
import os
import random

import pytest

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


READERS = {
    "whole": lambda path: read_all(path, SIZE),
    "pieces": lambda path: read_all(path, 100_001),
    "shared map": lambda path: map_all(path, mmap.MAP_SHARED),
    "private map": lambda path: map_all(path, mmap.MAP_PRIVATE),
}


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
