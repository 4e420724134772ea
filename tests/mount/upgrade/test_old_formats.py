"""What an older build has left is served by this one, and what a newer build has left is
refused with a clear message and left as it is."""

import os
import re
import shutil
import subprocess

import pytest

import kvmount
import old_trees
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has formats of its own")

FIXTURES = os.path.join(kvmount.TESTS, "fixtures")


# ---- state directories -----------------------------------------------------------------------


@pytest.mark.promise(7)
def test_an_old_state_is_served_and_upgraded(data_path):
    with kvmount.LoopFs(content=os.path.join(FIXTURES, "state-v1.img.xz")) as disk, kvmount.Mount(
            "upgrade", nvme=os.path.join(disk.path, "nvme"), data_path=data_path) as mount:
        assert mount.status()["recovery"]["kind"] in ("clean", "machine")
        old_trees.check_tree(mount.mnt)
        counts = mount.status()["counts"]
        assert (counts["damaged"], counts["lost"]) == (0, 0)
        # It goes on as any other: new files beside the old ones, a kill, a clean stop.
        old_trees.store(mount.mnt, "config.json.new", 5000)
        old_trees.store(mount.mnt, "new/file", 5000)
        os.unlink(os.path.join(mount.mnt, "config.json.new"))
        mount.crash()
        assert old_trees.read(mount.mnt, "new/file") == old_trees.content(ascii("new/file"), 5000)
        kvmount.remove_tree(os.path.join(mount.mnt, "new"))
        old_trees.check_tree(mount.mnt)
        mount.remount(data_path={"passthrough": "daemon", "daemon": "passthrough"}[data_path])
        old_trees.check_tree(mount.mnt)
        mount.stop()
        code, text = mount.fsck()
        assert code == 0, text


def test_an_old_state_is_clean_to_fsck():
    """A check of what no daemon of this build has upgraded yet."""
    with kvmount.LoopFs(content=os.path.join(FIXTURES, "state-v1.img.xz")) as disk:
        mount = kvmount.Mount("upgrade", nvme=os.path.join(disk.path, "nvme")).create()
        try:
            # Where the device was mounted when this was made: a hint, as plain text.
            with open(os.path.join(mount.state, "devices"), "w", encoding="utf-8") as devices:
                devices.write(mount.nvme + "\n")
            code, text = mount.fsck()
            assert code == 0, text
            mount.start()
            old_trees.check_tree(mount.mnt)
            mount.stop()
        finally:
            mount.close()


def tree_of(root):
    """{path: bytes} of the regular files below."""
    found = {}
    for where, _, names in os.walk(root):
        for name in names:
            path = os.path.join(where, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    found[path] = file.read()
    return found


def newer_database(mount):
    """The number of the format of its database is one that no build has."""
    ldb = shutil.which("ldb")
    if ldb is None:
        pytest.skip("no ldb: install rocksdb-tools")
    database = os.path.join(mount.state, "db")
    done = subprocess.run([ldb, f"--db={database}", "--value_hex", "put", "format", "0xE8030000"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def superblock(mount):
    found = [path for path, text in tree_of(mount.nvme).items()
             if re.match(rb"kvcachefs .*\nformat 1\n", text)]
    assert len(found) == 1, found
    return found[0]


def newer_superblock(mount):
    path = superblock(mount)
    with open(path, "rb") as file:
        text = file.read()
    with open(path, "wb") as file:
        file.write(text.replace(b"\nformat 1\n", b"\nformat 1000\n"))


@pytest.mark.parametrize("make_newer", [newer_database, newer_superblock], ids=lambda f: f.__name__)
def test_a_newer_state_is_refused(mounts, make_newer):
    mount = mounts()
    old_trees.store(mount.mnt, "file", 5000)
    mount.stop()
    make_newer(mount)
    before = {path: text for path, text in tree_of(mount.nvme).items() if "/objects/" in path}
    done = subprocess.run(mount.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done
    assert "newer" in done.stderr and "kvcachefs" in done.stderr, done.stderr
    assert not mount.is_mounted()
    assert {path: text for path, text in tree_of(mount.nvme).items() if "/objects/" in path} == before
    code, text = mount.fsck()
    assert code != 0 and "newer" in text, (code, text)


# ---- pools -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dir", "nfs"])
def test_an_old_pool_is_used(kind):
    with kvmount.LoopFs(content=os.path.join(FIXTURES, "pool-v2.img.xz")) as disk, \
            pools.Pool(kind, root=os.path.join(disk.path, "pool")) as pool, \
            pools.node(pool, "upgrade") as mount:
        pools.wait_until_joined(mount)
        for name, size in old_trees.POOL_FILES.items():
            path = os.path.join(mount.mnt, name)
            kvmount.wait_until(lambda path=path: os.path.exists(path), 10, f"{name} is found")
            assert old_trees.read(mount.mnt, name) == old_trees.content(ascii(name), size), name
            status = os.stat(path)
            assert (status.st_uid, status.st_gid) == (old_trees.OWNER, old_trees.OWNER + 1), name
            assert status.st_mode & 0o7777 == 0o640, name
        assert not os.path.exists(os.path.join(mount.mnt, pools.block_name("old", 99)))
        assert pools.state(mount)["damaged"] == 0 and pools.state(mount)["refused"] is None
        # It goes on with it: one more, one replaced, one removed.
        new, replaced, removed = (pools.block_name("new", 1), "config.json", pools.block_name("old", 0))
        old_trees.store(mount.mnt, new, 5000)
        with open(os.path.join(mount.mnt, replaced), "wb") as file:
            file.write(b"another")
        os.unlink(os.path.join(mount.mnt, removed))
        done = mount.cli("flush", mount.mnt)
        assert done.returncode == 0, done
        assert old_trees.read(pool.root, new) == old_trees.content(ascii(new), 5000)
        assert old_trees.read(pool.root, replaced) == b"another"
        assert not os.path.exists(pool.path(removed))
        done = mount.cli("pool", "check", "--read", pool.uri)
        assert done.returncode == 0, done


@pytest.mark.parametrize("version", [1, 3])
def test_a_pool_of_another_format_is_refused(version):
    with pools.Pool("dir") as pool:
        with pools.node(pool, "first") as mount:
            pools.wait_until_joined(mount)
            old_trees.store(mount.mnt, "config.json", 700)
            assert mount.cli("flush", mount.mnt).returncode == 0
        path = pool.path(".kvcachefs", "pool")
        with open(path, "rb") as file:
            text = file.read()
        assert b"\nformat 2\n" in text
        with open(path, "wb") as file:
            file.write(text.replace(b"\nformat 2\n", b"\nformat %d\n" % version))
        before = tree_of(pool.root)
        with pools.node(pool, "second") as mount:
            kvmount.wait_until(lambda: pools.state(mount)["refused"], 20, "the refusal")
            assert "format" in pools.state(mount)["refused"]
            # The mount serves what is its own, and leaves the pool alone.
            old_trees.store(mount.mnt, "local", 5000)
            assert old_trees.read(mount.mnt, "local") == old_trees.content(ascii("local"), 5000)
            assert not os.path.exists(os.path.join(mount.mnt, "config.json"))
        assert tree_of(pool.root) == before
