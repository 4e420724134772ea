"""POSIX, OFD and BSD locks, between descriptors and between processes."""

import errno
import fcntl
import os

import kvmount
from oracle import case
from posix_calls import (F_OFD_GETLK, F_OFD_SETLK, get_lock, set_lock)

READ, WRITE, UNLOCK = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK


def other_process(function, *arguments):
    """What the call answers in another process: 0 or the errno."""
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
        except BaseException:
            os._exit(255)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return kvmount.errno_name(code) if code else 0


@case
def posix_locks(t):
    t.make("f", b"x" * 1000)
    fd = t(os.open, "f", os.O_RDWR)
    t(set_lock, fd, WRITE, 0, 100)
    t(get_lock, fd, WRITE, 0, 100)

    def attempt(kind, start, length):
        mine = os.open("f", os.O_RDWR)
        set_lock(mine, kind, start, length)

    def question(kind, start, length):
        mine = os.open("f", os.O_RDWR)
        found = get_lock(mine, kind, start, length)
        if found != (WRITE, 0, 100):
            raise OSError(errno.EBADE, str(found))

    for kind, start, length in ((READ, 0, 10), (WRITE, 99, 1), (WRITE, 100, 10), (READ, 50, 100),
                                (WRITE, 200, 0), (UNLOCK, 0, 0)):
        t.note(f"other {kind} {start} {length}", other_process(attempt, kind, start, length))
    t.note("other asks", other_process(question, READ, 0, 0))
    t(set_lock, fd, READ, 0, 50)
    for kind, start, length in ((READ, 0, 10), (WRITE, 0, 10), (READ, 60, 10)):
        t.note(f"other {kind} {start} {length}", other_process(attempt, kind, start, length))
    t(set_lock, fd, UNLOCK, 0, 0)
    t.note("other", other_process(attempt, WRITE, 0, 0))
    t(set_lock, fd, WRITE, 0, 0)
    second = t(os.open, "f", os.O_RDONLY)
    t(os.close, second)  # Closing any descriptor drops the process's locks.
    t.note("other after close", other_process(attempt, WRITE, 0, 0))
    reader = t(os.open, "f", os.O_RDONLY)
    t(set_lock, reader, WRITE, 0, 10)
    t(set_lock, reader, READ, 0, 10)
    t(os.close, reader)
    writer = t(os.open, "f", os.O_WRONLY)
    t(set_lock, writer, READ, 0, 10)
    t(set_lock, writer, WRITE, 0, 10)
    t(set_lock, writer, 77, 0, 10)
    t(set_lock, writer, WRITE, -5, 10)
    t(os.close, writer)
    t(os.close, fd)


@case
def open_file_description_locks(t):
    t.make("f", b"x" * 1000)
    one = t(os.open, "f", os.O_RDWR)
    two = t(os.open, "f", os.O_RDWR)
    t(set_lock, one, WRITE, 0, 100, F_OFD_SETLK)
    t(set_lock, two, WRITE, 50, 100, F_OFD_SETLK)
    t(set_lock, two, READ, 100, 100, F_OFD_SETLK)
    t(get_lock, two, WRITE, 0, 0, F_OFD_GETLK)
    copy = t(os.dup, one)
    t(os.close, one)
    t(set_lock, two, WRITE, 50, 10, F_OFD_SETLK)
    t(os.close, copy)
    t(set_lock, two, WRITE, 50, 10, F_OFD_SETLK)
    t(os.close, two)


@case
def bsd_locks(t):
    t.make("f")
    one = t(os.open, "f", os.O_RDONLY)
    two = t(os.open, "f", os.O_RDWR)
    exclusive, shared = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB
    t(fcntl.flock, one, exclusive)
    t(fcntl.flock, two, exclusive)
    t(fcntl.flock, two, shared)
    t(fcntl.flock, one, shared)
    t(fcntl.flock, two, shared)
    t(fcntl.flock, two, exclusive)
    t(fcntl.flock, one, fcntl.LOCK_UN)
    t(fcntl.flock, two, exclusive)
    t(set_lock, two, WRITE, 0, 0)  # The two kinds do not see each other.

    def attempt():
        fcntl.flock(os.open("f", os.O_RDONLY), exclusive)

    t.note("other", other_process(attempt))
    t(os.close, two)
    t.note("other", other_process(attempt))
    t(os.rename, "f", "g")
    t(fcntl.flock, one, exclusive)
    t(os.unlink, "g")
    t(fcntl.flock, one, fcntl.LOCK_UN)
    directory = t(os.open, ".", os.O_RDONLY)
    t(fcntl.flock, directory, exclusive)
    t(os.close, directory)
    t(os.close, one)


@case
def waiting_for_a_lock(t):
    """A blocked lock is granted at the release, and a deadlock is seen."""
    t.make("f", b"x" * 10)
    fd = t(os.open, "f", os.O_RDWR)
    t(set_lock, fd, WRITE, 0, 1)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        mine = os.open("f", os.O_RDWR)
        set_lock(mine, WRITE, 1, 1)
        os.write(tell, b"r")
        try:
            set_lock(mine, WRITE, 0, 1, fcntl.F_SETLKW)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno)
    os.read(ready, 1)
    # Either we wait for the child's byte first or it for ours: one of the two gets EDEADLK.
    mine = 0
    try:
        set_lock(fd, WRITE, 1, 1, fcntl.F_SETLKW)
    except OSError as error:
        mine = error.errno
    set_lock(fd, UNLOCK, 0, 0)
    theirs = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    t.note("one of two", sorted([mine, theirs]))
    t(os.close, fd)
