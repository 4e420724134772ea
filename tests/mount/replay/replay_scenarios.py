"""What each runtime does to its directory, call for call, on scaled-down blocks.

A Scenario works on one directory with one seed. Any number of threads and processes call
`store(key)` and `load(key)` for integer keys; `prepare()` is what a process does at its start and
`finish()` at its end. `load` verifies and raises Mismatch; it returns False for a miss. Scenarios
whose files do not outlive the process (anonymous pools) have `lasting = False`: they store and
verify through the descriptors that they hold.
"""

import errno
import itertools
import json
import mmap
import os
import struct
import tempfile
import threading
import urllib.parse
import zlib

from replay_io import (FALLOC_FL_KEEP_SIZE, SECTOR, Mismatch, aligned, compare, content, digest,
                       exists, fallocate, read_loop, read_once, round_up, write_loop, write_once)

_unique = itertools.count()


def unique():
    """A suffix no other thread or process uses."""
    return f"{os.getpid()}.{threading.get_ident()}.{next(_unique)}"


class Scenario:
    """See the module. `size` is the scaled block."""

    name = "abstract"
    size = 16 * SECTOR
    lasting = True
    collides = True  # May two processes store one key at once? (False: not even on ext4.)

    def __init__(self, root, seed):
        self.root = root
        self.seed = seed

    def prepare(self):
        os.makedirs(self.root, exist_ok=True)

    def finish(self):
        pass

    def data(self, key):
        return content(self.seed, f"{self.name}/{key}", self.size)

    def hash(self, key):
        return digest(self.seed, f"{self.name}/{key}")

    def probe(self, key):
        """Does the runtime think that it has the block? The call it uses to find out."""
        return exists(self.path(key))

    def path(self, key):
        raise NotImplementedError

    def store(self, key):
        raise NotImplementedError

    def load(self, key):
        raise NotImplementedError

    def check_directory(self, keys):
        """After a quiet moment: nothing but the stored blocks, all of them."""


class VllmFsTier(Scenario):
    """hhh/hh_gN/<hash>.bin, O_DIRECT, one write, one read, rename."""

    name = "vllm-fs"

    def prepare(self):
        super().prepare()
        os.makedirs(f"{self.root}/model_1a2b3c4d5e6f", exist_ok=True)
        with open(f"{self.root}/model_1a2b3c4d5e6f/config.json", "w") as config:
            json.dump({"model": "model", "block": 16}, config)
        trial = f"{self.root}/.o_direct_probe_{unique()}.tmp"
        fd = os.open(trial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
        try:
            write_once(fd, aligned(SECTOR))
        finally:
            os.close(fd)
            os.unlink(trial)

    def path(self, key):
        h = self.hash(key)
        return f"{self.root}/model_1a2b3c4d5e6f_r0/{h[:3]}/{h[3:5]}_g0/{h}.bin"

    def probe(self, key):
        return os.access(self.path(key), os.F_OK)

    def store(self, key):
        path = self.path(key)
        if os.access(path, os.F_OK):
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tmp = f"{path}_{unique()}.tmp"
        fd = os.open(tmp, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
        try:
            write_once(fd, aligned(self.data(key)))
        finally:
            os.close(fd)
        os.rename(tmp, path)

    def load(self, key):
        try:
            fd = os.open(self.path(key), os.O_RDONLY | os.O_DIRECT)
        except FileNotFoundError:
            return False
        try:
            compare(self.path(key), read_once(fd, self.size, direct=True), self.data(key))
        finally:
            os.close(fd)
        return True


class LlmdFs(Scenario):
    """Buffered; renamed while the descriptor is still open; loads read a tail."""

    name = "llm-d"

    def path(self, key):
        h = self.hash(key)
        return f"{self.root}/model_r0/{h[:3]}/{h[3:5]}_g0/{h}.bin"

    def probe(self, key):
        try:
            os.close(os.open(self.path(key), os.O_RDONLY))
            return True
        except FileNotFoundError:
            return False

    def store(self, key):
        path = self.path(key)
        if self.probe(key):
            os.utime(path)  # The real call gives UTIME_OMIT for mtime; posix/ covers that.
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tmp = f"{path}.{unique()}.tmp"
        data = self.data(key)
        fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.writev(fd, [data[:100], data[100:]])
            os.rename(tmp, path)
        finally:
            os.close(fd)

    def load(self, key):
        data = self.data(key)
        try:
            fd = os.open(self.path(key), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            end = os.lseek(fd, 0, os.SEEK_END)
            if end != self.size:
                raise Mismatch(f"{self.path(key)}: SEEK_END says {end}, stored {self.size}")
            tail = self.size // 4
            os.lseek(fd, end - tail, os.SEEK_SET)
            compare(self.path(key), read_once(fd, tail), data[-tail:])
            os.lseek(fd, 0, os.SEEK_SET)
            compare(self.path(key), read_once(fd, self.size), data)
        finally:
            os.close(fd)
        return True


class LmcacheLocalDisk(Scenario):
    """`open(path, "wb")` on the final name, one write; readinto whose count nobody checks."""

    name = "lmcache-local"

    def path(self, key):
        return f"{self.root}/meta-llama-Llama-3.1-8B@1@0@{self.hash(key)[:16]}@bfloat16.pt"

    def store(self, key):
        with open(self.path(key), "wb") as file:
            file.write(self.data(key))

    def load(self, key):
        buffer = bytearray(self.size)
        try:
            with open(self.path(key), "rb") as file:
                count = file.readinto(buffer)
        except FileNotFoundError:
            return False
        compare(self.path(key), bytes(buffer[:count]), self.data(key))
        return True


class LmcacheLocalDirect(LmcacheLocalDisk):
    """The same with use_odirect: no O_TRUNC, one direct write."""

    name = "lmcache-local-direct"

    def store(self, key):
        if self.size % os.statvfs(self.root).f_bsize:
            raise Mismatch("f_bsize does not divide the block: the runtime would go buffered")
        fd = os.open(self.path(key), os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o666)
        try:
            os.write(fd, aligned(self.data(key)))
        finally:
            os.close(fd)

    def load(self, key):
        try:
            fd = os.open(self.path(key), os.O_RDONLY | os.O_DIRECT)
        except FileNotFoundError:
            return False
        try:
            compare(self.path(key), read_once(fd, self.size, direct=True), self.data(key))
        finally:
            os.close(fd)
        return True


class LmcacheFsConnector(Scenario):
    """A 28-byte header and the chunk; the temporary in a subdirectory of its own."""

    name = "lmcache-fs"
    size = 16 * SECTOR + 100

    def prepare(self):
        super().prepare()
        os.makedirs(f"{self.root}/tmp", exist_ok=True)

    def path(self, key):
        return f"{self.root}/meta-llama-SEP-Llama-3.1-8B@2@0@{self.hash(key)[:16]}.data"

    def store(self, key):
        tmp = f"{self.root}/tmp/{os.path.basename(self.path(key))}"
        with open(tmp, "wb") as file:
            file.write(struct.pack("<7I", self.size, 1, 2, 3, 4, 5, 6))
            file.write(self.data(key))
        try:
            os.replace(tmp, self.path(key))
        except FileNotFoundError:
            pass  # Another process stored the same key and shares the temporary's name.

    def load(self, key):
        try:
            with open(self.path(key), "rb", buffering=0) as file:
                header = file.read(28)
                if len(header) != 28 or struct.unpack("<7I", header)[0] != self.size:
                    raise Mismatch(f"{self.path(key)}: header {header!r}")
                body = bytearray(self.size)
                count = file.readinto(body)
        except FileNotFoundError:
            return False
        compare(self.path(key), bytes(body[:count]), self.data(key))
        return True


class LmcacheMpFs(Scenario):
    """stat, `.tmp` beside the name, replace; loads loop until full."""

    name = "lmcache-mp-fs"
    size = 17 * SECTOR + 13

    def path(self, key):
        return f"{self.root}/meta-llama-SEP-Llama@0x01000100@0@{self.hash(key)[:24]}.data"

    def store(self, key):
        path = self.path(key)
        if exists(path):
            return
        try:
            with open(path + ".tmp", "wb") as file:
                file.write(self.data(key))
            os.replace(path + ".tmp", path)
        except FileNotFoundError:
            pass

    def load(self, key):
        try:
            fd = os.open(self.path(key), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            compare(self.path(key), read_loop(fd, self.size + 1), self.data(key))
        finally:
            os.close(fd)
        return True


class LmcacheFsNative(LmcacheMpFs):
    """The C++ worker threads: O_DIRECT when length and address allow."""

    name = "lmcache-fs-native"
    size = 16 * SECTOR

    def store(self, key):
        path = self.path(key)
        if os.statvfs(self.root).f_bsize != SECTOR:
            raise Mismatch("f_bsize is not 4096: O_DIRECT would be off")
        tmp = f"{path}.tmp.{unique()}"
        fd = os.open(tmp, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
        try:
            write_loop(fd, aligned(self.data(key)))
        finally:
            os.close(fd)
        os.rename(tmp, path)


class LmcacheGds(Scenario):
    """NN/NN/<key>.kvcache.safetensors stored through a shared mapping, plus 4 KiB of metadata."""

    name = "lmcache-gds"

    def path(self, key):
        number = int(self.hash(key)[:12], 16)
        name = urllib.parse.quote(f"model@1@0@{self.hash(key)}@bf16", safe="")
        return (f"{self.root}/{number % 100:02}/{number // 100 % 100:02}/"
                f"{name}.kvcache.safetensors")

    def metadata(self, key):
        return content(self.seed, f"metadata/{key}", SECTOR)

    def store(self, key):
        path = self.path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tmp = f"{path}.{unique()}"
        with open(tmp, "wb") as file:
            file.write(self.metadata(key))
        fd = os.open(tmp, os.O_RDWR)
        try:
            os.ftruncate(fd, SECTOR + self.size)
            with mmap.mmap(fd, SECTOR + self.size, mmap.MAP_SHARED,
                           mmap.PROT_READ | mmap.PROT_WRITE) as mapping:
                mapping[SECTOR:] = self.data(key)
        finally:
            os.close(fd)
        os.rename(tmp, path)
        tmp = f"{path}.metadata.{unique()}"
        with open(tmp, "wb") as file:
            file.write(self.metadata(key))
        os.rename(tmp, path + ".metadata")

    def load(self, key):
        path = self.path(key)
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            if os.fstat(fd).st_size != SECTOR + self.size:
                raise Mismatch(f"{path}: size {os.fstat(fd).st_size}")
            populate = getattr(mmap, "MAP_POPULATE", 0x8000)
            with mmap.mmap(fd, SECTOR + self.size, mmap.MAP_PRIVATE | populate,
                           mmap.PROT_READ) as mapping:
                compare(path, mapping[:], self.metadata(key) + self.data(key))
        finally:
            os.close(fd)
        return True

    def check_directory(self, keys):
        """The scan at the start of the runtime: two levels, every metadata file."""
        seen = set()
        for outer in os.scandir(self.root):
            for inner in os.scandir(outer.path):
                for entry in os.scandir(inner.path):
                    if not entry.name.endswith(".metadata"):
                        continue
                    fd = os.open(entry.path, os.O_RDONLY | os.O_NOATIME)
                    try:
                        seen.add((entry.path, os.read(fd, SECTOR)))
                    finally:
                        os.close(fd)
        want = {(self.path(k) + ".metadata", self.metadata(k)) for k in keys}
        if seen != want:
            raise Mismatch(f"{self.root}: the scan finds {len(seen)} of {len(want)} chunks")


class NixlStatic(Scenario):
    """A pool of N files, each open for life, overwritten in place with O_DIRECT."""

    name = "nixl-static"
    files = 8

    def prepare(self):
        super().prepare()
        self.fds = [os.open(f"{self.root}/obj_{i}_{i:04x}.bin",
                            os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644)
                    for i in range(self.files)]

    def finish(self):
        for fd in self.fds:
            os.close(fd)

    def probe(self, key):
        return True  # The runtime asks its own table.

    def place(self, key):
        return self.fds[key % self.files], key // self.files * self.size

    def store(self, key):
        fd, offset = self.place(key)
        for _ in range(2):  # Slots are reused: the second time overwrites.
            if os.pwritev(fd, [aligned(self.data(key))], offset) != self.size:
                raise Mismatch("short pwrite")

    def load(self, key):
        fd, offset = self.place(key)
        buffer = aligned(self.size)
        count = os.preadv(fd, [buffer], offset)
        if count == 0:
            return False
        compare(f"{self.root}/obj_{key % self.files} at {offset}", buffer[:count],
                self.data(key))
        return True


class NixlDynamic(Scenario):
    """The final name, O_CREAT|O_RDWR, no truncation, no rename."""

    name = "nixl-dynamic"

    def path(self, key):
        return f"{self.root}/{self.hash(key)[:40]}.bin"

    def store(self, key):
        fd = os.open(self.path(key), os.O_CREAT | os.O_RDWR, 0o644)
        try:
            if os.pwrite(fd, self.data(key), 0) != self.size:
                raise Mismatch("short pwrite")
        finally:
            os.close(fd)

    def load(self, key):
        if not self.probe(key):
            return False
        fd = os.open(self.path(key), os.O_RDWR)
        try:
            compare(self.path(key), os.pread(fd, self.size, 0), self.data(key))
        finally:
            os.close(fd)
        return True


class NixlStoreDynamic(NixlDynamic):
    """A unique temporary, rename; loads open O_RDWR all the same."""

    name = "nixl-store-dynamic"

    def store(self, key):
        tmp = f"{self.path(key)}.tmp.{unique()}"
        fd = os.open(tmp, os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644)
        try:
            if os.pwritev(fd, [aligned(self.data(key))], 0) != self.size:
                raise Mismatch("short pwrite")
        finally:
            os.close(fd)
        os.rename(tmp, self.path(key))


class NixlNative(NixlDynamic):
    """O_SYNC|O_DIRECT on a temporary, published by link(2); EEXIST means equal sizes."""

    name = "nixl-native"
    size = 4 * SECTOR

    def store(self, key):
        os.statvfs(self.root)
        path = self.path(key)
        tmp = f"{path}.tmp.{unique()}"
        fd = os.open(tmp, os.O_RDWR | os.O_CREAT | os.O_SYNC | os.O_DIRECT, 0o644)
        try:
            if os.pwritev(fd, [aligned(self.data(key))], 0) != self.size:
                raise Mismatch("short pwrite")
        finally:
            os.close(fd)
        try:
            os.link(tmp, path)
        except FileExistsError:
            if os.stat(path).st_size != self.size:
                raise Mismatch(f"{path}: EEXIST and another size") from None
        os.unlink(tmp)


class SglangFile(Scenario):
    """One flat directory; numpy.tofile with fallocate(KEEP_SIZE), replace; unbuffered readinto."""

    name = "sglang-file"
    size = 70_272  # One token of DeepSeek-V3: no multiple of 4 KiB.

    def path(self, key):
        return f"{self.root}/{self.hash(key)}_model_0_1.bin"

    def store(self, key):
        path = self.path(key)
        if exists(path):
            return
        tmp = f"{path}.tmp.{unique()}"
        with open(tmp, "wb") as file:
            fallocate(file.fileno(), FALLOC_FL_KEEP_SIZE, 0, self.size)
            file.write(self.data(key))
        os.replace(tmp, path)

    def load(self, key):
        buffer = bytearray(self.size)
        try:
            with open(self.path(key), "rb", buffering=0) as file:
                count = file.readinto(buffer)
        except FileNotFoundError:
            return False
        compare(self.path(key), bytes(buffer[:count]), self.data(key))
        return True

    def check_directory(self, keys):
        """Hybrid models scan the whole directory per lookup; the evictor stats each entry."""
        seen = {entry.name: entry.stat().st_size for entry in os.scandir(self.root)
                if entry.is_file()}
        want = {os.path.basename(self.path(k)): self.size for k in keys}
        if seen != want:
            raise Mismatch(f"{self.root}: scandir differs in {set(seen) ^ set(want)}")


class SglangNixl(Scenario):
    """256 buckets made at the start, O_DIRECT onto the final name, key and value files."""

    name = "sglang-nixl"
    size = 8 * SECTOR

    def prepare(self):
        for bucket in range(256):
            os.makedirs(f"{self.root}/{bucket:02x}", exist_ok=True)

    def path(self, key):
        return f"{self.root}/{self.hash(key)[:2]}/{self.hash(key)}_model_0_1"

    def probe(self, key):
        return exists(self.path(key) + "_k") and exists(self.path(key) + "_v")

    def store(self, key):
        for part, data in self.parts(key):
            fd = os.open(self.path(key) + part, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
            try:
                if os.pwritev(fd, [aligned(data)], 0) != len(data):
                    raise Mismatch("short pwrite")
            finally:
                os.close(fd)

    def parts(self, key):
        data = self.data(key)
        return ("_k", data[:len(data) // 2]), ("_v", data[len(data) // 2:])

    def load(self, key):
        if not self.probe(key):
            return False
        for part, data in self.parts(key):
            fd = os.open(self.path(key) + part, os.O_RDWR | os.O_DIRECT)
            try:
                compare(self.path(key) + part, read_once(fd, len(data), direct=True), data)
            finally:
                os.close(fd)
        return True


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
        import fcntl
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


class TrtExample(Scenario):
    """<sha256>.pt through a NamedTemporaryFile; a zip's directory at the end is read first."""

    name = "trt-example"
    size = 12 * SECTOR + 777

    def path(self, key):
        return f"{self.root}/{self.hash(key)}.pt"

    def probe(self, key):
        return os.path.exists(self.path(key))

    def store(self, key):
        fd, tmp = tempfile.mkstemp(dir=self.root)  # O_EXCL|O_NOFOLLOW, 0600
        data = self.data(key)
        with os.fdopen(fd, "wb") as file:
            for at in range(0, len(data), 9000):
                file.write(data[at:at + 9000])
        os.replace(tmp, self.path(key))

    def load(self, key):
        data = self.data(key)
        try:
            with open(self.path(key), "rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(end - 1024, 0))
                compare(self.path(key), file.read(), data[-1024:])
                file.seek(0)
                compare(self.path(key), file.read(), data)
        except FileNotFoundError:
            return False
        return True


class VllmExample(Scenario):
    """A directory per prompt, a safetensors file per layer, loaded by mmap."""

    name = "vllm-example"
    size = 3 * SECTOR + 64
    layers = 4

    def path(self, key):
        return f"{self.root}/{self.hash(key)[:32]}"

    def layer(self, key, number):
        return content(self.seed, f"layer {key} {number}", self.size)

    def probe(self, key):
        return os.path.isdir(self.path(key))

    def store(self, key):
        os.makedirs(self.path(key), exist_ok=True)
        for number in range(self.layers):
            with open(f"{self.path(key)}/layer.{number}.safetensors", "wb") as file:
                file.write(self.layer(key, number))

    def load(self, key):
        if not self.probe(key):
            return False
        for number in range(self.layers):
            path = f"{self.path(key)}/layer.{number}.safetensors"
            try:
                with open(path, "rb") as file, \
                        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
                    compare(path, mapping[:], self.layer(key, number))
            except FileNotFoundError:
                return False
        return True


class MooncakeFilePerKey(Scenario):
    """<a>/<b>/<key> written in place by pwritev; a recursive scan at the start."""

    name = "mooncake-file"
    size = 9 * SECTOR + 5

    def path(self, key):
        h = zlib.crc32(self.hash(key).encode())
        return f"{self.root}/{chr(97 + h % 16)}/{chr(97 + h // 16 % 16)}/{self.hash(key)}"

    def store(self, key):
        os.makedirs(os.path.dirname(self.path(key)), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(self.path(key), flags, 0o644)
        data = self.data(key)
        try:
            if os.pwritev(fd, [data[:5000], data[5000:]], 0) != len(data):
                raise Mismatch("short pwritev")
        finally:
            os.close(fd)

    def load(self, key):
        try:
            fd = os.open(self.path(key), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            buffer = bytearray(self.size)
            count = os.preadv(fd, [buffer], 0)
            compare(self.path(key), bytes(buffer[:count]), self.data(key))
        finally:
            os.close(fd)
        return True

    def check_directory(self, keys):
        seen = {os.path.join(base, name) for base, _, names in os.walk(self.root)
                for name in names}
        if seen != {self.path(k) for k in keys}:
            raise Mismatch(f"{self.root}: the recursive scan finds {len(seen)} files")


class MooncakeBucket(Scenario):
    """<id>.bucket by one pwritev, then <id>.meta; direct reads run past the end of the file."""

    name = "mooncake-bucket"
    size = 10 * SECTOR + 1000

    def path(self, key):
        return f"{self.root}/{key + 1000}.bucket"

    def probe(self, key):
        return exists(f"{self.root}/{key + 1000}.meta")

    def store(self, key):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        data = self.data(key)
        for path, parts in ((self.path(key), [data[:3], data[3:]]),
                            (f"{self.root}/{key + 1000}.meta", [b"%d" % len(data)])):
            fd = os.open(path, flags, 0o644)
            try:
                os.pwritev(fd, parts, 0)
            finally:
                os.close(fd)

    def load(self, key):
        try:
            with open(f"{self.root}/{key + 1000}.meta", "rb") as meta:
                size = int(meta.read())
            fd = os.open(self.path(key), os.O_RDONLY | os.O_DIRECT)
        except FileNotFoundError:
            return False
        try:
            buffer = aligned(round_up(size))
            count = os.preadv(fd, [buffer], 0)  # The last sector runs past EOF.
            compare(self.path(key), buffer[:count], self.data(key))
        finally:
            os.close(fd)
        return True

    def check_directory(self, keys):
        """The scan that deletes orphans must find none."""
        names = {entry.name for entry in os.scandir(self.root)}
        buckets = {n[:-7] for n in names if n.endswith(".bucket")}
        metas = {n[:-5] for n in names if n.endswith(".meta")}
        if buckets != metas or buckets != {str(k + 1000) for k in keys}:
            raise Mismatch(f"{self.root}: orphans {buckets ^ metas}")


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


class AibrixShfs(Scenario):
    """kk/kk/<32 hex>, `.tmp`, replace, then a check of the size by stat."""

    name = "aibrix-shfs"
    collides = False  # The temporary is shared: the size check can see the other's truncation.
    size = 8 * SECTOR

    def path(self, key):
        h = self.hash(key)[:32]
        return f"{self.root}/conn/{h[:2]}/{h[2:4]}/{h}"

    def store(self, key):
        path = self.path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with open(path + ".tmp", "wb") as file:
                file.write(self.data(key))
            os.replace(path + ".tmp", path)
        except FileNotFoundError:
            return
        if os.stat(path).st_size != self.size:
            raise Mismatch(f"{path}: size {os.stat(path).st_size} right after the store")

    def load(self, key):
        path = self.path(key)
        if not os.path.exists(path):
            return False
        if os.stat(path).st_size != self.size:
            raise Mismatch(f"{path}: size {os.stat(path).st_size}")
        with open(path, "rb") as file:
            compare(path, file.read(), self.data(key))
        return True


class LlamaCppSlot(Scenario):
    """fopen "wb" truncates the good copy; u32 headers, then thousands of small stdio writes."""

    name = "llama.cpp"
    collides = False  # Two servers saving one slot tear it.
    size = 40 * SECTOR + 12

    def path(self, key):
        return f"{self.root}/slot-{key}.bin"

    def store(self, key):
        data = self.data(key)
        for version in (bytes(len(data) // 2), data):  # A save over an older, smaller save.
            with open(self.path(key), "wb", buffering=SECTOR) as file:
                for number in range(3):
                    file.write(version[number * 4:number * 4 + 4])
                for at in range(12, len(version), 5000):
                    file.write(version[at:at + 5000])

    def load(self, key):
        data = self.data(key)
        try:
            with open(self.path(key), "rb", buffering=SECTOR) as file:
                end = file.seek(0, os.SEEK_END)
                if end != len(data):
                    raise Mismatch(f"{self.path(key)}: SEEK_END says {end}")
                file.seek(0)
                got = file.read(12)
                while part := file.read(20_000):
                    got += part
        except FileNotFoundError:
            return False
        compare(self.path(key), got, data)
        return True


ALL = [VllmFsTier, LlmdFs, LmcacheLocalDisk, LmcacheLocalDirect, LmcacheFsConnector, LmcacheMpFs,
       LmcacheFsNative, LmcacheGds, NixlStatic, NixlDynamic, NixlStoreDynamic, NixlNative,
       SglangFile, SglangNixl, SglangHf3fs, VllmSimpleDisk, Kvbm, TrtV2, TrtExample, VllmExample,
       MooncakeFilePerKey, MooncakeBucket, MooncakeOffset, AibrixShfs, LlamaCppSlot]
