"""A proxy between a mount and its NFS server that lies, delays and cuts, for tests.

`with Proxy(port) as proxy`: .port is what the mount connects to; .mode is what happens from now on:

    None           passes everything on
    "flip"         one bit of the bytes of each READ is another
    "other_number" the same, and LOOKUPs say that what they found has another file number
    "short"        READs give half of their bytes and say that the file ends there
    "wrong_file"   READs are answered with another file's bytes
    "old"          GETATTR and LOOKUP are answered as when they were first asked
    "noise"        every fifth answer has other bytes anywhere, is cut, or is longer
    "busy"         everything is answered with NFS3ERR_JUKEBOX
    "slow"         a kilobyte a second, in each direction
    "stop"         nothing is passed on
    "reset"        connections are reset, those that stand and new ones

NFS version 3 over ONC RPC: RFC 1813, RFC 5531 (section 11: records in TCP).
"""

import random
import select
import socket
import struct
import threading
import time

NFS = 100003
GETATTR, LOOKUP, READ = 1, 3, 6
JUKEBOX = 10008
ATTRIBUTES = 84  # bytes of a fattr3
FILE_NUMBER = 52  # where it is in these
SPOILED = ("flip", "short", "other_number")  # modes in which the bytes of READs are
SLOW_BYTES_PER_S = 1024
RESET = struct.pack("ii", 1, 0)  # of SO_LINGER
BUFFER = 1 << 20


def _padded(length):
    return (length + 3) & ~3


def _word(data, at):
    return struct.unpack_from(">I", data, at)[0]


def _arguments_at(call):
    """Where the arguments begin: after the credential and the verifier."""
    at = 24
    for _ in range(2):
        at += 8 + _padded(_word(call, at + 4))
    return at


def _results_at(reply):
    """Where the results of an accepted call begin; None: it was not accepted."""
    if _word(reply, 4) != 1 or _word(reply, 8) != 0:
        return None
    at = 12 + 8 + _padded(_word(reply, 16))
    return at + 4 if _word(reply, at) == 0 else None


class _Records:
    """Bytes put together to the messages of one direction."""

    def __init__(self):
        self.bytes = bytearray()
        self.fragments = bytearray()

    def add(self, data):
        self.bytes += data
        while len(self.bytes) >= 4:
            head = _word(self.bytes, 0)
            length = head & 0x7FFFFFFF
            if len(self.bytes) < 4 + length:
                return
            self.fragments += self.bytes[4:4 + length]
            del self.bytes[:4 + length]
            if head & 0x80000000:
                yield bytearray(self.fragments)
                self.fragments = bytearray()


class _Connection:
    """Of one client; its thread passes messages on in both directions."""

    def __init__(self, proxy, client):
        self.proxy = proxy
        self.client = client
        self.server = socket.create_connection(("127.0.0.1", proxy.server_port))
        self.calls = {}  # of each xid: the procedure, and its arguments
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def close(self, reset=False):
        for end in (self.client, self.server):
            try:
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.close()
            except OSError:
                pass

    def _run(self):
        inward, outward = _Records(), _Records()
        try:
            while not self.proxy.ending:
                mode = self.proxy.mode
                if mode == "reset":
                    return
                if mode == "stop":
                    time.sleep(0.02)  # Its pace, not an assumption.
                    continue
                ready, _, _ = select.select([self.client, self.server], [], [], 0.05)
                for end in ready:
                    data = end.recv(BUFFER)
                    if not data:
                        return
                    if end is self.client:
                        self._pass(inward.add(data), self.server, self.proxy.on_call)
                    else:
                        self._pass(outward.add(data), self.client, self.proxy.on_reply)
        except OSError:
            pass
        finally:
            self.close(reset=self.proxy.mode == "reset")

    def _pass(self, messages, to, change):
        for message in messages:
            message = change(self, message)
            data = struct.pack(">I", 0x80000000 | len(message)) + message
            while data:
                if self.proxy.mode == "reset" or self.proxy.ending:
                    return
                if self.proxy.mode == "stop":
                    time.sleep(0.02)
                    continue
                if self.proxy.mode != "slow":
                    to.sendall(data)
                    break
                to.sendall(data[:SLOW_BYTES_PER_S // 10])
                data = data[SLOW_BYTES_PER_S // 10:]
                time.sleep(0.1)


class Proxy:
    def __init__(self, server_port, seed=0):
        self.server_port = server_port
        self.chance = random.Random(seed)
        self.mode = None
        self.ending = False
        self.changed = 0  # messages that were not passed on as they were
        self.handles = set()
        self.first = {}  # of GETATTR and LOOKUP: the first results
        self.lock = threading.Lock()
        self.connections = []

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(0.1)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending = True
        self.thread.join()
        self.listener.close()
        for connection in self.connections:
            connection.thread.join()

    def _accept(self):
        while not self.ending:
            try:
                client, _ = self.listener.accept()
            except TimeoutError:
                continue
            if self.mode == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                client.close()
                continue
            try:
                self.connections.append(_Connection(self, client))
            except OSError:
                client.close()  # The server is away.

    def on_call(self, connection, call):
        if _word(call, 12) != NFS:
            return call
        procedure, at = _word(call, 20), _arguments_at(call)
        with self.lock:
            if procedure == READ:
                length = _word(call, at)
                handle = bytes(call[at:at + 4 + _padded(length)])
                self.handles.add(handle)
                others = [other for other in self.handles
                          if other != handle and len(other) == len(handle)]
                if self.mode == "wrong_file" and others:
                    call[at:at + len(handle)] = self.chance.choice(sorted(others))
                    self.changed += 1
            connection.calls[_word(call, 0)] = (procedure, bytes(call[at:]))
        return call

    def on_reply(self, connection, reply):
        procedure, arguments = connection.calls.pop(_word(reply, 0), (None, None))
        if self.mode == "noise" and self.chance.random() < 0.2:
            with self.lock:
                return self._noise(reply)
        at = _results_at(reply)
        if procedure is None or at is None:
            return reply
        with self.lock:
            if procedure in (GETATTR, LOOKUP):
                first = self.first.setdefault((procedure, arguments), bytes(reply[at:]))
                if self.mode == "old":
                    self.changed += first != bytes(reply[at:])
                    return reply[:at] + first
            if self.mode == "busy" and procedure != 0:
                self.changed += 1
                # Without attributes, of whichever kind they are.
                return reply[:at] + struct.pack(">I", JUKEBOX) + bytes(12)
            if procedure == LOOKUP and self.mode == "other_number" and _word(reply, at) == 0:
                attributes = at + 8 + _padded(_word(reply, at + 4))
                if _word(reply, attributes):
                    reply[attributes + 4 + FILE_NUMBER] ^= 0x40
            if procedure == READ and self.mode in SPOILED and _word(reply, at) == 0:
                return self._spoil(reply, at + 4)
        return reply

    def _noise(self, reply):
        self.changed += 1
        kind = self.chance.randrange(4)
        if kind == 0:  # A length, a count, or a discriminant.
            at = self.chance.randrange(4, len(reply) - 3, 4)
            struct.pack_into(">I", reply, at, self.chance.choice(
                [0, 1, 2, 5, 0x7F, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]))
        elif kind == 1:
            for _ in range(self.chance.randrange(1, 9)):
                reply[self.chance.randrange(4, len(reply))] = self.chance.randrange(256)
        elif kind == 2:
            del reply[self.chance.randrange(4, len(reply)):]
        else:
            reply += self.chance.randbytes(self.chance.randrange(1, 2000))
        return reply

    def _spoil(self, reply, at):
        at += 4 + (ATTRIBUTES if _word(reply, at) else 0)
        length = _word(reply, at + 8)
        if length < 2:
            return reply
        self.changed += 1
        if self.mode != "short":
            reply[at + 12 + self.chance.randrange(length)] ^= 1 << self.chance.randrange(8)
            return reply
        half = length // 2
        data = bytes(reply[at + 12:at + 12 + half])
        return (reply[:at] + struct.pack(">III", half, 1, half) + data
                + bytes(_padded(half) - half))
