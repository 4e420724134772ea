"""A caller that is killed or interrupted while its open waits for a pool whose server has
stopped: it ends by the open's deadline, nothing of it stays in the daemon, and the same file
opens when the server is back.

No transport tells the daemon of a signal: the answer to the open is what lets the caller go."""

import errno
import os
import signal
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

CALLERS = 12  # A quarter of a ring's entries may wait for a pool: each of them does.
POOL_THREADS = 4
ROUNDS = 4  # Together more than may wait at a time.
OPEN_S = 2.0  # The deadline of an open of a small file.
OPENAT = 257 if os.uname().machine == "x86_64" else 56


def open_with_handler(path):
    """(errno of the open or 0, how often the handler of SIGINT ran by its end)."""
    caught = []
    signal.signal(signal.SIGINT, lambda *_: caught.append(1))
    code = 0
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        code = error.errno
    os.getpid()  # Python runs a handler after the next call.
    return code, len(caught)


def waits_in_open(child):
    """Whether its thread is blocked in openat(2)."""
    with open(f"/proc/{child.pid}/syscall", encoding="ascii") as call:
        return call.read().split()[0] == str(OPENAT)


class Scene:
    """A mount that knows the names of files which only the pool has."""

    def __init__(self, pool, mount):
        self.pool, self.mount = pool, mount
        self.made = 0

    def find(self, count):
        """New files of the pool, which the mount has looked up: {path: bytes}."""
        files = {}
        for number in range(self.made, self.made + count):
            with open(self.pool.path(f"file{number}"), "wb") as file:
                file.write(b"%d" % number * 1000)
            files[f"{self.mount.mnt}/file{number}"] = b"%d" % number * 1000
        self.made += count
        for path in files:  # It is found, so that it is the open that waits.
            kvmount.wait_until(lambda path=path: os.path.exists(path), 10, f"{path} is found")
        return files

    def start(self, function, paths):
        """Callers of an open that waits, each for one of the paths."""
        self.pool.stop()
        children = []
        try:
            for path in paths:
                children.append(kvmount.Child(function, path))
            # Those beyond the threads that ask it are counted.
            if len(children) > POOL_THREADS:
                kvmount.wait_until(lambda: pools.state(self.mount)["waiting_calls"] > 0, 10,
                                   "a call to wait for the pool")
            for child in children:
                kvmount.wait_until(lambda child=child: waits_in_open(child), 10, "the open to wait")
        except BaseException:
            self.pool.resume()
            for child in children:
                child.end()
            raise
        return children

    def check_well(self, files):
        """Nothing of the callers is left, and each of the files is read."""
        def at_rest():
            status = self.mount.status()
            return (status["counts"]["open_files"] == 0 and status["pool"]["waiting_calls"] == 0 and
                    status["pool"]["up"])

        kvmount.wait_until(at_rest, 20, "the mount is at rest")
        for path, content in files.items():
            kvmount.wait_until(lambda path=path, content=content: pools.load(path) == content, 20,
                               f"{path} is read")
        assert self.mount.status()["counts"]["open_files"] == 0


@pytest.fixture(name="scene")
def a_mount_on_a_pool(transport):
    with pools.Pool("nfs", own=True) as pool, pools.node(pool, "a", transport=transport) as mount:
        pools.wait_until_joined(mount)
        yield Scene(pool, mount)


def end_by(deadline, children):
    for child in children:
        left = deadline - time.monotonic()
        if not kvmount.wait_pidfd(child.pidfd, max(left, 0) / kvmount.SLOWNESS):
            raise kvmount.Late("a caller outlived the deadline of its open")


@pytest.mark.promise(2)
def test_a_killed_caller_ends_by_the_deadline(scene):
    files = {}
    for number in range(ROUNDS):
        found = scene.find(CALLERS)
        files.update(found)
        before = time.monotonic()
        children = scene.start(pools.load, found)
        began = time.monotonic()
        print(f"round {number}: {len(children)} callers in {began - before:.3f} s")
        try:
            for child in children:
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
            if number % 2:
                # The server is back before the deadline: the daemon's answer finds nobody.
                scene.pool.resume()
            end_by(began + (OPEN_S * 1.1 + 0.5) * kvmount.SLOWNESS, children)
            print(f"round {number}: gone after {time.monotonic() - began:.3f} s")
            # What is local is served meanwhile, by every processor's queue.
            for cpu in os.sched_getaffinity(0):
                assert kvmount.run_as(store_on, cpu, f"{scene.mount.mnt}/local{number}-{cpu}",
                                      seconds=10) == b"local"
        finally:
            scene.pool.resume()
            for child in children:
                child.end()
        kvmount.wait_until(lambda: pools.state(scene.mount)["up"], 20, "the pool is up")
    scene.check_well(files)


def store_on(cpu, path):
    os.sched_setaffinity(0, {cpu})
    with open(path, "wb") as file:
        file.write(b"local")
    return pools.load(path)


def test_an_interrupted_caller_gets_an_answer(scene):
    files = scene.find(CALLERS)
    children = scene.start(open_with_handler, files)
    began = time.monotonic()
    try:
        for child in children:
            signal.pidfd_send_signal(child.pidfd, signal.SIGINT)
        end_by(began + (OPEN_S * 1.1 + 0.5) * kvmount.SLOWNESS, children)
        for child in children:
            code, caught = child.result()
            assert code in (errno.ENOENT, errno.EINTR), code
            assert caught == 1
    finally:
        scene.pool.resume()
        for child in children:
            child.end()
    scene.check_well(files)
    # One whose server comes back in time has its file, signal or not.
    files = scene.find(1)
    children = scene.start(open_with_handler, files)
    try:
        signal.pidfd_send_signal(children[0].pidfd, signal.SIGINT)
        scene.pool.resume()
        assert children[0].result() in ((0, 1), (errno.ENOENT, 1), (errno.EINTR, 1))
    finally:
        scene.pool.resume()
        children[0].end()
    scene.check_well(files)
