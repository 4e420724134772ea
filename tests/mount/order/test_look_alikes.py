"""Names that merely look like blocks of KV cache are plain files: no error, and no more memory or
database than names of the same length that look like nothing."""

import collections
import os

import pytest

import kvmount

FEW, NAMES = (100_000, 1_000_000) if kvmount.FULL else (3_000, 12_000)
WIDTH = 1000
MIB = 1 << 20


def look_alike(number):
    digest = f"{number * 0x9E3779B97F4A7C15 % (1 << 256):064x}"
    return (f"org-SEP-model@1@0@{digest.upper()[:-1]}F@bfloat16.data",
            f"org-SEP-model@1@0@{digest}0@bfloat16.data",
            f"{digest[:-1]}_org-model_0_1.bin",
            f"{digest}_org-model_0_1.bim")[number % 4]


def plain(number):
    return f"{number:0{len(look_alike(number))}}"


Used = collections.namedtuple("Used", "memory database")


def store(mount, name_of, numbers):
    for number in numbers:
        directory = f"{mount.mnt}/{number // WIDTH}"
        if number % WIDTH == 0:
            os.mkdir(directory)
        path = f"{directory}/{name_of(number)}"
        assert not os.path.exists(path)
        with open(path + ".tmp", "wb") as file:
            file.write(b"x")
        os.rename(path + ".tmp", path)


def look_up(mount, name_of, numbers):
    for number in numbers:
        assert os.stat(f"{mount.mnt}/{number // WIDTH}/{name_of(number)}").st_size == 1


def database_bytes(mount):
    """Of the tables and logs of records; not of what RocksDB says of itself."""
    return sum(os.path.getsize(os.path.join(root, name))
               for root, _, names in os.walk(os.path.join(mount.state, "db")) for name in names
               if name.endswith((".sst", ".log")))


def used(mounts, name_of):
    """What a name costs, between FEW and NAMES of them: bytes of the daemon's memory when all
    were looked up after a start, and of its database."""
    marks = []
    with kvmount.LoopFs("ext4", (2 << 30) + NAMES * 8192, mkfs=["-i", "4096"]) as disk:
        mount = mounts(nvme=f"{disk.path}/nvme")
        for first, last in ((0, FEW), (FEW, NAMES)):
            store(mount, name_of, range(first, last))
            mount.stop()
            code, text = mount.fsck()
            assert code == 0, text
            size = database_bytes(mount)
            mount.start()
            empty = mount.memory().bytes
            look_up(mount, name_of, range(last))
            marks.append(Used(mount.memory().bytes - empty, size))
        mount.stop()
        mount.close()
    few, many = marks
    return Used(*((after - before) / (NAMES - FEW) for before, after in zip(few, many)))


@pytest.mark.limit(3600 if kvmount.FULL else 150)
@pytest.mark.skipif(kvmount.PLAIN, reason="ext4 knows no blocks")
def test_look_alikes_cost_what_plain_names_cost(mounts):
    theirs, plains = used(mounts, look_alike), used(mounts, plain)
    print(f"bytes a name, {FEW} to {NAMES} names: {theirs.memory:.0f} of memory, "
          f"{theirs.database:.0f} of database; plain {plains.memory:.0f} and {plains.database:.0f}")
    # What an allocator keeps is a matter of chance.
    assert theirs.memory <= plains.memory * 1.1 + 128
    # Digits compress better than hashes do.
    assert theirs.database <= plains.database + 160
