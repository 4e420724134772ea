"""Attributes: mode, owner, times, xattrs, ACLs, set-id clearing, statfs, permissions."""

import os
import stat
import time

from oracle import OLD_NS, case, listing, read_file, write_file
from posix_calls import (ACCESS, CAPABILITY, DEFAULT, GROUP, GROUP_OBJ, KEEP_SIZE, MASK, OTHER,
                         PUNCH_HOLE, RENAME_EXCHANGE, USER, USER_OBJ, UTIME_NOW, UTIME_OMIT, acl,
                         acl_text, fallocate, futimens, getxattr_sized, listxattr_sized,
                         renameat2, utimensat)

NOBODY = 65534


@case
def chmod_bits(t):
    t.make("f")
    t(os.mkdir, "d")
    for mode in (0, 0o777, 0o4755, 0o2755, 0o1755, 0o7777, 0o4644, 0o2644, 0o600):
        for name in ("f", "d"):
            t(os.chmod, name, mode)
            t(os.stat, name)
    t(os.chmod, "d", 0o755)
    t(os.chmod, "missing", 0o644)
    t(os.symlink, "f", "s")
    t(os.chmod, "s", 0o611)
    t(os.lstat, "s")
    t(os.stat, "f")


@case
def chown_rules(t):
    t.make("f")
    t(os.mkdir, "d")
    for uid, gid in ((-1, -1), (os.getuid(), -1), (-1, os.getgid()), (0, 0), (NOBODY, -1),
                     (-1, NOBODY), (1000, 1000), (-1, 100), (4_000_000_000, -1)):
        for name in ("f", "d"):
            t(os.chown, name, uid, gid)
            t(os.stat, name)
    t(os.symlink, "f", "s")
    t(os.chown, "s", os.getuid(), os.getgid(), follow_symlinks=False)
    t(os.lstat, "s")


@case
def chown_clears_set_id(t):
    for mode in (0o6755, 0o4755, 0o2755, 0o2644, 0o6644, 0o6777):
        for uid, gid in ((-1, -1), (os.getuid(), os.getgid()), (-1, os.getgid()), (1000, 1000)):
            name = f"{mode:o}-{uid}-{gid}"
            t.make(name)
            t(os.chmod, name, mode)
            t(os.chown, name, uid, gid)
            t(os.stat, name)
            for make, suffix in ((os.mkdir, ".d"), (os.mkfifo, ".p"),
                                 (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), ".s")):
                make(name + suffix)
                t(os.chmod, name + suffix, mode)
                t(os.chown, name + suffix, uid, gid)
                t(os.stat, name + suffix)


def _touchers():
    """Every way to change a file's bytes through a descriptor or its name."""
    def write(name):
        fd = os.open(name, os.O_WRONLY)
        try:
            os.write(fd, b"changed")
        finally:
            os.close(fd)

    def append(name):
        fd = os.open(name, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, b"changed")
        finally:
            os.close(fd)

    def ftruncate(name):
        fd = os.open(name, os.O_WRONLY)
        try:
            os.ftruncate(fd, 3)
        finally:
            os.close(fd)

    def open_trunc(name):
        os.close(os.open(name, os.O_WRONLY | os.O_TRUNC))

    def allocate(name):
        fd = os.open(name, os.O_WRONLY)
        try:
            fallocate(fd, 0, 0, 20_000)
        finally:
            os.close(fd)

    def punch(name):
        fd = os.open(name, os.O_WRONLY)
        try:
            fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, 4096)
        finally:
            os.close(fd)

    def copy(name):
        write_file(name + ".src", b"source")
        src = os.open(name + ".src", os.O_RDONLY)
        fd = os.open(name, os.O_WRONLY)
        try:
            os.copy_file_range(src, fd, 6, 0, 0)
        finally:
            os.close(src)
            os.close(fd)

    def read(name):
        read_file(name)

    def touch(name):
        os.utime(name)

    return [write, append, lambda_truncate, ftruncate, open_trunc, allocate, punch, copy, read,
            touch]


def lambda_truncate(name):
    os.truncate(name, 3)


SET_ID_MODES = (0o6777, 0o4777, 0o2777, 0o2767, 0o2666, 0o6666)


@case
def changes_clear_set_id(t):
    """The owner's own changes."""
    for toucher in _touchers():
        for mode in SET_ID_MODES:
            name = f"{toucher.__name__}-{mode:o}"
            write_file(name, b"x" * 5000)
            os.chmod(name, mode)
            t(toucher, name)
            t(os.stat, name)


def _others_files(t):
    os.chmod(".", 0o777)
    for toucher in _touchers():
        for mode in SET_ID_MODES:
            name = f"{toucher.__name__}-{mode:o}"
            write_file(name, b"x" * 5000)
            os.chmod(name, mode)


@case(setup=_others_files, users=("nobody",))
def changes_by_others_clear_set_id(t):
    for toucher in _touchers():
        for mode in SET_ID_MODES:
            name = f"{toucher.__name__}-{mode:o}"
            t(toucher, name)
            t(os.stat, name)


def _capable_files(t):
    for toucher in _touchers():
        name = toucher.__name__
        write_file(name, b"x" * 5000)
        os.chmod(name, 0o777)
        t(os.setxattr, name, "security.capability", CAPABILITY)


@case(setup=_capable_files)
def changes_clear_capabilities(t):
    for toucher in _touchers():
        t(toucher, toucher.__name__)
        t(os.listxattr, toucher.__name__)
    if os.getuid() == 0:
        write_file("chowned")
        os.setxattr("chowned", "security.capability", CAPABILITY)
        t(os.chmod, "chowned", 0o700)
        t(os.listxattr, "chowned")
        t(os.chown, "chowned", 1, 1)
        t(os.listxattr, "chowned")


def _two_writes_setup(t):
    write_file("f", b"x" * 5000)
    os.chmod("f", 0o6777)


@case(setup=_two_writes_setup)
def set_id_restored_and_cleared_again(t):
    """Nothing may remember that the bits were cleared once."""
    fd = t(os.open, "f", os.O_RDWR)
    for _ in range(3):
        t(os.pwrite, fd, b"y", 0)
        t(os.fstat, fd)
        t(os.chmod, "f", 0o6777)
        t(os.stat, "f")
    t(os.close, fd)


def _setgid_directory(t):
    for mode, group in ((0o2777, 100), (0o2777, NOBODY), (0o777, 100)):
        name = f"d{mode:o}-{group}"
        os.mkdir(name)
        os.chown(name, 0, group)
        os.chmod(name, mode)


@case(setup=_setgid_directory)
def setgid_directory_inheritance(t):
    for home in ("d2777-100", f"d2777-{NOBODY}", "d777-100"):
        for mode in (0o644, 0o2755, 0o6755, 0o2644):
            fd = t(os.open, f"{home}/f{mode:o}", os.O_CREAT | os.O_WRONLY, mode)
            t(os.close, fd)
            t(os.stat, f"{home}/f{mode:o}")
            t(os.mkdir, f"{home}/d{mode:o}", mode)
            t(os.stat, f"{home}/d{mode:o}")
        t(os.symlink, "x", home + "/s")
        t(os.lstat, home + "/s")
        t(os.mkfifo, home + "/p")
        t(os.lstat, home + "/p")
        t(os.chmod, home + "/f644", 0o2755)
        t(os.stat, home + "/f644")
        fd = t(os.open, home, os.O_TMPFILE | os.O_RDWR, 0o2755)
        if fd is not None:
            t(os.fstat, fd)


@case(setup=_setgid_directory, users=("nobody",), groups=(100,))
def setgid_directory_of_a_member(t):
    setgid_directory_inheritance(t)


@case
def utimes(t):
    t.make("f", b"x")
    t(os.symlink, "f", "s")

    def times(path="f"):
        status = os.lstat(path)
        t.note(f"times of {path}", (status.st_atime_ns, status.st_mtime_ns))

    for stamp in (0, 1, 10**9 * 1_500_000_000 + 123_456_789, 10**9 * (2**31 + 5), -10**9 * 1000,
                  10**9 * (2**33), -10**9 * 2**31, 999_999_999):
        t(os.utime, "f", ns=(stamp, stamp + 1))
        times()
    t(utimensat, "f", (5, 6), (7, UTIME_OMIT))
    times()
    t(utimensat, "f", (5, UTIME_OMIT), (8, 9))
    times()
    t(utimensat, "f", (0, UTIME_OMIT), (0, UTIME_OMIT))
    times()
    before = time.time_ns()
    t(utimensat, "f", (0, UTIME_NOW), (8, 9))
    t.note("atime is now", abs(os.stat("f").st_atime_ns - before) < 60 * 10**9)
    t(utimensat, "f", (1, 1), (0, UTIME_NOW))
    t.note("mtime is now", abs(os.stat("f").st_mtime_ns - before) < 60 * 10**9)
    t(utimensat, "f", (1, 1_000_000_000), (0, 0))
    t(utimensat, "f", (1, -1), (0, 0))
    t(os.utime, "s", ns=(11, 22), follow_symlinks=False)
    times("s")
    t(os.utime, "s", ns=(33, 44))
    times()
    t(os.utime, "missing")
    fd = t(os.open, "f", os.O_RDONLY)
    t(futimens, fd, (55, 0), (66, 0))
    times()
    t(os.close, fd)
    t(os.mkdir, "d")
    t(os.utime, "d", ns=(77, 88))
    times("d")
    t.changes(["f"], utimensat, "f", (0, UTIME_NOW), (0, UTIME_OMIT))


@case
def written_times_last(t):
    """A time that was set is not moved again by the close of an earlier writer (cp -p, tar)."""
    fd = t(os.open, "f", os.O_CREAT | os.O_WRONLY)
    t(os.write, fd, b"data" * 5000)
    t(os.utime, fd, ns=(OLD_NS, OLD_NS))
    t.note("mtime", os.fstat(fd).st_mtime_ns)
    t(os.close, fd)
    t.note("mtime", os.stat("f").st_mtime_ns)
    t(os.fsync, os.open("f", os.O_RDONLY))
    t.note("mtime", os.stat("f").st_mtime_ns)
    t(os.rename, "f", "g")
    t.note("mtime", os.stat("g").st_mtime_ns)


@case
def relatime(t):
    def stamps(label, atime_s, mtime_s, read=True):
        write_file(label, b"content")
        os.utime(label, ns=(atime_s * 10**9, mtime_s * 10**9))
        if read:
            read_file(label)
        t.note(label, "kept" if os.stat(label).st_atime_ns == atime_s * 10**9 else "moved")

    now = int(time.time())
    stamps("atime before mtime", now - 1000, now - 500)
    stamps("atime equals mtime", now - 500, now - 500)
    stamps("atime after mtime", now - 500, now - 1000)
    stamps("atime a day old", now - 90_000, now - 100_000)
    stamps("never read", now - 1000, now - 500, read=False)
    write_file("noatime", b"x")
    os.utime("noatime", ns=(0, OLD_NS))
    fd = t(os.open, "noatime", os.O_RDONLY | os.O_NOATIME)
    t(os.read, fd, 1)
    t(os.close, fd)
    t.note("O_NOATIME", os.stat("noatime").st_atime_ns)


@case
def xattrs(t):
    t.make("f", b"x")
    t(os.mkdir, "d")
    for path in ("f", "d"):
        t(os.getxattr, path, "user.none")
        t(os.setxattr, path, "user.a", b"1", os.XATTR_REPLACE)
        t(os.setxattr, path, "user.a", b"1", os.XATTR_CREATE)
        t(os.setxattr, path, "user.a", b"2", os.XATTR_CREATE)
        t(os.setxattr, path, "user.a", b"3", os.XATTR_REPLACE)
        t(os.setxattr, path, "user.a", b"4", 3)
        t(os.getxattr, path, "user.a")
        t(os.setxattr, path, "user.empty", b"")
        t(os.getxattr, path, "user.empty")
        t(os.setxattr, path, b"user.\xff\n", bytes(range(256)))
        t(os.getxattr, path, b"user.\xff\n")
        t(os.setxattr, path, "user." + "n" * 250, b"long name")
        t(os.setxattr, path, "user." + "n" * 251, b"too long")
        t(os.setxattr, path, "user.", b"x")
        t(os.setxattr, path, "", b"x")
        t(os.setxattr, path, "plain", b"x")
        t(os.setxattr, path, "system.bogus", b"x")
        t(os.setxattr, path, "trusted.t", b"t")
        t(os.setxattr, path, "security.s", b"s")
        t.note("list", sorted(os.listxattr(path)))
        t(getxattr_sized, path, "user.a", 0)
        t(getxattr_sized, path, "user.\udcff\n", 255)
        t(getxattr_sized, path, "user.\udcff\n", 256)
        t(listxattr_sized, path, 0)
        t(listxattr_sized, path, 3)
        t(os.removexattr, path, "user.a")
        t(os.removexattr, path, "user.a")
        t.note("list", sorted(os.listxattr(path)))
    t(os.rename, "f", "g")
    t(os.link, "g", "h")
    t.note("after rename and link", sorted(os.listxattr("h")))
    fd = t(os.open, "g", os.O_RDONLY)
    t(os.setxattr, fd, "user.by fd", b"x")
    t(os.getxattr, fd, "user.by fd")
    t(os.unlink, "g")
    t(os.unlink, "h")
    t(os.getxattr, fd, "user.by fd")
    t(os.close, fd)


@case
def xattrs_of_special_files(t):
    t(os.symlink, "nowhere", "s")
    t(os.mkfifo, "p")
    for path in ("s", "p"):
        for name in ("user.a", "trusted.a", "security.a"):
            t(os.setxattr, path, name, b"x", follow_symlinks=False)
            t(os.getxattr, path, name, follow_symlinks=False)
        t.note("list", sorted(os.listxattr(path, follow_symlinks=False)))
    t(os.mkdir, "sticky")
    t(os.chmod, "sticky", 0o1777)
    t(os.setxattr, "sticky", "user.a", b"x")
    t.make("readonly", b"", 0o444)
    t(os.setxattr, "readonly", "user.a", b"x")
    t.make("secret", b"", 0o000)
    t(os.getxattr, "secret", "user.a")
    t(os.setxattr, "secret", "user.a", b"x")
    t(os.listxattr, "secret")


@case
def xattr_big_values(t):
    t.make("f")
    for size in (1, 100, 1000, 2000, 3000, 10_000, 65_536, 65_537):
        t(os.setxattr, "f", "user.big", b"v" * size)
    t(os.removexattr, "f", "user.big")
    for index in range(30):
        t(os.setxattr, "f", f"user.many{index}", b"v" * 50)
    t(lambda: sorted(os.listxattr("f")))


def _acl_values():
    minimal = acl((USER_OBJ, 6), (GROUP_OBJ, 4), (OTHER, 0))
    named = acl((USER_OBJ, 7), (USER, 6, 1000), (GROUP_OBJ, 4), (GROUP, 7, 100), (MASK, 5),
                (OTHER, 1))
    return minimal, named


def _show_acl(t, path):
    for name in (ACCESS, DEFAULT):
        try:
            t.note(f"{name} of {path}", acl_text(os.getxattr(path, name)))
        except OSError as error:
            t.note(f"{name} of {path}", error.errno)
    t(os.stat, path)


@case
def acl_and_mode(t):
    minimal, named = _acl_values()
    t.make("f", b"", 0o640)
    t(os.mkdir, "d", 0o750)
    for path in ("f", "d"):
        _show_acl(t, path)
        for value in (named, minimal, named):
            t(os.setxattr, path, ACCESS, value)
            _show_acl(t, path)
        for mode in (0o700, 0o777, 0o644, 0o4751):
            t(os.chmod, path, mode)
            _show_acl(t, path)
        t(os.setxattr, path, DEFAULT, named)
        t.note("list", sorted(os.listxattr(path)))
        t(os.removexattr, path, ACCESS)
        _show_acl(t, path)
        t(os.removexattr, path, DEFAULT)
        t(os.removexattr, path, DEFAULT)
        _show_acl(t, path)
    for bad in (b"", b"x", acl((USER_OBJ, 6)), acl((USER_OBJ, 7), (USER, 7, 5), (GROUP_OBJ, 7),
                (OTHER, 7)), acl((OTHER, 7), (USER_OBJ, 7), (GROUP_OBJ, 7)),
                acl((USER_OBJ, 9), (GROUP_OBJ, 7), (OTHER, 7)), named + b"x",
                b"\x01\0\0\0" + named[4:]):
        t(os.setxattr, "f", ACCESS, bad)
        t(os.setxattr, "d", DEFAULT, bad)
    _show_acl(t, "f")
    t(os.symlink, "f", "s")
    t(os.setxattr, "s", ACCESS, named, follow_symlinks=False)


@case
def acl_inheritance(t):
    for label, default in (
            ("narrow", acl((USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 0))),
            ("named", acl((USER_OBJ, 7), (USER, 7, 1000), (GROUP_OBJ, 7), (MASK, 7), (OTHER, 5))),
            ("masked", acl((USER_OBJ, 7), (USER, 7, 1000), (GROUP_OBJ, 7), (MASK, 4),
                           (OTHER, 0)))):
        os.mkdir(label)
        t(os.setxattr, label, DEFAULT, default)
        for umask in (0, 0o022, 0o077):
            os.umask(umask)
            for mode in (0o666, 0o777, 0o600, 0o2770):
                name = f"{label}/{umask:o}-{mode:o}"
                fd = t(os.open, name, os.O_CREAT | os.O_WRONLY, mode)
                t(os.close, fd)
                _show_acl(t, name)
                t(os.mkdir, name + ".d", mode)
                _show_acl(t, name + ".d")
                t(os.mkfifo, name + ".p", mode)
                _show_acl(t, name + ".p")
        os.umask(0o022)
        t(os.symlink, "x", label + "/s")
        t(os.lstat, label + "/s")
        fd = t(os.open, label, os.O_TMPFILE | os.O_RDWR, 0o666)
        if fd is not None:
            t(os.fstat, fd)
        write_file("outside" + label)
        t(os.rename, "outside" + label, label + "/moved")
        _show_acl(t, label + "/moved")


def _acl_permissions_setup(t):
    """Root's files, with entries that let nobody in or keep nobody out."""
    def file(name, mode, *entries):
        write_file(name, b"secret", mode)
        os.setxattr(name, ACCESS, acl(*entries))

    file("granted", 0o600, (USER_OBJ, 6), (USER, 6, NOBODY), (GROUP_OBJ, 0), (MASK, 6), (OTHER, 0))
    file("masked", 0o600, (USER_OBJ, 6), (USER, 6, NOBODY), (GROUP_OBJ, 0), (MASK, 4), (OTHER, 0))
    file("denied", 0o666, (USER_OBJ, 6), (USER, 0, NOBODY), (GROUP_OBJ, 6), (MASK, 6), (OTHER, 6))
    file("group", 0o600, (USER_OBJ, 6), (GROUP_OBJ, 0), (GROUP, 6, NOBODY), (MASK, 6), (OTHER, 0))
    file("supplementary", 0o600, (USER_OBJ, 6), (GROUP_OBJ, 0), (GROUP, 4, 100), (MASK, 6),
         (OTHER, 0))
    file("groupdenied", 0o606, (USER_OBJ, 6), (GROUP_OBJ, 0), (GROUP, 0, NOBODY), (MASK, 6),
         (OTHER, 6))
    os.mkdir("dir", 0o700)
    os.setxattr("dir", ACCESS, acl((USER_OBJ, 7), (USER, 5, NOBODY), (GROUP_OBJ, 0), (MASK, 7),
                                   (OTHER, 0)))
    write_file("dir/f", b"inside")


@case(setup=_acl_permissions_setup, groups=(100,))
def acl_permissions(t):
    for name in ("granted", "masked", "denied", "group", "supplementary", "groupdenied"):
        for how in (os.R_OK, os.W_OK, os.X_OK, os.R_OK | os.W_OK):
            t(os.access, name, how)
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            fd = t(os.open, name, flags)
            if fd is not None:
                t(os.read, fd, 10)
                os.close(fd)
        t(os.setxattr, name, ACCESS, acl((USER_OBJ, 7), (GROUP_OBJ, 7), (OTHER, 7)))
        t(os.chmod, name, 0o777)
        t(os.getxattr, name, ACCESS)
    t(listing, "dir")
    t(read_file, "dir/f")
    t(write_file, "dir/new")
    t(os.unlink, "dir/f")


def _foreign_tree(t):
    """Root's tree in all stages of closedness."""
    for name, mode in (("open", 0o777), ("readable", 0o755), ("searchable", 0o711),
                       ("listable", 0o744), ("closed", 0o700), ("sticky", 0o1777)):
        os.mkdir(name)
        write_file(f"{name}/f", b"root's")
        write_file(f"{name}/w", b"for all")
        os.chmod(f"{name}/w", 0o666)
        os.mkdir(f"{name}/sub")
        os.chmod(name, mode)
    for name, mode in (("r", 0o444), ("w", 0o222), ("none", 0), ("group", 0o660)):
        write_file("f." + name, b"x")
        os.chmod("f." + name, mode)


@case(setup=_foreign_tree)
def permissions_on_foreign_trees(t):
    """The forty operations of somebody else in root's tree."""
    for home in ("open", "readable", "searchable", "listable", "closed", "sticky"):
        f, w, new = f"{home}/f", f"{home}/w", f"{home}/new"
        t(os.stat, f)
        t(listing, home)
        t(os.chdir, home)
        if os.getcwd().endswith(home):
            os.chdir("..")
        for path in (f, w):
            for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_CREAT,
                          os.O_RDONLY | os.O_NOATIME, os.O_PATH):
                fd = t(os.open, path, flags)
                if fd is not None:
                    os.close(fd)
            t(os.truncate, path, 2)
            t(os.chmod, path, 0o777)
            t(os.chown, path, os.getuid(), -1)
            t(os.utime, path)
            t(os.utime, path, ns=(1, 2))
            t(os.setxattr, path, "user.x", b"1")
            t(os.listxattr, path)
            t(os.link, path, "linked." + home + path[-1])
            t(os.access, path, os.R_OK | os.W_OK)
        t(os.mkdir, new)
        t(os.rmdir, new)
        t(write_file, new)
        t(os.symlink, "x", new + "s")
        t(os.mkfifo, new + "p")
        t(os.open, home, os.O_TMPFILE | os.O_RDWR)
        t(os.rename, w, f"{home}/w2")
        t(os.rename, f"{home}/w2", w)
        t(os.rename, new, f)
        t(renameat2, f, w, RENAME_EXCHANGE)
        t(os.rename, f"{home}/sub", f"{home}/sub2")
        t(os.rename, f"{home}/sub2", "sub." + home)
        t(os.unlink, f)
        t(os.rmdir, f"{home}/sub")
        t(os.chmod, home, 0o777)
    for name in ("r", "w", "none", "group"):
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            t(os.open, "f." + name, flags)
        t(os.access, "f." + name, os.R_OK)
        t(os.access, "f." + name, os.W_OK)
        t(os.truncate, "f." + name, 0)


@case
def permissions_on_own_files(t):
    t(os.mkdir, "d")
    t.make("d/f", b"x")
    for mode in (0o700, 0o600, 0o500, 0o400, 0o300, 0o200, 0o100, 0):
        t(os.chmod, "d", mode)
        t(os.stat, "d/f")
        t(listing, "d")
        t(write_file, f"d/new{mode:o}")
        t(os.rename, "d/f", "d/f")
        t(os.access, "d", os.R_OK | os.W_OK | os.X_OK)
        t(os.rename, "d", "e")
        t(os.rename, "e", "d")
    t(os.chmod, "d", 0o755)
    for mode in (0o600, 0o400, 0o200, 0):
        t(os.chmod, "d/f", mode)
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            fd = t(os.open, "d/f", flags)
            if fd is not None:
                os.close(fd)
        t(os.truncate, "d/f", 1)
        t(os.utime, "d/f", ns=(1, 1))
    fd = t(os.open, "born0", os.O_CREAT | os.O_RDWR, 0)
    t(os.write, fd, b"mine while open")
    t(os.pread, fd, 20, 0)
    t(os.close, fd)
    t(os.open, "born0", os.O_RDONLY)


def _sticky(t):
    os.mkdir("sticky")
    for who, owner in (("mine", NOBODY), ("roots", 0), ("others", 1000)):
        write_file(f"sticky/{who}")
        os.chown(f"sticky/{who}", owner, owner)
        os.chmod(f"sticky/{who}", 0o666)
        os.mkdir(f"sticky/{who}.d")
        os.chown(f"sticky/{who}.d", owner, owner)
    os.chmod("sticky", 0o1777)


@case(setup=_sticky)
def sticky_directories(t):
    for who in ("mine", "roots", "others"):
        t(os.rename, f"sticky/{who}", f"sticky/{who}2")
        t(os.rename, f"sticky/{who}2", f"sticky/{who}")
        t(os.rename, "sticky/mine", f"sticky/{who}")
        write_file("fresh")
        t(os.rename, "fresh", f"sticky/{who}")
        t(os.unlink, f"sticky/{who}")
        t(os.rmdir, f"sticky/{who}.d")
        if os.path.exists("fresh"):
            os.unlink("fresh")
    t.note("left", sorted(os.listdir("sticky")))


def _moving_directories(t):
    for name in ("from", "to"):
        os.mkdir(name)
        os.chmod(name, 0o777)
    for name, owner in (("mine", NOBODY), ("roots", 0)):
        os.mkdir(f"from/{name}")
        os.chown(f"from/{name}", owner, owner)
        os.chmod(f"from/{name}", 0o755)
    os.mkdir("from/open")
    os.chmod("from/open", 0o777)


@case(setup=_moving_directories)
def moving_directories_needs_write(t):
    for name in ("mine", "roots", "open"):
        t(os.rename, f"from/{name}", f"from/{name}.same")
        t(os.rename, f"from/{name}.same", f"to/{name}")


@case
def statfs(t):
    for path in (".",):
        answer = os.statvfs(path)
        t.note("f_bsize", answer.f_bsize)
        t.note("f_frsize", answer.f_frsize)
        t.note("f_namemax", answer.f_namemax)
        t.note("sane", (answer.f_blocks > 0, answer.f_bavail <= answer.f_bfree <= answer.f_blocks,
                        answer.f_files > 0, answer.f_ffree <= answer.f_files))
    t(os.statvfs, "missing")
    t.make("f")
    fd = t(os.open, "f", os.O_RDONLY)
    t.note("fstatvfs", os.fstatvfs(fd).f_bsize)
    t(os.close, fd)


@case
def link_counts(t):
    t.make("f")
    for index in range(50):
        os.link("f", f"l{index}")
    t(os.stat, "f")
    for index in range(0, 50, 3):
        os.unlink(f"l{index}")
    t(os.stat, "f")
    t(os.mkdir, "d")
    for index in range(20):
        os.mkdir(f"d/{index}")
    t(os.stat, "d")
    t(os.rename, "d/0", "d0")
    t(os.rename, "d/1", "d/2")
    t(os.rmdir, "d/3")
    t(os.stat, "d")
    t(os.stat, ".")
    write_file("x")
    t(renameat2, "x", "d/4", RENAME_EXCHANGE)
    t(os.stat, "d")
    t(os.stat, ".")
    t(lambda: stat.S_ISDIR(os.stat("x").st_mode))
