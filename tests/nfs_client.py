"""A client of an NFS server in this process, by libnfs: what a machine without FUSE would see."""

import ctypes
import ctypes.util
import os


class _Url(ctypes.Structure):
    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


def _library():
    library = ctypes.CDLL(ctypes.util.find_library("nfs"))
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    library.nfs_init_context.restype = pointer
    library.nfs_destroy_context.argtypes = [pointer]
    library.nfs_get_error.argtypes, library.nfs_get_error.restype = [pointer], ctypes.c_char_p
    library.nfs_parse_url_dir.argtypes = [pointer, ctypes.c_char_p]
    library.nfs_parse_url_dir.restype = ctypes.POINTER(_Url)
    library.nfs_destroy_url.argtypes = [ctypes.POINTER(_Url)]
    library.nfs_set_timeout.argtypes = [pointer, ctypes.c_int]
    library.nfs_mount.argtypes = [pointer, ctypes.c_char_p, ctypes.c_char_p]
    library.nfs_open.argtypes = [pointer, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(pointer)]
    library.nfs_creat.argtypes = library.nfs_open.argtypes
    library.nfs_close.argtypes = library.nfs_fsync.argtypes = [pointer, pointer]
    library.nfs_pread.argtypes = [pointer, pointer, number, number, ctypes.c_char_p]
    library.nfs_pwrite.argtypes = library.nfs_pread.argtypes
    for name in ("nfs_mkdir", "nfs_unlink"):
        getattr(library, name).argtypes = [pointer, ctypes.c_char_p]
    library.nfs_rename.argtypes = [pointer, ctypes.c_char_p, ctypes.c_char_p]
    return library


class NfsFile:
    """An open file; all calls raise OSError."""

    def __init__(self, client, handle):
        self.client, self.handle = client, handle

    def read(self, size, offset=0):
        buffer = ctypes.create_string_buffer(size)
        parts, done = [], 0
        while done < size:
            got = self.client.check(self.client.library.nfs_pread(
                self.client.context, self.handle, offset + done, size - done, buffer))
            if got == 0:
                break
            parts.append(buffer.raw[:got])
            done += got
        return b"".join(parts)

    def write(self, content):
        done = 0
        while done < len(content):
            part = content[done:done + (1 << 20)]
            done += self.client.check(self.client.library.nfs_pwrite(
                self.client.context, self.handle, done, len(part), part))
        self.client.check(self.client.library.nfs_fsync(self.client.context, self.handle))

    def close(self):
        self.client.check(self.client.library.nfs_close(self.client.context, self.handle))


class NfsClient:
    """One connection to nfs://HOST/NAME?options. A call ends within `seconds`."""

    def __init__(self, url, seconds=10):
        self.library = _library()
        self.context = self.library.nfs_init_context()
        self.library.nfs_set_timeout(self.context, seconds * 1000)
        parsed = self.library.nfs_parse_url_dir(self.context, url.encode())
        if not parsed:
            raise ValueError(self.said())
        try:
            self.check(self.library.nfs_mount(self.context, parsed.contents.server,
                                              parsed.contents.path))
        finally:
            self.library.nfs_destroy_url(parsed)

    def said(self):
        return (self.library.nfs_get_error(self.context) or b"").decode(errors="replace")

    def check(self, code):
        if code < 0:
            raise OSError(-code, f"{os.strerror(-code)}: {self.said()}")
        return code

    def _opened(self, call, path, number):
        handle = ctypes.c_void_p()
        self.check(call(self.context, path.encode(), number, ctypes.byref(handle)))
        return NfsFile(self, handle)

    def open(self, path):
        return self._opened(self.library.nfs_open, path, os.O_RDONLY)

    def store(self, path, content):
        """As an engine does: under another name first."""
        file = self._opened(self.library.nfs_creat, path + ".tmp", 0o644)
        file.write(content)
        file.close()
        self.check(self.library.nfs_rename(self.context, (path + ".tmp").encode(), path.encode()))

    def load(self, path, size):
        file = self.open(path)
        try:
            return file.read(size)
        finally:
            file.close()

    def mkdir(self, path):
        self.check(self.library.nfs_mkdir(self.context, path.encode()))

    def unlink(self, path):
        self.check(self.library.nfs_unlink(self.context, path.encode()))

    def close(self):
        self.library.nfs_destroy_context(self.context)
