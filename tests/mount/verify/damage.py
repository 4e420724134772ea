"""Damage as a disk does it: bytes change below the filesystem, and nothing else does.

The backing files lie on a loop device; FIEMAP tells where in its image. The image is written while the
filesystem is not mounted, so that no page cache knows better.
"""

import ctypes
import fcntl
import mmap
import os
import struct

import kvmount

_FS_IOC_FIEMAP = 0xC020660B  # _IOWR('f', 11, struct fiemap)
_SYNC, _LAST = 1, 1
_HEADER, _EXTENT = "=QQLLLL", "=QQQQQLLLL"

# Python's own mappings keep a descriptor each.
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

BLOCK = 4096
CHUNK = 256 << 10


def extents(path):
    """[(offset in the file, offset on the device, length)], of what has a place on the device."""
    with open(path, "rb") as file:
        count = 256
        request = bytearray(struct.calcsize(_HEADER) + count * struct.calcsize(_EXTENT))
        struct.pack_into(_HEADER, request, 0, 0, (1 << 64) - 1, _SYNC, 0, count, 0)
        fcntl.ioctl(file, _FS_IOC_FIEMAP, request)
    mapped = struct.unpack_from(_HEADER, request)[3]
    found = []
    for number in range(mapped):
        at = struct.calcsize(_HEADER) + number * struct.calcsize(_EXTENT)
        fields = struct.unpack_from(_EXTENT, request, at)
        found.append(fields[:3])
    assert not mapped or fields[5] & _LAST, f"{path} has more than {count} extents"
    return found


class Patch:
    """Writes to bytes of a file's place on the device."""

    def __init__(self, image, path):
        self.image, self.size, self.extents = image, os.stat(path).st_size, extents(path)
        assert sum(length for *_, length in self.extents) >= self.size, f"{path} has holes"

    def _pieces(self, offset, length):
        for logical, physical, span in self.extents:
            begin, end = max(offset, logical), min(offset + length, logical + span)
            if begin < end:
                yield begin, physical + begin - logical, end - begin

    def read(self, offset, length):
        data = b""
        with open(self.image, "rb") as image:
            for _, physical, span in self._pieces(offset, length):
                image.seek(physical)
                data += image.read(span)
        return data

    def write(self, offset, data):
        with open(self.image, "r+b") as image:
            for logical, physical, span in self._pieces(offset, len(data)):
                image.seek(physical)
                image.write(data[logical - offset:logical - offset + span])


def flip(patch, random):
    """One bit."""
    at = random.randrange(patch.size)
    byte = patch.read(at, 1)[0]
    patch.write(at, bytes([byte ^ 1 << random.randrange(8)]))


def tear(patch, random):
    """The last block never reached the disk."""
    begin = (patch.size - 1) // BLOCK * BLOCK
    patch.write(begin, bytes(patch.size - begin))


def drop(patch, random):
    """A write of up to a chunk never reached the disk: what was there before is there still."""
    begin = random.randrange(patch.size) // BLOCK * BLOCK
    length = min(patch.size - begin, BLOCK * random.randint(1, CHUNK // BLOCK))
    patch.write(begin, random.choice([bytes(length), random.randbytes(length)]))


DAMAGES = {"flip": flip, "tear": tear, "drop": drop}


def load_read(path):
    with open(path, "rb", buffering=0) as file:
        return file.read()


def load_mmap(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            return mapped[:]
    finally:
        os.close(fd)


def load_direct(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        size = os.fstat(fd).st_size
        with mmap.mmap(-1, (size + BLOCK - 1) // BLOCK * BLOCK) as buffer:  # Aligned memory.
            assert os.readv(fd, [buffer]) == size
            return buffer[:size]
    finally:
        os.close(fd)


LOADS = {"read": load_read, "mmap": load_mmap, "direct": load_direct}


def wait_sealed(mount):
    mount.wait_sealed()


class Mapping:
    """A file that was written, if there is `content`, mapped and closed. (Python's own mappings keep a
    descriptor.)"""

    def __init__(self, path, content=None):
        new = os.O_CREAT | os.O_EXCL if content is not None else 0
        fd = os.open(path, os.O_RDWR | new, 0o600)
        if content is not None:
            os.write(fd, content)
        self.size = os.fstat(fd).st_size
        self.address = libc.mmap(None, self.size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        os.close(fd)
        assert self.address != ctypes.c_void_p(-1).value
        self.bytes = (ctypes.c_ubyte * self.size).from_address(self.address)

    def put(self, at, content):
        self.bytes[at:at + len(content)] = list(content)

    def close(self):
        if self.address:
            libc.munmap(self.address, self.size)
        self.address = None
