"""The pool's own budget: mounts that were told what it may hold evict what was used longest ago."""

import contextlib
import os
import random
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

MIB = 1 << 20
SIZE = 32 * MIB


def fill(path):
    """Takes all the room that is left."""
    for size in (MIB, 512):
        with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
            while True:
                file.write(bytes(size))


@pytest.fixture(params=["dir", "nfs"])
def pool(request):
    with pools.Pool(request.param) as made:
        yield made


def settled(pool, *mounts):
    """Everything is published, and what is there fits."""
    def is_so():
        states = [pools.state(mount) for mount in mounts]
        return (all(state["to_publish"] == 0 for state in states)
                and pools.users_bytes(pool) <= SIZE * 9 // 10)
    kvmount.wait_until(is_so, 60, "the pool is within its size")


def test_the_pool_stays_within_its_size(pool):
    rng = random.Random(kvmount.seed())
    options = ["--pool-size", str(SIZE)]
    with pools.node(pool, "a", options=options) as a, pools.node(pool, "b", options=options) as b:
        pools.wait_until_joined(a, b)
        # What others have put there: some KV of long ago, and something else.
        os.makedirs(pool.path("foreign"))
        for name in (pools.block(1), "notes.txt"):
            with open(pool.path("foreign", name), "wb") as file:
                file.write(rng.randbytes(2 * MIB))
            os.utime(pool.path("foreign", name), (1_000_000_000, 1_000_000_000))
        os.makedirs(os.path.join(a.mnt, "kept"))
        os.setxattr(os.path.join(a.mnt, "kept"), "user.kvcachefs.policy", b"keep")
        kept = rng.randbytes(MIB)
        pools.store(os.path.join(a.mnt, "kept"), pools.block(2), kept)
        stored = {}
        for number in range(100):
            writer = rng.choice([a, b])
            directory = f"model-{number % 12}"  # So many that each node has some of them.
            os.makedirs(os.path.join(writer.mnt, directory), exist_ok=True)
            stored[directory, pools.block(number)] = (writer, rng.randbytes(MIB))
            pools.store(os.path.join(writer.mnt, directory), pools.block(number),
                        stored[directory, pools.block(number)][1])
        settled(pool, a, b)
        kvmount.wait_until(lambda: all(pools.state(mount)["evicted"] > 0 for mount in (a, b)), 30,
                           "each evicts what is its own")
        # What is kept, and what nobody knows to be KV, stays.
        assert os.path.exists(pool.path("kept", pools.block(2)))
        assert os.path.exists(pool.path("foreign", "notes.txt"))
        assert not os.path.exists(pool.path("foreign", pools.block(1)))
        held = [key for key in stored if os.path.exists(pool.path(*key))]
        assert held, "the pool was emptied"
        # Who stored it has it still; the others have what the pool has, or a miss.
        for key, (writer, data) in stored.items():
            with open(os.path.join(writer.mnt, *key), "rb") as file:
                assert file.read() == data
            other = b if writer is a else a
            try:
                with open(os.path.join(other.mnt, *key), "rb") as file:
                    assert file.read() == data
            except FileNotFoundError:
                pass
        with open(os.path.join(b.mnt, "kept", pools.block(2)), "rb") as file:
            assert file.read() == kept
        kvmount.wait_until(lambda: 0 < pools.state(a)["used"] <= SIZE, 30,
                           "a knows what the pool holds")


def test_what_is_used_stays(pool):
    """A load says on the pool that the file is of use, whoever evicts."""
    options = ["--pool-size", str(SIZE)]
    with pools.node(pool, "b") as reader, pools.node(pool, "a", options=options) as a:
        pools.wait_until_joined(a, reader)
        os.makedirs(os.path.join(a.mnt, "model"))
        for number in range(20):
            pools.store(os.path.join(a.mnt, "model"), pools.block(number), os.urandom(MIB))
        pools.wait_until_published(a, 20)
        long_ago = time.time() - 3600
        for number in range(20):
            status = os.stat(pool.path("model", pools.block(number)))
            os.utime(pool.path("model", pools.block(number)),
                     ns=(int(long_ago * 1e9), status.st_mtime_ns))
        for number in range(4):
            path = os.path.join(reader.mnt, "model", pools.block(number))
            kvmount.wait_until(lambda path=path: os.path.exists(path), 10, f"{path} is found")
            with open(path, "rb") as file:
                assert len(file.read()) == MIB
        for number in range(20, 30):
            pools.store(os.path.join(a.mnt, "model"), pools.block(number), os.urandom(MIB))
        settled(pool, a)
        kvmount.wait_until(lambda: pools.state(a)["evicted"] > 0, 30, "something is evicted")
        there = {number for number in range(30)
                 if os.path.exists(pool.path("model", pools.block(number)))}
        assert set(range(4)) <= there and set(range(20, 30)) <= there
        assert len(there) < 30


def test_what_is_kept_does_not_hide_what_may_go(pool):
    """The oldest half of the pool may not go."""
    with pools.node(pool, "a", options=["--pool-size", str(SIZE)]) as a:
        pools.wait_until_joined(a)
        for directory in ("kept", "model"):
            os.makedirs(os.path.join(a.mnt, directory))
        os.setxattr(os.path.join(a.mnt, "kept"), "user.kvcachefs.policy", b"keep")
        for number in range(16):
            pools.store(os.path.join(a.mnt, "kept"), pools.block(number), os.urandom(MIB))
        assert a.cli("flush", a.mnt).returncode == 0
        for number in range(16):
            path = pool.path("kept", pools.block(number))
            status = os.stat(path)
            os.utime(path, ns=(10**18, status.st_mtime_ns))
        for number in range(30):
            pools.store(os.path.join(a.mnt, "model"), pools.block(number), os.urandom(MIB))
        settled(pool, a)
        assert sorted(os.listdir(pool.path("kept"))) == sorted(pools.block(i) for i in range(16))
        assert 0 < len(os.listdir(pool.path("model"))) < 16


def test_without_a_size_nothing_goes(pool):
    with pools.node(pool, "a") as a:
        pools.wait_until_joined(a)
        for number in range(40):
            pools.store(a.mnt, pools.block(number), os.urandom(MIB))
        pools.wait_until_published(a, 40)
        assert pools.users_bytes(pool) == 40 * MIB
        assert pools.state(a)["size"] == 0


def test_a_full_disk_makes_room():
    """What goes into the trash frees nothing yet, and there is no room for anything else."""
    with kvmount.LoopFs("ext4", 64 * MIB) as disk:
        root = os.path.join(disk.path, "export")
        os.mkdir(root)
        with pools.Pool("nfs", root=root) as pool, \
                pools.node(pool, "a", options=["--pool-size", str(64 * MIB), "--lease", "1s"]) as a:
            pools.wait_until_joined(a)
            for number in range(20):
                pools.store(a.mnt, pools.block(number), os.urandom(MIB))
            assert a.cli("flush", a.mnt).returncode == 0
            kvmount.wait_until(lambda: pools.state(a)["used"] >= 20 * MIB, 30, "it is counted")
            fill(os.path.join(disk.path, "filler"))
            for number in range(20, 23):
                pools.store(a.mnt, pools.block(number), os.urandom(MIB))
            kvmount.wait_until(lambda: pools.state(a)["to_publish"] == 0, 60, "there is room again")
            assert pools.state(a)["evicted"] >= 3


def used_by(mount):
    """Bytes of its backing files."""
    total = 0
    for path in mount.backing_files():
        with contextlib.suppress(FileNotFoundError):
            total += os.stat(path).st_blocks * 512
    return total


def look_up_and_load(mount, names, data, most):
    """As runtimes do: a prefix is asked for, then loaded in order. How many came."""
    for name in names:
        os.path.exists(os.path.join(mount.mnt, name))
    came = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError), open(os.path.join(mount.mnt, name), "rb") as file:
            assert file.read() == data
            came += 1
        assert used_by(mount) <= most
    return came


@pytest.mark.parametrize("lease", ["1s", "60s"])
def test_loads_stay_within_the_budget(pool, lease):
    # What is leased, or was loaded within the last second, cannot go: then the rest is a miss, never an error.
    data = random.Random(kvmount.seed()).randbytes(2 * MIB)
    names = [pools.block_name("prefix", number) for number in range(60)]
    with pools.node(pool, "a") as a, \
            pools.node(pool, "b", size="64MiB", options=["--lease", lease]) as b:
        pools.wait_until_joined(a, b)
        for name in names:
            os.makedirs(os.path.join(a.mnt, os.path.dirname(name)), exist_ok=True)
            pools.store(a.mnt, name, data)
        pools.wait_until_published(a, len(names))
        # One more may be under way when the last room goes, and one is ahead of the lookups.
        came = kvmount.run_as(look_up_and_load, b, names, data, 70 * MIB, seconds=200)
        assert came >= 20


def test_a_pool_that_is_away_costs_no_room():
    """What waits to be published stays as long as anything else can go, and no longer."""
    size = 2 * MIB
    with pools.Pool("nfs", own=True) as pool, \
            pools.node(pool, "a", size=64 * MIB, options=["--lease", "1s"]) as a:
        pools.wait_until_joined(a)
        pool.stop()
        kvmount.wait_until(lambda: not pools.state(a)["up"], 20, "the pool is down")
        for number in range(16):  # They can go.
            pools.store(a.mnt, pools.block(number), os.urandom(size))
        for number in range(100):  # Names of no known runtime: the pool may have such.
            pools.store(a.mnt, f"note-{number}", os.urandom(size))
        last = os.path.join(a.mnt, "note-99")
        assert os.path.getsize(last) == size
        kvmount.wait_until(lambda: a.status()["counts"]["unsealed"] == 0, 30, "seals")
        done = a.cli("evict", last)
        assert done.returncode == 1 and "queued" in done.stdout + done.stderr, done
        assert a.status()["dropped"]["room"]["files"] > 60
        pool.resume()
        kvmount.wait_until(lambda: pools.state(a)["to_publish"] == 0, 60, "all is published")
        with open(pool.path("note-99"), "rb") as there, open(last, "rb") as here:
            assert there.read() == here.read()


def test_a_newer_file_that_was_written_while_the_pool_was_away_is_the_one_that_is_read():
    with pools.Pool("nfs", own=True) as pool, pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        pools.store(b.mnt, "config", b"one")
        assert b.cli("flush", b.mnt).returncode == 0
        pool.stop()
        kvmount.wait_until(lambda: not pools.state(a)["up"], 20, "the pool is down")
        # It has never been asked for it.
        pools.store(a.mnt, "config", b"two")
        os.setxattr(a.mnt, "user.kvcachefs.ttl", b"1s")
        kvmount.wait_until(lambda: a.status()["counts"]["unsealed"] == 0, 30, "seals")
        assert a.cli("evict", os.path.join(a.mnt, "config")).returncode == 1
        a.wait_for_the_ends_of_leases(120)
        with open(os.path.join(a.mnt, "config"), "rb") as file:
            assert file.read() == b"two"
        pool.resume()
        kvmount.wait_until(lambda: pools.state(a)["to_publish"] == 0, 60, "it is published")

        def is_newer(mount):
            with open(os.path.join(mount.mnt, "config"), "rb") as file:
                return file.read() == b"two"
        for mount in (a, b):
            kvmount.wait_until(lambda mount=mount: is_newer(mount), 20, f"{mount.name} has the newer")
