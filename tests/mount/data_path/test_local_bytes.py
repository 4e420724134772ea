"""Bytes that are local are served by the kernel: in passthrough no READ and no WRITE reaches
the daemon, whatever the call and whatever the name. The data path "daemon" proves the counters:
every one of these calls moves them there."""

import mmap
import os
import random

import pytest

import kvmount

pytestmark = [pytest.mark.gate, pytest.mark.both_paths, pytest.mark.promise(6),
              pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no daemon that could be asked")]

SIZE = 1 << 20
PIECE = 128 << 10


# ---- ways to read a file: each returns all of its bytes --------------------------------------


def by_read(path):
    with open(path, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(PIECE), b""))


def by_pread_of_parts(path):
    """From the end to the beginning, in parts that begin in the middle of a page."""
    parts = []
    with open(path, "rb", buffering=0) as file:
        for offset in range(SIZE - SIZE % 10_001, -1, -10_001):
            parts.append(os.pread(file.fileno(), 10_001, offset))
    return b"".join(reversed(parts))


def by_readv(path):
    buffers = [bytearray(SIZE // 4) for _ in range(4)]
    with open(path, "rb", buffering=0) as file:
        assert os.readv(file.fileno(), buffers) == SIZE
    return b"".join(buffers)


def by_mapping(path, flags):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, flags, mmap.PROT_READ) as view:
        return bytes(view)


def by_direct_io(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, SIZE) as buffer:
            assert os.preadv(fd, [buffer], 0) == SIZE
            return bytes(buffer)
    finally:
        os.close(fd)


def by_read_of_a_writer(path):
    """As runtimes load that open with O_RDWR."""
    fd = os.open(path, os.O_RDWR)
    try:
        return os.pread(fd, SIZE, 0)
    finally:
        os.close(fd)


def by_sendfile(path):
    target = os.memfd_create("sent")
    try:
        with open(path, "rb", buffering=0) as file:
            sent = 0
            while sent < SIZE:
                sent += os.sendfile(target, file.fileno(), sent, SIZE - sent)
        return os.pread(target, SIZE, 0)
    finally:
        os.close(target)


def by_splice(path):
    reader, writer = os.pipe()
    got = bytearray()
    try:
        with open(path, "rb", buffering=0) as file:
            while len(got) < SIZE:
                count = os.splice(file.fileno(), writer, 32 << 10, offset_src=len(got))
                got += os.read(reader, count)
    finally:
        os.close(reader)
        os.close(writer)
    return bytes(got)


READS = {
    "read": by_read,
    "pread": by_pread_of_parts,
    "readv": by_readv,
    "shared mapping": lambda path: by_mapping(path, mmap.MAP_SHARED),
    "private mapping": lambda path: by_mapping(path, mmap.MAP_PRIVATE),
    "O_DIRECT": by_direct_io,
    "O_RDWR": by_read_of_a_writer,
    "sendfile": by_sendfile,
    "splice": by_splice,
}


# ---- ways to write a file, each in a name that is not there yet ------------------------------


def write_plainly(path, content):
    with open(path, "wb", buffering=0) as file:
        for offset in range(0, SIZE, PIECE):
            assert file.write(content[offset:offset + PIECE]) == PIECE


def write_at_offsets(path, content):
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        for offset in range(SIZE - PIECE, -1, -PIECE):
            assert os.pwritev(fd, [content[offset:offset + PIECE]], offset) == PIECE
    finally:
        os.close(fd)


def append(path, content):
    for offset in range(0, SIZE, PIECE):
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            assert os.write(fd, content[offset:offset + PIECE]) == PIECE
        finally:
            os.close(fd)


def write_directly(path, content):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, SIZE) as buffer:
            buffer[:] = content
            assert os.pwrite(fd, buffer, 0) == SIZE
    finally:
        os.close(fd)


def store_through_a_mapping(path, content):
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        os.ftruncate(fd, SIZE)
        with mmap.mmap(fd, SIZE) as view:
            view[:] = content
            view.flush()
    finally:
        os.close(fd)


def splice_into(path, content):
    reader, writer = os.pipe()
    try:
        with open(path, "wb", buffering=0) as file:
            for offset in range(0, SIZE, 32 << 10):
                os.write(writer, content[offset:offset + (32 << 10)])
                left = 32 << 10
                while left:
                    left -= os.splice(reader, file.fileno(), left)
    finally:
        os.close(reader)
        os.close(writer)


WRITES = {
    "write": write_plainly,
    "pwritev": write_at_offsets,
    "O_APPEND": append,
    "O_DIRECT": write_directly,
    "mapping": store_through_a_mapping,
    "splice": splice_into,
}


# ---- the daemon's counters -------------------------------------------------------------------


def served(mount):
    """How many READs and WRITEs the daemon has had."""
    operations = mount.status()["operations"]
    return [operations.get(name, {"count": 0})["count"] for name in ("read", "write")]


def reads_of(mount, reader, path, content):
    """The READs that the daemon had for one reading of a file whose bytes are right."""
    before = served(mount)
    assert reader(path) == content
    after = served(mount)
    assert after[1] == before[1], "reading is no writing"
    return after[0] - before[0]


def wait_sealed(mount):
    kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] == 0, 20, "all files are sealed")


def check_reads(mount, expected, directory, contents):
    """`expected(count)` holds for every way to read a file of its own."""
    for kind, reader in READS.items():
        count = reads_of(mount, reader, f"{directory}/{kind}", contents[kind])
        assert expected(count), f"{kind}: {count} READs"


@pytest.mark.short
def test_reads_and_writes_of_local_files(mounts, data_path, transport, seed):
    mount = mounts(data_path=data_path, transport=transport)
    assert mount.status()["transport"]["mode"] == {"uring": "io_uring", "dev": "dev_fuse"}[transport]
    # In the daemon's data path each file is read for the first time, so that no page cache
    # answers.
    expected = (lambda count: count == 0) if data_path == "passthrough" else (lambda count: count > 0)
    chance = random.Random(seed)

    written = f"{mount.mnt}/written"
    os.mkdir(written)
    for kind, writer in WRITES.items():
        content = chance.randbytes(SIZE)
        before = served(mount)
        writer(f"{written}/{kind}", content)
        count = served(mount)[1] - before[1]
        assert expected(count), f"{kind}: {count} WRITEs"
        count = reads_of(mount, by_read, f"{written}/{kind}", content)
        assert count == 0 or data_path == "daemon", f"{kind}: {count} READs of what was just written"

    contents = {kind: chance.randbytes(SIZE) for kind in READS}
    directory = f"{mount.mnt}/read"
    os.mkdir(directory)
    for kind, content in contents.items():
        with open(f"{directory}/{kind}", "wb") as file:
            file.write(content)
    wait_sealed(mount)
    check_reads(mount, expected, directory, contents)

    if data_path == "passthrough":
        check_other_openers(mount, directory, contents)
    # What is read first after a restart is read from the device, and still by the kernel.
    mount.remount()
    check_reads(mount, expected, directory, contents)


def check_other_openers(mount, directory, contents):
    """A second opener, a hard link, a new name and an open descriptor whose name has gone."""
    kind = "read"
    path, content = f"{directory}/{kind}", contents[kind]
    os.link(path, f"{directory}/link")
    with open(path, "rb", buffering=0) as first, open(path, "r+b", buffering=0):
        assert first.read(100) == content[:100]
        for reader in READS.values():
            assert reads_of(mount, reader, path, content) == 0
        assert reads_of(mount, by_read, f"{directory}/link", content) == 0
        os.rename(f"{directory}/link", f"{directory}/moved")
        assert reads_of(mount, by_read, f"{directory}/moved", content) == 0
        os.unlink(f"{directory}/moved")
        os.rename(path, f"{directory}/aside")
        before = served(mount)
        assert os.pread(first.fileno(), SIZE, 0) == content
        assert served(mount) == before
    os.rename(f"{directory}/aside", path)
