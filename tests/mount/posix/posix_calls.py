"""System calls that Python's os module does not offer, each raising OSError as os does."""

import ctypes
import fcntl
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_SYMLINK_FOLLOW = 0x400

RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2

KEEP_SIZE = 0x01
PUNCH_HOLE = 0x02
COLLAPSE_RANGE = 0x08
ZERO_RANGE = 0x10
INSERT_RANGE = 0x20
UNSHARE_RANGE = 0x40

UTIME_NOW = (1 << 30) - 1
UTIME_OMIT = (1 << 30) - 2

F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38


def _check(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _path(path):
    return os.fsencode(path)


def renameat2(old, new, flags):
    _check(_libc.renameat2(AT_FDCWD, _path(old), AT_FDCWD, _path(new), flags))


def fallocate(fd, mode, offset, length):
    _check(_libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


def linkat(old_fd, old, new, flags):
    _check(_libc.linkat(old_fd, _path(old), AT_FDCWD, _path(new), flags))


def link_fd(fd, new):
    """Gives the open file a (further) name."""
    linkat(AT_FDCWD, f"/proc/self/fd/{int(fd)}", new, AT_SYMLINK_FOLLOW)


def utimensat(path, atime, mtime, flags=0):
    """atime and mtime are (seconds, nanoseconds); the nanoseconds may be UTIME_NOW/OMIT."""
    times = (ctypes.c_int64 * 4)(*atime, *mtime)
    _check(_libc.utimensat(AT_FDCWD, _path(path), ctypes.byref(times), flags))


def futimens(fd, atime, mtime):
    times = (ctypes.c_int64 * 4)(*atime, *mtime)
    _check(_libc.futimens(fd, ctypes.byref(times)))


def getxattr_sized(path, name, size):
    """The return value of getxattr(2) with a buffer of `size` bytes."""
    buffer = ctypes.create_string_buffer(max(size, 1))
    return _check(_libc.getxattr(_path(path), _path(name), buffer, ctypes.c_size_t(size)))


def listxattr_sized(path, size):
    buffer = ctypes.create_string_buffer(max(size, 1))
    return _check(_libc.listxattr(_path(path), buffer, ctypes.c_size_t(size)))


def syncfs(fd):
    _check(_libc.syncfs(fd))


class _FileHandle(ctypes.Structure):
    _fields_ = [("handle_bytes", ctypes.c_uint), ("handle_type", ctypes.c_int),
                ("f_handle", ctypes.c_ubyte * 128)]


def name_to_handle(path, flags=0):
    """The file handle of `path` as (type, bytes)."""
    handle = _FileHandle(handle_bytes=128)
    mount_id = ctypes.c_int()
    _check(_libc.name_to_handle_at(AT_FDCWD, _path(path), ctypes.byref(handle),
                                   ctypes.byref(mount_id), flags))
    return handle.handle_type, bytes(handle.f_handle[:handle.handle_bytes])


def open_by_handle(mount_fd, handle, flags):
    kind, body = handle
    raw = _FileHandle(handle_bytes=len(body), handle_type=kind)
    ctypes.memmove(raw.f_handle, body, len(body))
    return _check(_libc.open_by_handle_at(mount_fd, ctypes.byref(raw), flags))


def flock_struct(kind, start, length):
    return struct.pack("hh4xqqi4x", kind, os.SEEK_SET, start, length, 0)


def set_lock(fd, kind, start, length, command=fcntl.F_SETLK):
    fcntl.fcntl(fd, command, flock_struct(kind, start, length))


def get_lock(fd, kind, start, length, command=fcntl.F_GETLK):
    """(type, start, length) of the lock in the way, or F_UNLCK."""
    answer = fcntl.fcntl(fd, command, flock_struct(kind, start, length))
    found, _, begin, size, _ = struct.unpack("hh4xqqi4x", answer)
    return (found, begin, size) if found != fcntl.F_UNLCK else (found,)


# ---- POSIX ACLs as the xattr values that setfacl writes ---------------------------------------

USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
ACCESS = "system.posix_acl_access"
DEFAULT = "system.posix_acl_default"


def acl(*entries):
    """Encodes (tag, permissions[, id]) entries."""
    value = struct.pack("<I", 2)
    for entry in entries:
        tag, permissions = entry[:2]
        value += struct.pack("<HHI", tag, permissions, entry[2] if len(entry) > 2 else 0xFFFFFFFF)
    return value


def acl_text(value):
    """The entries of an ACL value, readable."""
    names = {USER_OBJ: "u", USER: "U", GROUP_OBJ: "g", GROUP: "G", MASK: "m", OTHER: "o"}
    parts = []
    for at in range(4, len(value), 8):
        tag, permissions, who = struct.unpack_from("<HHI", value, at)
        suffix = f"[{who}]" if tag in (USER, GROUP) else ""
        parts.append(f"{names[tag]}{suffix}:{permissions}")
    return ",".join(parts)


# A version-2 capability set: effective CAP_NET_RAW.
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
