"""The pool's trash: it counts, is shown, has a bound, and goes with the mounts that may need it."""

import json
import os
import random
import re
import subprocess
import threading
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

MIB = 1 << 20
SIZE = 64 * MIB
# Seven files of a mount are on their way at once, and of what the other mounts publish a mount hears half a second later.
ON_THE_WAY = 16 * MIB
OPTIONS = ["--pool-size", str(SIZE)]


@pytest.fixture(params=["dir", "nfs"])
def pool(request):
    with pools.Pool(request.param) as made:
        yield made


def lying(pool, *below):
    """Files and bytes of the disk that are below a directory of the pool, whatever they are. One that gets another name
    meanwhile is one."""
    taken = {}
    for where, _, names in os.walk(pool.path(*below)):
        for name in names:
            try:
                status = os.lstat(os.path.join(where, name))
            except FileNotFoundError:
                continue
            taken[status.st_ino] = status.st_blocks * 512
    return len(taken), sum(taken.values())


def in_trash(pool):
    return lying(pool, ".kvcachefs", "trash")


class Watch:
    """`with Watch(pool) as seen`: what lies on the pool, looked at all the time; seen.most at the end."""

    def __init__(self, pool):
        self.pool = pool
        self.most = self.most_trash = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self):
        while not self._ended.wait(0.02):
            self.most_trash = max(self.most_trash, in_trash(self.pool)[1])
            self.most = max(self.most, lying(self.pool)[1])

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def settled(*mounts):
    kvmount.wait_until(lambda: all(pools.state(mount)["to_publish"] + pools.state(mount)["to_remove"] == 0
                                   for mount in mounts), 120, "everything is published")


def churn(rng, mounts, mib, bytes_=MIB):
    """Stores blocks, and writes some of the names that are no blocks' anew, and removes some."""
    for number in range(mib * MIB // bytes_):
        mount = rng.choice(mounts)
        directory = os.path.join(mount.mnt, f"model-{number % 12}")
        pools.store(directory, f"slot-{rng.randrange(8)}" if number % 4 == 0 else pools.block(number),
                    rng.randbytes(bytes_))
        if number % 16 == 15:
            os.remove(pools.store(directory, f"note-{number}", b"gone soon"))


def said_of(pool):
    return subprocess.run([os.path.join(kvmount.BIN, "kvcachefs"), "pool", "status", pool.uri], check=True,
                          capture_output=True, text=True, timeout=60).stdout


def test_files_and_trash_together_stay_within_the_size(pool):
    rng = random.Random(kvmount.seed())
    with pools.node(pool, "a", options=OPTIONS) as a, pools.node(pool, "b", options=OPTIONS) as b:
        pools.wait_until_joined(a, b)
        for mount in (a, b):
            for number in range(12):
                os.makedirs(os.path.join(mount.mnt, f"model-{number}"), exist_ok=True)
        kvmount.wait_until(lambda: all(pools.state(mount)["size"] == SIZE for mount in (a, b)), 10, "they evict")
        with Watch(pool) as seen:
            churn(rng, [a, b], 5 * SIZE // MIB)
            settled(a, b)
        assert seen.most <= SIZE + ON_THE_WAY, f"{seen.most / MIB:.1f} MiB lay on the pool"
        assert seen.most_trash > 0, "nothing was evicted"
        assert sum(pools.state(mount)["evicted"] for mount in (a, b)) > 2 * SIZE // MIB
        # At rest the trash has its share at most, and each mount says what is in it.
        kvmount.wait_until(lambda: in_trash(pool)[1] <= SIZE // 16, 20, "the trash shrinks")
        kvmount.wait_until(lambda: all((pools.state(mount)["trash_files"], pools.state(mount)["trash_bytes"])
                                       == in_trash(pool) for mount in (a, b)), 30,
                           "both know what is in the trash")
        assert in_trash(pool)[0] > 0

        def counts():
            taken, used = in_trash(pool)[1], pools.state(a)["used"]
            return taken <= used and pools.users_bytes(pool) + taken - MIB <= used <= SIZE

        kvmount.wait_until(counts, 20, "the trash counts in what is used")
        kvmount.wait_until(lambda: f"{in_trash(pool)[0]} files in its trash" in a.cli("status", a.mnt).stdout, 20,
                           "status says what is in the trash")
        kvmount.wait_until(lambda: re.search(rf"trash +{in_trash(pool)[0]} files \(", said_of(pool)), 20,
                           "pool status says it, too")


def collect(pool):
    done = subprocess.run([os.path.join(kvmount.BIN, "kvcachefs"), "pool", "gc", pool.uri], check=True,
                          capture_output=True, text=True, timeout=60)
    return done.stdout


def fill_trash(mount, pool, files=20):
    for number in range(files):
        pools.store(mount.mnt, pools.block(number), os.urandom(MIB))
    mount.flush()
    for number in range(files):
        os.remove(os.path.join(mount.mnt, pools.block(number)))
    settled(mount)
    assert in_trash(pool)[0] == files


def test_it_ends_with_the_last_mount(pool):
    with pools.node(pool, "a") as a:
        with pools.node(pool, "b") as b:
            pools.wait_until_joined(a, b)
            fill_trash(b, pool)
            b.stop()
        # a's users may have been told of these.
        assert in_trash(pool)[0] == 20
        assert "left in the trash: 20 files" in collect(pool)
        begin = time.monotonic()
        a.stop()
        assert time.monotonic() - begin < 20
    assert in_trash(pool) == (0, 0)


def test_that_of_a_mount_that_was_killed_is_collected(pool):
    with pools.node(pool, "a", options=["--lease", "1h"]) as a:
        pools.wait_until_joined(a)
        fill_trash(a, pool)
        a.kill()
        collected = []

        def is_empty():
            collected.append(collect(pool))
            return in_trash(pool)[0] == 0
        # It is taken for alive for 15 s.
        kvmount.wait_until(is_empty, 40, "it is collected")
        assert "20 files (20 MiB) of the trash" in collected[-1], collected[-1]
        assert "left in the trash: 20 files (20 MiB), which readers of 1 living mount may" in collected[0]
        a.start()


def test_a_reader_of_what_has_left_it_early_gets_a_miss(pool):
    """Of a small pool what one server was told of is gone a moment later: the other's users get it as it was, or not."""
    rng = random.Random(kvmount.seed())
    with pools.node(pool, "a", options=OPTIONS) as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        data = {}
        for number in range(2 * SIZE // MIB):
            name = f"slot-{number % 6}" if number % 3 == 0 else pools.block(number)
            data.setdefault(name, []).append(rng.randbytes(MIB))
            pools.store(a.mnt, name, data[name][-1])
            for known in rng.sample(sorted(data), min(3, len(data))):
                path = os.path.join(b.mnt, known)
                if os.path.exists(path) and rng.random() < 0.5:
                    kvmount.wait_until(lambda: pools.state(a)["to_publish"] < 8, 60, "a publishes")
                    read = pools.load(path)
                    assert read is None or read in data[known], f"{known} has other bytes"
        settled(a)
        assert json.loads(a.cli("status", "--json", a.mnt).stdout)["pool"]["evicted"] > 0
