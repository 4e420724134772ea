"""What runtimes store, many times over: names of three layouts, three ways to write, bytes that follow
from the name.

Everything here runs in a process of its own (kvmount.Child): a store through a mapping that finds no
room is a SIGBUS, and who lists a directory is taken for a crawler from then on.
"""

import collections
import errno
import hashlib
import itertools
import mmap
import os
import random
import threading
import time

KIB, MIB = 1 << 10, 1 << 20
PAGE = 4096
# No multiple of a page: no two pages of a file are equal, so a page in another's place is noticed.
_POOL = 4 * MIB + 4099

_unique = itertools.count(1)


class Content:
    """The bytes of each name, from the seed."""

    def __init__(self, seed):
        self._seed = seed
        pool = random.Random(seed).randbytes(_POOL)
        self._pool = memoryview(pool + pool)

    def of(self, name, size):
        digest = hashlib.blake2b(f"{self._seed}/{name}".encode(), digest_size=8).digest()
        begin = int.from_bytes(digest, "little") % _POOL
        if size <= _POOL:
            return self._pool[begin:begin + size]
        turn = self._pool[begin:begin + _POOL]
        return memoryview(b"".join([turn] * (size // _POOL + 1)))[:size]


# ---- names -------------------------------------------------------------------------------------

def vllm(key):
    path = f"model_1a2b3c4d5e6f_r0/{key[:3]}/{key[3:5]}_g0/{key}.bin"
    return path, f"{path}_{os.getpid()}{next(_unique)}.tmp"


def lmcache(key):
    path = f"meta-llama-SEP-Llama-3.1-8B@0x01000100@0@{key}.data"
    return path, path + ".tmp"


def sglang(key):
    path = f"{key}_model_0_1.bin"
    return path, f"{path}.tmp.{os.getpid()}.{threading.get_ident()}.{next(_unique):032x}"


def plain(key):
    """No runtime's name: such files go by their last use alone."""
    return key, key + ".new"


LAYOUTS = {"vllm": vllm, "lmcache": lmcache, "sglang": sglang, "plain": plain}


# ---- ways to write -----------------------------------------------------------------------------

def _write_all(fd, data):
    done = os.write(fd, data)
    if done != len(data):  # Runtimes take a short write for an error.
        raise OSError(errno.EIO, f"short write: {done} of {len(data)}")


def put_buffered(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        _write_all(fd, data)
    finally:
        os.close(fd)


def put_direct(path, data):
    with mmap.mmap(-1, len(data)) as buffer:  # Aligned memory.
        buffer[:] = data
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o644)
        try:
            _write_all(fd, buffer)
        finally:
            os.close(fd)


def _put_mapped(path, data, allocate):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        allocate(fd, len(data))
        with mmap.mmap(fd, len(data)) as mapping:
            mapping[:] = data
    finally:
        os.close(fd)


def put_mapped(path, data):
    _put_mapped(path, data, os.ftruncate)


def put_allocated(path, data):
    _put_mapped(path, data, lambda fd, size: os.posix_fallocate(fd, 0, size))


WAYS = {"buffered": put_buffered, "direct": put_direct, "mapped": put_mapped,
        "allocated": put_allocated}


# ---- storing and loading -----------------------------------------------------------------------

Job = collections.namedtuple("Job", "key size way")


def store(root, layout, job, content):
    """A temporary name, the bytes, the rename; the call that failed is in the error."""
    path, temporary = (os.path.join(root, name) for name in LAYOUTS[layout](job.key))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    WAYS[job.way](temporary, content.of(job.key, job.size))
    os.rename(temporary, path)
    return path


def make_jobs(chance, total, sizes, ways=tuple(WAYS), large=()):
    """Jobs of `total` bytes, each of `sizes` with an equal share of them, and one of each of `large`
    somewhere in the middle."""
    jobs = []
    for size in sizes:
        for _ in range(max(total // len(sizes) // size, 1)):
            jobs.append(Job(f"{chance.getrandbits(256):064x}", size, chance.choice(ways)))
    chance.shuffle(jobs)
    for size in large:
        at = chance.randrange(len(jobs) // 3, 2 * len(jobs) // 3)
        jobs.insert(at, Job(f"{chance.getrandbits(256):064x}", size, chance.choice(ways)))
    return jobs


# The kernel remembers a name that it has just made for one second. A store that takes longer
# looks the name up again when it renames it, and has a lease by that.
SLOW_S = 0.9


def flood(root, layout, jobs, seed, threads=8):
    """All jobs, by threads that take the next one. {"errors": [...], "slowest": seconds of a store,
    "slow": how many took longer than SLOW_S}"""
    content = Content(seed)
    left = iter(jobs)
    lock = threading.Lock()
    errors, seconds = [], [0.0]

    def worker():
        while True:
            with lock:
                job = next(left, None)
            if job is None:
                return
            begin = time.monotonic()
            try:
                store(root, layout, job, content)
            except OSError as error:
                errors.append((job, f"{error!r} {error.filename} {error.filename2}"))
            seconds.append(time.monotonic() - begin)

    workers = [threading.Thread(target=worker) for _ in range(threads)]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()
    return {"errors": errors, "slowest": max(seconds),
            "slow": sum(took > SLOW_S for took in seconds)}


def load(path):
    """The bytes, or None for a miss."""
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return file.read(size + 1) if size < 1 << 30 else file.read()
    except FileNotFoundError:
        return None


def check(root, layout, jobs, seed):
    """{"there": [keys], "wrong": [(key, size wanted, size found)]}; the others are misses."""
    content = Content(seed)
    there, wrong = [], []
    for job in jobs:
        found = load(os.path.join(root, LAYOUTS[layout](job.key)[0]))
        if found is None:
            continue
        there.append(job.key)
        if found != content.of(job.key, job.size):
            wrong.append((job.key, job.size, len(found)))
    return {"there": there, "wrong": wrong}


def names(root):
    """{path from root: bytes it occupies} of all files."""
    found = {}
    for folder, _, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = os.lstat(path).st_blocks * 512
    return found
