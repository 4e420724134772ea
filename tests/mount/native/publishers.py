"""Processes that publish the same hashes with different bytes, and processes that watch them.

Each copy says whose it is and how long, so that a reader knows a whole one when he sees it.
"""

import errno
import hashlib
import mmap
import os
import random
import threading

from native_calls import link_fd

_HEADER = 32
# What a call under way answers when the daemon dies.
_DEATH = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED, errno.EINTR)


def hash_of(seed, index):
    return hashlib.sha256(b"%d %d" % (seed, index)).hexdigest()


def copy_of(index, writer):
    """The bytes that `writer` publishes for the hash number `index`; no two are of one size."""
    size = 2000 + 61 * writer
    header = b"%08d %08d %012d" % (index, writer, size)
    assert len(header) == _HEADER - 2
    pattern = hashlib.sha256(header).digest()
    return header + b"\n\n" + (pattern * (size // len(pattern) + 1))[:size - _HEADER]


def writer_of(index, data):
    """Whose copy it is; raises unless it is one, whole."""
    assert len(data) >= _HEADER, f"hash {index}: {len(data)} bytes of a copy"
    writer = int(data[9:17])
    assert data == copy_of(index, writer), (
        f"hash {index}: {len(data)} bytes, not the copy of writer {writer}: {data[:_HEADER]!r}")
    return writer


class Seen:
    """What was seen of each hash: once there, always the same. For many threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self.writers = {}
        self.numbers = {}

    def check(self, index, writer, number=None):
        with self._lock:
            known = self.writers.setdefault(index, writer)
            assert known == writer, f"hash {index}: was writer {known}'s, is {writer}'s"
            if number is not None:
                known = self.numbers.setdefault(index, number)
                assert known == number, f"hash {index}: was inode {known}, is {number}"

    def is_there(self, index):
        with self._lock:
            return index in self.writers


def read_copy(path):
    with open(path, "rb", buffering=0) as file:
        return os.fstat(file.fileno()).st_ino, file.read(1 << 20)


def _by_rename(path, data, directory, name):
    temporary = f"{directory}/{name}"
    with open(temporary, "wb", buffering=0) as file:
        file.write(data)
    os.rename(temporary, path)


def open_nameless(directory):
    """An open file to give a name to later, and the name that it has where O_TMPFILE does not go
    (libfuse 3.14): None, or to be unlinked."""
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR), None
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    # Beside the directory: a kill may leave it.
    name = f"{directory}-nameless-{os.getpid()}-{threading.get_ident()}.tmp"
    return os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR), name


def _by_link(path, data, directory, _):
    fd, name = open_nameless(directory)
    try:
        os.write(fd, data)
        link_fd(fd, path)
    finally:
        os.close(fd)
        if name is not None:
            os.unlink(name)


def _in_place(path, data, _, __):
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        half = len(data) // 2
        os.write(fd, data[:half])
        os.write(fd, data[half:])
    finally:
        os.close(fd)


def _run_threads(bodies):
    """Runs them all; raises the first of their exceptions."""
    failures = []

    def guarded(body):
        try:
            body()
        except BaseException as error:  # Told to the test, whatever it is.
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def publish_all(top, seed, count, writers, go, mortal=False):
    """Each of `writers`, a thread each, publishes all hashes; returns (successes, refusals, who was
    seen for each hash). Begins when the pipe `go` gives a byte. `mortal`: the daemon may die, which
    ends it; then it returns which hashes somebody has published in the place of the successes."""
    seen = Seen()
    successes, refusals = [], []
    published = set()

    def body(writer):
        rng = random.Random(f"{seed} {writer}")
        order = list(range(count))
        random.Random(seed).shuffle(order)  # The same for all: they meet at each hash.
        good = bad = 0
        for index in order:
            path = f"{top}/prefix/{hash_of(seed, index)}"
            data = copy_of(index, writer)
            # A rename over a published name must succeed, a name that must be new is refused.
            how, place = rng.choice([(_by_rename, "prefix")] * 6 + [(_by_rename, "elsewhere")] * 2 +
                                    [(_by_link, "prefix"), (_in_place, "prefix")])
            try:
                how(path, data, f"{top}/{place}", f"tmp.{writer}")
                good += 1
                published.add(index)
                # Read your own: it, or the one that was first.
                number, found = read_copy(path)
                seen.check(index, writer_of(index, found), number)
            except FileExistsError:
                assert how is not _by_rename, f"rename: EEXIST of hash {index}"
                bad += 1
            except OSError as error:
                if mortal and error.errno in _DEATH:
                    break
                raise
        successes.append(good)
        refusals.append(bad)

    os.read(go, 1)
    _run_threads([lambda writer=writer: body(writer) for writer in writers])
    return published if mortal else sum(successes), sum(refusals), seen.writers


def watch_all(top, seed, count, threads, ready, stop):
    """Looks at the hashes in all ways until the pipe `stop` closes; returns (looks, who was seen)."""
    seen = Seen()
    held = {}  # Descriptors of the first sight: index -> fd.
    held_lock = threading.Lock()
    looks = [0]
    ended = threading.Event()

    def look(rng, index):
        path = f"{top}/prefix/{hash_of(seed, index)}"
        there = seen.is_there(index)
        try:
            way = rng.randrange(5)
            if way == 0:
                number, data = read_copy(path)
                seen.check(index, writer_of(index, data), number)
            elif way == 1:
                status = os.stat(path)
                seen.check(index, (status.st_size - 2000) // 61, status.st_ino)
            elif way == 2:
                with open(path, "rb") as file:
                    with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
                        seen.check(index, writer_of(index, view[:]))
            elif way == 3 and index in held:
                fd = held[index]
                seen.check(index, writer_of(index, os.pread(fd, 1 << 20, 0)),
                           os.fstat(fd).st_ino)
            elif os.access(path, os.R_OK):
                with held_lock:
                    if index not in held and len(held) < 400:
                        held[index] = os.open(path, os.O_RDONLY)
            else:
                assert not there, f"hash {index}: was there, access(2) says no"
        except FileNotFoundError:
            assert not there, f"hash {index}: was there, is not"

    def body(number):
        rng = random.Random(f"{seed} watcher {number}")
        while not ended.is_set():
            look(rng, rng.randrange(count))
            looks[0] += 1

    for index in range(count):  # All of them are asked for before they are there.
        try:
            os.stat(f"{top}/prefix/{hash_of(seed, index)}")
            raise AssertionError("published before the start")
        except FileNotFoundError:
            pass
    os.write(ready, b"1")

    def timer():
        os.read(stop, 1)
        ended.set()

    try:
        _run_threads([timer] + [lambda number=number: body(number) for number in range(threads)])
        rng = random.Random(seed)
        for index in range(count):  # And once more at the end.
            for _ in range(5):
                look(rng, index)
    finally:
        for fd in held.values():
            os.close(fd)
    return looks[0], seen.writers
