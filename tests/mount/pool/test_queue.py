"""What waits for the pool: its bound, and programs that wait with it (--pool-sync pool)."""

import concurrent.futures
import errno
import hashlib
import os
import platform
import signal
import threading
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

KIB = 1 << 10
FSYNC = {"x86_64": 74}.get(platform.machine(), 82)  # its system call


def content(number, size):
    return hashlib.sha256(f"content {number}".encode()).digest() * (size // 32)


def is_in_fsync(thread):
    with open(f"/proc/self/task/{thread}/syscall", encoding="ascii") as file:
        return file.read().startswith(f"{FSYNC} ")


def wait_until_down(mount):
    kvmount.wait_until(lambda: not pools.state(mount)["up"], 60, "the pool to be down")


@pytest.mark.short
@pytest.mark.parametrize("bound, stay", [("1GiB:4", 4), ("1MiB:1000", 4)])
def test_blocks_beyond_the_bound_are_skipped_and_stay_here(bound, stay):
    size = 256 * KIB
    with pools.Pool("nfs", own=True) as pool, pools.node(pool, "queue", options=["--pool-queue", bound]) as mount:
        pools.wait_until_joined(mount)
        pools.store(mount.mnt, "first", b"bytes")
        assert mount.cli("flush", mount.mnt).returncode == 0
        pool.stop()
        wait_until_down(mount)
        names = [pools.block_name("model", number) for number in range(12)]
        for number, name in enumerate(names):
            pools.store(mount.mnt, name, content(number, size))
        kvmount.wait_until(lambda: pools.state(mount)["skipped"] == len(names) - stay, 60,
                           "what is too much to be skipped")
        assert pools.state(mount)["queued_bytes"] == stay * size
        # The queue is full: what only this mount has, and what is to be kept, waits all the same.
        pools.store(mount.mnt, "model_1a2b3c4d5e6f_r0/config.json", b"{}")
        pinned = pools.store(mount.mnt, pools.block_name("model", 100), content(100, size))
        assert mount.cli("pin", pinned).returncode == 0
        kvmount.wait_until(lambda: pools.state(mount)["queued_bytes"] == (stay + 1) * size + len(b"{}"), 60,
                           "what waits all the same to be counted")
        assert "--pool-queue" in mount.cli("status", mount.mnt).stdout
        for number, name in enumerate(names):
            with open(os.path.join(mount.mnt, name), "rb") as file:
                assert file.read() == content(number, size)
        pool.resume()
        done = mount.cli("flush", mount.mnt)
        assert done.returncode == 0, done.stderr
        assert f"{len(names) - stay} files skipped" in done.stdout
        there = [name for name in names if os.path.exists(pool.path(name))]
        assert there == names[:stay]
        assert os.path.exists(pool.path("model_1a2b3c4d5e6f_r0", "config.json"))
        assert os.path.exists(pool.path(pools.block_name("model", 100)))
        # There is room in the queue again.
        pools.store(mount.mnt, pools.block_name("model", 200), content(200, size))
        assert mount.cli("flush", mount.mnt).returncode == 0
        assert os.path.exists(pool.path(pools.block_name("model", 200)))
        assert pools.state(mount)["queued_bytes"] == 0


def test_a_flush_says_what_was_skipped_while_it_waited():
    with pools.Pool("nfs", own=True) as pool, \
            pools.node(pool, "skips", options=["--pool-queue", "1GiB:2"]) as mount, \
            concurrent.futures.ThreadPoolExecutor() as background:
        pools.wait_until_joined(mount)
        pool.stop()
        wait_until_down(mount)
        descriptors = [pools.store(mount.mnt, pools.block_name("model", number), content(number, KIB), keep_open=True)
                       for number in range(7)]
        pools.store(mount.mnt, "config.json", content(7, KIB))  # No block: it does not count, and is never skipped.
        flush = background.submit(mount.cli, "flush", "--timeout", "4s", mount.mnt)
        # Whether the queue is looked at before that is chance.
        kvmount.wait_until(lambda: mount.status()["counts"]["sealed_total"] > 0, 60,
                           "the flush to have it sealed")
        for fd in descriptors:
            os.close(fd)
        done = flush.result(60)
        assert done.returncode == 1
        assert "5 files skipped" in done.stderr, done.stderr
        assert pools.state(mount)["skipped"] == 5
        pool.resume()


@pytest.mark.short
@pytest.mark.parametrize("kind", ["dir", "nfs"])
def test_an_fsync_waits_for_the_pool(kind):
    with pools.Pool(kind) as pool, \
            pools.node(pool, "syncs", options=["--pool-sync", "pool"]) as mount:
        pools.wait_until_joined(mount)

        def stored(number):
            name = pools.block_name("model", number)
            fd = pools.store(mount.mnt, name, content(number, 64 * KIB), keep_open=True)
            os.fsync(fd)  # Nothing of it can be there while it is written.
            os.close(fd)
            path = os.path.join(mount.mnt, name)
            if number % 2 == 0:
                kvmount.fsync_dir(os.path.dirname(path))
            else:
                fd = os.open(path, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)
            with open(pool.path(name), "rb") as file:
                assert file.read() == content(number, 64 * KIB)

        for number in range(4):
            stored(number)
        with concurrent.futures.ThreadPoolExecutor(12) as threads:
            list(threads.map(stored, range(10, 34)))
        # What stays here is not waited for.
        os.mkdir(os.path.join(mount.mnt, "own"))
        with open(os.path.join(mount.mnt, "own", "a.tmp"), "wb") as file:
            file.write(b"bytes")
        kvmount.fsync_dir(os.path.join(mount.mnt, "own"))
        os.unlink(os.path.join(mount.mnt, pools.block_name("model", 0)))
        kvmount.fsync_dir(mount.mnt)
        assert not os.path.exists(pool.path(pools.block_name("model", 0)))


@pytest.mark.parametrize("what", ["directory", "file"])
def test_an_fsync_waits_for_what_is_being_closed(what):
    """close(2) returns before the kernel's RELEASE. A duplicate that stays open for a moment makes that moment longer."""
    with pools.Pool("dir") as pool, \
            pools.node(pool, "closing", options=["--pool-sync", "pool"]) as mount, \
            concurrent.futures.ThreadPoolExecutor() as background:
        pools.wait_until_joined(mount)
        thread = []

        def sync(path):
            fd = os.open(path, os.O_RDONLY)
            thread[:] = [threading.get_native_id()]
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

        name = pools.block_name("model", 1)
        path = os.path.join(mount.mnt, name)
        fd = pools.store(mount.mnt, name, content(1, KIB), keep_open=True)
        os.fsync(fd)  # The file's own writer waits for nothing.
        os.close(os.dup(fd))
        waits = background.submit(sync, path if what == "file" else os.path.dirname(path))
        kvmount.wait_until(lambda: thread and is_in_fsync(thread[0]), 10, "the fsync")
        os.close(fd)
        waits.result(60)
        assert os.path.exists(pool.path(name))
        # A program that keeps the file open for longer is not waited for.
        name = pools.block_name("model", 2)
        fd = pools.store(mount.mnt, name, content(2, KIB), keep_open=True)
        os.close(os.dup(fd))
        sync(os.path.join(mount.mnt, name) if what == "file" else os.path.dirname(os.path.join(mount.mnt, name)))
        assert not os.path.exists(pool.path(name))
        os.close(fd)
        kvmount.wait_until(lambda: os.path.exists(pool.path(name)), 20, "the block on the pool")


def test_an_fsync_fails_when_the_pool_does_not_answer():
    with pools.Pool("nfs", own=True) as pool, \
            pools.node(pool, "fails", options=["--pool-sync", "pool"]) as mount, \
            pools.node(pool, "local") as other:
        pools.wait_until_joined(mount, other)
        pool.stop()
        for which in (mount, other):
            pools.store(which.mnt, pools.block_name("model", 1), content(1, KIB))
        with kvmount.Beside(mount.work) as beside:
            begin = time.monotonic()
            kvmount.fsync_dir(other.mnt)
            beside.add(time.monotonic() - begin, 5, "an fsync that does not wait for the pool")
            begin = time.monotonic()
            with pytest.raises(OSError) as failed:
                kvmount.fsync_dir(mount.mnt)
            assert failed.value.errno == errno.EIO
            beside.add(time.monotonic() - begin, 12, "an fsync that waits for the pool")
        # It is local as ever.
        with open(os.path.join(mount.mnt, pools.block_name("model", 1)), "rb") as file:
            assert file.read() == content(1, KIB)
        pool.resume()
        kvmount.wait_until(lambda: pools.state(mount)["up"], 20, "the pool to be up")
        kvmount.fsync_dir(mount.mnt)
        assert os.path.exists(pool.path(pools.block_name("model", 1)))


def test_a_mount_ends_while_an_fsync_waits():
    with pools.Pool("nfs", own=True) as pool, \
            pools.node(pool, "ends", options=["--pool-sync", "pool", "--stop-timeout", "1s"]) as mount, \
            concurrent.futures.ThreadPoolExecutor() as background:
        pools.wait_until_joined(mount)
        # No name is looked up once the server has stopped: three that are not answered, and the pool is down.
        file = pools.store(mount.mnt, pools.block_name("model", 1), content(1, KIB), keep_open=True)
        directory = os.open(os.path.dirname(os.path.join(mount.mnt, pools.block_name("model", 1))), os.O_RDONLY)
        pool.stop()
        os.close(file)

        thread = []

        def sync():
            thread.append(threading.get_native_id())
            try:
                os.fsync(directory)
            except OSError as error:
                return error.errno
            finally:
                os.close(directory)
            return 0

        waits = background.submit(sync)

        kvmount.wait_until(lambda: thread and is_in_fsync(thread[0]), 10, "the fsync")
        with kvmount.Beside(mount.work) as beside:
            begin = time.monotonic()
            os.kill(mount.pid(), signal.SIGTERM)
            assert waits.result(60) in (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED)
            beside.add(time.monotonic() - begin, 9, "the end of an fsync whose mount ends")
        pool.resume()
