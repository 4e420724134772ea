"""A server that lies, crawls, stops or resets costs hits: never a wrong byte, never a hang, nothing of
what is local; and when it is well again the pool is used again."""

import contextlib
import importlib.util
import os
import random
import threading
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

_SPEC = importlib.util.spec_from_file_location(
    "nfs_proxy", os.path.join(kvmount.TESTS, "servers", "nfs_proxy.py"))
nfs_proxy = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(nfs_proxy)

MIB = 1 << 20
BLOCKS = 8
PARKED = 64
LOOKUP_S, LIST_S, OPEN_S, OPEN_RATE = 0.25, 2.0, 2.0, 50e6


class Scene:
    """`a` speaks to the server, `b` to a proxy in front of it."""

    def __enter__(self):
        seed = kvmount.seed()
        print(f"KVCACHEFS_SEED={seed}")
        self.chance = random.Random(seed)
        self.pool = pools.Pool("nfs").__enter__()
        try:
            self.proxy = nfs_proxy.Proxy(self.pool.port, seed).__enter__()
            self.a = pools.node(self.pool, "a").__enter__()
            through = self.pool.uri_through(self.proxy.port)
            self.b = pools.node(self.pool, "b", uri=through).__enter__()
            pools.wait_until_joined(self.a, self.b)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in ("b", "a", "proxy", "pool"):
            if hasattr(self, name):
                getattr(self, name).__exit__(None, None, None)

    def publish(self, first, count=BLOCKS):
        """Blocks that only the pool and a have."""
        made = {}
        for number in range(first, first + count):
            made[pools.block(number)] = self.chance.randbytes(self.chance.randrange(1000, 2 * MIB))
            pools.store(self.a.mnt, pools.block(number), made[pools.block(number)])
        done = self.a.cli("flush", self.a.mnt)
        assert done.returncode == 0, done
        return made

    def load_all(self, blocks):
        """Each is right or a miss, in time. How many were hits."""
        hits = 0
        for name, data in blocks.items():
            began = time.monotonic()
            loaded = pools.load(os.path.join(self.b.mnt, name))
            took = time.monotonic() - began
            assert loaded in (None, data), f"wrong bytes of {name}"
            limit = (LOOKUP_S + OPEN_S + len(data) / OPEN_RATE) * 1.1 + 0.5
            in_time(took, limit, name)
            hits += loaded is not None
        return hits


def in_time(took, most, what):
    if took > most * kvmount.SLOWNESS:
        raise kvmount.Late(f"{what} took {took:.2f} s")


@pytest.fixture
def scene():
    with Scene() as made:
        yield made


def test_a_listing_does_not_wait_for_a_server_that_stops(scene):
    scene.publish(0)
    assert len(os.listdir(scene.b.mnt)) == BLOCKS
    scene.proxy.mode = "stop"
    began = time.monotonic()
    os.listdir(scene.b.mnt)
    took = time.monotonic() - began
    in_time(took, LIST_S * 1.1 + 0.5, "the listing")
    scene.proxy.mode = None
    kvmount.wait_until(lambda: len(os.listdir(scene.b.mnt)) == BLOCKS, 15, "all are listed")


@pytest.mark.parametrize("mode", [pytest.param("flip", marks=pytest.mark.promise(1)), "other_number", "short",
                                  pytest.param("wrong_file", marks=pytest.mark.promise(1)), "old", "busy", "slow",
                                  pytest.param("stop", marks=pytest.mark.promise(2)), "reset"])
def test_what_a_server_does_wrong_is_a_miss(scene, mode):
    before = scene.publish(0)
    # One that the server answers too late, beside others, is a miss as well.
    kvmount.wait_until(lambda: scene.load_all(dict(list(before.items())[:2])) == 2, 10, "two are loaded")
    scene.proxy.mode = mode
    wrong = scene.publish(100)
    scene.load_all(wrong)
    if mode in ("flip", "other_number", "short", "wrong_file", "busy"):
        assert scene.proxy.changed > 0
    # What is here is here.
    began = time.monotonic()
    for number in range(50):
        pools.store(scene.b.mnt, pools.block(500 + number), b"local")
        assert pools.load(os.path.join(scene.b.mnt, pools.block(500 + number))) == b"local"
    in_time(time.monotonic() - began, 5, "50 local stores and loads")
    assert scene.load_all(dict(list(before.items())[:2])) == 2
    scene.proxy.mode = None
    everything = {**before, **wrong}
    kvmount.wait_until(lambda: scene.load_all(everything) == len(everything), 15,
                       "everything is a hit")
    # What b has stored meanwhile gets there, and nothing damaged with it.
    done = scene.b.cli("flush", scene.b.mnt)
    assert done.returncode == 0, (done, pools.state(scene.b))
    done = scene.a.cli("pool", "check", "--read", scene.pool.uri)
    assert done.returncode == 0, done


def test_noise_costs_hits(scene):
    """Answers that no server gives; the daemon lives, and no wrong byte comes of them."""
    blocks = scene.publish(0, 16)
    os.makedirs(os.path.join(scene.a.mnt, "names"))
    for number in range(300):
        pools.store(os.path.join(scene.a.mnt, "names"), pools.block(1000 + number), b"x")
    assert scene.a.cli("flush", scene.a.mnt).returncode == 0
    pid = scene.b.pid()
    scene.proxy.mode = "noise"
    until = time.monotonic() + (120 if kvmount.FULL else 6)
    rounds = 0
    while time.monotonic() < until:
        scene.load_all(blocks)
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(os.path.join(scene.b.mnt, "names"))
            assert all(os.path.basename(name) == name for name in names)
        pools.store(scene.b.mnt, pools.block(5000 + rounds), b"local")
        for name in list(blocks)[rounds % 4::4]:  # So that it is fetched again.
            scene.b.cli("evict", os.path.join(scene.b.mnt, name))
        rounds += 1
    print(f"{rounds} rounds, {scene.proxy.changed} answers changed")
    assert scene.proxy.changed > 0
    scene.proxy.mode = None
    assert scene.b.pid() == pid
    kvmount.wait_until(lambda: scene.load_all(blocks) == len(blocks), 20, "everything is a hit")
    assert scene.b.cli("flush", scene.b.mnt).returncode == 0


@pytest.mark.promise(2)
def test_parked_opens_do_not_hold_what_is_local(scene):
    """Of one CPU: opens that wait for a server that has stopped, and stats and opens of local files."""
    # No blocks: these would be fetched when they are found.
    names = [f"file{number}" for number in range(PARKED)]
    for name in names:
        pools.store(scene.a.mnt, name, name.encode())
    assert scene.a.cli("flush", scene.a.mnt).returncode == 0
    trees = {"mount": scene.b.mnt, "ext4": scene.b.control}
    for root in trees.values():
        for number in range(100):
            pools.store(root, f"local{number}", b"local")
    for name in names:  # They are found, so that it is the opens that wait.
        assert os.path.exists(os.path.join(scene.b.mnt, name))
    cpus = os.sched_getaffinity(0)
    one = {min(cpus)}
    os.sched_setaffinity(0, one)
    try:
        scene.proxy.mode = "stop"
        loaded = {}
        threads = [threading.Thread(target=lambda name=name: loaded.update(
            {name: pools.load(os.path.join(scene.b.mnt, name))}), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        took = {tree: [] for tree in trees}
        with kvmount.Beside() as beside:
            while any(thread.is_alive() for thread in threads) and len(took["ext4"]) < 20_000:
                for tree, root in trees.items():
                    began = time.monotonic()
                    # An open comes to the daemon; the kernel answers a stat by itself.
                    local = os.path.join(root, f"local{len(took[tree]) % 100}")
                    os.stat(local)
                    os.close(os.open(local, os.O_RDONLY))
                    took[tree].append(time.monotonic() - began)
            p99 = {}
            for tree, seconds in took.items():
                seconds.sort()
                p99[tree] = seconds[len(seconds) * 99 // 100]
                print(f"{tree}: {len(seconds)} stats and opens, p99 {p99[tree] * 1e3:.2f} ms, "
                      f"worst {seconds[-1] * 1e3:.2f} ms")
            assert len(took["mount"]) >= 100, "the opens did not wait: this proves nothing"
            beside.add(p99["mount"], max(0.010, 2 * p99["ext4"]), "p99 of stats and opens")
        for thread in threads:
            thread.join(20 * kvmount.SLOWNESS)
            assert not thread.is_alive()
    finally:
        os.sched_setaffinity(0, cpus)
    for name in names:
        assert loaded[name] in (None, name.encode())
    assert None in loaded.values()


@contextlib.contextmanager
def on_a_small_disk():
    with kvmount.LoopFs("ext4", 64 * MIB) as disk:
        root = os.path.join(disk.path, "export")
        os.mkdir(root)
        with pools.Pool("nfs", root=root) as pool:
            yield pool


def fill(path):
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(MIB))
    with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
        while True:
            file.write(bytes(512))


def check_that_it_is_only_read(pool, begin, end, why):
    """Loads go on, stores stay local, nobody sees an error; and afterwards all gets there."""
    with pools.node(pool, "a") as a:
        pools.wait_until_joined(a)
        pools.store(a.mnt, pools.block(1), b"before")
        assert a.cli("flush", a.mnt).returncode == 0
        with pools.node(pool, "b") as b:
            pools.wait_until_joined(a, b)
            begin()
            kvmount.wait_until(lambda: pools.load(os.path.join(b.mnt, pools.block(1))) == b"before", 20,
                               "it is read")
            for number in range(10, 20):
                pools.store(b.mnt, pools.block(number), b"local" * 10_000)
                assert pools.load(os.path.join(b.mnt, pools.block(number))) == b"local" * 10_000
            done = b.cli("flush", "--timeout", "2s", b.mnt)
            assert done.returncode == 1 and "not on the pool" in done.stderr, done
            kvmount.wait_until(lambda: why in (pools.state(b)["stopped_for"] or ""), 20, "it says why")
            done = b.cli("flush", "--timeout", "1s", b.mnt)
            assert why in done.stderr, done
            end()
            assert b.cli("flush", b.mnt).returncode == 0
            assert pools.load(pool.path(pools.block(10))) == b"local" * 10_000
            kvmount.wait_until(lambda: pools.state(b)["stopped_for"] is None, 20, "it goes on")


def test_a_server_that_may_only_be_read():
    with pools.Pool("nfs", own=True) as pool:
        def serve(access):
            pool.kill()
            pool.up(access)
        check_that_it_is_only_read(pool, lambda: serve("RO"), lambda: serve("RW"), "Read-only file system")


def test_a_server_that_is_full():
    with on_a_small_disk() as pool:
        filler = os.path.join(os.path.dirname(pool.root), "filler")
        check_that_it_is_only_read(pool, lambda: fill(filler), lambda: os.unlink(filler), "No space left on device")
