"""What the replayed runtimes share: content that can be recomputed, aligned buffers, whole I/O.

Content is derived from (seed, name), so whoever has the seed can verify a file in any process
and after any restart without a record of what was written.
"""

import ctypes
import errno
import hashlib
import mmap
import os

SECTOR = 4096

_libc = ctypes.CDLL(None, use_errno=True)
FALLOC_FL_KEEP_SIZE = 1


class Mismatch(AssertionError):
    """A file that answered holds other bytes than the ones stored under its name."""


def content(seed, name, size):
    """The bytes of `name`."""
    return hashlib.shake_128(f"{seed}/{name}".encode()).digest(size)


def compare(path, got, want):
    """Raises Mismatch saying where the two differ."""
    if got == want:
        return
    if len(got) != len(want):
        kind = "zeros" if not any(got) else "data"
        raise Mismatch(f"{path}: {len(got)} bytes ({kind}), stored {len(want)}")
    at = next(i for i in range(len(want)) if got[i] != want[i])
    wrong = sum(1 for a, b in zip(got, want) if a != b)
    raise Mismatch(f"{path}: {wrong} of {len(want)} bytes differ from {at} on: "
                   f"{bytes(got[at:at + 16]).hex()} for {want[at:at + 16].hex()}")


def aligned(data_or_size):
    """A page-aligned buffer: of a size, or a copy of data padded with zeros to whole sectors."""
    if isinstance(data_or_size, int):
        return mmap.mmap(-1, round_up(data_or_size))
    buffer = mmap.mmap(-1, round_up(len(data_or_size)))
    buffer[:len(data_or_size)] = data_or_size
    return buffer


def round_up(size):
    return max(-(-size // SECTOR) * SECTOR, SECTOR)


def write_once(fd, data):
    """One write(2) that must take everything: these runtimes treat a short one as an error."""
    done = os.write(fd, data)
    if done != len(data):
        raise OSError(errno.EIO, f"short write: {done} of {len(data)}")


def write_loop(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def read_once(fd, size, direct=False):
    """One read(2) of the whole size, short only when the file is."""
    if direct:
        buffer = aligned(size)
        done = os.readv(fd, [buffer])
        return buffer[:min(done, size)]
    return os.read(fd, size)


def read_loop(fd, size):
    parts = []
    while size:
        part = os.read(fd, size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def fallocate(fd, mode, offset, length):
    """fallocate(2) itself: posix_fallocate of the C library would emulate it on EOPNOTSUPP."""
    if _libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def digest(seed, key):
    """The 64 hex digits that a runtime would call the hash of block `key`."""
    return hashlib.sha256(f"hash {seed} {key}".encode()).hexdigest()


def exists(path):
    try:
        os.stat(path)
        return True
    except FileNotFoundError:
        return False
