"""File backends of engines and stores: vLLM, llm-d, SGLang, TensorRT-LLM, Mooncake, AIBrix,
llama.cpp."""

import json
import mmap
import os
import tempfile
import zlib

from replay_io import (FALLOC_FL_KEEP_SIZE, SECTOR, Mismatch, aligned, compare, content, exists,
                       fallocate, read_once, round_up, write_once)
from replay_scenario import Scenario, unique


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
                parts = [file.read(12)]
                while part := file.read(20_000):
                    parts.append(part)
        except FileNotFoundError:
            return False
        compare(self.path(key), b"".join(parts), data)
        return True
