"""Mounts that share a pool: what one stores the others find."""

import json
import os
import random
import time

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")


@pytest.fixture(params=["dir", "nfs"])
def pool(request):
    """"own": an NFS server that the test may stop and kill."""
    own = request.param == "own"
    with pools.Pool("nfs" if own else request.param, own=own) as made:
        yield made


def test_what_is_below_a_temporary_directory_is_shared_once_it_has_its_name(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        os.makedirs(os.path.join(a.mnt, "model.tmp", "0"))
        pools.store(os.path.join(a.mnt, "model.tmp", "0"), pools.block(1), b"one")
        pools.store(a.mnt, pools.block(2), b"two")
        kvmount.wait_until(lambda: pools.load(os.path.join(b.mnt, pools.block(2))) == b"two", 20, "the block")
        kvmount.wait_until(lambda: pools.state(a)["to_publish"] == 0, 20, "nothing waits")
        assert not os.path.exists(os.path.join(pool.root, "model.tmp"))
        assert not os.path.exists(os.path.join(b.mnt, "model.tmp"))
        os.rename(os.path.join(a.mnt, "model.tmp"), os.path.join(a.mnt, "model"))
        there = os.path.join(b.mnt, "model", "0", pools.block(1))
        kvmount.wait_until(lambda: pools.load(there) == b"one", 20, "the other finds it")


def test_the_first_lookup_of_a_mount_finds_what_is_there(pool):
    numbers = range(8)
    for number in numbers:
        with open(pool.path(pools.block(number)), "wb") as file:
            file.write(b"by hand")
    # `mount` returns when the mount is ready.
    with pools.node(pool, "a", foreground=False) as a:
        for number in numbers:
            assert pools.load(os.path.join(a.mnt, pools.block(number))) == b"by hand", f"start {number}"
            a.remount()


@pytest.mark.gate
@pytest.mark.short
def test_blocks_of_one_are_found_by_the_other(pool):
    seed = kvmount.seed()
    print(f"KVCACHEFS_SEED={seed}")
    rng = random.Random(seed)
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        os.makedirs(os.path.join(a.mnt, "model", "0"))
        blocks = {pools.block(i): rng.randbytes(rng.choice([1, 4096, 300_000, 2 << 20]))
                  for i in range(24)}
        there = os.path.join(b.mnt, "model", "0")
        for name in blocks:  # Runtimes ask before they compute.
            assert pools.load(os.path.join(there, name)) is None
        for name, data in blocks.items():
            pools.store(os.path.join(a.mnt, "model", "0"), name, data)
        pools.wait_until_published(a, len(blocks))
        for name, data in blocks.items():
            kvmount.wait_until(lambda name=name: os.path.exists(os.path.join(there, name)), 10,
                               f"{name} is found")
            assert pools.load(os.path.join(there, name)) == data
            with open(pool.path("model", "0", name), "rb") as file:
                assert file.read() == data
        assert pools.state(b)["loaded"] == len(blocks)
        # Now they are here, and are loaded without the pool.
        for name, data in blocks.items():
            assert pools.load(os.path.join(there, name)) == data
        assert pools.state(b)["loaded"] == len(blocks)
        assert not [name for name in os.listdir(pool.path("model", "0")) if ".tmp" in name]
        # And back.
        pools.store(there, pools.block(99), b"from b")
        kvmount.wait_until(
            lambda: pools.load(os.path.join(a.mnt, "model", "0", pools.block(99))) == b"from b", 10,
            "what b has stored in a's directory is found by a")
        os.unlink(os.path.join(a.mnt, "model", "0", pools.block(0)))
        kvmount.wait_until(lambda: not os.path.exists(os.path.join(there, pools.block(0))), 10,
                           "what a has removed is gone on b")
        assert not os.path.exists(pool.path("model", "0", pools.block(0)))


def test_flush_waits_until_it_is_there(pool):
    with pools.node(pool, "a") as a:
        pools.wait_until_joined(a)
        os.makedirs(os.path.join(a.mnt, "model"))
        names = [pools.block(i) for i in range(200)]
        for name in names:
            pools.store(os.path.join(a.mnt, "model"), name, os.urandom(100_000))
        pools.store(a.mnt, "config.json", b"{}")
        with open(os.path.join(a.mnt, "open.bin"), "wb") as unfinished:
            unfinished.write(b"x")
            unfinished.flush()
            done = a.cli("flush", a.mnt)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout == ("all that goes to the pool is there\n"
                                   "not waited for: 1 file that a program writes to\n")
        assert sorted(os.listdir(pool.path("model"))) == sorted(names)
        assert os.path.exists(pool.path("config.json"))
        os.unlink(os.path.join(a.mnt, "model", names[0]))
        done = a.cli("flush", "--json", os.path.join(a.mnt, "model"))
        assert json.loads(done.stdout) == {"unsealed": 0, "more_unsealed": False, "open": 0, "pool": True,
                                           "files": 0, "directories": 0, "removed": 0, "owners": 0, "more": False,
                                           "skipped": 0, "obstructed": 0, "up": True,
                                           "stopped_for": None}
        assert not os.path.exists(pool.path("model", names[0]))


def test_flush_of_a_pool_that_is_away_ends():
    with pools.Pool("nfs", own=True) as pool, pools.node(pool, "a") as a:
        pools.wait_until_joined(a)
        pools.store(a.mnt, "config.json", b"{}")
        assert a.cli("flush", a.mnt).returncode == 0
        pool.stop()
        kvmount.wait_until(lambda: not pools.state(a)["up"], 20, "the pool is down")
        os.makedirs(os.path.join(a.mnt, "model"))
        pools.store(os.path.join(a.mnt, "model"), pools.block(300), b"x")
        done = a.cli("flush", "--timeout", "1s", os.path.join(a.mnt, "model"))
        assert done.returncode == 1 and done.stdout == ""
        assert "1 file and 1 directory not on the pool" in done.stderr and "is down" in done.stderr
        # Of what was asked alone.
        assert a.cli("flush", os.path.join(a.mnt, "config.json")).returncode == 0
        pool.resume()
        assert a.cli("flush", a.mnt).returncode == 0
        assert os.path.exists(pool.path("model", pools.block(300)))


def test_flush_says_why_it_cannot(pool):
    with pools.node(pool, "a", options=["--pool-writes", "off"]) as a:
        pools.store(a.mnt, "config.json", b"{}")
        done = a.cli("flush", a.mnt)
        assert done.returncode == 1 and "publishes nothing" in done.stderr, done
        assert len(done.stderr.splitlines()) == 1
        assert a.status()["counts"]["unsealed"] == 0
        done = a.cli("flush", "--timeout", "soon", a.mnt)
        assert done.returncode == 2 and "--timeout" in done.stderr


def test_explain_says_that_a_file_is_on_the_pool_alone(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        pools.store(a.mnt, "config.json", b"{}")
        path = os.path.join(b.mnt, "config.json")
        kvmount.wait_until(lambda: os.path.exists(path), 20, "it is found")
        done = b.cli("explain", "--json", path)
        assert done.returncode == 0 and json.loads(done.stdout)["state"] == "remote", done
        assert pools.load(path) == b"{}"
        assert json.loads(b.cli("explain", "--json", path).stdout)["state"] != "remote"


@pytest.mark.gate
def test_listings_show_what_all_have(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        os.makedirs(os.path.join(a.mnt, "model"))
        for i in range(300):
            pools.store(os.path.join(a.mnt, "model"), pools.block(i), b"%d" % i)
        pools.store(b.mnt, "mine", b"")
        pools.wait_until_published(a, 300)
        there = os.path.join(b.mnt, "model")
        kvmount.wait_until(lambda: sorted(os.listdir(b.mnt)) == ["mine", "model"], 10, "listed")
        assert sorted(os.listdir(there)) == sorted(pools.block(i) for i in range(300))
        # Who walks the tree sees all of it, and what it is.
        found = {entry.name: entry.stat().st_size for entry in os.scandir(there)}
        assert found == {pools.block(i): len(str(i)) for i in range(300)}
        assert sorted(os.listdir(there)) == sorted(found)
        assert pools.state(b)["loaded"] == 0  # A crawler brings nothing here.
        for name in os.listdir(there):
            os.unlink(os.path.join(there, name))
        assert os.listdir(there) == []
        os.rmdir(there)
        kvmount.wait_until(lambda: "model" not in os.listdir(a.mnt)
                           or os.listdir(os.path.join(a.mnt, "model")) == [], 30,
                           "what b has removed is gone on a")
        kvmount.wait_until(lambda: not os.path.exists(pool.path("model")), 30, "the pool is empty")


def test_each_listing_asks_the_pool(pool):
    """The kernel remembers none: names come and go there without a call on this server."""
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        os.makedirs(os.path.join(a.mnt, "model"))
        there = os.path.join(b.mnt, "model")
        for i in range(3):
            pools.store(os.path.join(a.mnt, "model"), pools.block(i), b"%d" % i)
            pools.wait_until_published(a, i + 1)
            if i == 0:
                kvmount.wait_until(lambda: os.path.isdir(there), 20, "the directory")
            for _ in range(2):
                assert sorted(os.listdir(there)) == sorted(pools.block(n) for n in range(i + 1))
        before = b.status()["operations"]
        os.listdir(there)
        after = b.status()["operations"]
        assert after["readdirplus"]["count"] > before["readdirplus"]["count"]


@pytest.mark.promise(5)
def test_the_order_of_renames_and_replacements(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        for version in range(4):
            data = b"version %d" % version
            writer, reader = ((a, b), (b, a))[version % 2]
            pools.store(writer.mnt, "config.json", data)
            kvmount.wait_until(
                lambda reader=reader, data=data: pools.load(os.path.join(reader.mnt, "config.json")) == data,
                15, f"{data!r} is seen")
            assert pools.load(os.path.join(writer.mnt, "config.json")) == data


@pytest.mark.promise(7)
def test_a_cache_is_there_after_a_restart_of_all(pool):
    with pools.node(pool, "a") as a:
        pools.wait_until_joined(a)
        pools.store(a.mnt, pools.block(1), b"kept")
        pools.wait_until_published(a, 1)
        a.kill()
        with pools.node(pool, "b") as b:
            pools.wait_until_joined(b)
            assert pools.load(os.path.join(b.mnt, pools.block(1))) == b"kept"
        a.start()
        assert pools.load(os.path.join(a.mnt, pools.block(1))) == b"kept"


def test_files_of_others_keep_their_owners(pool):
    """Whom the pool says nothing of is --pool-owner; and nobody reads what he may not."""
    with open(pool.path(pools.block(1)), "wb") as file:
        file.write(b"theirs")
    with pools.node(pool, "a") as a, pools.node(pool, "b",
                                                options=["--pool-owner", "1234:1234"]) as b:
        pools.wait_until_joined(a, b)
        found = os.stat(os.path.join(b.mnt, pools.block(1)))
        assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1234, 1234, 0o640)
        pools.store(a.mnt, pools.block(2), b"secret")
        os.chmod(os.path.join(a.mnt, pools.block(2)), 0o600)
        kvmount.wait_until(lambda: os.path.exists(os.path.join(b.mnt, pools.block(2))), 10, "found")
        assert os.stat(os.path.join(b.mnt, pools.block(2))).st_mode & 0o7777 == 0o600
        for mount in (a, b):
            with pytest.raises(Exception, match="Permission denied"):
                kvmount.run_as(pools.load, os.path.join(mount.mnt, pools.block(2)), uid=kvmount.NOBODY)


@pytest.mark.promise(2)
@pytest.mark.parametrize("pool", ["own"], indirect=True)
def test_a_server_that_stops_costs_hits_and_nothing_else(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        for i in range(8):
            pools.store(a.mnt, pools.block(i), b"%d" % i)
        pools.wait_until_published(a, 8)
        kvmount.wait_until(lambda: os.path.exists(os.path.join(b.mnt, pools.block(7))), 10, "found")
        pool.stop()
        # A lookup and an open end by their deadlines, as misses; then the pool counts as down.
        with kvmount.Beside(b.work) as beside:
            for i in range(8):
                began = time.monotonic()
                assert pools.load(os.path.join(b.mnt, pools.block(i))) in (None, b"%d" % i)
                beside.add(time.monotonic() - began, (2.0 + 0.25) * 1.1 + 0.5,
                           "a lookup and an open")
            kvmount.wait_until(lambda: not pools.state(b)["up"], 10, "the pool counts as down")
            began = time.monotonic()
            for i in range(100):
                assert not os.path.exists(os.path.join(b.mnt, pools.block(1000 + i)))
                pools.store(b.mnt, pools.block(2000 + i), b"local")
                assert pools.load(os.path.join(b.mnt, pools.block(2000 + i))) == b"local"
            beside.add(time.monotonic() - began, 5, "misses, stores and loads beside a dead pool")
        pool.resume()
        kvmount.wait_until(lambda: pools.load(os.path.join(b.mnt, pools.block(3))) == b"3", 10,
                           "the pool is used again")
        kvmount.wait_until(lambda: pools.load(os.path.join(a.mnt, pools.block(2099))) == b"local", 30,
                           "what was stored meanwhile is published")


@pytest.mark.parametrize("pool", ["own"], indirect=True)
def test_a_stop_does_not_wait_for_a_server_that_hangs(pool):
    with pools.node(pool, "a") as a:
        pools.wait_until_joined(a)
        pool.stop()
        pools.store(a.mnt, pools.block(1), bytes(80 << 20))  # Its publication may take 20 s.
        kvmount.wait_until(lambda: a.status()["counts"]["sealed_total"] == 1, 20, "sealed")
        with kvmount.Beside(a.work) as beside:
            began = time.monotonic()
            a.stop()
            beside.add(time.monotonic() - began, 5, "a stop")
        pool.resume()
        a.start()
        pools.wait_until_published(a, 1)
        assert os.stat(pool.path(pools.block(1))).st_size == 80 << 20


@pytest.mark.parametrize("pool", ["own"], indirect=True)
def test_a_server_that_dies_may_come_back(pool):
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        pools.store(a.mnt, pools.block(1), b"before")
        pools.wait_until_published(a, 1)
        pool.kill()
        kvmount.wait_until(lambda: not pools.state(a)["up"], 10, "the pool counts as down")
        pools.store(a.mnt, pools.block(2), b"while it was away")
        pool.up()
        kvmount.wait_until(
            lambda: pools.load(os.path.join(b.mnt, pools.block(2))) == b"while it was away", 30, "found")
        assert pools.load(os.path.join(b.mnt, pools.block(1))) == b"before"


def test_a_mount_needs_no_pool_to_start():
    with pools.Pool("dir") as pool:
        os.rename(pool.root, pool.root + ".away")
        with pools.node(pool, "a") as a:
            pools.store(a.mnt, pools.block(1), b"local")
            assert pools.load(os.path.join(a.mnt, pools.block(1))) == b"local"
            assert not pools.state(a)["up"]
            assert "pool" in a.cli("status", a.mnt).stdout
            os.rename(pool.root + ".away", pool.root)
            pools.wait_until_published(a, 1)
            assert pools.load(pool.path(pools.block(1))) == b"local"


def test_a_wrong_pool_is_refused_with_a_reason(tmp_path):
    mount = kvmount.Mount("wrong")
    mount.create()
    try:
        for uri, word in (("ftp://host/x", "dir:///PATH or nfs://"),
                          (f"dir://{mount.mnt}/inside", "is inside the mount point"),
                          (f"dir://{mount.nvme}/pool", "one is inside the other"),
                          ("dir://relative", "dir:///PATH")):
            mount.options = ["--pool", uri]
            with pytest.raises(kvmount.MountError) as refused:
                mount.start()
            assert word in str(refused.value), uri
        os.mkdir(tmp_path / ".kvcachefs")
        (tmp_path / ".kvcachefs" / "pool").write_text("kvcachefs pool\nformat 99\n")
        mount.options = ["--pool", f"dir://{tmp_path}"]
        mount.start()
        kvmount.wait_until(lambda: pools.state(mount)["refused"], 10, "the pool is refused")
        assert "not used" in mount.cli("status", mount.mnt).stdout
        mount.stop()
    finally:
        mount.close()


def test_a_damaged_name_is_free_for_who_writes_it(pool):
    """It is there until its bytes are asked for; then there is none, and a new one is made."""
    ways = [os.O_WRONLY, os.O_WRONLY | os.O_TRUNC, os.O_RDWR, os.O_WRONLY | os.O_APPEND]
    names = [f"{way}.json" for way in ways] + [pools.block(number) for number in range(len(ways))]
    with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        for name in names:
            pools.store(a.mnt, name, b"x" * 5000)
        pools.wait_until_published(a, len(names))
        for name in names:
            before = os.stat(pool.path(name))
            with open(pool.path(name), "r+b") as file:
                file.write(b"y")
            os.utime(pool.path(name), ns=(before.st_atime_ns, before.st_mtime_ns))
        for name, way in zip(names, 2 * ways):
            fd = os.open(os.path.join(b.mnt, name), way | os.O_CREAT, 0o644)
            try:
                assert os.fstat(fd).st_size == 0, (name, way)
                os.write(fd, b"anew")
            finally:
                os.close(fd)
            assert pools.load(os.path.join(b.mnt, name)) == b"anew"


def test_the_pool_command(pool):
    def ask(*words):
        return a.cli("pool", *words, pool.uri)

    with pools.node(pool, "a") as a:
        made = ask("init")
        assert made.returncode == 0 and made.stdout.startswith("pool "), made
        pools.wait_until_joined(a)
        assert ask("init").stdout == made.stdout  # It is there already.
        pools.store(a.mnt, pools.block(1), b"x" * 1000)
        pools.wait_until_published(a, 1)
        with open(pool.path("theirs"), "wb") as file:
            file.write(b"theirs")
        said = ask("status").stdout
        assert said.startswith(made.stdout) and ": alive, lease 60 s" in said, said
        assert "2 files" in ask("check").stdout
        done = ask("check", "--read")
        assert done.returncode == 0 and "1 with checksums (0 damaged), 1 put there" in done.stdout
        before = os.stat(pool.path(pools.block(1)))
        with open(pool.path(pools.block(1)), "r+b") as file:
            file.write(b"y")
        os.utime(pool.path(pools.block(1)), ns=(before.st_atime_ns, before.st_mtime_ns))
        done = ask("check", "--read")
        assert done.returncode == 1 and pools.block(1) in done.stderr, done
        assert "0 silent nodes" in ask("gc").stdout
        # What is none is said so, and nothing is made there.
        os.mkdir(pool.path("plain"))
        none = a.cli("pool", "status", f"dir://{pool.path('plain')}")
        assert none.returncode == 1 and "no pool stands there" in none.stderr, none
        assert os.listdir(pool.path("plain")) == []
        assert a.cli("pool", "status", "dir:///no/such/place").returncode == 1
        wrong = a.cli("pool", "status", "/no/uri")
        assert wrong.returncode == 2 and "dir:///PATH" in wrong.stderr
        assert a.cli("pool").returncode == 2
