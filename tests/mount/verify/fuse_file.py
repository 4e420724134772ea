"""A program: serves one file by FUSE, and lies about parts of it as it is told.

    fuse_file.py TRUTH MOUNTPOINT SOCKET

TRUTH holds the bytes, MOUNTPOINT (a regular file) shows them, SOCKET is an inherited descriptor.
A line of JSON in is a list of lies, which replaces the last one; a line out says how often each
lie of the last list was told. It ends when the other end of SOCKET is closed. A lie is [kind,
begin, end, argument]; those about reads do not overlap, nor do those about writes.

    read   flip       bit `argument` of the byte at `begin`
           flicker    a bit of the range, in one of `argument` reads
           elsewhere  the bytes that lie `argument` bytes further on
           unreadable EIO
    write  drop       said done; what was there before is there still
           tear       the first half of what a request has for the range
           garble     bit `argument` of the byte at `begin`
           astray     to `argument` bytes further on
           refuse     EIO

It speaks the kernel's protocol itself (include/uapi/linux/fuse.h): a file system of one file needs
nothing else.
"""

import bisect
import ctypes
import errno
import json
import os
import random
import select
import socket
import stat
import struct
import sys

MIB = 1 << 20
SECTOR = 512
READ_LIES = ("flip", "flicker", "elsewhere", "unreadable")
WRITE_LIES = ("drop", "tear", "garble", "astray", "refuse")

_FORGET, _GETATTR, _OPEN, _READ, _WRITE, _STATFS = 2, 3, 14, 15, 16, 17
_RELEASE, _FSYNC, _FLUSH, _INIT, _INTERRUPT, _DESTROY, _BATCH_FORGET = 18, 20, 25, 26, 36, 38, 42
_IN_HEADER = struct.Struct("=IIQQIIIHH")
_OUT_HEADER = struct.Struct("=IiQ")
_IO = struct.Struct("=QQIIQII")
_INIT_OUT = struct.Struct("=IIIIHHIIHHII24x")
_ATTR_OUT = struct.Struct("=QII6Q3I7I")
_OPEN_OUT = struct.Struct("=QIi")
_ASYNC_READ, _BIG_WRITES, _MAX_PAGES = 1 << 0, 1 << 5, 1 << 22
_DIRECT_IO = 1 << 0  # Of an open: the kernel keeps no pages of the file, each request comes here.
_PR_SET_IO_FLUSHER = 57


class Liar:
    """The bytes, and what is said about them."""

    def __init__(self, truth):
        self.fd = os.open(truth, os.O_RDWR)
        self.size = os.fstat(self.fd).st_size
        self.chance = random.Random(1)
        self.tell([])

    def tell(self, lies):
        """Lies so from now on."""
        self.told = [0] * len(lies)
        self.tables = {}
        for kinds in (READ_LIES, WRITE_LIES):
            table = sorted((begin, end, number, kind, argument)
                           for number, (kind, begin, end, argument) in enumerate(lies)
                           if kind in kinds)
            self.tables[kinds] = table, [end for _, end, *_ in table]

    def _lies(self, kinds, offset, length):
        """(begin, end, number, kind, argument) of those that a request meets, cut to it."""
        table, ends = self.tables[kinds]
        for at in range(bisect.bisect_right(ends, offset), len(table)):
            begin, end, *rest = table[at]
            if begin >= offset + length:
                break
            yield max(begin, offset), min(end, offset + length), *rest

    def read(self, offset, length):
        data = bytearray(os.pread(self.fd, length, offset))
        for begin, end, number, kind, argument in self._lies(READ_LIES, offset, len(data)):
            if kind == "flicker" and self.chance.randrange(argument) != 0:
                continue
            self.told[number] += 1
            if kind == "flip":
                data[begin - offset] ^= 1 << argument
            elif kind == "flicker":
                data[self.chance.randrange(begin, end) - offset] ^= 1 << self.chance.randrange(8)
            elif kind == "elsewhere":
                data[begin - offset:end - offset] = os.pread(self.fd, end - begin, begin + argument)
            else:
                raise OSError(errno.EIO, kind)
        return data

    def write(self, offset, data):
        at = offset
        for begin, end, number, kind, argument in self._lies(WRITE_LIES, offset, len(data)):
            self.told[number] += 1
            self._put(at, data[at - offset:begin - offset])
            part = data[begin - offset:end - offset]
            if kind == "tear":
                self._put(begin, part[:len(part) // 2 // SECTOR * SECTOR])
            elif kind == "garble":
                self._put(begin, bytes([part[0] ^ 1 << argument]) + part[1:])
            elif kind == "astray":
                self._put(begin + argument, part)
            elif kind == "refuse":
                raise OSError(errno.EIO, kind)
            at = end
        self._put(at, data[at - offset:])

    def _put(self, offset, data):
        if len(data) > 0:
            assert os.pwrite(self.fd, data, offset) == len(data)


def mount(mountpoint):
    """The descriptor on which requests come."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode={stat.S_IFREG | 0o600:o},user_id=0,group_id=0"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"lying", mountpoint.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    # Requests come while memory is being written back: ours must not wait for that.
    libc.prctl(_PR_SET_IO_FLUSHER, 1, 0, 0, 0)
    return fuse


def attributes(liar):
    return _ATTR_OUT.pack(1, 0, 0, 1, liar.size, liar.size // SECTOR, 0, 0, 0, 0, 0, 0,
                          stat.S_IFREG | 0o600, 1, 0, 0, 0, 4096, 0)


def answer(liar, opcode, body):
    """The body of a reply, or None for none."""
    if opcode == _READ:
        _, offset, length, *_ = _IO.unpack_from(body)
        return liar.read(offset, length)
    if opcode == _WRITE:
        _, offset, length, *_ = _IO.unpack_from(body)
        liar.write(offset, bytes(body[_IO.size:_IO.size + length]))
        return struct.pack("=II", length, 0)
    if opcode == _INIT:
        return _INIT_OUT.pack(7, 31, MIB, _ASYNC_READ | _BIG_WRITES | _MAX_PAGES, 64, 48, MIB, 1,
                              MIB // 4096, 0, 0, 0)
    if opcode == _GETATTR:
        return attributes(liar)
    if opcode == _OPEN:
        return _OPEN_OUT.pack(0, _DIRECT_IO, 0)
    if opcode == _STATFS:
        return bytes(80)
    if opcode in (_RELEASE, _FSYNC, _FLUSH, _DESTROY):
        return b""
    if opcode in (_FORGET, _BATCH_FORGET, _INTERRUPT):
        return None
    raise OSError(errno.ENOSYS, str(opcode))


def serve_one(fuse, liar, buffer):
    """False when the file was unmounted."""
    try:
        length = os.readv(fuse, [buffer])
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):  # It was interrupted.
            return True
        if error.errno == errno.ENODEV:
            return False
        raise
    _, opcode, unique, *_ = _IN_HEADER.unpack_from(buffer)
    try:
        code, body = 0, answer(liar, opcode, memoryview(buffer)[_IN_HEADER.size:length])
    except OSError as error:
        code, body = -error.errno, b""
    if body is not None:
        try:
            os.writev(fuse, [_OUT_HEADER.pack(_OUT_HEADER.size + len(body), code, unique), body])
        except OSError as error:
            if error.errno != errno.ENOENT:  # It was interrupted.
                raise
    return True


def main(truth, mountpoint, number):
    liar = Liar(truth)
    fuse = mount(mountpoint)
    buffer = bytearray(MIB + 4096)
    control = socket.socket(fileno=int(number))
    lines = control.makefile("rw")

    def say(what):
        lines.write(json.dumps(what) + "\n")
        lines.flush()

    say("mounted")
    poller = select.poll()
    poller.register(fuse, select.POLLIN)
    poller.register(control, select.POLLIN)
    while True:
        for ready, _ in poller.poll():
            if ready == fuse:
                if not serve_one(fuse, liar, buffer):
                    return
                continue
            line = lines.readline()
            if not line:
                return
            told = liar.told
            liar.tell(json.loads(line))
            say(told)


if __name__ == "__main__":
    main(*sys.argv[1:])
