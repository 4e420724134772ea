"""Random sequences of operations on two trees, compared after every one of them.

The names, directories and modes come from small sets, so that operations meet each other. The
same descriptor slots are open on both sides. What is compared: each call's result or errno, then
the whole tree's attributes (not inode numbers, devices, sizes of directories, atime and ctime),
and the content and xattrs of what the call named; all contents every 25 calls and at the end.
"""

import os
import random
import stat
import time

import kvmount
from posix_calls import (ACCESS, DEFAULT, GROUP_OBJ, KEEP_SIZE, MASK, OTHER, PUNCH_HOLE,
                         RENAME_EXCHANGE, RENAME_NOREPLACE, USER, USER_OBJ, ZERO_RANGE, acl,
                         fallocate, renameat2)

NAMES = ["a", "b", "c", "new\nline", "\udcff\udcfe", "n" * 255]
DIRECTORIES = [".", "d", "e", "d/s"]
MODES = [0o644, 0o600, 0o666, 0o755, 0o700, 0o777, 0o4755, 0o2755, 0o1777, 0o400, 0o000, 0o6711]
XATTRS = ["user.a", "user.b", "trusted.c"]


class Differs(AssertionError):
    """The two trees disagree; the text has the call and the last ones before it."""


class Twin:
    """A target and a control directory that get the same calls. `user` says who makes them."""

    def __init__(self, target, control, seed):
        self.roots = (target, control)
        self.random = random.Random(seed)
        self.slots = [{}, {}]  # Per tree: slot -> descriptor.
        self.history = []
        self.done = {}
        self.calls = [getattr(self, name) for name in dir(self) if name.startswith("op_")]

    # ---- the run -------------------------------------------------------------------------------

    def run(self, count):
        for number in range(count):
            operation = self.random.choice(self.calls)
            text, function, paths = operation()
            results = []
            for side, root in enumerate(self.roots):
                os.chdir(root)
                try:
                    results.append(("ok", function(side)))
                except OSError as error:
                    results.append((kvmount.errno_name(error.errno), None))
            self.history.append(f"{len(self.history)}: {text} -> {results[1][0]}")
            self.done[(operation.__name__, results[1][0] == "ok")] = True
            if results[0] != results[1]:
                self.fail(f"{text}: ext4 answered {results[1]}, the mount {results[0]}")
            self.compare_trees(None if number % 25 == 24 else paths)
        self.compare_trees(None)

    def fail(self, what):
        raise Differs(what + "\nlast calls:\n" + "\n".join(self.history[-30:]))

    def compare_trees(self, paths):
        """Attributes of everything; contents and xattrs of `paths`, or of everything (None)."""
        seen = []
        for root in self.roots:
            os.chdir(root)
            seen.append(snapshot(paths))
        if seen[0] != seen[1]:
            for path in sorted(set(seen[0]) | set(seen[1]), key=os.fsencode):
                if seen[0].get(path) != seen[1].get(path):
                    self.fail(f"{path!r}:\n  ext4  {seen[1].get(path)}\n"
                              f"  mount {seen[0].get(path)}")

    def close_all(self):
        for side in self.slots:
            for fd in side.values():
                os.close(fd)
            side.clear()

    # ---- choosing ------------------------------------------------------------------------------

    def path(self):
        return os.path.join(self.random.choice(DIRECTORIES), self.random.choice(NAMES))

    def any_path(self):
        return self.random.choice(DIRECTORIES[1:]) if self.random.random() < 0.15 else self.path()

    def open_slot(self):
        return self.random.choice(sorted(self.slots[1])) if self.slots[1] else None

    # ---- operations: each gives (text, function of the side, paths to look into) ----------------

    def op_create(self):
        path, mode = self.path(), self.random.choice(MODES)
        flags = os.O_CREAT | os.O_NONBLOCK  # A name may be a FIFO that nobody reads.
        flags |= self.random.choice((os.O_WRONLY, os.O_RDWR))
        flags |= self.random.choice((0, 0, os.O_EXCL, os.O_TRUNC, os.O_APPEND))
        data = self.random.randbytes(self.random.choice((0, 10, 5000)))

        def call(_):
            fd = os.open(path, flags, mode)
            try:
                return os.write(fd, data)
            finally:
                os.close(fd)

        return f"create {path!r} {flags:o} {mode:o} +{len(data)}", call, [path]

    def op_open_slot(self):
        path, slot = self.any_path(), self.random.randrange(6)
        flags = self.random.choice((os.O_RDONLY, os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_APPEND,
                                    os.O_RDWR | os.O_CREAT, os.O_RDONLY | os.O_NOFOLLOW,
                                    os.O_RDWR | os.O_TRUNC)) | os.O_NONBLOCK

        def call(side):
            fd = os.open(path, flags, 0o644)
            if slot in self.slots[side]:
                os.close(self.slots[side][slot])
            self.slots[side][slot] = fd

        return f"open {path!r} {flags:o} as {slot}", call, [path]

    def op_close_slot(self):
        slot = self.open_slot()
        return f"close {slot}", lambda side: slot is not None and os.close(
            self.slots[side].pop(slot)), []

    def op_write_slot(self):
        slot, offset = self.open_slot(), self.random.choice((0, 100, 4096, 70_000))
        data = self.random.randbytes(self.random.choice((1, 100, 9000)))

        def call(side):
            return None if slot is None else os.pwrite(self.slots[side][slot], data, offset)

        return f"write {slot} at {offset} +{len(data)}", call, []

    def op_read_slot(self):
        slot, offset = self.open_slot(), self.random.choice((0, 50, 4096, 100_000))

        def call(side):
            return None if slot is None else os.pread(self.slots[side][slot], 10_000, offset)

        return f"read {slot} at {offset}", call, []

    def op_fstat_slot(self):
        slot = self.open_slot()

        def call(side):
            return None if slot is None else attributes(os.fstat(self.slots[side][slot]))

        return f"fstat {slot}", call, []

    def op_fallocate_slot(self):
        slot = self.open_slot()
        mode = self.random.choice((0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE))
        offset, length = self.random.choice((0, 1000, 8192)), self.random.choice((100, 10_000))

        def call(side):
            return None if slot is None else fallocate(self.slots[side][slot], mode, offset,
                                                       length)

        return f"fallocate {slot} {mode} {offset} +{length}", call, []

    def op_ftruncate_slot(self):
        slot, size = self.open_slot(), self.random.choice((0, 10, 5000, 100_000))

        def call(side):
            return None if slot is None else os.ftruncate(self.slots[side][slot], size)

        return f"ftruncate {slot} {size}", call, []

    def op_fchmod_slot(self):
        slot, mode = self.open_slot(), self.random.choice(MODES)

        def call(side):
            return None if slot is None else os.fchmod(self.slots[side][slot], mode)

        return f"fchmod {slot} {mode:o}", call, []

    def op_truncate(self):
        path, size = self.path(), self.random.choice((0, 1, 4096, 50_000))
        return f"truncate {path!r} {size}", lambda _: os.truncate(path, size), [path]

    def op_unlink(self):
        path = self.any_path()
        return f"unlink {path!r}", lambda _: os.unlink(path), [path]

    def op_mkdir(self):
        path, mode = self.any_path(), self.random.choice(MODES[:8])
        return f"mkdir {path!r} {mode:o}", lambda _: os.mkdir(path, mode), [path]

    def op_rmdir(self):
        path = self.any_path()
        return f"rmdir {path!r}", lambda _: os.rmdir(path), [path]

    def op_rename(self):
        old, new = self.any_path(), self.any_path()
        flags = self.random.choice((0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE))
        return (f"rename {old!r} {new!r} {flags}", lambda _: renameat2(old, new, flags),
                [old, new])

    def op_link(self):
        old, new = self.any_path(), self.path()
        return (f"link {old!r} {new!r}",
                lambda _: os.link(old, new, follow_symlinks=False), [old, new])

    def op_symlink(self):
        target, path = self.random.choice(NAMES + ["../d", "loop", "d/s"]), self.path()
        return f"symlink {target!r} {path!r}", lambda _: os.symlink(target, path), [path]

    def op_mknod(self):
        path = self.path()
        kind = self.random.choice((stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG, stat.S_IFCHR))
        return (f"mknod {path!r} {kind:o}",
                lambda _: os.mknod(path, kind | 0o644, os.makedev(1, 3)), [path])

    def op_chmod(self):
        path, mode = self.any_path(), self.random.choice(MODES)
        if path in DIRECTORIES and not mode & 0o300 == 0o300:
            mode |= 0o700  # Else `nobody` soon locks itself out of everything.
        return f"chmod {path!r} {mode:o}", lambda _: os.chmod(path, mode), [path]

    def op_chown(self):
        path = self.any_path()
        uid = self.random.choice((-1, 0, 65534, 1000))
        gid = self.random.choice((-1, 0, 65534, 100))
        follow = self.random.random() < 0.5
        return (f"chown {path!r} {uid}:{gid} follow={follow}",
                lambda _: os.chown(path, uid, gid, follow_symlinks=follow), [path])

    def op_utime(self):
        path = self.any_path()
        stamp = self.random.randrange(2 * 10**18)
        return (f"utime {path!r} {stamp}",
                lambda _: os.utime(path, ns=(stamp, stamp + 1), follow_symlinks=False), [path])

    def op_setxattr(self):
        path, name = self.any_path(), self.random.choice(XATTRS)
        value = self.random.randbytes(self.random.choice((0, 5, 200)))
        flags = self.random.choice((0, 0, os.XATTR_CREATE, os.XATTR_REPLACE))
        return (f"setxattr {path!r} {name} +{len(value)} {flags}",
                lambda _: os.setxattr(path, name, value, flags, follow_symlinks=False), [path])

    def op_removexattr(self):
        path, name = self.any_path(), self.random.choice(XATTRS + [ACCESS, DEFAULT])
        return (f"removexattr {path!r} {name}",
                lambda _: os.removexattr(path, name, follow_symlinks=False), [path])

    def op_setacl(self):
        path, kind = self.any_path(), self.random.choice((ACCESS, DEFAULT))
        bits = [self.random.randrange(8) for _ in range(5)]
        value = acl((USER_OBJ, bits[0] | 6), (USER, bits[1], self.random.choice((1000, 65534))),
                    (GROUP_OBJ, bits[2]), (MASK, bits[3]), (OTHER, bits[4]))
        return (f"setacl {path!r} {kind} {bits}",
                lambda _: os.setxattr(path, kind, value, follow_symlinks=False), [path])

    def op_stat(self):
        path = self.any_path()
        return f"stat {path!r}", lambda _: attributes(os.stat(path)), [path]

    def op_access(self):
        path, how = self.any_path(), self.random.randrange(8)
        return f"access {path!r} {how}", lambda _: os.access(path, how), []

    def op_copy(self):
        one, two = self.path(), self.path()

        def call(_):
            source = os.open(one, os.O_RDONLY | os.O_NONBLOCK)
            try:
                target = os.open(two, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o644)
                try:
                    return os.copy_file_range(source, target, 5000, 0, 10)
                finally:
                    os.close(target)
            finally:
                os.close(source)

        return f"copy {one!r} {two!r}", call, [one, two]


def attributes(status):
    kind = stat.S_IFMT(status.st_mode)
    size = status.st_size if kind in (stat.S_IFREG, stat.S_IFLNK) else None
    device = status.st_rdev if kind in (stat.S_IFCHR, stat.S_IFBLK) else None
    # A time that was set must be equal; one that a call moved is "now" on both sides.
    mtime = status.st_mtime_ns
    recent = abs(mtime - time.time_ns()) < 600 * 10**9
    if kind == stat.S_IFIFO:  # FUSE inodes are not told of the writes through a pipe.
        mtime, recent = 0, False
    return (oct(status.st_mode), status.st_nlink, status.st_uid, status.st_gid, size, device,
            "now" if recent else mtime)


def snapshot(paths):
    """path -> what is compared, of the tree in the working directory."""
    seen = {}
    look = None if paths is None else {os.path.normpath(p) for p in paths}
    stack = ["."]
    while stack:
        here = stack.pop()
        try:
            names = sorted(os.listdir(here))
        except OSError as error:
            seen[here + "/"] = error.errno
            continue
        seen[here + "/"] = names
        for name in names:
            path = os.path.normpath(os.path.join(here, name))
            try:
                status = os.lstat(path)
            except OSError as error:
                seen[path] = error.errno
                continue
            entry = [attributes(status)]
            if look is None or path in look:
                entry += details(path, status)
            seen[path] = entry
            if stat.S_ISDIR(status.st_mode):
                stack.append(path)
    return seen


def details(path, status):
    """Content and xattrs, or the errno that reading them gave."""
    found = []
    try:
        if stat.S_ISREG(status.st_mode):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                found.append(os.read(fd, 1 << 20))
            finally:
                os.close(fd)
        elif stat.S_ISLNK(status.st_mode):
            found.append(os.readlink(path))
    except OSError as error:
        found.append(error.errno)
    try:
        found.append(sorted((name, os.getxattr(path, name, follow_symlinks=False))
                            for name in os.listxattr(path, follow_symlinks=False)))
    except OSError as error:
        found.append(error.errno)
    return found
