"""A mount that is mounted once more with other owners, as containers with users of their own do (pods with `hostUsers: false`,
podman's `:idmap`): what such a container's users make is theirs on both, and who calls is known all the same."""

import contextlib
import ctypes
import errno
import os
import signal
import struct
import tempfile

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the option of a mount")

LIBC = ctypes.CDLL(None, use_errno=True)
# Of all architectures (asm-generic/unistd.h).
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
AT_FDCWD, AT_EMPTY_PATH = -100, 0x1000
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_IDMAP = 1, 4, 0x00100000
CLONE_NEWUSER = 0x10000000
MNT_DETACH = 2
# Who is 0 on the filesystem is this on the second mount.
FIRST = 100_000
USER, OTHER = 1000, 1001


def call(number, *arguments):
    """A system call that the C library does not have yet."""
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


@contextlib.contextmanager
def user_namespace():
    """A descriptor of one whose users begin at FIRST."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ready)
            os.write(told, b"y" if LIBC.unshare(CLONE_NEWUSER) == 0 else b"n")
            signal.pause()
        finally:
            os._exit(0)
    os.close(told)
    try:
        assert os.read(ready, 1) == b"y"
        for which in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{which}", "w", encoding="ascii") as file:
                file.write(f"0 {FIRST} 65536")
        fd = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def id_mapped(root):
    """The path of a second mount of `root`, with other owners."""
    with user_namespace() as namespace, tempfile.TemporaryDirectory(prefix="kvcachefs-idmap-", dir="/var/tmp") as top:
        os.chmod(top, 0o755)
        tree = call(OPEN_TREE, AT_FDCWD, root.encode(), ctypes.c_uint(OPEN_TREE_CLONE | os.O_CLOEXEC))
        try:
            attributes = struct.pack("QQQQ", MOUNT_ATTR_IDMAP, 0, 0, namespace)
            call(MOUNT_SETATTR, tree, b"", ctypes.c_uint(AT_EMPTY_PATH), attributes, ctypes.c_size_t(len(attributes)))
            call(MOVE_MOUNT, tree, b"", AT_FDCWD, top.encode(), ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH))
        finally:
            os.close(tree)
        try:
            yield top
        finally:
            assert LIBC.umount2(top.encode(), MNT_DETACH) == 0


@pytest.fixture(name="mount")
def made_mount(request, data_path):
    with kvmount.Mount(request.node.name, data_path=data_path, options=["--idmap"]) as mount:
        for user in (USER, OTHER):
            os.mkdir(f"{mount.mnt}/{user}", 0o700)
            os.chown(f"{mount.mnt}/{user}", user, user)
        yield mount


def test_it_is_refused_unless_asked_for():
    with kvmount.Mount("idmap-off") as mount:
        with pytest.raises(OSError) as caught, id_mapped(mount.mnt):
            pass
        assert caught.value.errno == errno.EINVAL


def use(directory, data):
    """What a runtime does there; the owners that it sees."""
    path = f"{directory}/f"
    with open(path + ".tmp", "wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    os.chmod(path, 0o640)
    os.setxattr(path, "user.mark", b"mine")
    os.mkdir(f"{directory}/d")
    os.symlink("f", f"{directory}/link")
    with open(f"{directory}/link", "rb") as file:
        assert file.read() == data
    fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"x")
    owners = {os.fstat(fd).st_uid}
    os.close(fd)
    return owners | {os.lstat(f"{directory}/{name}").st_uid for name in ("f", "d", "link")}


@pytest.mark.gate
def test_what_is_made_there_is_of_who_makes_it(mount):
    data = os.urandom(1 << 20)
    with id_mapped(mount.mnt) as mapped:
        assert os.stat(f"{mapped}/{USER}").st_uid == FIRST + USER
        assert kvmount.run_as(use, f"{mapped}/{USER}", data, uid=FIRST + USER) == {FIRST + USER}
        # As it is on the first mount.
        assert kvmount.run_as(use, f"{mount.mnt}/{OTHER}", data, uid=OTHER) == {OTHER}
        for name in ("f", "d", "link"):
            assert os.lstat(f"{mount.mnt}/{USER}/{name}").st_uid == USER
            assert os.lstat(f"{mapped}/{OTHER}/{name}").st_uid == FIRST + OTHER

        def read(path):
            with open(path, "rb") as file:
                return file.read()

        assert kvmount.run_as(read, f"{mount.mnt}/{USER}/f", uid=USER) == data
        # Neither the same number on the other side, nor another user.
        for path, uid in ((f"{mapped}/{USER}/f", USER), (f"{mapped}/{USER}/f", FIRST + OTHER),
                          (f"{mount.mnt}/{USER}/f", FIRST + USER)):
            with pytest.raises(AssertionError, match="Permission denied"):
                kvmount.run_as(read, path, uid=uid)
        # Whoever is root there owns nothing of this side's root.
        with pytest.raises(AssertionError, match="Permission denied"):
            kvmount.run_as(os.mkdir, f"{mount.mnt}/new", uid=FIRST)
        kvmount.run_as(os.mkdir, f"{mapped}/new", uid=FIRST)
        assert os.stat(f"{mount.mnt}/new").st_uid == 0
    mount.remount()
    assert os.stat(f"{mount.mnt}/{USER}/f").st_uid == USER


@pytest.mark.gate
def test_who_calls_is_known_all_the_same(mount):
    """The kernel says it no more: telling a directory is its owner's, and users' leases are their own."""
    def tell(directory):
        os.setxattr(directory, "user.kvcachefs.policy", b"cache")

    kvmount.run_as(tell, f"{mount.mnt}/{USER}", uid=USER)
    os.chmod(f"{mount.mnt}/{USER}", 0o777)
    with pytest.raises(AssertionError, match="Operation not permitted"):
        kvmount.run_as(tell, f"{mount.mnt}/{USER}", uid=OTHER)
    tell(f"{mount.mnt}/{OTHER}")
    # On the second mount nobody is the owner but by number: refused rather than believed.
    with id_mapped(mount.mnt) as mapped:
        with pytest.raises(AssertionError, match="Operation not permitted"):
            kvmount.run_as(tell, f"{mapped}/{USER}", uid=FIRST + USER)
        with pytest.raises(AssertionError, match="Operation not permitted"):
            kvmount.run_as(tell, f"{mapped}/{USER}", uid=FIRST)
    assert mount.cli("explain", f"{mount.mnt}/{USER}").returncode == 0
