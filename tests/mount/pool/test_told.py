"""What a directory is told, and that it is there, is of all servers that share it."""

import errno
import json
import os
import stat
import threading
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

LAYOUT, POLICY, TTL = (f"user.kvcachefs.{word}" for word in ("layout", "policy", "ttl"))
MIB = 1 << 20
ALICE = 12345


@pytest.fixture(params=["dir", "nfs"])
def pool(request):
    with pools.Pool(request.param) as made:
        yield made


def told(path, name):
    """The word; None: the directory is told none, or is not there."""
    try:
        return os.getxattr(path, name).decode()
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.ENOENT):
            raise
        return None


def wait_until_told(mount, directory, name, word, seconds=20):
    path = os.path.join(mount.mnt, directory)
    kvmount.wait_until(lambda: told(path, name) == word, seconds, f"{name} of {path} to be {word}")


def policy(mount, name):
    """Of a file, and who says so; None: it is not there."""
    path = os.path.join(mount.mnt, name)
    if not os.path.exists(path):  # A lookup finds what another server has stored.
        return None
    said = mount.cli("explain", "--json", path)
    found = json.loads(said.stdout) if said.returncode == 0 else {}
    return found.get("policy"), found.get("policy_by")


def wait_until_treated(mount, name, expected):
    kvmount.wait_until(lambda: policy(mount, name) == expected, 20, f"{name}: {expected} on {mount.name}")


def is_there(mount, name):
    return os.path.isdir(os.path.join(mount.mnt, name))


def wait_until_there(mount, name):
    kvmount.wait_until(lambda: is_there(mount, name), 20, f"{name} on {mount.name}")


def wait_until_gone(mount, name):
    kvmount.wait_until(lambda: not is_there(mount, name), 20, f"{name} to go on {mount.name}")


def flush(*mounts):
    for mount in mounts:
        done = mount.cli("flush", mount.mnt)
        assert done.returncode == 0, done


def test_what_one_tells_holds_for_all(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        before, after = "runtime/a/b/before", "runtime/c/d/after"
        pools.store(a.mnt, before, b"before")
        kvmount.wait_until(lambda: pools.load(os.path.join(b.mnt, before)) == b"before", 20, "the file")
        assert policy(b, before) == ("cache", "mount")
        os.setxattr(os.path.join(a.mnt, "runtime"), LAYOUT, b"mooncake_file")
        wait_until_told(b, "runtime", LAYOUT, "mooncake_file")
        pools.store(b.mnt, after, b"after")
        for mount in a, b:
            wait_until_treated(mount, before, ("keep", "layout"))
            wait_until_treated(mount, after, ("keep", "layout"))

        # Told before anything is stored, and the words as they were said.
        assert a.cli("set", os.path.join(a.mnt, "runtime/c"), "policy=pin").returncode == 0
        os.mkdir(os.path.join(b.mnt, "timed"))
        assert b.cli("set", os.path.join(b.mnt, "timed"), "ttl=7d").returncode == 0
        wait_until_told(a, "timed", TTL, "7d")
        wait_until_treated(b, after, ("pin", "directory"))
        # What is of a server stays there.
        assert a.cli("set", os.path.join(a.mnt, "timed"), "share=10%", "odirect=refuse",
                     "pool-writes=reused", "policy=keep").returncode == 0
        wait_until_told(b, "timed", POLICY, "keep")
        for name in "share", "odirect", "pool-writes":
            assert told(os.path.join(a.mnt, "timed"), f"user.kvcachefs.{name}")
            assert told(os.path.join(b.mnt, "timed"), f"user.kvcachefs.{name}") is None

        # Untold by either, and known to who was away.
        a.stop()
        os.removexattr(os.path.join(b.mnt, "runtime"), LAYOUT)
        os.setxattr(os.path.join(b.mnt, "runtime/c"), POLICY, b"cache")
        flush(b)
        a.start()
        wait_until_told(a, "runtime", LAYOUT, None)
        wait_until_treated(a, before, ("cache", "mount"))
        wait_until_treated(a, after, ("cache", "directory"))
        os.removexattr(os.path.join(a.mnt, "timed"), TTL)
        wait_until_told(b, "timed", TTL, None)
        assert told(os.path.join(b.mnt, "timed"), POLICY) == "keep"


def test_what_was_told_elsewhere_survives_pressure(pool):
    kept = [f"runtime/a/b/kept{number}" for number in range(8)]
    with pools.node(pool, "a") as a, pools.node(pool, "b", size="64MiB", options=["--lease", "1s"]) as b:
        pools.wait_until_joined(a, b)
        os.mkdir(os.path.join(a.mnt, "runtime"))
        os.setxattr(os.path.join(a.mnt, "runtime"), LAYOUT, b"mooncake_file")
        wait_until_there(b, "runtime")
        for number, name in enumerate(kept):
            pools.store(b.mnt, name, bytes([number]) * MIB)
        flush(b)
        # What replaces them in the budget was used later.
        for number in range(100):
            pools.store(b.mnt, pools.block_name("other", number), os.urandom(MIB))
        dropped = b.status()["dropped"]["room"]["files"]
        assert dropped > 20
        for name in kept:
            said = json.loads(b.cli("explain", "--json", os.path.join(b.mnt, name)).stdout)
            assert said["state"] not in ("remote", None), (name, said)
            assert said["policy"] == "keep"


def renamed(source, target):
    """Renames a directory; False: the pool has, or may have, something in it."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def test_an_empty_directory_is_there_for_all(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        for mount in a, b:
            os.chmod(mount.mnt, 0o777)
        kvmount.run_as(os.makedirs, os.path.join(a.mnt, "start/ed/by"), uid=ALICE)
        kvmount.run_as(os.chmod, os.path.join(a.mnt, "start/ed"), 0o750, uid=ALICE)
        # Who lists the parent finds it, and so does who looks it up.
        kvmount.wait_until(lambda: "start" in os.listdir(b.mnt), 20, "the listing")
        wait_until_there(b, "start/ed/by")

        def owner():
            found = os.stat(os.path.join(b.mnt, "start/ed"))
            return found.st_uid, found.st_mode & 0o7777

        kvmount.wait_until(lambda: owner() == (ALICE, 0o750), 20, f"its owner: {owner()}")
        # The first save.
        kvmount.run_as(pools.store, os.path.join(b.mnt, "start/ed/by"), "slot.bin", b"saved", uid=ALICE)
        kvmount.wait_until(lambda: pools.load(os.path.join(a.mnt, "start/ed/by/slot.bin")) == b"saved", 20,
                           "the file")
        # One that is renamed leaves nothing behind.
        os.mkdir(os.path.join(a.mnt, "old"))
        wait_until_there(b, "old")
        # A busy pool may not say in time that it has nothing in it.
        kvmount.wait_until(lambda: renamed(os.path.join(a.mnt, "old"), os.path.join(a.mnt, "new")), 20, "the rename")
        wait_until_there(b, "new")
        wait_until_gone(b, "old")
        # What is no name for others stays.
        os.mkdir(os.path.join(a.mnt, "made.tmp"))
        flush(a)
        assert not is_there(b, "made.tmp") and not os.path.exists(pool.path("made.tmp"))


def test_a_removed_directory_does_not_come_back(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        os.makedirs(os.path.join(a.mnt, "up/down"))
        os.setxattr(os.path.join(a.mnt, "up/down"), POLICY, b"keep")
        os.mkdir(os.path.join(a.mnt, "away"))
        wait_until_told(b, "up/down", POLICY, "keep")
        wait_until_there(b, "away")
        os.rmdir(os.path.join(b.mnt, "up/down"))
        os.rmdir(os.path.join(b.mnt, "up"))
        wait_until_gone(a, "up")
        flush(a, b)
        # One that goes while a server is away.
        b.stop()
        os.rmdir(os.path.join(a.mnt, "away"))
        flush(a)
        b.start()
        wait_until_gone(b, "away")
        a.remount()
        b.remount()
        pools.wait_until_joined(a, b)
        for mount in a, b:
            for name in "up", "away":
                assert not is_there(mount, name)
                assert name not in os.listdir(mount.mnt)
        assert not os.path.exists(pool.path("up")) and not os.path.exists(pool.path("away"))
        told_there = pool.path(".kvcachefs", "told")
        assert [names for _, _, names in os.walk(told_there) if names] == []

        # Made again it is another one: the words of the first are forgotten.
        os.makedirs(os.path.join(a.mnt, "up/down"))
        os.setxattr(os.path.join(a.mnt, "up/down"), TTL, b"3d")
        wait_until_told(b, "up/down", TTL, "3d")
        assert told(os.path.join(b.mnt, "up/down"), POLICY) is None
        # What is in use stays with who uses it, and comes back with what is stored there.
        with open(os.path.join(b.mnt, "up/down/part.tmp"), "wb"):
            os.rmdir(os.path.join(a.mnt, "up/down"))
            flush(a)
            assert is_there(b, "up/down")
        os.rename(os.path.join(b.mnt, "up/down/part.tmp"), os.path.join(b.mnt, "up/down/part"))
        kvmount.wait_until(lambda: pools.load(os.path.join(a.mnt, "up/down/part")) == b"", 20, "the file")
        wait_until_told(a, "up/down", TTL, "3d")


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_a_dead_pool_holds_nobody_up_and_hears_of_all_later(end):
    names = [f"owed{number}" for number in range(20)]
    with pools.Pool("nfs", own=True) as pool, pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        os.mkdir(os.path.join(a.mnt, "known"))
        os.mkdir(os.path.join(a.mnt, "gone"))
        wait_until_there(b, "known")
        wait_until_there(b, "gone")
        pool.stop()
        begun = time.monotonic()
        # The first may find out that the pool is dead: a lookup waits for it, a quarter of a second.
        for name in names:
            os.mkdir(os.path.join(a.mnt, name))
            os.setxattr(os.path.join(a.mnt, name), POLICY, b"keep")
        os.setxattr(os.path.join(a.mnt, "known"), LAYOUT, b"mooncake_file")
        kvmount.wait_until(lambda: not pools.state(a)["up"], 60, "the pool to be down")
        os.rmdir(os.path.join(a.mnt, "gone"))
        os.mkdir(os.path.join(a.mnt, "brief"))
        os.rmdir(os.path.join(a.mnt, "brief"))
        # A call that waits for the pool takes five seconds; the daemon finds out within some.
        assert time.monotonic() - begun < 60
        assert pools.state(a)["to_publish"] >= len(names)
        a.crash() if end == "crash" else a.remount()
        assert told(os.path.join(a.mnt, names[0]), POLICY) == "keep"
        pool.resume()
        pools.wait_until_joined(a, b)
        for name in names:
            wait_until_told(b, name, POLICY, "keep", seconds=60)
        wait_until_told(b, "known", LAYOUT, "mooncake_file")
        wait_until_gone(b, "gone")
        flush(a)
        assert not is_there(b, "brief") and not os.path.exists(pool.path("brief"))


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


class Record:
    """What the pool says that a directory was told (backend/pool/FORMAT.md)."""

    def __init__(self, pool, directory):
        number = os.stat(pool.path(directory)).st_ino
        self.path = pool.path(".kvcachefs", "told", f"{number % 256:02x}", f"{number:016x}")

    def lines(self):
        with open(self.path, encoding="ascii") as file:
            return file.read().splitlines()[:-1]

    def words(self):
        return dict(line.split(" ", 1) for line in self.lines()[4:])

    def write(self, lines, damage=False):
        text = "".join(line + "\n" for line in lines).encode()
        crc = crc32c(text) ^ (1 if damage else 0)
        with open(self.path + ".new", "wb") as file:
            file.write(text + b"crc32c %08x\n" % crc)
        os.rename(self.path + ".new", self.path)


def test_what_may_not_be_told_here_is_not_told_by_the_pool(pool, tmp_path):
    with pools.node(pool, "a") as a, pools.node(pool, "b", options=["--keep-by", "root"]) as b:
        pools.wait_until_joined(a, b)
        os.mkdir(os.path.join(a.mnt, "d"))
        os.setxattr(os.path.join(a.mnt, "d"), LAYOUT, b"vllm")
        assert a.cli("set", os.path.join(a.mnt, "d"), "policy=keep", "ttl=1d").returncode == 0
        wait_until_told(b, "d", TTL, "1d")
        wait_until_told(b, "d", POLICY, "keep")
        record = Record(pool, "d")
        assert record.words() == {"layout": "vllm", "policy": "keep", "ttl": "1d"}
        head = record.lines()[:4]

        # A value, and a word, that this version does not know, beside one that it knows.
        record.write(head + ["layout warp9", "policy forever", "colour blue", "ttl 2d"])
        b.remount()
        wait_until_told(b, "d", TTL, "2d")
        assert told(os.path.join(b.mnt, "d"), LAYOUT) == "vllm"
        assert told(os.path.join(b.mnt, "d"), POLICY) == "keep"
        kvmount.wait_until(lambda: b.logs().count("is not told this, ignored") >= 2, 20, "the log")
        # They are not lost when another word is told.
        os.setxattr(os.path.join(b.mnt, "d"), TTL, b"3d")
        wait_until_told(a, "d", TTL, "3d")
        assert record.words() == {"layout": "warp9", "policy": "forever", "colour": "blue", "ttl": "3d"}

        # What does not read says nothing.
        outside = tmp_path / "outside"
        outside.write_text("not to be touched")
        number = 3
        for spoil in ("checksum", "long", "other directory", "symlink"):
            good = head + ["layout none", "policy cache", f"ttl {number}d"]
            if spoil == "checksum":
                record.write(good, damage=True)
            elif spoil == "long":
                record.write(good + [f"w{i} {'x' * 60}" for i in range(500)])
            elif spoil == "other directory":
                record.write([head[0], head[1], "directory 1", *good[3:]])
            else:
                os.unlink(record.path)
                os.symlink(outside, record.path)
            seen = b.logs(1 << 20).count("does not read, ignored")
            b.remount()
            if spoil != "other directory":
                kvmount.wait_until(lambda seen=seen: is_there(b, "d") and
                                   b.logs(1 << 20).count("does not read, ignored") > seen, 20, spoil)
            words = [told(os.path.join(b.mnt, "d"), name) for name in (LAYOUT, POLICY, TTL)]
            assert words == ["vllm", "keep", f"{number}d"], spoil
            # It is replaced by who finds it so, and has been told something.
            number += 1
            os.setxattr(os.path.join(b.mnt, "d"), TTL, b"%dd" % number)
            wait_until_told(a, "d", TTL, f"{number}d")
            kvmount.wait_until(lambda expected={"layout": "vllm", "policy": "keep", "ttl": f"{number}d"}:
                               record.words() == expected, 20, f"{spoil}: {record.words()}")
        assert outside.read_text() == "not to be touched"

        # Who may not keep files on b does not do so from a.
        os.chmod(a.mnt, 0o777)
        kvmount.run_as(os.mkdir, os.path.join(a.mnt, "hers"), uid=ALICE)
        for name, word in (POLICY, b"keep"), (TTL, b"1d"):
            kvmount.run_as(os.setxattr, os.path.join(a.mnt, "hers"), name, word, uid=ALICE)
        wait_until_told(b, "hers", TTL, "1d")
        flush(a)
        assert told(os.path.join(b.mnt, "hers"), POLICY) is None
        assert Record(pool, "hers").words()["policy"] == "keep"


def attempt(call, path):
    """Whether it succeeded; the other node may have been faster."""
    try:
        call(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        return False
    return True


def test_what_is_removed_on_one_and_filled_on_the_other_keeps_its_owner(pool):
    """Both may succeed: then the directory is there again for all, as it was."""
    count = 60 if kvmount.FULL else 30
    names = [f"race/{number}" for number in range(count)]
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        os.mkdir(os.path.join(a.mnt, "race"))
        for name in names:
            os.mkdir(os.path.join(a.mnt, name))
            os.chown(os.path.join(a.mnt, name), ALICE, ALICE)
            os.chmod(os.path.join(a.mnt, name), 0o777)
        flush(a)
        for name in names:
            wait_until_there(b, name)
        done = {}
        threads = [threading.Thread(target=lambda: done.update(
                       removed=[attempt(os.rmdir, os.path.join(a.mnt, name)) for name in names])),
                   threading.Thread(target=lambda: done.update(
                       filled=[attempt(os.mkdir, os.path.join(b.mnt, name, "k")) for name in names]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        both = [name for name, *ways in zip(names, done["removed"], done["filled"]) if all(ways)]
        print(f"KVCACHEFS_SEED={kvmount.seed()}: of {count} {len(both)} were removed and filled at once")
        flush(a, b)

        def look(mount, name):
            try:
                status = os.stat(os.path.join(mount.mnt, name))
            except FileNotFoundError:
                return None
            return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)

        for name, filled in zip(names, done["filled"]):
            expected = (ALICE, ALICE, 0o777) if filled else None
            kvmount.wait_until(lambda name=name, expected=expected: look(a, name) == look(b, name) == expected, 20,
                               f"{name}: {expected} on both, not {look(a, name)} and {look(b, name)}")
