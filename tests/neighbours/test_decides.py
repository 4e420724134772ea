"""What one user decides is his own: names, policies and time limits of others stay as they are."""

import errno
import os
import subprocess

import pytest

import kvmount

OTHER = 1234  # Another user than nobody.
HASH = f"{0xabc:064x}"


class Writer:
    """A file in the making, by another user: open from the start, whole when it has ended."""

    def __init__(self, path, uid):
        opened, self.goes_on = os.pipe(), os.pipe()
        self.child = kvmount.Child(self.write, path, opened[1], uid=uid)
        assert os.read(opened[0], 1) == b"o"
        os.close(opened[0])
        os.close(opened[1])

    def write(self, path, opened):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, b"ri")
        os.write(opened, b"o")
        os.read(self.goes_on[0], 1)
        os.write(fd, b"ght")
        os.close(fd)

    def end(self):
        os.write(self.goes_on[1], b"g")
        self.child.result()
        os.close(self.goes_on[0])
        os.close(self.goes_on[1])


def rename_onto(source, target):
    """The errno of a rename of a new file, 0: it went well."""
    with open(source, "wb") as f:
        f.write(b"wrong")
    said = errno_of(os.rename, source, target)
    if said != 0:
        os.unlink(source)
    return said


def content(path):
    with open(path, "rb") as f:
        return f.read()


def overwrite(path):
    """What each call says that could take the name away from who has it."""
    with open(path + ".mine", "wb") as f:
        f.write(b"wrong")
    return {"link": errno_of(os.link, path + ".mine", path),
            "symlink": errno_of(os.symlink, "x", path),
            "create": errno_of(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT))),
            "unlink": errno_of(os.unlink, path),
            "mkdir": errno_of(os.mkdir, path)}


@pytest.mark.gate
@pytest.mark.parametrize("name", [HASH, "plain"])
@pytest.mark.parametrize("sticky", [True, False])
def test_a_file_in_the_making_is_replaced_by_nobody_else(name, sticky):
    """The kernel believes that there is no such name while it is written under its hash, and asks no sticky bit."""
    with kvmount.Mount("sticky") as mount:
        prefix = os.path.join(mount.mnt, "prefix")
        os.mkdir(prefix)
        os.chmod(prefix, 0o1777 if sticky else 0o777)
        path = os.path.join(prefix, name)
        writer = Writer(path, OTHER)
        try:
            denied = errno.EPERM if sticky else 0
            assert kvmount.run_as(rename_onto, path + ".new", path, uid=kvmount.NOBODY) == denied
            if not sticky:
                return
            said = kvmount.run_as(overwrite, path, uid=kvmount.NOBODY)
            assert 0 not in said.values(), said
        finally:
            writer.end()
        # The same when it is whole; who owns it, or is root, may.
        assert kvmount.run_as(rename_onto, path + ".new", path, uid=kvmount.NOBODY) == errno.EPERM
        assert kvmount.run_as(content, path, uid=kvmount.NOBODY) == b"right"
        for uid in (OTHER, 0):
            assert kvmount.run_as(rename_onto, path + ".new", path, uid=uid) == 0


def errno_of(call, *arguments):
    """The errno that the call fails with, 0: it went well."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def tell(path, words):
    return [errno_of(os.setxattr, path, name, value) for name, value in words]


def untell(path, words):
    return [errno_of(os.removexattr, path, name) for name, _ in words]


WORDS = [("user.kvcachefs.policy", b"cache"), ("user.kvcachefs.ttl", b"1s"), ("user.kvcachefs.odirect", b"refuse"),
         ("user.kvcachefs.pool-writes", b"off"), ("user.kvcachefs.layout", b"vllm")]


@pytest.mark.gate
@pytest.mark.skipif(kvmount.PLAIN, reason="ext4 is told nothing")
def test_a_directory_is_told_by_its_owner():
    with kvmount.Mount("told") as mount:
        for name, uid in (("roots", 0), ("others", OTHER)):
            path = os.path.join(mount.mnt, name)
            os.mkdir(path)
            os.chown(path, uid, uid)
            os.chmod(path, 0o1777)
            for name, value in WORDS:
                os.setxattr(path, name, value)
            assert kvmount.run_as(tell, path, WORDS, uid=kvmount.NOBODY) == [errno.EPERM] * len(WORDS)
            assert kvmount.run_as(untell, path, WORDS, uid=kvmount.NOBODY) == [errno.EPERM] * len(WORDS)
            # What means nothing to us is as on ext4, but where the sticky bit says that a
            # directory is its owner's alone.
            os.chmod(path, 0o777)
            assert kvmount.run_as(tell, path, [("user.mine", b"x")], uid=kvmount.NOBODY) == [0]
            assert kvmount.run_as(tell, path, WORDS, uid=OTHER) == [0 if uid == OTHER else errno.EPERM] * len(WORDS)
        said = kvmount.run_as(set_by_hand, mount.mnt + "/roots", uid=kvmount.NOBODY)
        assert said[0] == 1 and "owns a directory" in said[1], said


def set_by_hand(path):
    done = subprocess.run([os.path.join(kvmount.BIN, "kvcachefs"), "set", path, "ttl=1s"], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stderr


def store_private(directory, name):
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with open(os.path.join(directory, name), "wb") as f:
        f.write(b"private")
        os.fsync(f.fileno())


def listed(*paths):
    return [path for path in paths if os.path.basename(path) in os.listdir(os.path.dirname(path))]


@pytest.mark.gate
@pytest.mark.skipif(kvmount.PLAIN, reason="ext4 is told nothing")
def test_what_an_owner_tells_holds_for_his_files():
    """Private, fsynced files of others below his directory stay; his own, and root's, expire."""
    with kvmount.Mount("told", options=["--lease", "1s"]) as mount:
        shared = os.path.join(mount.mnt, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o777)
        os.chown(shared, OTHER, OTHER)
        files = {}
        for uid in (OTHER, kvmount.NOBODY, 0):
            files[uid] = os.path.join(shared, f"of-{uid}", "deep", "f")
            os.makedirs(os.path.dirname(os.path.dirname(files[uid])))
            os.chown(os.path.dirname(os.path.dirname(files[uid])), uid, uid)
            kvmount.run_as(store_private, os.path.dirname(files[uid]), "f", uid=uid)
        # One that becomes another's is another's.
        given = os.path.join(shared, "given")
        kvmount.run_as(store_private, shared, "given", uid=OTHER)
        os.chown(given, kvmount.NOBODY, kvmount.NOBODY)
        assert kvmount.run_as(tell, shared, WORDS[:2], uid=OTHER) == [0, 0]
        assert os.getxattr(files[OTHER], "user.kvcachefs.policy") == b"cache"
        for path in (files[kvmount.NOBODY], given):
            assert os.getxattr(path, "user.kvcachefs.policy") == b"keep", path
        assert f"{shared}" not in mount.cli("explain", files[kvmount.NOBODY]).stdout.replace(files[kvmount.NOBODY], "")
        # A look by name would be a use.
        kvmount.wait_until(lambda: not listed(files[OTHER], files[0]), 60, "the end of what the teller may tell")
        kvmount.run_as(store_private, shared, "after", uid=OTHER)
        kvmount.wait_until(lambda: not listed(os.path.join(shared, "after")), 60, "another round of the expirer")
        for path in (files[kvmount.NOBODY], given):
            assert kvmount.run_as(content, path, uid=kvmount.NOBODY) == b"private"
        # What root tells holds for all; so it does when the directory is given to root.
        os.chown(shared, 0, 0)
        kvmount.wait_until(lambda: not listed(files[kvmount.NOBODY], given), 60, "the end of what root may tell")
