"""What answered stays readable for the lease, and while it is open."""

import os
import random
import subprocess
import time

import pytest

import kvmount
import stores
import watch
from stores import MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 grants no leases")

BUDGET = 96 * MIB
STORING_USER = 12345
# A lease of a mount that is given none is 60 s.
LONGEST_S = 65


def put(mount, keys, size=MIB, layout="plain"):
    """Stores them, in this order, from a process of its own; {key: path}. None has a lease."""
    jobs = [stores.Job(key, size, "buffered") for key in keys]
    done = kvmount.run_as(stores.flood, mount.mnt, layout, jobs, 0, 1)
    assert done["errors"] == []
    if done["slow"] > 0:
        mount.wait_for_the_ends_of_leases(LONGEST_S)
    return {key: os.path.join(mount.mnt, stores.LAYOUTS[layout](key)[0]) for key in keys}


def press(mount, total, chance):
    """Stores `total` bytes of new files, as a user whose leases are nobody's here: who is slow looks his
    own files up again."""
    jobs = stores.make_jobs(chance, total, [MIB])
    done = kvmount.run_as(stores.flood, mount.mnt, "plain", jobs, 1, 4, uid=STORING_USER)
    assert done["errors"] == []


def is_there(mount, path):
    """Asked in a way that is no use of it."""
    done = mount.cli("explain", "--json", path)
    assert done.returncode == 0, done.stderr
    return '"found":true' in done.stdout.replace(" ", "")


def look_up(paths):
    for path in paths:
        os.stat(path)


def read(paths):
    """{path: bytes}"""
    found = {}
    for path in paths:
        with open(path, "rb") as file:
            found[path] = file.read()
    return found


def leases(mount):
    return mount.status()["counts"]["leases"]


def _look_up_until(path, stop):
    """Stats `path` well within the lease, again and again: the longest time between two answers, and
    whether it was there all the time."""
    longest, last = 0.0, time.monotonic()
    while not os.path.exists(stop):
        try:
            os.stat(path)
        except FileNotFoundError:
            return longest, False
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        time.sleep(0.1)
    return longest, True


@pytest.mark.promise(3)
@pytest.mark.short
def test_an_open_file_and_a_looked_up_one_outlast_a_flood(limited, data_path, seed, tmp_path):
    chance = random.Random(seed)
    mount = limited(size=BUDGET, disk=256 * MIB, data_path=data_path,
                    options=["--lease", "30s" if kvmount.SANITIZER else "6s"])
    paths = put(mount, [f"old{n}" for n in range(12)])
    held, looked_up, others = paths["old0"], paths["old1"], list(paths.values())[2:]
    content = stores.Content(0)
    stop = str(tmp_path / "stop")
    looker = kvmount.Child(_look_up_until, looked_up, stop)
    try:
        with open(held, "rb") as file:
            press(mount, (8 if kvmount.FULL else 3) * BUDGET, chance)
            kvmount.wait_until(lambda: not any(is_there(mount, path) for path in others), 20,
                               "the eviction of what nobody wants")
            assert file.read() == content.of("old0", MIB)
            got = [stores.load(path) for path in (held, looked_up)]
    finally:
        with open(stop, "w"):
            pass
        gap, stayed = looker.result()
    print(f"looked up every {gap:.2f} s at least")
    assert stayed
    assert got == [content.of("old0", MIB), content.of("old1", MIB)]


@pytest.mark.promise(5)
def test_what_was_evicted_while_it_was_open_keeps_its_bytes(limited, data_path, seed):
    """`kvcachefs evict` refuses open files; unlinking does not: the bytes count until the last close."""
    mount = limited(size=BUDGET, disk=256 * MIB, data_path=data_path, options=["--lease", "1s"])
    path = put(mount, ["f"], size=8 * MIB)["f"]
    with open(path, "rb") as file:
        os.unlink(path)
        press(mount, 2 * BUDGET, random.Random(seed))
        assert file.read() == stores.Content(0).of("f", 8 * MIB)
    kvmount.wait_until(lambda: watch.budget(mount)["leaving"] == 0, 20, "its room")


def test_a_lease_ends(limited, seed):
    chance = random.Random(seed)
    mount = limited(size=BUDGET, disk=256 * MIB, options=["--lease", "3s"])
    paths = put(mount, [f"old{n}" for n in range(8)])
    kvmount.run_as(look_up, list(paths.values()))
    assert leases(mount) == 8
    kvmount.wait_until(lambda: leases(mount) == 0, 10, "the ends of leases")

    def one_is_gone():
        press(mount, BUDGET // 4, chance)
        return not all(is_there(mount, path) for path in paths.values())

    kvmount.wait_until(one_is_gone, 30, "an eviction after the lease")


@pytest.mark.promise(3)
@pytest.mark.short
def test_creating_and_writing_grant_none(limited):
    mount = limited(size=BUDGET, disk=256 * MIB)
    slow = 0
    for layout in stores.LAYOUTS:
        jobs = [stores.Job(f"{n:064x}", 64 << 10, way) for n, way in enumerate(stores.WAYS)]
        done = kvmount.run_as(stores.flood, mount.mnt, layout, jobs, 0, 2)
        assert done["errors"] == []
        slow += done["slow"]
    assert leases(mount) <= slow


CRAWLERS = {"find": ["find", "{}", "-ls"], "du": ["du", "-a", "{}"],
            "rsync": ["rsync", "-n", "-a", "{}/", "/var/tmp/kvcachefs-no-such-directory/"]}


@pytest.mark.parametrize("crawler", CRAWLERS)
def test_a_crawler_grants_no_lease_and_changes_no_order(limited, seed, crawler):
    """The older half is crawled, the younger one not even looked at; the older goes first all the
    same."""
    mount = limited(size=BUDGET, disk=256 * MIB)
    half = BUDGET // MIB // 4
    # Far from full: nothing goes yet.
    old = put(mount, [f"old/{n}" for n in range(half)])
    new = put(mount, [f"new/{n}" for n in range(half)])
    words = [word.format(f"{mount.mnt}/old") for word in CRAWLERS[crawler]]
    seen = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert seen.returncode == 0, seen
    assert leases(mount) == 0
    press(mount, BUDGET * 7 // 10, random.Random(seed))
    old_left = [path for path in old.values() if is_there(mount, path)]
    new_left = [path for path in new.values() if is_there(mount, path)]
    assert len(old_left) < half, "there was no pressure"
    assert not old_left or len(new_left) == half, (
        len(old_left), len(new_left), mount.cli("explain", old_left[0]).stdout)


@pytest.mark.promise(3)
@pytest.mark.short
@pytest.mark.parametrize("crawler", [("ls", "-l"), ("find", "-ls")], ids=" ".join)
def test_who_looks_up_after_a_crawler_has_a_lease(limited, crawler):
    """Nothing that the kernel remembers of the crawler's answers answers others."""
    mount = limited(size=BUDGET, disk=256 * MIB)
    paths = list(put(mount, [f"d/{n}" for n in range(20)]).values())
    kvmount.drop_caches(2)  # Of who has stored them, too.
    words = [crawler[0], *crawler[1:], f"{mount.mnt}/d"] if crawler[0] == "ls" else [
        crawler[0], f"{mount.mnt}/d", *crawler[1:]]
    subprocess.run(words, stdout=subprocess.DEVNULL, timeout=60, check=True)
    assert leases(mount) == 0
    kvmount.run_as(look_up, paths)
    assert leases(mount) == len(paths)


@pytest.mark.short
def test_what_a_crawler_reads_has_a_lease(limited, seed):
    mount = limited(size=BUDGET, disk=256 * MIB)
    paths = put(mount, [f"d/{n}" for n in range(20)])
    wanted = list(paths.values())[::4]

    def crawl_and_read():
        for name in os.listdir(f"{mount.mnt}/d"):
            os.stat(f"{mount.mnt}/d/{name}")
        read(wanted)

    kvmount.run_as(crawl_and_read)
    assert leases(mount) == len(wanted)
    press(mount, 2 * BUDGET, random.Random(seed))
    left = [path for path in paths.values() if is_there(mount, path)]
    assert left == wanted
    content = stores.Content(0)
    for path, found in kvmount.run_as(read, wanted).items():
        assert found == content.of(os.path.relpath(path, mount.mnt), MIB)


@pytest.mark.promise(3, 8)
@pytest.mark.short
def test_a_flood_of_lookups_ends_its_own_leases_first(limited, seed):
    """Leases hold half of the budget at most."""
    mount = limited(size=BUDGET, disk=256 * MIB, exact=True)
    files = list(put(mount, [f"f{n:03}" for n in range(80)]).values())
    most = BUDGET // 2 // MIB
    calm, flooded = files[70:78], files[:70]
    kvmount.run_as(look_up, calm)
    kvmount.run_as(look_up, flooded, uid=kvmount.NOBODY)
    counts = mount.status()["counts"]
    ended = len(calm) + len(flooded) - most
    assert (counts["leases"], counts["leases_ended_early"]) == (most, ended)
    press(mount, BUDGET, random.Random(seed))
    kvmount.wait_until(lambda: not any(is_there(mount, path) for path in flooded[:ended]), 20,
                       "the eviction of those whose leases had ended")
    assert all(is_there(mount, path) for path in calm)
    # A slow storing user looks his own files up again, and each lease of his ends one of
    # whoever has most.
    ended = mount.status()["counts"]["leases_ended_early"]
    assert all(is_there(mount, path) for path in flooded[ended:])


def test_what_was_opened_holds_half_as_well(limited, seed):
    """Who opens all there is has nobody else's stores refused: the oldest of his leases end."""
    mount = limited(size=BUDGET, disk=256 * MIB, exact=True)
    paths = list(put(mount, [f"f{n:03}" for n in range(70)]).values())
    kvmount.run_as(read, paths)
    newest = paths[-(BUDGET // 2 // MIB):]
    assert leases(mount) == len(newest)
    press(mount, 2 * BUDGET, random.Random(seed))
    assert all(is_there(mount, path) for path in newest)
    assert not any(is_there(mount, path) for path in paths[:4])
