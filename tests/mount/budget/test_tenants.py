"""A tenant that floods the mount evicts its own files, and nobody else's below their share."""

import errno
import os
import random
import threading
import time

import pytest

import kvmount
import stores
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no tenants")

BUDGET = (1024 if kvmount.FULL else 192) * MIB
DISK = (2048 if kvmount.FULL else 512) * MIB
TIMES = 10 if kvmount.FULL else 3
SIZES = [64 * KIB, 2 * MIB]
SECONDS = 1200 if kvmount.FULL else 120
LEASE = ["--lease", "1s"]
MISSES = 15_000


def tenant(mount, name, *terms):
    path = os.path.join(mount.mnt, name)
    os.mkdir(path)
    os.chmod(path, 0o777)
    done = mount.cli("set", path, *terms)
    assert done.returncode == 0, done.stderr
    return path


def of_status(mount, name):
    (found,) = [one for one in mount.status()["tenants"] if one["path"] == name]
    return found


def run_flood(root, jobs, seed, layout="vllm", threads=4):
    done = kvmount.Child(stores.flood, root, layout, jobs, seed, threads).result(SECONDS)
    assert done["errors"] == []


def there(root, jobs, seed, layout="vllm"):
    found = kvmount.run_as(stores.check, root, layout, jobs, seed, seconds=SECONDS)
    assert found["wrong"] == []
    return len(found["there"])


@pytest.mark.limit(2400 if kvmount.FULL else 200)
@pytest.mark.parametrize("layout", ["vllm", "plain"] if kvmount.FULL else ["vllm"])
def test_a_flood_evicts_its_own(limited, layout, seed):
    """Also after a restart, and although the other's files are the oldest by far."""
    mount = limited(exact=True, size=BUDGET, disk=DISK, options=LEASE)
    quiet = tenant(mount, "quiet", "share=40%")
    loud = tenant(mount, "loud", "share=30%")
    chance = random.Random(seed)
    # Room is made ahead of the writers: what may be used is an eighth less than the budget.
    kept = stores.make_jobs(chance, BUDGET * 30 // 100, SIZES)
    run_flood(quiet, kept, seed, layout)
    for restarted in (False, True):
        if restarted:
            mount.remount()
            kvmount.wait_until(lambda: mount.status()["tiers"][0]["budget"]["used"] is not None, 20,
                               "the count of what was there")
        flood = stores.make_jobs(chance, TIMES * BUDGET, SIZES)
        run_flood(loud, flood, seed, layout)
        assert there(quiet, kept, seed, layout) == len(kept)
        assert there(loud, flood, seed, layout) > 0
    watch.wait_calm(mount)
    status = of_status(mount, "quiet")
    assert status["used"] >= sum(job.size for job in kept)
    assert status["share"] == pytest.approx(BUDGET * 0.4, rel=0.01)
    assert of_status(mount, "loud")["used"] <= BUDGET - status["used"]
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


@pytest.mark.promise(8)
@pytest.mark.short
def test_what_is_borrowed_is_given_back(limited, data_path, seed):
    mount = limited(exact=True, size=BUDGET, disk=DISK, options=LEASE, data_path=data_path)
    a = tenant(mount, "a", "share=50%")
    b = tenant(mount, "b", "share=50%")
    chance = random.Random(seed)
    first = stores.make_jobs(chance, BUDGET * 80 // 100, SIZES[:1])
    run_flood(a, first, seed)
    assert there(a, first, seed) == len(first), "nobody else wanted the room"
    mount.wait_for_the_ends_of_leases(10)  # And with them of the last second of its files.
    second = stores.make_jobs(chance, BUDGET * 40 // 100, SIZES[:1])
    run_flood(b, second, seed)
    assert there(b, second, seed) == len(second)
    watch.wait_calm(mount)
    assert BUDGET * 0.35 <= of_status(mount, "a")["used"] <= BUDGET * 0.6


@pytest.mark.parametrize("layout, end", [("vllm", "killed"), ("plain", "stopped")] + (
    [("vllm", "stopped"), ("plain", "killed")] if kvmount.FULL else []))
def test_a_restart_knows_whose_the_files_are(limited, layout, end, seed):
    """What goes is the last run's, of who has too much: not what is oldest."""
    mount = limited(exact=True, size=BUDGET, disk=DISK, options=LEASE)
    quiet = tenant(mount, "quiet", "share=50%")
    loud = tenant(mount, "loud", "share=10%")
    chance = random.Random(seed)
    old = stores.make_jobs(chance, BUDGET * 35 // 100, SIZES[:1])
    run_flood(quiet, old, seed, layout)
    borrowed = stores.make_jobs(chance, BUDGET * 40 // 100, SIZES[:1])
    run_flood(loud, borrowed, seed, layout)
    watch.wait_calm(mount)
    mount.remount() if end == "stopped" else mount.crash()
    watch.wait_calm(mount)
    others = os.path.join(mount.mnt, "others")
    os.mkdir(others)
    new = stores.make_jobs(chance, BUDGET * 35 // 100, SIZES[:1])
    run_flood(others, new, seed, layout)
    assert there(quiet, old, seed, layout) == len(old)
    assert there(others, new, seed, layout) == len(new)
    assert 0 < there(loud, borrowed, seed, layout) < len(borrowed)


@pytest.mark.limit(200)
def test_a_quota(limited, seed):
    mount = limited(exact=True, size=BUDGET, disk=DISK, options=LEASE)
    quota = BUDGET // 8
    a = tenant(mount, "a", f"quota={quota}")
    chance = random.Random(seed)
    jobs = stores.make_jobs(chance, 4 * quota, SIZES[:1])
    run_flood(a, jobs, seed)
    kvmount.wait_until(lambda: of_status(mount, "a")["used"] <= quota, 15, "the quota")
    left = there(a, jobs, seed)
    assert 0 < left < len(jobs)
    status = mount.status()
    assert status["dropped"]["quota"]["files"] == len(jobs) - left
    assert status["dropped"]["room"]["files"] == 0
    explained = [job for job in jobs
                 if not os.path.exists(os.path.join(a, stores.LAYOUTS["vllm"](job.key)[0]))]
    gone = os.path.join(a, stores.LAYOUTS["vllm"](explained[0].key)[0])
    assert "quota" in mount.cli("explain", gone).stdout


def miss_and_open(root, times):
    """Of nobody: names that are not there, and one that is."""
    own = os.path.join(root, "of-nobody")
    with open(own, "wb") as file:
        file.write(b"n" * 4096)
    for number in range(times):
        try:
            os.stat(os.path.join(root, f"{number:064x}.bin"))
        except FileNotFoundError:
            pass
        if number % 10 == 0:
            with open(own, "rb"):
                pass


def load_over_and_over(root, jobs, layout, stop, out):
    """Looks its working set up and loads what is there, over and over."""
    slowest = hits = misses = 0
    while not stop.is_set():
        for job in jobs:
            path = os.path.join(root, stores.LAYOUTS[layout](job.key)[0])
            begin = time.monotonic()
            found = stores.load(path)
            slowest = max(slowest, time.monotonic() - begin)
            if found is None:
                misses += 1
            else:
                hits += 1
            if stop.is_set():
                break
    out.update(hits=hits, misses=misses, slowest=slowest)


@pytest.mark.limit(300)
def test_a_tenants_hits_stay_while_others_flood(limited, seed):
    """One writes 30 times its share, and a user of no tenant misses and opens without end."""
    mount = limited(exact=True, size=BUDGET, disk=DISK, options=LEASE)
    quiet = tenant(mount, "quiet", "share=50%")
    loud = tenant(mount, "loud", "share=10%")
    chance = random.Random(seed)
    kept = stores.make_jobs(chance, BUDGET * 40 // 100, SIZES)
    run_flood(quiet, kept, seed)
    before = of_status(mount, "quiet")  # Whoever stores a file has missed it.
    stop, out = threading.Event(), {}
    reader = threading.Thread(target=load_over_and_over, args=(quiet, kept, "vllm", stop, out))
    reader.start()
    try:
        memory = []
        for _ in range(2):
            jobs = stores.make_jobs(chance, 3 * BUDGET // 2, SIZES)
            flood = kvmount.Child(stores.flood, loud, "vllm", jobs, seed, 4)
            misses = kvmount.Child(miss_and_open, mount.mnt, MISSES, uid=65534)
            assert flood.result(SECONDS)["errors"] == []
            misses.result(SECONDS)
            memory.append(mount.memory())
    finally:
        stop.set()
        reader.join()
    print(f"hits {out['hits']}, misses {out['misses']}, slowest load {out['slowest']:.2f} s")
    assert out["hits"] > 0 and out["misses"] == 0
    status = of_status(mount, "quiet")
    assert status["misses"] == before["misses"] and status["hits"] > before["hits"]
    # What has gone costs nothing, nor does a name that never was.
    kvmount.check_memory(*memory, len(jobs), "the second half of the flood", slack=8 * MIB)


@pytest.mark.promise(8)
def test_only_root_says_how_large_it_is(limited):
    mount = limited(exact=True, size=BUDGET, disk=DISK)
    a = tenant(mount, "a", "share=20%")
    os.chown(a, 65534, 65534)

    def fails(code, *words):
        done = mount.cli("set", *words)
        assert done.returncode == code and len(done.stderr.splitlines()) == 1, done
        return done.stderr

    def set_as_owner(xattr, value):
        try:
            os.setxattr(a, xattr, value)
        except OSError as error:
            return error.errno
        return 0

    for xattr in ("user.kvcachefs.share", "user.kvcachefs.quota"):
        refused = kvmount.run_as(set_as_owner, xattr, b"90GiB", uid=65534, gid=65534)
        assert refused == errno.EPERM
    assert kvmount.run_as(set_as_owner, "user.kvcachefs.ttl", b"1d", uid=65534, gid=65534) == 0
    assert "200GiB" in fails(2, a, "share=0")
    assert "500GiB" in fails(2, a, "quota=10%")
    assert "share=" in fails(2, a, "shares=1%")
    file = os.path.join(mount.mnt, "file")
    with open(file, "w"):
        pass
    assert "directories" in fails(1, file, "share=1%")
    assert of_status(mount, "a")["share"] == pytest.approx(BUDGET * 0.2, rel=0.01)
    assert mount.cli("set", a, "share=").returncode == 0
    assert mount.status()["tenants"] == []


@pytest.mark.short
def test_a_share_that_was_just_given_says_what_is_not_counted_yet(limited, seed):
    """Whose each file is takes a walk over all; until then what is used is not all."""
    mount = limited(exact=True, size=BUDGET, disk=DISK, options=LEASE)
    path = os.path.join(mount.mnt, "late")
    os.mkdir(path)
    jobs = stores.make_jobs(random.Random(seed), BUDGET // 4, SIZES)
    run_flood(path, jobs, seed, "sglang")
    mount.wait_sealed()
    total = sum(job.size for job in jobs)
    done = mount.cli("set", path, "share=40%")
    assert done.returncode == 0, done.stderr

    def is_counted():
        status = of_status(mount, "late")
        text = mount.cli("status", mount.mnt).stdout
        assert not status["counted"] or status["used"] >= total, status
        assert "/late: 0 B used," not in text, text
        return status["counted"]

    kvmount.wait_until(is_counted, 20, "the count of the tenant's files")
    assert of_status(mount, "late")["used"] >= total
