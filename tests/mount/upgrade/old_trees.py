"""The trees that older builds have left in tests/fixtures, and how these were made.

    state-v1.img.xz   an ext4 with `nvme`, a device directory with its state and objects, of database format 1
    pool-v2.img.xz    an ext4 with `pool`, the directory of a pool of format 2

Filesystems rather than archives: seals know the change times of backing files, and a pool's
checksums the inode numbers. To make them anew, with the programs of an older build:

    KVCACHEFS_BIN=<old>/build/release/bin python3 tests/mount/upgrade/old_trees.py state tests/fixtures/state-v1.img.xz
    KVCACHEFS_BIN=<old>/build/release/bin python3 tests/mount/upgrade/old_trees.py pool tests/fixtures/pool-v2.img.xz

The state was made by bbf603d, the last build of format 1; the pool by b2c2e29, the first one
with pools.
"""

import hashlib
import lzma
import os
import shutil
import stat
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

import kvmount  # noqa: E402
import pools  # noqa: E402

MIB = 1 << 20
OWNER = 1234
WHEN_NS = 1_600_000_000_123_456_789
IMAGE_BYTES = 96 * MIB


def content(name, size):
    """Bytes that compress well, and differ in each name and each place."""
    seed = hashlib.sha256(name.encode()).hexdigest()
    return b"".join(b"%s %d\n" % (seed.encode(), number) for number in range(size // 66 + 1))[:size]


FILES = {pools.block_name("old", number): 1000 + number * 70_000 for number in range(6)}
PLAIN = {"config.json": 700, "logs/empty": 0, "logs/whole chunks": 2 * (256 << 10),
         "logs/a\udcffb": 4096, "deep/" * 6 + "file": 300_001}
POOL_FILES = {**FILES, "config.json": 700, "model/weights.bin": 3 * MIB}


def store(root, name, size):
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "wb") as file:
        file.write(content(ascii(name), size))
    os.rename(path + ".tmp", path)
    return path


def read(root, name):
    with open(os.path.join(root, name), "rb") as file:
        return file.read()


# ---- the state of format 1 -------------------------------------------------------------------


def make_tree(root):
    for name, size in {**FILES, **PLAIN}.items():
        path = store(root, name, size)
        os.chown(path, OWNER, OWNER + 1)
        os.chmod(path, 0o640)
        os.setxattr(path, "user.of", os.fsencode(os.path.basename(name)))
        os.utime(path, ns=(WHEN_NS, WHEN_NS))
    os.link(os.path.join(root, "config.json"), os.path.join(root, "logs/second name"))
    os.symlink("../config.json", os.path.join(root, "logs/symlink"))
    os.mkfifo(os.path.join(root, "logs/fifo"), 0o600)
    with open(os.path.join(root, "sparse"), "wb") as sparse:
        sparse.truncate(2 * MIB)
        sparse.seek(MIB)
        sparse.write(b"in the middle")
    # Fsynced, so it is never dropped.
    with open(os.path.join(root, "database"), "wb") as database:
        database.write(content("database", 50_000))
        database.flush()
        os.fsync(database.fileno())
    gone = store(root, "gone", 100)
    os.unlink(gone)


def check_tree(root):
    """All of make_tree is there, and nothing else."""
    found = set()
    for where, directories, names in os.walk(root):
        found |= {os.path.relpath(os.path.join(where, name), root) for name in names}
    expected = {*FILES, *PLAIN, "logs/second name", "logs/symlink", "logs/fifo", "sparse", "database"}
    assert found == expected, found ^ expected
    for name, size in {**FILES, **PLAIN}.items():
        path = os.path.join(root, name)
        assert read(root, name) == content(ascii(name), size), name
        status = os.stat(path)
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (OWNER, OWNER + 1, 0o640)
        assert status.st_size == size and status.st_mtime_ns == WHEN_NS, name
        assert os.getxattr(path, "user.of") == os.fsencode(os.path.basename(name))
    assert os.path.samefile(os.path.join(root, "config.json"), os.path.join(root, "logs/second name"))
    assert os.stat(os.path.join(root, "config.json")).st_nlink == 2
    assert os.readlink(os.path.join(root, "logs/symlink")) == "../config.json"
    assert stat.S_ISFIFO(os.lstat(os.path.join(root, "logs/fifo")).st_mode)
    sparse = read(root, "sparse")
    assert sparse == bytes(MIB) + b"in the middle" + bytes(MIB - len("in the middle"))
    assert read(root, "database") == content("database", 50_000)


# ---- making them -----------------------------------------------------------------------------


def make_state(disk):
    with kvmount.Mount("old-state", nvme=os.path.join(disk.path, "nvme"), data_path="daemon") as mount:
        make_tree(mount.mnt)
        check_tree(mount.mnt)
        kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] == 0, 60, "all files are sealed")


def make_pool(disk):
    root = os.path.join(disk.path, "pool")
    os.mkdir(root)
    with pools.Pool("dir", root=root) as pool, pools.node(
            pool, "old-pool", beat=None, data_path="daemon") as mount:
        pools.wait_until_joined(mount)
        for name, size in POOL_FILES.items():
            path = store(mount.mnt, name, size)
            os.chown(path, OWNER, OWNER + 1)
            os.chmod(path, 0o640)
        os.unlink(store(mount.mnt, pools.block_name("old", 99), 1000))
        done = mount.cli("flush", mount.mnt)
        assert done.returncode == 0, done


def pack(image, target):
    with open(image, "rb") as source, lzma.open(target, "wb", preset=9) as packed:
        shutil.copyfileobj(source, packed, 1 << 20)


def main(kind, target):
    with kvmount.LoopFs("ext4", IMAGE_BYTES, mkfs=["-J", "size=4", "-m", "0"]) as disk:
        {"state": make_state, "pool": make_pool}[kind](disk)
        disk.unmount()
        pack(disk.image, target)
    print(f"{target}: {os.path.getsize(target)} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
