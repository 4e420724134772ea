"""What the tests of prefix/ and session/ share."""

import ctypes
import os
import threading

_libc = ctypes.CDLL(None, use_errno=True)

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_AT_SYMLINK_FOLLOW = 0x400


def _check(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old, new, flags):
    _check(_libc.renameat2(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), flags))


def link_fd(fd, new):
    """Gives the open file a (further) name."""
    _check(_libc.linkat(_AT_FDCWD, b"/proc/self/fd/%d" % fd, _AT_FDCWD, os.fsencode(new),
                        _AT_SYMLINK_FOLLOW))


def copy_file_range(source, target, count):
    return os.copy_file_range(source, target, count, 0, 0)


def expect_errno(number, call, *arguments):
    """`number`: an errno, or a tuple of them."""
    try:
        result = call(*arguments)
    except OSError as error:
        assert error.errno in (number if isinstance(number, tuple) else (number,)), f"{call.__name__}{arguments}: {error}"
        return
    raise AssertionError(f"{call.__name__}{arguments}: gave {result!r}")


def read(path):
    with open(path, "rb", buffering=0) as file:
        return file.read()


def publish(path, data, directory=None):
    """Writes a temporary (in `directory`, or beside it) and renames it to `path`."""
    directory = directory or os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    temporary = f"{directory}/tmp.{os.getpid()}.{threading.get_ident()}"
    with open(temporary, "wb", buffering=0) as file:
        file.write(data)
    os.rename(temporary, path)
