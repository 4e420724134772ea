"""`cp -a` and `tar` of source trees: content, attributes, links, xattrs and ACLs survive."""

import os
import socket
import stat

import pytest

import kvmount
import tree
from programs import need_program, run

# A tree every Debian machine that can build has: thousands of small files and some links.
SOURCE_TREE = "/usr/include"


def make_odd_tree(root):
    """Every kind of file, and attributes that copies tend to lose."""
    def path(*parts):
        return os.path.join(root, *parts)

    os.makedirs(path("deep", "er", "est"))
    names = ["plain", "deep/er/est/leaf", "ünïcödé", "sp ace", "new\nline", "x" * 255]
    for number, name in enumerate(names):
        with open(path(name), "wb") as file:
            file.write(os.urandom(1 + 5000 * number))
    with open(os.fsencode(path("")) + b"not-utf8-\xff\xfe", "wb") as file:
        file.write(b"bytes")
    with open(path("sparse"), "wb") as file:
        file.truncate(128 << 20)
        for offset in (0, 40 << 20, (128 << 20) - 4096):
            os.pwrite(file.fileno(), b"island", offset)
    open(path("empty"), "wb").close()
    for mode in (0o000, 0o444, 0o600, 0o755, 0o1777, 0o2755, 0o4755, 0o6711):
        name = path(f"mode-{mode:04o}")
        open(name, "wb").close()
        os.chmod(name, mode)
    os.chown(path("plain"), kvmount.NOBODY, 12345)
    os.link(path("plain"), path("deep", "plain-again"))
    os.link(path("plain"), path("deep", "er", "plain-a-third-time"))
    os.symlink("plain", path("link"))
    os.symlink("/no/such/" + "y" * 3000, path("dangling"))
    os.lchown(path("link"), 1, 2)
    os.mkfifo(path("fifo"))
    os.mknod(path("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    server = socket.socket(socket.AF_UNIX)
    here = os.open(root, os.O_RDONLY)
    server.bind(f"/proc/self/fd/{here}/socket")
    server.close()
    os.close(here)
    os.setxattr(path("plain"), "user.comment", b"binary \0 value")
    os.setxattr(path("deep"), "user.empty", b"")
    os.setxattr(path("deep"), "trusted.root-only", b"z" * 1000)
    run(["setfacl", "-m", "u:nobody:rw,g:daemon:r", path("plain")])
    run(["setfacl", "-d", "-m", "u:nobody:rwx", path("deep")])
    for number, name in enumerate(["deep/er/est/leaf", "deep/er/est", "deep/er", "deep"]):
        os.utime(path(name), ns=(10**18 + number, 10**18 + 123456789 + number))
    os.utime(path("link"), ns=(1, 1234567890123456789), follow_symlinks=False)


def test_copy_of_a_source_tree(place, shared_mount):
    run(["cp", "-a", SOURCE_TREE, os.path.join(place, "copy")])
    expected = tree.describe(SOURCE_TREE)
    assert len(expected) > 500
    assert not tree.differences(expected, tree.describe(os.path.join(place, "copy")))[:20]
    shared_mount.remount()
    assert not tree.differences(expected, tree.describe(os.path.join(place, "copy")))[:20]


def test_copy_of_every_kind_of_file(place, oracle, shared_mount):
    source = os.path.join(oracle, "source")
    os.mkdir(source)
    make_odd_tree(source)
    run(["cp", "-a", source, os.path.join(place, "copy")])
    tree.assert_same(source, os.path.join(place, "copy"))
    copied = os.stat(os.path.join(place, "copy", "sparse"))
    assert copied.st_blocks * 512 < 10 << 20, "cp --sparse=auto found no holes"
    shared_mount.remount()
    tree.assert_same(source, os.path.join(place, "copy"))
    run(["cp", "-a", os.path.join(place, "copy"), os.path.join(oracle, "back")])
    tree.assert_same(source, os.path.join(oracle, "back"))


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_tar_there_and_back(place, oracle, form):
    need_program("tar", "tar")
    source = os.path.join(oracle, "source")
    os.mkdir(source)
    make_odd_tree(source)
    os.unlink(os.path.join(source, "socket"))  # No tar format has sockets.
    if form == "gnu":
        keep = ["--format=gnu"]
        os.removexattr(os.path.join(source, "plain"), "user.comment")
        run(["setfacl", "-R", "-b", source])
        for name in ("user.empty", "trusted.root-only"):
            os.removexattr(os.path.join(source, "deep"), name)
    else:
        keep = ["--format=posix", "--acls", "--xattrs", "--xattrs-include=*"]
    archive = os.path.join(place, "archive.tar")
    run(["tar", "-C", source, "-S", *keep, "-cf", archive, "."])
    for target in (os.path.join(place, "out"), os.path.join(oracle, "out")):
        os.mkdir(target)
        run(["tar", "-C", target, "-p", "--numeric-owner", *keep, "-xf", archive])
    # tar itself loses fractions of a second in one format: what ext4 shows is right.
    tree.assert_same(os.path.join(oracle, "out"), os.path.join(place, "out"))
    run(["tar", "-C", place, "-S", *keep, "-cf", os.path.join(oracle, "again.tar"), "out"])
    os.mkdir(os.path.join(oracle, "again"))
    run(["tar", "-C", os.path.join(oracle, "again"), "-p", "--numeric-owner", *keep, "-xf",
         os.path.join(oracle, "again.tar")])
    tree.assert_same(os.path.join(oracle, "out"), os.path.join(oracle, "again", "out"))
