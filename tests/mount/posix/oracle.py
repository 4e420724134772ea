"""Runs a case on two trees and compares what every call answered.

A case is a function of a Tape whose working directory is an empty directory of the tree. It makes
its calls through the tape, which notes each call with its result or its errno. The two tapes must
be equal, except for the declared differences.
"""

import difflib
import fnmatch
import hashlib
import os
import shutil
import signal
import stat
import sys
import time
import traceback

import kvmount
from known_differences import KNOWN

CASES = []
CLOCK_REALTIME_COARSE = 5  # What file systems stamp with; Python's time has no name for it.
OLD_NS = 1_000_000_000 * 10**9  # A time stamp nothing else gives.


class Fd(int):
    """A descriptor; its number is no part of the comparison."""

    def __repr__(self):
        return "fd"


class Case:
    def __init__(self, function, setup, users, groups):
        self.function, self.setup, self.users, self.groups = function, setup, users, groups
        self.name = function.__name__


def case(function=None, *, setup=None, users=("root", "nobody"), groups=()):
    """Registers a case. `setup(tape)` runs first and as root, in the same directory."""
    def register(body):
        CASES.append(Case(body, setup, users, groups))
        return body

    return register(function) if function else register


def describe(value):
    """A result as text, without what may differ between two filesystems."""
    if isinstance(value, os.stat_result):
        kind = stat.S_IFMT(value.st_mode)
        text = f"{stat.filemode(value.st_mode)} {stat.S_IMODE(value.st_mode):04o}"
        text += f" nlink={value.st_nlink} owner={value.st_uid}:{value.st_gid}"
        if kind != stat.S_IFDIR:
            text += f" size={value.st_size}"
        if kind in (stat.S_IFCHR, stat.S_IFBLK):
            text += f" rdev={os.major(value.st_rdev)}:{os.minor(value.st_rdev)}"
        return text
    if isinstance(value, (bytes, bytearray)) and len(value) > 64:
        return f"{len(value)} bytes {hashlib.sha256(value).hexdigest()[:16]}"
    if isinstance(value, (list, tuple)) and not isinstance(value, str):
        return "[" + ", ".join(describe(item) for item in value) + "]"
    return repr(value)


class Tape:
    """Notes calls; see the module."""

    def __init__(self):
        self.lines = []

    def __call__(self, function, *arguments, **named):
        words = [describe(a) for a in arguments] + [f"{k}={describe(v)}"
                                                    for k, v in named.items()]
        call = f"{getattr(function, '__name__', function)}({', '.join(words)})"
        try:
            result = function(*arguments, **named)
        except OSError as error:
            self.lines.append(f"{call} = {kvmount.errno_name(error.errno)}")
            return None
        if function in (os.open, os.dup, os.memfd_create):
            result = Fd(result)
        self.lines.append(f"{call} = {describe(result)}")
        return result

    def note(self, label, value):
        self.lines.append(f"{label}: {describe(value)}")
        return value

    def make(self, path, data=b"", mode=0o644):
        """Creates a file; noted, and fatal for the case when it fails."""
        self(write_file, path, data, mode)

    def changes(self, paths, function, *arguments, **named):
        """Makes the call and notes which time stamps of `paths` it moved."""
        for path in paths:
            os.utime(path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)
        before = [os.lstat(path) for path in paths]
        newest = max(status.st_ctime_ns for status in before)
        while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= newest + 1_000_000:
            time.sleep(0.001)  # Until a new time stamp must differ from the last one.
        result = self(function, *arguments, **named)
        for path, old in zip(paths, before):
            try:
                new = os.lstat(path)
            except FileNotFoundError:
                self.lines.append(f"  {path!r} is gone")
                continue
            moved = [name for name in ("atime", "mtime", "ctime")
                     if getattr(new, f"st_{name}_ns") != getattr(old, f"st_{name}_ns")]
            self.lines.append(f"  {path!r} moved {' '.join(moved) or 'nothing'}")
        return result


def write_file(path, data=b"", mode=0o644):
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def read_file(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 24)
    finally:
        os.close(fd)


def listing(path="."):
    """Sorted names with their types as readdir tells them."""
    kinds = []
    for entry in os.scandir(path):
        kind = "dir" if entry.is_dir(follow_symlinks=False) else \
            "link" if entry.is_symlink() else \
            "file" if entry.is_file(follow_symlinks=False) else "other"
        kinds.append((entry.name, kind))
    return sorted(kinds)


def play(root, chosen, user):
    """Runs one case in `root`/<case>; for a child that is root. Returns the tape's lines."""
    home = os.path.join(root, f"{chosen.name}.{user}")
    os.mkdir(home)
    os.chdir(home)
    tape = Tape()
    uid = kvmount.NOBODY if user == "nobody" else 0
    try:
        if chosen.setup:
            chosen.setup(tape)
        os.chown(".", uid, uid)
        if uid:
            os.setgroups(list(chosen.groups))
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        chosen.function(tape)
    except Exception:
        frames = traceback.extract_tb(sys.exc_info()[2])
        where = next((f for f in frames if "cases_" in f.filename), frames[-1])
        kind, value = sys.exc_info()[:2]
        tape.lines.append(f"the case broke off at {os.path.basename(where.filename)}:"
                          f"{where.lineno}: {kind.__name__}: {value}")
    return tape.lines


def tapes(target, control, chosen, user):
    """(target's lines, control's lines); a hang on either is a TimeoutError."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    result = []
    for root in (target, control):
        try:
            result.append(kvmount.run_as(play, root, chosen, user, seconds=20))
        finally:
            shutil.rmtree(os.path.join(root, f"{chosen.name}.{user}"), ignore_errors=True)
    return result


def call_of(line):
    """The part of a line that says what was called, without the answer."""
    return line.partition(" = ")[0].partition(": ")[0].partition(" moved ")[0]


def aligned(ours, oracle):
    """Pairs of lines of the same call; None where one tape lacks it, as after an errno."""
    matcher = difflib.SequenceMatcher(None, [call_of(line) for line in ours],
                                      [call_of(line) for line in oracle], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            yield from zip(ours[a:b], oracle[c:d])
        else:
            yield from ((line, None) for line in ours[a:b])
            yield from ((None, line) for line in oracle[c:d])


def differences(target_lines, control_lines, name):
    """Readable differences that are not declared."""
    found = []
    for ours, oracle in aligned(target_lines, control_lines):
        ours, oracle = ours or "(no such call)", oracle or "(no such call)"
        if ours == oracle:
            continue
        if any(fnmatch.fnmatchcase(name, k.case) and fnmatch.fnmatchcase(oracle, k.control)
               and fnmatch.fnmatchcase(ours, k.target) for k in KNOWN):
            continue
        found.append(f"  ext4:  {oracle}\n  mount: {ours}")
    return found
