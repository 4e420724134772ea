"""Pools in directories of other filesystems than the nodes': a second real one, and a FUSE mount."""

import os
import signal
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")


def share(root):
    with pools.Pool("dir", root=root) as pool, pools.node(pool, "a") as a, \
            pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        made = {pools.block(number): os.urandom(1 + number * 40_000) for number in range(30)}
        os.makedirs(os.path.join(a.mnt, "model"))
        for name, data in made.items():
            pools.store(os.path.join(a.mnt, "model"), name, data)
        assert a.cli("flush", a.mnt).returncode == 0
        for name, data in made.items():
            path = os.path.join(b.mnt, "model", name)
            kvmount.wait_until(lambda path=path, data=data: pools.load(path) == data, 20, name)
        for name in list(made)[:10]:
            os.unlink(os.path.join(b.mnt, "model", name))
        assert b.cli("flush", b.mnt).returncode == 0
        assert sorted(os.listdir(pool.path("model"))) == sorted(list(made)[10:])
        done = a.cli("pool", "check", "--read", pool.uri)
        assert done.returncode == 0, done


def made(path):
    os.mkdir(path)
    return path


def test_on_xfs():
    with kvmount.LoopFs("xfs", 512 << 20) as disk:
        share(made(os.path.join(disk.path, "pool")))


def test_on_a_fuse_mount():
    """One of ours, which other nodes know nothing of."""
    with kvmount.Mount("below", options=["--policy", "keep"]) as below:
        share(made(os.path.join(below.mnt, "pool")))


def test_a_stop_does_not_wait_for_a_filesystem_that_hangs():
    with kvmount.Mount("below", options=["--policy", "keep"]) as below, \
            pools.Pool("dir", root=made(os.path.join(below.mnt, "pool"))) as pool, \
            pools.node(pool, "a") as a:
        pools.wait_until_joined(a)
        pools.store(a.mnt, pools.block(1), b"x")
        pools.wait_until_published(a, 1)
        os.kill(below.pid(), signal.SIGSTOP)
        try:
            for number in range(2, 8):
                pools.store(a.mnt, pools.block(number), bytes(300_000))
            kvmount.wait_until(lambda: not pools.state(a)["up"], 20, "the pool is down")
            # The kernel does not let go of some of its threads; nobody waits for these.
            old, a.process = a.process, None
            began = time.monotonic()
            done = a.cli("umount", a.mnt)
            assert done.returncode == 0, done
            assert time.monotonic() - began < 10 * kvmount.SLOWNESS
            a.start()
            assert pools.load(os.path.join(a.mnt, pools.block(7))) == bytes(300_000)
        finally:
            os.kill(below.pid(), signal.SIGCONT)
        assert old.wait(60) == 0
        pools.wait_until_published(a, 6)
