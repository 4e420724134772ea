"""Bytes: read, write, truncate, fallocate, holes, copying, mappings, O_DIRECT, O_APPEND."""

import fcntl
import mmap
import os
import resource
import signal

from oracle import case, read_file, write_file
from posix_calls import (COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, UNSHARE_RANGE,
                         ZERO_RANGE, fallocate, syncfs)

KIB = 1024
PATTERN = bytes(range(256)) * 256  # 64 KiB


def aligned(data):
    buffer = mmap.mmap(-1, max(len(data), 4096))
    buffer[:len(data)] = data
    return buffer


def direct_read(fd, size, offset):
    buffer = mmap.mmap(-1, size)
    return buffer[:os.preadv(fd, [buffer], offset)]


def direct_write(fd, data, offset):
    return os.pwritev(fd, [aligned(data)], offset)


@case
def reads_and_writes(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.write, fd, b"hello")
    t(os.read, fd, 10)
    t(os.lseek, fd, 0, os.SEEK_SET)
    t(os.read, fd, 10)
    t(os.pwrite, fd, b"far", 10_000)
    t(os.fstat, fd)
    t(os.pread, fd, 20_000, 0)
    t(os.pread, fd, 10, 10_003)
    t(os.pread, fd, 10, 1 << 40)
    t(os.pread, fd, 0, 0)
    t(os.write, fd, b"")
    t(os.pread, fd, 10, -1)
    t(os.pwrite, fd, b"x", -1)
    t(os.writev, fd, [b"a", b"b" * 5000, b""])
    t(os.lseek, fd, 0, os.SEEK_CUR)
    t(os.lseek, fd, -1, os.SEEK_SET)
    t(os.lseek, fd, -5, os.SEEK_END)
    t(os.close, fd)
    t(read_file, "f")
    t(os.close, fd)
    for flags in (os.O_RDONLY, os.O_WRONLY):
        fd = t(os.open, "f", flags)
        t(os.read, fd, 3)
        t(os.write, fd, b"XYZ")
        t(os.ftruncate, fd, 100)
        t(fallocate, fd, 0, 0, 200)
        t(os.close, fd)
    t(os.stat, "f")


@case
def big_transfers(t):
    data = bytes((i * 7 + i // 4096) & 255 for i in range(1 << 16)) * 96  # 6 MiB
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.write, fd, data)
    t(os.fstat, fd)
    t(os.pread, fd, len(data), 0)
    t(os.pread, fd, len(data) + 1, 1)
    t(os.pwrite, fd, data[:3_000_001], 1_234_567)
    t(os.close, fd)
    t(read_file, "f")
    t(os.stat, "f")


@case
def truncation(t):
    t.make("f", PATTERN)
    for size in (10, 0, 5000, 4999, 4096, 4097, 1 << 20, 1, 1 << 32):
        t(os.truncate, "f", size)
        t(os.stat, "f")
        t.note("head", read_file("f")[:6000] if size < 1 << 21 else b"")
    t(os.truncate, "f", -1)
    t(os.truncate, "missing", 1)
    t(os.truncate, "f/x", 1)
    t(os.truncate, "f", 100)
    fd = t(os.open, "f", os.O_RDWR)
    t(os.write, fd, b"q" * 100)
    t(os.ftruncate, fd, 50)
    t(os.ftruncate, fd, 150)
    t(os.pread, fd, 200, 0)
    t(os.write, fd, b"tail")
    t(os.fstat, fd)
    t(os.ftruncate, fd, -1)
    t(os.close, fd)
    fd = t(os.open, "f", os.O_RDONLY)
    t(os.ftruncate, fd, 0)
    t(os.close, fd)
    fd = t(os.open, "f", os.O_WRONLY | os.O_TRUNC)
    t(os.fstat, fd)
    t(os.close, fd)


@case
def truncate_with_readers(t):
    """O_TRUNC of a file that others hold open acts in place."""
    t.make("f", PATTERN)
    reader = t(os.open, "f", os.O_RDONLY)
    writer = t(os.open, "f", os.O_WRONLY | os.O_TRUNC)
    t(os.fstat, reader)
    t(os.pread, reader, 10, 0)
    t(os.write, writer, b"fresh")
    t(os.pread, reader, 10, 0)
    t.note("same inode", os.fstat(reader).st_ino == os.stat("f").st_ino)
    t(os.close, writer)
    t(os.close, reader)
    number = os.stat("f").st_ino
    fd = t(os.open, "f", os.O_RDWR | os.O_TRUNC)
    t(os.write, fd, b"rewritten")
    t.note("inode kept", os.stat("f").st_ino == number)
    t(os.close, fd)
    t(read_file, "f")
    fd = t(os.open, "f", os.O_RDONLY | os.O_TRUNC)
    t(os.fstat, fd)
    t(os.close, fd)


@case
def data_time_stamps(t):
    t.make("f", PATTERN)
    fd = os.open("f", os.O_RDWR)
    t.changes(["f"], os.pwrite, fd, b"x", 0)
    t.changes(["f"], os.pwrite, fd, b"x", 100_000)
    t.changes(["f"], os.ftruncate, fd, 70_000)
    t.changes(["f"], os.ftruncate, fd, 70_000)
    t.changes(["f"], os.truncate, "f", 70_000)
    t.changes(["f"], os.truncate, "f", 60_000)
    t.changes(["f"], fallocate, fd, 0, 0, 80_000)
    t.changes(["f"], fallocate, fd, PUNCH_HOLE | KEEP_SIZE, 0, 4096)
    t.changes(["f"], fallocate, fd, ZERO_RANGE, 0, 4096)
    t.changes(["f"], os.fsync, fd)
    t.changes(["f"], os.fchmod, fd, 0o600)
    t.changes(["f"], os.fchown, fd, -1, -1)
    t.changes(["f"], os.fchown, fd, os.getuid(), os.getgid())
    os.close(fd)
    t.changes(["f"], read_file, "f")
    t.changes(["f"], lambda: os.close(os.open("f", os.O_RDONLY)))
    t.changes(["f"], lambda: os.close(os.open("f", os.O_WRONLY)))
    t.changes(["f"], lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)))
    t.changes(["f"], lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)))
    t.changes(["f"], os.setxattr, "f", "user.a", b"1")
    t.changes(["f"], os.getxattr, "f", "user.a")
    t.changes(["f"], os.removexattr, "f", "user.a")


@case
def fallocate_modes(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.write, fd, PATTERN)

    def state():
        t(os.fstat, fd)
        t(os.pread, fd, 200_000, 0)

    for mode, offset, length in (
            (0, 0, 1000), (0, 60_000, 10_000), (KEEP_SIZE, 0, 200_000), (0, 100_000, 1),
            (PUNCH_HOLE | KEEP_SIZE, 4096, 4096), (PUNCH_HOLE | KEEP_SIZE, 10_000, 3),
            (PUNCH_HOLE | KEEP_SIZE, 90_000, 50_000), (PUNCH_HOLE, 0, 4096),
            (ZERO_RANGE, 20_000, 5000), (ZERO_RANGE, 99_000, 9000),
            (ZERO_RANGE | KEEP_SIZE, 107_000, 9000), (ZERO_RANGE | KEEP_SIZE, 0, 100),
            (0, 0, 0), (0, 0, -1), (0, -1, 10), (0, 1 << 62, 1 << 62),
            (PUNCH_HOLE | KEEP_SIZE, 0, 0), (ZERO_RANGE | PUNCH_HOLE, 0, 10), (0x80, 0, 10),
            (PUNCH_HOLE | KEEP_SIZE, 0, 1 << 40)):
        t(fallocate, fd, mode, offset, length)
        state()
    t(os.close, fd)
    t(os.mkdir, "d")
    for path, flags in (("d", os.O_RDONLY), ("f", os.O_RDONLY), ("f", os.O_WRONLY)):
        fd = t(os.open, path, flags)
        t(fallocate, fd, 0, 0, 10)
        t(os.close, fd)


@case
def fallocate_rare_modes(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.write, fd, PATTERN)
    for mode in (COLLAPSE_RANGE, INSERT_RANGE, UNSHARE_RANGE, COLLAPSE_RANGE | KEEP_SIZE):
        t(fallocate, fd, mode, 4096, 4096)
        t.note("size after", os.fstat(fd).st_size)
        os.ftruncate(fd, 0)
        os.pwrite(fd, PATTERN, 0)
    t(os.close, fd)


@case
def allocated_blocks(t):
    """fallocate allocates, punching frees: pools and cleaners look at st_blocks."""
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(fallocate, fd, 0, 0, 1 << 20)
    t.note("blocks", os.fstat(fd).st_blocks)
    t(fallocate, fd, PUNCH_HOLE | KEEP_SIZE, 0, 1 << 19)
    t.note("blocks", os.fstat(fd).st_blocks)
    t(fallocate, fd, KEEP_SIZE, 1 << 20, 1 << 20)
    t.note("blocks", os.fstat(fd).st_blocks)
    t(os.ftruncate, fd, 1 << 18)
    t.note("blocks", os.fstat(fd).st_blocks)
    t(os.ftruncate, fd, 1 << 30)
    t.note("blocks", os.fstat(fd).st_blocks)
    t.note("blksize", os.fstat(fd).st_blksize)
    t(os.close, fd)


@case
def holes(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    for offset in (0, 1 << 20, 3 << 20):
        t(os.pwrite, fd, PATTERN, offset)
    t(os.ftruncate, fd, 5 << 20)
    os.fsync(fd)
    for offset in (0, 10, 65_536, 70_000, 1 << 20, (1 << 20) + 65_536, 2 << 20, 3 << 20,
                   (3 << 20) + 65_536, (5 << 20) - 1, 5 << 20, 6 << 20, -1):
        t(os.lseek, fd, offset, os.SEEK_DATA)
        t(os.lseek, fd, offset, os.SEEK_HOLE)
    t(fallocate, fd, PUNCH_HOLE | KEEP_SIZE, 0, 1 << 20)
    os.fsync(fd)
    t(os.lseek, fd, 0, os.SEEK_DATA)
    t(os.lseek, fd, 0, 99)
    t(os.ftruncate, fd, 0)
    t(os.lseek, fd, 0, os.SEEK_DATA)
    t(os.lseek, fd, 0, os.SEEK_HOLE)
    t(os.close, fd)


@case
def seek_limits(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    for offset in (1 << 43, (1 << 44) - 4096, (1 << 63) - 1):
        t(os.lseek, fd, offset, os.SEEK_SET)
    t(os.close, fd)


@case
def sparse_terabyte(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.ftruncate, fd, 1 << 40)
    t(os.fstat, fd)
    t.note("blocks", os.fstat(fd).st_blocks)
    t(os.pread, fd, 4096, (1 << 40) - 4096)
    for offset in (0, (1 << 39) + 123, (1 << 40) - 5, 1 << 40):
        t(os.pwrite, fd, b"needle", offset)
        t(os.pread, fd, 100, offset - 50 if offset else 0)
    t(os.fstat, fd)
    os.fsync(fd)
    t(os.lseek, fd, 1 << 30, os.SEEK_DATA)
    t(os.lseek, fd, (1 << 39) + (1 << 20), os.SEEK_DATA)
    t.note("less than 1 MiB", os.fstat(fd).st_blocks < 2048)
    with mmap.mmap(fd, 4096, offset=(1 << 39)) as mapping:
        t.note("mapped", mapping[100:200])
        mapping[0:3] = b"map"
    t(os.pread, fd, 10, 1 << 39)
    t(os.close, fd)


@case
def beyond_the_largest_file(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.write, fd, PATTERN)
    for function, *arguments in ((os.truncate, "f", 1 << 62), (os.truncate, "f", 17 << 40),
                                 (os.ftruncate, fd, 17 << 40), (os.pwrite, fd, b"x", 17 << 40),
                                 (fallocate, fd, 0, 17 << 40, 4096)):
        t(function, *arguments)
        os.ftruncate(fd, len(PATTERN))  # Where it was allowed the file is small again.
        t(os.fstat, fd)
        t(os.pread, fd, 200_000, 0)
    t(os.close, fd)


@case
def file_size_limit(t):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.pwrite, fd, b"x" * 9000, 0)
    t(os.pwrite, fd, b"x" * 9000, 5000)
    t(os.fstat, fd)
    t(os.pwrite, fd, b"x", 10_000)
    t(os.ftruncate, fd, 10_001)
    t(os.truncate, "f", 20_000)
    t(fallocate, fd, 0, 0, 20_000)
    t(os.fstat, fd)
    t(os.close, fd)


@case
def copying(t):
    t.make("src", PATTERN)
    src = t(os.open, "src", os.O_RDONLY)
    dst = t(os.open, "dst", os.O_CREAT | os.O_RDWR)
    t(os.copy_file_range, src, dst, 1000, 0, 0)
    t(os.copy_file_range, src, dst, 5000, 60_000, 100_000)
    t(os.copy_file_range, src, dst, 10_000, 60_000, 0)
    t(os.copy_file_range, src, dst, 10, 65_536, 0)
    t(os.copy_file_range, src, dst, 10, 1 << 30, 0)
    t(os.copy_file_range, src, dst, 0, 0, 0)
    t(os.pread, dst, 200_000, 0)
    t(os.copy_file_range, dst, dst, 100, 0, 50)
    t(os.copy_file_range, dst, dst, 100, 0, 5000)
    t(os.pread, dst, 200, 4950)
    t(os.copy_file_range, dst, src, 100, 0, 0)
    append = t(os.open, "dst", os.O_WRONLY | os.O_APPEND)
    t(os.copy_file_range, src, append, 100, 0, 0)
    t(os.close, append)
    directory = t(os.open, ".", os.O_RDONLY)
    t(os.copy_file_range, directory, dst, 100, 0, 0)
    t(os.copy_file_range, src, directory, 100, 0, 0)
    t(os.close, directory)
    t(os.copy_file_range, src, dst, 64 * KIB, 0)
    t(os.lseek, src, 0, os.SEEK_CUR)
    t(os.lseek, dst, 0, os.SEEK_CUR)
    t(os.sendfile, dst, src, 0, 5000)
    reader, writer = os.pipe()
    t.note("splice in", os.splice(src, writer, 3000, offset_src=100))
    t.note("splice out", os.splice(reader, dst, 3000, offset_dst=200_000))
    t(os.fstat, dst)
    t(os.pread, dst, 300_000, 0)
    t(os.close, src)
    t(os.close, dst)


@case
def appending(t):
    t.make("f", b"start")
    one = t(os.open, "f", os.O_WRONLY | os.O_APPEND)
    two = t(os.open, "f", os.O_RDWR | os.O_APPEND)
    for index in range(50):
        os.write(one, b"one%d," % index)
        os.write(two, b"two%d," % index)
    t(os.pread, two, 10_000, 0)
    t(os.lseek, one, 0, os.SEEK_SET)
    t(os.write, one, b"still at the end")
    t(os.pwrite, two, b"pwrite appends too", 0)
    t(os.ftruncate, one, 5)
    t(os.write, two, b"after truncation")
    plain = t(os.open, "f", os.O_WRONLY)
    fcntl.fcntl(plain, fcntl.F_SETFL, os.O_APPEND)
    t(os.write, plain, b" by F_SETFL")
    fcntl.fcntl(plain, fcntl.F_SETFL, 0)
    t(os.pwrite, plain, b"START", 0)
    t(read_file, "f")
    for fd in (one, two, plain):
        t(os.close, fd)


@case
def direct_io(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    t(direct_write, fd, PATTERN, 0)
    t(direct_write, fd, b"z" * 4096, 8192)
    t(direct_read, fd, 65_536, 0)
    t(direct_read, fd, 65_536, 61_440)
    t(direct_read, fd, 4096, 65_536)
    t(direct_read, fd, 4096, 1 << 30)
    t(os.ftruncate, fd, 65_536 + 100)
    t(direct_read, fd, 8192, 61_440)
    t(direct_read, fd, 4096, 65_536)
    buffered = t(os.open, "f", os.O_RDWR)
    t(os.pwrite, buffered, b"buffered", 100)
    t(direct_read, fd, 4096, 0)
    t(direct_write, fd, b"d" * 4096, 0)
    t(os.pread, buffered, 200, 4000)
    t(os.close, buffered)
    t(direct_write, fd, b"e" * 4096, 1 << 20)
    t(os.fstat, fd)
    t(os.close, fd)
    t(read_file, "f")
    fd = t(os.open, "f", os.O_RDWR)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT)
    t.note("flag taken", bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT))
    t(direct_write, fd, b"s" * 4096, 4096)
    t(direct_read, fd, 8192, 4096)
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    t(os.pwrite, fd, b"buffered again", 4097)
    t(os.pread, fd, 100, 4090)
    t(os.close, fd)
    fd = t(os.open, "f", os.O_WRONLY | os.O_DIRECT | os.O_APPEND)
    t(os.truncate, "f", 4096)
    t(direct_write, fd, b"a" * 4096, 0)
    t(os.close, fd)
    t(read_file, "f")


@case
def mappings(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.write, fd, PATTERN)
    shared = mmap.mmap(fd, 65_536, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    private = mmap.mmap(fd, 65_536, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    shared[0:5] = b"STORE"
    t(os.pread, fd, 10, 0)
    t.note("private sees", private[0:10])
    private[0:5] = b"mine!"
    t(os.pread, fd, 10, 0)
    t.note("shared sees", shared[0:10])
    t(os.pwrite, fd, b"written", 20_000)
    t.note("shared sees", shared[20_000:20_010])
    t(read_file, "f")
    other = t(os.open, "f", os.O_RDONLY)
    view = mmap.mmap(other, 0, access=mmap.ACCESS_READ)
    shared[30_000:30_003] = b"abc"
    t.note("another mapping sees", view[29_998:30_005])
    t(os.unlink, "f")
    shared[1:2] = b"?"
    t.note("after unlink", view[0:5])
    t(os.fstat, fd)
    t(os.close, fd)
    t.note("after close", shared[0:5])
    shared[2:3] = b"!"
    t.note("through the other", os.pread(other, 5, 0))
    shared.flush()
    for mapping in (shared, private, view):
        mapping.close()
    t(os.close, other)


@case
def mapped_growth(t):
    fd = t(os.open, "f", os.O_CREAT | os.O_RDWR)
    t(os.ftruncate, fd, 10_000)
    with mmap.mmap(fd, 10_000) as mapping:
        mapping[:] = b"m" * 10_000
        t(os.ftruncate, fd, 20_000)
        t(os.pread, fd, 30_000, 0)
        t(os.ftruncate, fd, 5000)
        t(os.ftruncate, fd, 10_000)
        t.note("cut off and grown", mapping[4990:5010])
        mapping[9000:9005] = b"after"
        mapping.flush()
        t(os.pread, fd, 30_000, 0)
    t(os.close, fd)
    t(read_file, "f")


@case
def mapping_errors(t):
    t.make("f", b"x" * 5000)
    t(os.mkdir, "d")

    def attempt(path, flags, share, protection):
        fd = os.open(path, flags)
        try:
            mmap.mmap(fd, 4096, share, protection).close()
        finally:
            os.close(fd)

    both = mmap.PROT_READ | mmap.PROT_WRITE
    t(attempt, "f", os.O_RDONLY, mmap.MAP_SHARED, both)
    t(attempt, "f", os.O_RDONLY, mmap.MAP_PRIVATE, both)
    t(attempt, "f", os.O_WRONLY, mmap.MAP_SHARED, mmap.PROT_WRITE)
    t(attempt, "f", os.O_RDONLY, mmap.MAP_SHARED, mmap.PROT_READ)
    t(attempt, "f", os.O_RDWR, mmap.MAP_SHARED, both)
    t(attempt, "f", os.O_RDONLY, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
    t(attempt, "d", os.O_RDONLY, mmap.MAP_SHARED, mmap.PROT_READ)

    def fault(offset):
        """How a child ends that touches `offset` of a mapping longer than the file."""
        child = os.fork()
        if child == 0:
            import faulthandler
            faulthandler.disable()
            fd = os.open("f", os.O_RDONLY)
            mapping = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
            os.truncate("f", 100)
            value = mapping[offset]
            os._exit(10 if value == 0 else 11)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    t(fault, 50)
    t(os.truncate, "f", 8192)
    t(fault, 3000)
    t(os.truncate, "f", 8192)
    t(fault, 4096)


@case
def syncing(t):
    t.make("f", PATTERN)
    t(os.mkdir, "d")
    t(os.mkfifo, "p")
    for path, flags in (("f", os.O_RDONLY), ("f", os.O_RDWR), ("d", os.O_RDONLY),
                        ("p", os.O_RDWR), (".", os.O_RDONLY)):
        fd = t(os.open, path, flags)
        t(os.fsync, fd)
        t(os.fdatasync, fd)
        t(syncfs, fd)
        t(os.close, fd)
    fd = t(os.open, "f", os.O_PATH)
    t(os.fsync, fd)
    t(os.close, fd)
    for flag in (os.O_SYNC, os.O_DSYNC):
        fd = t(os.open, "f", os.O_WRONLY | flag)
        t(os.write, fd, b"synced")
        t(os.close, fd)


@case
def duplicated_descriptors(t):
    t.make("f", b"0123456789")
    fd = t(os.open, "f", os.O_RDWR)
    copy = t(os.dup, fd)
    t(os.read, fd, 3)
    t(os.read, copy, 3)
    t(os.close, fd)
    t(os.write, copy, b"XX")
    t(read_file, "f")
    child = os.fork()
    if child == 0:
        os.write(copy, b"Y")
        os._exit(0)
    os.waitpid(child, 0)
    t(os.lseek, copy, 0, os.SEEK_CUR)
    t(os.close, copy)
    t(read_file, "f")


@case
def path_descriptors(t):
    t.make("f", b"x")
    fd = t(os.open, "f", os.O_PATH)
    t(os.fstat, fd)
    t(os.read, fd, 1)
    t(os.fchmod, fd, 0o600)
    t(os.fchown, fd, -1, -1)
    t(os.ftruncate, fd, 0)
    with open(f"/proc/self/fd/{int(fd)}", "rb") as file:
        t.note("reopened", file.read())
    t(os.close, fd)
    directory = t(os.open, ".", os.O_PATH | os.O_DIRECTORY)
    t(os.stat, "f", dir_fd=directory)
    t(os.open, "new", os.O_CREAT | os.O_WRONLY, dir_fd=directory)
    t(os.listdir, directory)
    t(os.close, directory)


@case
def executing(t):
    """Run, and text busy."""
    with open("/bin/true", "rb") as source:
        write_file("prog", source.read(), 0o755)
    t(os.stat, "prog")

    def run(path):
        child = os.fork()
        if child == 0:
            try:
                os.execv(path, [path])
            except OSError as error:
                os._exit(100 + error.errno % 100)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    t(run, "./prog")
    fd = t(os.open, "prog", os.O_WRONLY)
    t(run, "./prog")
    t(os.close, fd)
    t(run, "./prog")
    t(os.chmod, "prog", 0o644)
    t(run, "./prog")
    write_file("script", b"#!/bin/sh\nexit 7\n", 0o755)
    t(run, "./script")
