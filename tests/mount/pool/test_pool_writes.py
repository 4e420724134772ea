"""What goes to the pool: all, what is used again, or nothing; told to the mount and to directories."""

import os

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")


def published(pool, names):
    return [name for name in names if os.path.exists(pool.path(name))]


def flush(mount):
    done = mount.cli("flush", mount.mnt)
    assert done.returncode == 0, done.stderr


@pytest.mark.short
@pytest.mark.parametrize("kind", ["dir", "nfs"])
def test_reused_blocks_and_other_files_are_published(kind):
    with pools.Pool(kind, own=True) as pool, \
            pools.node(pool, "stores", options=["--pool-writes", "reused"]) as mount, \
            pools.node(pool, "finds", options=["--pool-writes", "off"]) as other:
        pools.wait_until_joined(mount, other)
        names = [pools.block_name("model", number) for number in range(8)]
        for name in names:
            pools.store(mount.mnt, name, name.encode() * 100)
        pools.store(mount.mnt, "model_1a2b3c4d5e6f_r0/config.json", b"{}")
        flush(mount)
        assert os.path.exists(pool.path("model_1a2b3c4d5e6f_r0", "config.json"))
        assert published(pool, names) == []

        for name in names[:3]:
            assert pools.load(os.path.join(mount.mnt, name)) == name.encode() * 100
        flush(mount)
        assert published(pool, names) == names[:3]
        for name in names[:3]:
            assert pools.load(os.path.join(other.mnt, name)) == name.encode() * 100
        assert not os.path.exists(os.path.join(other.mnt, names[3]))

        # What must not be lost does not wait for that; nor is a use forgotten with the daemon.
        directory = os.path.join(mount.mnt, "kept_1a2b3c4d5e6f_r0")
        os.mkdir(directory)
        os.setxattr(directory, "user.kvcachefs.policy", b"keep")
        pools.store(mount.mnt, pools.block_name("kept", 0), b"kept")
        flush(mount)
        assert published(pool, [pools.block_name("kept", 0)])
        if kind == "nfs":
            pool.kill()
            kvmount.wait_until(lambda: not pools.state(mount)["up"], 20, "the pool to be down")
            assert pools.load(os.path.join(mount.mnt, names[4])) == names[4].encode() * 100
            mount.crash()
            pool.up()
            kvmount.wait_until(lambda: pools.state(mount)["up"], 20, "the pool to be up")
            flush(mount)
            assert published(pool, names) == names[:3] + [names[4]]


@pytest.mark.short
def test_a_directory_is_told_otherwise():
    with pools.Pool("dir") as pool, pools.node(pool, "told") as mount:
        pools.wait_until_joined(mount)

        def tell(kind, what):
            path = os.path.join(mount.mnt, f"{kind}_1a2b3c4d5e6f_r0")
            os.makedirs(path, exist_ok=True)
            return mount.cli("set", path, f"pool-writes={what}")

        for kind, what in ("never", "off"), ("again", "reused"):
            done = tell(kind, what)
            assert done.returncode == 0, done.stderr
        names = [pools.block_name(kind, 0) for kind in ("never", "again", "always")]
        for name in names:
            pools.store(mount.mnt, name, b"x" * 1000)
        pools.store(mount.mnt, "never_1a2b3c4d5e6f_r0/config.json", b"{}")
        flush(mount)
        assert published(pool, names) == names[2:]
        assert not os.path.exists(pool.path("never_1a2b3c4d5e6f_r0", "config.json"))
        for name in names:
            assert pools.load(os.path.join(mount.mnt, name)) == b"x" * 1000
        flush(mount)
        assert published(pool, names) == names[1:]

        # It holds for what is stored from then on.
        assert tell("never", "").returncode == 0
        later = pools.block_name("never", 1)
        pools.store(mount.mnt, later, b"y")
        flush(mount)
        assert published(pool, [*names, later]) == [*names[1:], later]

        done = tell("again", "sometimes")
        assert done.returncode != 0 and "all, reused or off" in done.stderr
        done = mount.cli("set", os.path.join(mount.mnt, later), "pool-writes=off")
        assert done.returncode != 0 and "told to directories" in done.stderr
        with pytest.raises(OSError):
            os.setxattr(mount.mnt, "user.kvcachefs.pool-writes", b"sometimes")


def test_a_wrong_word_is_refused():
    with pools.Pool("dir") as pool, pytest.raises(kvmount.MountError, match="all, reused or off"):
        with pools.node(pool, "wrong", options=["--pool-writes", "some"]):
            pass
