"""Names: lookup, create, rename, link, symlink, unlink, mkdir, rmdir, mknod, readdir."""

import os
import socket
import stat

from oracle import case, listing, read_file, write_file
from posix_calls import (AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW, RENAME_EXCHANGE,
                         RENAME_NOREPLACE, link_fd, linkat, renameat2)


@case
def lookup_errors(t):
    t.make("f")
    for path in ("missing", "f/x", "f/", "", "missing/x", "./f", "../" + "x" * 255, "f/.",
                 "f/..", "a" * 256, "d/" * 2047 + "x", "p/" * 2048):
        t(os.stat, path)
        t(os.access, path, os.F_OK)
        t(os.unlink, path)
        t(os.mkdir, path + "/y" if path in ("missing", "f/x", "f/") else "f/y")
    t.make("g")
    t(os.stat, b"nul\xff")
    t(listing)


@case
def strange_names(t):
    names = [b"a b", b"new\nline", b"tab\t", b"\xff\xfe\x80", b"%2f", b"..a", b"...", b"-rf",
             b"\x01\x7f", "e\u0301".encode(), "\u00e9".encode(), b"A", b"a", b" ", b"*?[",
             b"x" * 255, b"\xf0\x9f\x98\x80", b"con", b"lost+found", b".kv", b"state", b"'\"\\"]
    for name in names:
        t(write_file, name, name)
    for name in names:
        t(read_file, name)
        t(os.stat, name)
    t.note("names", sorted(os.listdir(b".")))
    for name in names:
        t(os.rename, name, name[:250] + b".r")
    t.note("renamed", sorted(os.listdir(b".")))
    for name in names:
        t(os.unlink, name[:250] + b".r")
    t.note("left", os.listdir(b"."))
    every = bytes(c for c in range(1, 256) if c != ord("/"))
    t(write_file, every[:200], b"1")
    t(write_file, every[200:], b"2")
    t.note("bytes", sorted(os.listdir(b".")))


@case
def name_lengths(t):
    for make in (lambda n: write_file(n), lambda n: os.mkdir(n), lambda n: os.symlink("x", n),
                 lambda n: os.mkfifo(n), lambda n: os.link("base", n),
                 lambda n: os.rename("base", n)):
        write_file("base") if not os.path.lexists("base") else None
        for length in (254, 255, 256, 1000):
            name = "n" * length
            t(make, name)
            t(os.path.lexists, name if length < 256 else "x")
            if length < 256:
                t(os.rmdir if os.path.isdir(name) else os.unlink, name)
                write_file("base") if not os.path.lexists("base") else None


@case
def dot_and_dotdot(t):
    t(os.mkdir, "d")
    t(os.mkdir, "d/e")
    t.note("same", os.stat("d/e/..").st_ino == os.stat("d").st_ino)
    t.note("self", os.stat("d/.").st_ino == os.stat("d").st_ino)
    for path in (".", "..", "d/.", "d/..", "d/e/.", "d/e/.."):
        t(os.rmdir, path)
        t(os.unlink, path)
        t(os.mkdir, path)
        t(os.rename, path, "other")
        t(os.rename, "d", path)
    t(os.rename, "d/e", "f")
    t.note("moved ..", os.stat("f/..").st_ino == os.stat(".").st_ino)


@case
def create_flags(t):
    t.make("f", b"12345")
    t(os.symlink, "f", "s")
    t(os.symlink, "nowhere", "dangling")
    t(os.mkdir, "d")
    combos = {"rd": os.O_RDONLY, "wr": os.O_WRONLY, "rdwr": os.O_RDWR,
              "creat": os.O_CREAT | os.O_WRONLY, "excl": os.O_CREAT | os.O_EXCL | os.O_WRONLY,
              "dir": os.O_RDONLY | os.O_DIRECTORY, "nofollow": os.O_RDONLY | os.O_NOFOLLOW,
              "trunc": os.O_WRONLY | os.O_TRUNC, "rdtrunc": os.O_RDONLY | os.O_TRUNC,
              "path": os.O_PATH, "pathnofollow": os.O_PATH | os.O_NOFOLLOW,
              "append": os.O_WRONLY | os.O_APPEND, "sync": os.O_WRONLY | os.O_SYNC,
              "dsync": os.O_WRONLY | os.O_DSYNC, "noatime": os.O_RDONLY | os.O_NOATIME,
              "nonblock": os.O_RDONLY | os.O_NONBLOCK, "accmode": 3,
              "creatdir": os.O_CREAT | os.O_DIRECTORY}
    for label, flags in combos.items():
        for path in ("f", "s", "dangling", "d", "d/", "f/", "new." + label, "missing/x"):
            t.note("open", f"{label} {path}")
            fd = t(os.open, path, flags, 0o640)
            if fd is not None:
                t(os.fstat, fd)
                t(os.read, fd, 10)
                t(os.write, fd, b"x")
                t(os.close, fd)
        for path in ("nowhere", "f"):
            if os.path.exists(path):
                os.unlink(path)
        write_file("f", b"12345")
    t(listing)


@case
def creation_modes(t):
    for umask in (0, 0o022, 0o077, 0o777):
        os.umask(umask)
        for mode in (0, 0o400, 0o666, 0o777, 0o4755, 0o2755, 0o1777, 0o6711):
            name = f"{umask:o}.{mode:o}"
            fd = t(os.open, "f" + name, os.O_CREAT | os.O_RDWR | os.O_EXCL, mode)
            if fd is not None:
                t(os.write, fd, b"usable whatever the mode")
                t(os.close, fd)
            t(os.mkdir, "d" + name, mode)
            t(os.mkfifo, "p" + name, mode)
            for kind in "fdp":
                t(os.lstat, kind + name)
    os.umask(0o022)


@case
def rename_matrix(t):
    """Every kind onto every kind."""
    kinds = {"file": lambda p: write_file(p, p.encode()), "empty": os.mkdir,
             "full": lambda p: (os.mkdir(p), write_file(p + "/in")),
             "link": lambda p: os.symlink("nowhere", p), "fifo": os.mkfifo,
             "none": lambda p: None}
    for source, make_source in kinds.items():
        for target, make_target in kinds.items():
            for flags in (0, RENAME_NOREPLACE, RENAME_EXCHANGE, 3, 8):
                home = f"{source}-{target}-{flags}"
                os.mkdir(home)
                make_source(home + "/a")
                make_target(home + "/b")
                t(renameat2, home + "/a", home + "/b", flags)
                t(listing, home)
                for name in ("a", "b"):
                    t(os.lstat, f"{home}/{name}")


@case
def rename_special(t):
    t(os.mkdir, "d")
    t(os.mkdir, "d/sub")
    t.make("f", b"f")
    t(os.rename, "d", "d/sub/x")
    t(os.rename, "d", "d/x")
    t(os.rename, "d/sub", "d")
    t(renameat2, "d", "d/sub", RENAME_EXCHANGE)
    t(os.rename, "f", "f")
    t(os.link, "f", "g")
    t(os.rename, "f", "g")  # Two names of one inode: nothing happens.
    t(listing)
    t(renameat2, "f", "g", RENAME_EXCHANGE)
    t(renameat2, "f", "g", RENAME_NOREPLACE)
    t(os.rename, "f", "h/")
    t(os.rename, "d", "e/")
    t(os.rename, "f/", "h")
    t(os.rename, "f", "missing/x")
    t(os.rename, "f", "g/x")
    t(os.rename, "f", "/dev/shm/kvcachefs-exdev")
    t(os.link, "f", "/dev/shm/kvcachefs-exdev")
    t(listing)


@case
def rename_over_open_file(t):
    t.make("old", b"old content")
    t.make("new", b"new")
    fd = t(os.open, "old", os.O_RDWR)
    t(os.rename, "new", "old")
    t(os.read, fd, 100)
    t(os.fstat, fd)
    t(os.pwrite, fd, b"OLD", 0)
    t(os.pread, fd, 100, 0)
    t(read_file, "old")
    t(os.ftruncate, fd, 3)
    t(os.fstat, fd)
    t(os.fsync, fd)
    t(os.close, fd)
    t(os.stat, "old")


@case
def rename_with_open_fd(t):
    fd = t(os.open, "tmp", os.O_CREAT | os.O_RDWR | os.O_EXCL)
    t(os.write, fd, b"before")
    t(os.rename, "tmp", "final")
    t(os.write, fd, b" after")
    t(os.fstat, fd)
    t(read_file, "final")
    t(os.close, fd)
    t(read_file, "final")
    t(os.stat, "tmp")


@case
def rename_directories(t):
    for name in ("a", "a/b", "a/b/c", "z"):
        t(os.mkdir, name)
    t.make("a/b/c/f", b"deep")
    t(os.rename, "a/b", "z/b2")
    for name in ("a", "z", "z/b2"):
        t(os.stat, name)
    t(read_file, "z/b2/c/f")
    t(os.stat, "a/b/c/f")
    t(renameat2, "a", "z/b2/c/f", RENAME_EXCHANGE)
    t(os.stat, "a")
    t(listing, "z/b2/c")
    fd = t(os.open, "z/b2", os.O_RDONLY)
    t(os.rename, "z/b2", "b3")
    t.note("through the fd", sorted(os.listdir(fd)))
    t(os.close, fd)
    t(renameat2, "b3", "z", RENAME_EXCHANGE)
    for name in ("b3", "z"):
        t(os.stat, name)
        t(listing, name)


@case
def links(t):
    t.make("f", b"data")
    t(os.mkdir, "d")
    t(os.symlink, "f", "s")
    for source, target in (("f", "f2"), ("f", "f"), ("f", "d"), ("d", "d2"), ("missing", "x"),
                           ("f", "missing/x"), ("f", "f/x"), ("s", "s2"), ("f", "d/f3")):
        t(os.link, source, target, follow_symlinks=False)
    t(linkat, AT_FDCWD, "s", "followed", AT_SYMLINK_FOLLOW)
    for name in ("f", "f2", "s", "s2", "d/f3", "followed"):
        t(os.lstat, name)
    t.note("one inode", len({os.stat(n).st_ino for n in ("f", "f2", "d/f3", "followed")}))
    t(os.unlink, "f")
    t(read_file, "d/f3")
    t(os.lstat, "f2")
    fd = t(os.open, "f2", os.O_RDWR | os.O_APPEND)
    t(os.write, fd, b"+more")
    t(os.close, fd)
    t(os.stat, "d/f3")
    t(read_file, "followed")
    for kind in ("fifo", "node"):
        t(os.mkfifo, kind)
        t(os.link, kind, kind + "2")
        t(os.lstat, kind)


@case
def link_by_descriptor(t):
    t.make("f", b"data")
    fd = t(os.open, "f", os.O_RDONLY)
    t(link_fd, fd, "g")
    t(os.stat, "g")
    t(linkat, fd, "", "h", AT_EMPTY_PATH)
    t(os.unlink, "f")
    for name in ("g", "h"):
        if os.path.exists(name):
            t(os.unlink, name)
    t(link_fd, fd, "i")
    t(os.close, fd)


@case
def tmpfile(t):
    fd = t(os.open, ".", os.O_TMPFILE | os.O_RDWR, 0o640)
    if fd is not None:
        t(os.fstat, fd)
        t(os.write, fd, b"anonymous")
        t(listing)
        t(link_fd, fd, "named")
        t(os.fstat, fd)
        t(read_file, "named")
        t(os.write, fd, b" and named")
        t(os.close, fd)
        t(read_file, "named")
        t(os.stat, "named")
    fd = t(os.open, ".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    if fd is not None:
        t(link_fd, fd, "never")
        t(os.ftruncate, fd, 1 << 20)
        t(os.fstat, fd)
        t(os.close, fd)
    t(os.open, ".", os.O_TMPFILE | os.O_RDONLY, 0o600)
    t(os.open, "named", os.O_TMPFILE | os.O_RDWR, 0o600)
    t(os.open, "missing", os.O_TMPFILE | os.O_RDWR, 0o600)
    t(listing)


@case
def symlinks(t):
    t.make("f", b"x")
    t(os.mkdir, "d")
    for target, name in (("f", "s"), ("", "empty"), ("d", "sd"), ("x" * 4095, "long"),
                         ("x" * 4096, "toolong"), ("s", "ss"), ("loop", "loop"), ("b", "a"),
                         ("a", "b"), ("f", "s"), ("f", "d"), ("/abs/\xff", "abs"),
                         ("f", "missing/x"), (".", "dot")):
        t(os.symlink, target, name)
        t(os.lstat, name)
        t(os.readlink, name)
        t(os.stat, name)
    t(os.readlink, "f")
    t(os.readlink, "d")
    t(os.readlink, b"abs")
    t(os.stat, "dot/" * 40 + "f")
    t(os.stat, "dot/" * 41 + "f")
    t(os.stat, "s/")
    t(os.stat, "sd/")
    t(os.rmdir, "sd")
    t(os.rmdir, "sd/")
    t(os.mkdir, "ss")
    t(os.unlink, "s")
    t(os.stat, "ss")
    t(os.chmod, "sd", 0o700)
    t(os.stat, "d")
    for index in range(40):
        os.symlink(f"c{index + 1}", f"c{index}")
    write_file("c40", b"end")
    t(read_file, "c0")
    t(read_file, "c1")
    t(listing)


@case
def unlink_while_open(t):
    t.make("f", b"content" * 1000)
    fd = t(os.open, "f", os.O_RDWR)
    other = t(os.open, "f", os.O_RDONLY)
    t(os.unlink, "f")
    t(os.stat, "f")
    t(os.fstat, fd)
    t(os.pread, fd, 7000, 0)
    t(os.pwrite, fd, b"new", 7000)
    t(os.pread, other, 10, 6998)
    t(os.ftruncate, fd, 100)
    t(os.fstat, other)
    t(os.fchmod, fd, 0o600)
    t(os.fstat, fd)
    again = os.open(f"/proc/self/fd/{int(fd)}", os.O_RDWR)
    t(os.fsync, fd)
    t(os.close, fd)
    t.note("reopened", os.pread(again, 200, 0))
    os.close(again)
    t.make("f", b"another")
    t(os.fstat, other)
    t(os.pread, other, 7, 0)
    t(os.close, other)
    t(os.stat, "f")


@case
def removed_directory(t):
    t(os.mkdir, "d")
    fd = t(os.open, "d", os.O_RDONLY)
    t(os.rmdir, "d")
    t(os.fstat, fd)
    t(os.listdir, fd)
    t(os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    t(os.mkdir, "x", dir_fd=fd)
    t(os.symlink, "y", "x", dir_fd=fd)
    t(os.mkfifo, "x", dir_fd=fd)
    t(os.stat, ".", dir_fd=fd)
    t(os.stat, "x", dir_fd=fd)
    write_file("f")
    t(os.rename, "f", "x", dst_dir_fd=fd)
    t(os.link, "f", "x", dst_dir_fd=fd)
    t(os.fchmod, fd, 0o700)
    t(os.fsync, fd)
    t(os.mkdir, "d")
    t(os.listdir, fd)
    t(os.close, fd)


@case
def directories(t):
    t(os.mkdir, "d")
    t(os.mkdir, "d")
    t.make("f")
    t(os.symlink, "nowhere", "s")
    for path in ("f", "s", "f/x", "missing/x", "d/", "n/", "/"):
        t(os.mkdir, path)
    t(os.stat, "d")
    for name in ("d/a", "d/b", "d/b/c"):
        t(os.mkdir, name)
    t(os.stat, "d")
    t(os.stat, "d/b")
    t.make("d/file")
    t(os.stat, "d")
    for path in ("d", "d/b", "f", "s", "missing", "d/a/", "d/b/c", "d/b"):
        t(os.rmdir, path)
    t(os.unlink, "d")
    t(os.stat, "d")
    t(os.open, "d", os.O_WRONLY)
    t(os.open, "d", os.O_RDWR | os.O_CREAT)
    fd = t(os.open, "d", os.O_RDONLY)
    t(os.read, fd, 10)
    t(os.ftruncate, fd, 0)
    t(os.lseek, fd, 0, os.SEEK_SET)
    t(os.close, fd)
    t(os.truncate, "d", 0)


@case
def nodes(t):
    """All types; devices need a privilege to make and `-o dev` to open."""
    for label, kind, device in (("reg", stat.S_IFREG, 0), ("fifo", stat.S_IFIFO, 0),
                                ("sock", stat.S_IFSOCK, 0),
                                ("null", stat.S_IFCHR, os.makedev(1, 3)),
                                ("big", stat.S_IFCHR, os.makedev(300, 70000)),
                                ("blk", stat.S_IFBLK, os.makedev(259, 1)),
                                ("white", stat.S_IFCHR, 0), ("dir", stat.S_IFDIR, 0),
                                ("link", stat.S_IFLNK, 0), ("zero", 0, 0),
                                ("bad", 0o130000, 0)):
        t(os.mknod, label, kind | 0o660, device)
        t(os.lstat, label)
        t(os.mknod, label, kind | 0o660, device)
    t(listing)
    fd = t(os.open, "null", os.O_RDWR)
    if fd is not None:
        t(os.write, fd, b"gone")
        t(os.read, fd, 10)
        t(os.close, fd)
    t(os.open, "sock", os.O_RDWR)
    t(os.open, "fifo", os.O_WRONLY | os.O_NONBLOCK)
    reader = t(os.open, "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer = t(os.open, "fifo", os.O_WRONLY | os.O_NONBLOCK)
    t(os.write, writer, b"through the pipe")
    t(os.read, reader, 100)
    t(os.rename, "fifo", "fifo2")
    second = t(os.open, "fifo2", os.O_WRONLY | os.O_NONBLOCK)
    t(os.write, second, b"again")
    t(os.read, reader, 100)
    for fd in (reader, writer, second):
        t(os.close, fd)
    t(os.truncate, "fifo2", 0)
    for name in ("reg", "sock", "fifo2"):
        t(os.unlink, name)


@case
def unix_sockets(t):
    server = socket.socket(socket.AF_UNIX)
    t(server.bind, "sock")
    server.listen(1)
    t(os.lstat, "sock")
    client = socket.socket(socket.AF_UNIX)
    t(client.connect, "sock")
    other = socket.socket(socket.AF_UNIX)
    t(other.bind, "sock")
    t(os.rename, "sock", "sock2")
    late = socket.socket(socket.AF_UNIX)
    t(late.connect, "sock")
    t(late.connect_ex, "sock2")
    t(os.unlink, "sock2")


@case
def listings(t):
    for index in range(300):
        write_file(f"file {index}")
    for index in range(20):
        os.mkdir(f"dir {index}")
        os.symlink("x", f"link {index}")
    t(listing)
    fd = t(os.open, ".", os.O_RDONLY)
    t.note("count", len(os.listdir(fd)))
    t.note("again after rewind", len(os.listdir(fd)))
    t(os.close, fd)
    numbers = {entry.inode() for entry in os.scandir(".")}
    t.note("inode numbers agree", numbers == {os.lstat(n).st_ino for n in os.listdir(".")})
    for index in range(0, 300, 2):
        os.unlink(f"file {index}")
    t.note("after unlinking half", len(os.listdir(".")))


@case
def time_stamps_of_names(t):
    """Which call moves which time stamp of the parent and of the file."""
    t(os.mkdir, "p")
    t(os.mkdir, "q")
    t.make("p/f", b"x")
    t.changes(["p"], write_file, "p/new")
    t.changes(["p"], os.mkdir, "p/d")
    t.changes(["p"], os.symlink, "x", "p/s")
    t.changes(["p"], os.mkfifo, "p/fifo")
    t.changes(["p", "p/f"], os.link, "p/f", "p/f2")
    t.changes(["p", "q", "p/f"], os.rename, "p/f", "q/f")
    t.changes(["p", "q", "p/d"], os.rename, "p/d", "q/d")
    t.changes(["q", "p/f2"], os.unlink, "q/f")
    t.changes(["q"], os.rmdir, "q/d")
    t.changes(["p"], os.stat, "p/f2")
    t.changes(["p"], os.mkdir, "p/s")
    t.changes(["p", "p/new", "p/f2"], os.rename, "p/new", "p/f2")
    t.make("p/g")
    t.changes(["p", "p/g", "p/f2"], renameat2, "p/g", "p/f2", RENAME_EXCHANGE)
    t.changes(["p"], listing, "p")
    t.changes(["p/s"], os.readlink, "p/s")
    t.changes(["p"], os.access, "p/missing", os.F_OK)


@case
def inode_numbers(t):
    t.make("f")
    number = os.stat("f").st_ino
    t(os.rename, "f", "g")
    t.note("kept by rename", os.stat("g").st_ino == number)
    t(os.link, "g", "h")
    t(os.unlink, "g")
    t.note("kept by link", os.stat("h").st_ino == number)
    fd = os.open("h", os.O_RDONLY)
    t.note("fstat agrees", os.fstat(fd).st_ino == number)
    t.note("device agrees", os.fstat(fd).st_dev == os.stat(".").st_dev)
    os.close(fd)
    t.note("readdir agrees", [e.inode() == number for e in os.scandir(".")])
