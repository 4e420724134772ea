"""Preallocated files that are overwritten in place, some without a name."""

import errno
import fcntl
import os
import tempfile
import threading

from replay_io import Mismatch, aligned, compare, exists, fallocate
from replay_scenario import Scenario, unique


class Pool(Scenario):
    """Slots of one preallocated file that is overwritten in place."""

    def open_pool(self):
        raise NotImplementedError

    def prepare(self):
        super().prepare()
        self.fd = self.open_pool()

    def finish(self):
        os.close(self.fd)

    def store(self, key):
        for _ in range(2):
            if os.pwritev(self.fd, [aligned(self.data(key))], key * self.size) != self.size:
                raise Mismatch("short pwrite")

    def probe(self, key):
        return True

    def load(self, key):
        buffer = aligned(self.size)
        count = os.preadv(self.fd, [buffer], key * self.size)
        compare(f"{self.root} slot {key}", buffer[:count], self.data(key))
        return True


class SglangHf3fs(Pool):
    """One sparse file of 1 TiB per rank."""

    name = "sglang-hf3fs"

    def open_pool(self):
        fd = os.open(f"{self.root}/hicache.0.bin", os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(fd, 1 << 40)
        return fd

    def place(self, key):
        return (key * 0x9E3779B1 % (1 << 18)) * (1 << 22)  # All over the terabyte.

    def store(self, key):
        if os.pwrite(self.fd, self.data(key), self.place(key)) != self.size:
            raise Mismatch("short pwrite")

    def load(self, key):
        compare(f"{self.root} at {self.place(key)}",
                os.pread(self.fd, self.size, self.place(key)), self.data(key))
        return True


class VllmSimpleDisk(Pool):
    """unlink, O_EXCL|O_NOFOLLOW|O_DIRECT, ftruncate, an iovec per layer."""

    name = "vllm-simple-disk"
    lasting = False

    def open_pool(self):
        path = f"{self.root}/offload_{os.getpid()}.bin"
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_DIRECT
        fd = os.open(path, flags, 0o600)
        os.ftruncate(fd, 256 * self.size)
        self.pool = path
        return fd

    def layers(self, key):
        data = self.data(key)
        step = len(data) // 4
        return [aligned(data[i:i + step]) for i in range(0, len(data), step)]

    def store(self, key):
        if os.pwritev(self.fd, self.layers(key), key * self.size) != self.size:
            raise Mismatch("short pwritev")

    def load(self, key):
        buffers = [aligned(self.size // 4) for _ in range(4)]
        count = os.preadv(self.fd, buffers, key * self.size)
        got = b"".join(b[:] for b in buffers)[:count]
        compare(f"{self.pool} slot {key}", got, self.data(key))
        return True

    def finish(self):
        super().finish()
        os.unlink(self.pool)


class Kvbm(Pool):
    """mkostemp, O_DIRECT by F_SETFL, fallocate of everything, unlinked while open."""

    name = "dynamo-kvbm"
    lasting = False

    def open_pool(self):
        fd, path = tempfile.mkstemp(prefix="dynamo-kvbm-disk-cache-", dir=self.root)
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        if not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise Mismatch("F_SETFL O_DIRECT was not taken")
        fallocate(fd, 0, 0, 256 * self.size)  # Any error here is fatal to the runtime.
        if os.fstat(fd).st_size != 256 * self.size:
            raise Mismatch("fallocate left another size")
        os.unlink(path)
        if os.fstat(fd).st_nlink != 0:
            raise Mismatch("unlinked, and st_nlink is not 0")
        return fd


class TrtV2(Pool):
    """O_TMPFILE (mkstemp + unlink only on EOPNOTSUPP), posix_fallocate, slots."""

    name = "trt-v2"
    lasting = False

    def open_pool(self):
        try:
            fd = os.open(self.root, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            fd, path = tempfile.mkstemp(dir=self.root)
            os.unlink(path)
        os.posix_fallocate(fd, 0, 128 * self.size)
        os.posix_fallocate(fd, 0, 256 * self.size)  # The pool is resized.
        return fd


class MooncakeOffset(Pool):
    """One file, fallocate, pwrite, fdatasync; metadata by tmp + fsync + rename + fsync(dir)."""

    name = "mooncake-offset"
    lock = threading.Lock()

    def open_pool(self):
        path = f"{self.root}/kv_cache.data"
        fresh = not exists(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if fresh else 0), 0o644)
        if fresh:
            fallocate(fd, 0, 0, 256 * self.size)
        return fd

    def store(self, key):
        super().store(key)
        if key % 8:
            return  # The runtime writes its table out now and then, not for each block.
        with self.lock:
            os.fdatasync(self.fd)
            tmp = f"{self.root}/meta.{unique()}.tmp"
            with open(tmp, "wb") as file:
                file.write(b"%d" % key)
                file.flush()
                os.fsync(file.fileno())
            os.rename(tmp, f"{self.root}/meta")
            directory = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
