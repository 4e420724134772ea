"""LMCache's backends, and NIXL's plugins as it drives them."""

import mmap
import os
import secrets
import struct
import urllib.parse

from replay_io import (SECTOR, Mismatch, aligned, compare, content, exists, read_loop,
                       read_once, write_loop)
from replay_scenario import Scenario, unique


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
        tmp = f"{path}.tmp{secrets.token_hex(4)}"
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
        tmp = f"{path}.metadata.tmp{secrets.token_hex(4)}"
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
