"""What one user decides is his own: names, policies and time limits of others stay as they are."""

import errno
import os

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
    try:
        os.rename(source, target)
    except OSError as error:
        os.unlink(source)
        return error.errno
    return 0


def content(path):
    with open(path, "rb") as f:
        return f.read()


def overwrite(path):
    """What each call says that could take the name away from who has it."""
    with open(path + ".mine", "wb") as f:
        f.write(b"wrong")
    said = {}
    for what, call in (("link", lambda: os.link(path + ".mine", path)),
                       ("symlink", lambda: os.symlink("x", path)),
                       ("create", lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT))),
                       ("unlink", lambda: os.unlink(path)),
                       ("mkdir", lambda: os.mkdir(path))):
        try:
            call()
            said[what] = 0
        except OSError as error:
            said[what] = error.errno
    return said


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
