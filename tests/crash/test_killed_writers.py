"""Programs that are killed while they store, or end without closing what they store: a name is the old whole, the new whole, or
absent, whoever looks and whenever. The kernel closes what a dying task had open, as if the task had."""

import collections
import errno
import faulthandler
import itertools
import mmap
import os
import random
import signal
import threading

import pytest

import crashes
import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="on ext4 the half of it stays")

ROUNDS = crashes.count(full=500, normal=60, short=24)
PIECE = 1 << 16
PIECES = 12
HASH = "5f" * 32


def body(tag, pieces=PIECES):
    return b"".join(bytes([tag, piece]) * (PIECE // 2) for piece in range(pieces))


def write(fd, tag, step):
    for piece in range(PIECES):
        os.pwrite(fd, bytes([tag, piece]) * (PIECE // 2), piece * PIECE)
        step()


def in_place(path, tag, step):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    step()
    write(fd, tag, step)
    os.close(fd)


def through_a_duplicate(path, tag, step):
    """As a shell that redirects: the first descriptor is closed before anything is written."""
    first = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    fd = os.dup(first)
    os.close(first)
    step()
    write(fd, tag, step)
    os.close(fd)


def renamed(path, tag, step):
    temporary = f"{path}_{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    write(fd, tag, step)
    os.close(fd)
    step()
    os.rename(temporary, path)


def mapped(path, tag, step):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.ftruncate(fd, PIECES * PIECE)
    step()
    mapping = mmap.mmap(fd, PIECES * PIECE)
    for piece in range(PIECES):
        mapping[piece * PIECE:(piece + 1) * PIECE] = bytes([tag, piece]) * (PIECE // 2)
        step()
    mapping.close()
    os.close(fd)


def by_threads(path, tag, step):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    step()
    turns = iter(range(PIECES))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                piece = next(turns, None)
            if piece is None:
                return
            os.pwrite(fd, bytes([tag, piece]) * (PIECE // 2), piece * PIECE)
            step()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(fd)


def beside_a_child(path, tag, step):
    """The child has inherited the descriptor, writes nothing, and outlives the writer."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    come, go = os.pipe()
    if os.fork() == 0:
        os.close(go)
        os.read(come, 1)  # The writer has ended, or is done.
        os._exit(0)
    os.close(come)
    write(fd, tag, step)
    os.close(fd)
    os.close(go)


WAYS = [in_place, through_a_duplicate, renamed, mapped, by_threads, beside_a_child]
NAMES = {"sglang": f"{HASH}_meta-llama-Llama-3.1-8B_0_2.bin",
         "vllm": f"vllm/m_1a2b3c4d5e6f_r0/{HASH[:3]}/{HASH[3:5]}_g0/{HASH}.bin",
         "llama_cpp": "slots/conversation.bin", "plain": "plain/state"}


class Store:
    """One program that stores: it dies by itself at a step, or is done."""

    def __init__(self, way, path, tag, last, how):
        self.pid = os.fork()
        if self.pid == 0:
            faulthandler.disable()
            left = [last]

            def step():
                left[0] -= 1
                if left[0] == 0:
                    how()

            try:
                way(path, tag, step)
                os._exit(0)
            finally:
                os._exit(1)

    def wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def crash():
    os.kill(os.getpid(), signal.SIGSEGV)


def told(number):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def leave():
    os._exit(3)


def found(path):
    """None: there is nothing."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


@pytest.mark.gate
@pytest.mark.short
def test_what_a_killed_writer_leaves_is_old_new_or_absent(mounts, data_path, seed):
    """Each layout and each way to store, killed at a random step; over nothing, and over an older one."""
    mount = mounts(data_path=data_path)
    for name in NAMES.values():
        os.makedirs(os.path.dirname(f"{mount.mnt}/{name}"), exist_ok=True)
    os.setxattr(f"{mount.mnt}/slots", "user.kvcachefs.layout", b"llama_cpp")
    rng = random.Random(f"{seed}/killed")
    seen = collections.Counter(old=0, new=0, absent=0)
    for number in itertools.count():
        # A few rounds may by chance have ended alike.
        if number >= ROUNDS and (min(seen.values()) > 0 or number >= 10 * ROUNDS):
            break
        layout, name = rng.choice(sorted(NAMES.items()))
        path = f"{mount.mnt}/{name}"
        way, tag = rng.choice(WAYS), 1 + number % 250
        # A block may also be left by who fails.
        how = rng.choice([kill, kill, crash] + ([leave] if layout != "plain" and way is not renamed else []))
        old = found(path)
        if rng.random() < 0.4 and old is not None:
            os.unlink(path)
            old = None
        last = rng.randrange(1, PIECES + 4)
        what = f"round {number} (seed {seed}): {way.__name__} of {name}, {how.__name__} at step {last}, over {old and old[:2]}"
        code = Store(way, path, tag, last, how).wait()
        after = found(path)
        assert after in (None, old, body(tag)), f"{what}: half of it, {len(after)} bytes"
        if code == 0:
            assert after == body(tag), f"{what}: it was stored"
        if old is not None and after is None:
            # It is back when the kernel has let go of what was being written.
            kvmount.wait_until(lambda path=path, old=old: found(path) == old, 30, what)
            after = old
        seen["new" if after == body(tag) else "old" if after else "absent"] += 1
        if rng.random() < 0.2:
            mount.wait_sealed()
            assert found(path) == after, what
    print(dict(seen))
    assert min(seen.values()) > 0, seen
    mount.wait_sealed()
    counts = mount.status()["counts"]
    assert counts["poisoned"] == counts["damaged"] == counts["lost"] == 0
    mount.stop()
    crashes.check_fsck(mount)


def test_what_ends_as_told_keeps_its_plain_files(mounts, data_path):
    """A program that is told to end, or whose pipe is closed, leaves its log as on ext4; and so does one that ends without
    closing it."""
    mount = mounts(data_path=data_path)
    for root in (mount.mnt, mount.control):
        for way in ("TERM", "INT", "HUP", "PIPE"):
            path = f"{root}/log-{way}"
            number = signal.Signals[f"SIG{way}"]
            assert Store(in_place, path, 7, 5, lambda number=number: told(number)).wait() == -number
            assert found(path) == body(7, 4), (root, way)
        assert Store(in_place, f"{root}/log", 7, 5, leave).wait() == 3
        assert found(f"{root}/log") == body(7, 4)


def test_a_lock_stays_when_who_waits_for_it_is_killed(mounts, data_path):
    """The file is of who made it, and of all who have it open."""
    mount = mounts(data_path=data_path)

    def wait(path, tag, step):
        os.open(path, os.O_RDWR | os.O_CREAT)
        step()

    for root in (mount.mnt, mount.control):
        path = f"{root}/lock"
        holder = os.open(path, os.O_RDWR | os.O_CREAT)
        assert Store(wait, path, 7, 1, kill).wait() == -signal.SIGKILL
        assert os.path.samestat(os.stat(path), os.fstat(holder))
        os.close(holder)
        assert os.path.exists(path)
        waiter = os.open(path, os.O_RDONLY)
        os.unlink(path)
        other = os.open(path, os.O_RDWR | os.O_CREAT)
        reader = os.open(path, os.O_RDONLY)
        os.close(other)
        assert found(path) == b""
        os.close(waiter)
        os.close(reader)


def test_a_synced_file_stays_when_its_writer_is_killed(mounts, data_path):
    """A database's file is what it was, whoever is killed: fsync has published it."""
    mount = mounts(data_path=data_path)

    def synced(path, tag, step):
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.write(fd, body(tag, 1))
        os.fsync(fd)
        os.write(fd, body(tag, 1))
        step()

    for root in (mount.mnt, mount.control):
        assert Store(synced, f"{root}/database", 7, 1, kill).wait() == -signal.SIGKILL
        assert found(f"{root}/database") == 2 * body(7, 1)


def test_half_of_a_file_that_fails_is_a_miss_after_any_close(mounts, data_path):
    """dd and a shell that redirects close a duplicate first: a store that the full mount refuses leaves nothing."""
    mib = 1 << 20
    mount = mounts(data_path=data_path, size=64 * mib, options=["--policy", "keep"])

    def store(path, tag, step):
        first = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        fd = os.dup(first)
        os.close(first)
        for _ in range(100):
            os.write(fd, bytes([tag]) * mib)

    with pytest.raises(OSError) as refused:
        for number in range(100):
            with open(f"{mount.mnt}/kept-{number}", "wb") as file:
                file.write(bytes(mib))
    assert refused.value.errno == errno.ENOSPC
    for name in ("new", f"{HASH}_meta-llama-Llama-3.1-8B_0_2.bin"):
        assert Store(store, f"{mount.mnt}/{name}", 7, 0, kill).wait() == 1, "it is to be refused"
        assert found(f"{mount.mnt}/{name}") is None
        kvmount.wait_until(lambda name=name: name not in os.listdir(mount.mnt), 30, "the end of it")
