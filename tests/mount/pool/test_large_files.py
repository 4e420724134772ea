"""Files over --stage-whole open at once and are read while they come from the pool: whoever reads, maps or copies them waits
for the bytes that he needs, and gets those that were stored or an error in time."""

import concurrent.futures
import contextlib
import errno
import hashlib
import importlib.util
import mmap
import os
import random
import subprocess
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

_SPEC = importlib.util.spec_from_file_location(
    "nfs_proxy", os.path.join(kvmount.TESTS, "servers", "nfs_proxy.py"))
nfs_proxy = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(nfs_proxy)

MIB = 1 << 20
SIZE = 48 * MIB + 4321
NO_PROGRESS_S = 2.0


class Scene:
    """`a` has stored a large file; `b`, behind a proxy, reads it."""

    def __init__(self, options, proxied=True):
        self.options = options
        self.proxied = proxied

    def __enter__(self):
        seed = kvmount.seed()
        print(f"KVCACHEFS_SEED={seed}")
        self.chance = random.Random(seed)
        self.data = self.chance.randbytes(SIZE)
        self.pool = pools.Pool("nfs").__enter__()
        try:
            self.proxy = nfs_proxy.Proxy(self.pool.port, seed).__enter__()
            self.a = pools.node(self.pool, "a").__enter__()
            # A fault on a mapping holds the interpreter's lock: the proxy, in this process, could not serve it.
            through = self.pool.uri_through(self.proxy.port) if self.proxied else self.pool.uri
            self.b = pools.node(self.pool, "b", uri=through,
                                options=["--stage-whole", "1MiB", *self.options]).__enter__()
            pools.wait_until_joined(self.a, self.b)
            with open(os.path.join(self.a.mnt, "weights.bin"), "wb") as file:
                file.write(self.data)
            assert self.a.cli("flush", self.a.mnt).returncode == 0
            self.path = os.path.join(self.b.mnt, "weights.bin")
            kvmount.wait_until(lambda: os.path.exists(self.path), 20, "b finds it")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in ("b", "a", "proxy", "pool"):
            if hasattr(self, name):
                getattr(self, name).__exit__(None, None, None)

    def wait_until_whole(self):
        kvmount.wait_until(lambda: pools.state(self.b)["loaded"] == 1, 60, "it is whole")


PATHS = pytest.mark.parametrize("options", [[], ["--data-path", "daemon"]], ids=["passthrough", "daemon"])


@pytest.fixture
def scene(options):
    with Scene(options) as made:
        yield made


@PATHS
def test_it_is_read_and_mapped_while_it_comes(options):
    with Scene(options, proxied=False) as scene:
        with open(scene.path, "rb") as file:
            assert os.fstat(file.fileno()).st_size == SIZE
            assert os.pread(file.fileno(), 1000, SIZE - 1000) == scene.data[-1000:]
            assert os.pread(file.fileno(), 1000, SIZE - 10) == scene.data[-10:]
            assert os.pread(file.fileno(), 1000, SIZE) == b""
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                assert mapped[20 * MIB:20 * MIB + 5000] == scene.data[20 * MIB:20 * MIB + 5000]
                scene.wait_until_whole()
                # The kernel keeps it to its page cache as long as this one is open; others get on all the same.
                with open(scene.path, "rb") as other:
                    assert other.read() == scene.data
                assert mapped[:] == scene.data
            with open(scene.path, "r+b") as writer:
                writer.write(b"changed")
            assert os.pread(file.fileno(), 7, 0) == b"changed"
        with open(scene.path, "rb") as file:
            assert file.read() == b"changed" + scene.data[7:]


@PATHS
def test_a_copy_made_while_it_comes_is_whole(scene):
    copy = os.path.join(scene.b.mnt, "copy.bin")
    subprocess.run(["cp", "--sparse=auto", "--reflink=auto", scene.path, copy], check=True,
                   timeout=120)
    with open(copy, "rb") as file:
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(scene.data).digest()


# A read that makes no progress for two seconds is an error, as promised: forty of them need the machine.
@pytest.mark.alone
@PATHS
def test_many_read_it_at_once(scene):
    def read(number, file):
        chance = random.Random(number)
        for _ in range(12):
            at = chance.randrange(SIZE)
            length = chance.choice([1, 4096, 300_000, 3 * MIB])
            end = min(at + length, SIZE)
            while at < end:
                try:
                    got = os.pread(file.fileno(), end - at, at)
                except OSError as error:
                    assert error.errno == errno.EIO, error
                    raise kvmount.Late("a read of one of forty made no progress") from error
                # Of a read whose second half makes none, the first.
                assert got and got == scene.data[at:at + len(got)], (number, at, end, len(got))
                at += len(got)

    with contextlib.ExitStack() as stack:
        # One after the other: of a dozen opens that wait for the pool at once the next is a miss.
        files = [stack.enter_context(open(scene.path, "rb", buffering=0)) for _ in range(40)]
        with concurrent.futures.ThreadPoolExecutor(40) as threads:
            list(threads.map(read, range(40), files))


@PATHS
@pytest.mark.parametrize("advice", [pytest.param(os.POSIX_FADV_RANDOM, id="random"),
                                    pytest.param(os.POSIX_FADV_NORMAL, id="read-ahead", marks=pytest.mark.promise(2))])
def test_a_server_that_stops_is_an_error_in_time(scene, advice):
    descriptor = os.open(scene.path, os.O_RDONLY)
    try:
        assert os.pread(descriptor, 100, 0) == scene.data[:100]
        scene.proxy.mode = "stop"
        os.posix_fadvise(descriptor, 0, 0, advice)
        failed = False
        for at in (SIZE - 5 * MIB, SIZE - 20 * MIB, SIZE - 9 * MIB, SIZE - 13 * MIB):
            began = time.monotonic()
            try:
                # It may have come before the server stopped.
                assert os.pread(descriptor, 100, at) == scene.data[at:at + 100]
            except OSError as error:
                assert error.errno == errno.EIO
                failed = True
            took = time.monotonic() - began
            if took > (NO_PROGRESS_S * 1.1 + 0.5) * kvmount.SLOWNESS:
                raise kvmount.Late(f"a read took {took:.2f} s")
            began = time.monotonic()
            os.stat(scene.b.mnt)
            if time.monotonic() - began > kvmount.SLOWNESS:
                raise kvmount.Late("a stat of the root")
        assert failed or pools.state(scene.b)["loaded"] == 1
        # What came can be read.
        assert os.pread(descriptor, 100, 0) == scene.data[:100]
        scene.proxy.mode = None

        def reads_on():
            try:
                return os.pread(descriptor, 100, SIZE // 2) == scene.data[SIZE // 2:SIZE // 2 + 100]
            except OSError:
                return False

        kvmount.wait_until(reads_on, 30, "it is read on")
    finally:
        os.close(descriptor)


@PATHS
def test_a_lying_server_is_an_error(scene):
    with open(scene.path, "rb", buffering=0) as file:
        scene.proxy.mode = "flip"
        for at in range(0, SIZE, 7 * MIB):
            try:
                assert os.pread(file.fileno(), 4096, at) == scene.data[at:at + 4096]
            except OSError as error:
                assert error.errno == errno.EIO
    scene.proxy.mode = None
    kvmount.wait_until(lambda: os.path.exists(scene.path), 20, "it is found again")
    with open(scene.path, "rb") as file:
        assert file.read() == scene.data
