"""Writers that store many times the capacity never get ENOSPC, and the budget is kept."""

import os
import random
import subprocess

import pytest

import kvmount
import stores
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 evicts nothing")

BUDGET = (1024 if kvmount.FULL else 192) * MIB
DISK = (2048 if kvmount.FULL else 512) * MIB
TIMES = 10 if kvmount.FULL else 3
SIZES = [64 * KIB, 2 * MIB] + ([80 * MIB] if kvmount.FULL else [])
# What the database, directories and inodes take beside the files, and what eight writers have under
# way between two looks of the daemon.
SLACK = 48 * MIB
SECONDS = 1200 if kvmount.FULL else 120


def run_flood(mount, layout, jobs, seed):
    done = kvmount.Child(stores.flood, mount.mnt, layout, jobs, seed).result(SECONDS)
    print(f"slowest store {done['slowest']:.2f} s")
    assert done["errors"] == []
    return done


def check_all(mount, layout, jobs, seed):
    """What is there is right; then the metadata is clean."""
    watch.wait_at_rest(mount)
    found = kvmount.run_as(stores.check, mount.mnt, layout, jobs, seed, seconds=SECONDS)
    assert found["wrong"] == []
    assert found["there"], "all gone: that is no cache"
    watch.wait_calm(mount)
    status = mount.status()
    assert status["dropped"]["room"]["files"] > 0
    assert status["dropped"]["room"]["files"] + len(found["there"]) == len(jobs)
    for loss in ("poisoned", "lost", "damaged"):
        assert status["counts"][loss] == 0, loss
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


@pytest.mark.limit(2400 if kvmount.FULL else 150)
@pytest.mark.parametrize("layout", [pytest.param("vllm", marks=pytest.mark.promise(1, 4)), "lmcache", "sglang"])
def test_many_times_the_capacity(limited, layout, seed):
    mount = limited(size=BUDGET, disk=DISK)
    before = watch.used_bytes(mount.disk.path)
    jobs = stores.make_jobs(random.Random(seed), TIMES * BUDGET, SIZES)
    with watch.Sampler(lambda: watch.used_bytes(mount.disk.path) - before) as used:
        run_flood(mount, layout, jobs, seed)
    print(f"at most {used.highest / MIB:.0f} MiB of {BUDGET / MIB:.0f} used, {used.samples} samples; "
          f"{mount.status()['counts']['slowed']} closes slowed")
    assert used.highest <= BUDGET + SLACK
    check_all(mount, layout, jobs, seed)


@pytest.mark.limit(600 if kvmount.FULL else 150)
def test_one_file_of_most_of_the_budget(limited, seed):
    """It cannot be slowed before its close, and nothing of it can go meanwhile."""
    large = BUDGET * 6 // 10 // MIB * MIB
    # XFS allocates up to twice as much again for who writes it.
    ahead = 2 * large if kvmount.BELOW == "xfs" else 0
    mount = limited(size=BUDGET, disk=DISK + ahead)
    jobs = stores.make_jobs(random.Random(seed), TIMES * BUDGET // 2, SIZES, large=[large])
    before = watch.used_bytes(mount.disk.path)
    with watch.Sampler(lambda: watch.used_bytes(mount.disk.path) - before) as used:
        run_flood(mount, "sglang", jobs, seed)
    print(f"at most {used.highest / MIB:.0f} MiB of {BUDGET / MIB:.0f} used")
    assert used.highest <= BUDGET + large + ahead + SLACK
    kvmount.wait_until(lambda: watch.used_bytes(mount.disk.path) - before <= BUDGET + SLACK, 10,
                       "the budget")
    check_all(mount, "sglang", jobs, seed)


@pytest.mark.gate
@pytest.mark.by_seed
def test_what_the_disk_sets_aside_for_a_writer_is_no_use_of_the_budget(limited, data_path):
    """XFS allocates as much again as an open file has; with what was stored before it is more than the budget."""
    mount = limited(size=128 * MIB, disk=512 * MIB, exact=True, kind="xfs", data_path=data_path)

    def live():
        return watch.budget(mount)["live"]

    with open(f"{mount.mnt}/open", "wb", buffering=0) as file:
        before = watch.used_bytes(mount.disk.path)
        for _ in range(80):
            kvmount.run_as(file.write, bytes(MIB))
        assert watch.used_bytes(mount.disk.path) - before > 100 * MIB, "nothing was set aside: this proves nothing"
        kvmount.wait_until(lambda: live() >= 80 * MIB, 20, "a look at the writer")
        assert live() < 81 * MIB
        # What an application asks for beyond the end is its own.
        subprocess.run(["fallocate", "--keep-size", "--offset", str(80 * MIB), "--length", str(16 * MIB), file.name],
                       check=True, timeout=60)
        kvmount.wait_until(lambda: live() >= 96 * MIB, 20, "a look at what was allocated")
        assert live() < 97 * MIB
        with open(f"{mount.mnt}/another", "wb", buffering=0) as another:
            assert another.write(bytes(MIB)) == MIB


@pytest.mark.promise(4)
@pytest.mark.short
def test_a_small_budget(limited, data_path, seed):
    """The same in little, for builds that are slow."""
    mount = limited(size=64 * MIB, disk=256 * MIB, data_path=data_path)
    jobs = stores.make_jobs(random.Random(seed), 160 * MIB, [64 * KIB, 2 * MIB])
    run_flood(mount, "sglang", jobs, seed)
    check_all(mount, "sglang", jobs, seed)


@pytest.mark.promise(4)
@pytest.mark.short
def test_a_file_of_most_of_the_budget_is_rewritten(limited, data_path, seed):
    """There is no room for the new bytes beside the old ones, which go."""
    size = 64 * MIB
    mount = limited(size=size, disk=256 * MIB, exact=True, data_path=data_path)
    contents = [random.Random(seed + number).randbytes(size * 6 // 10) for number in range(3)]

    def rewrite(content):
        with open(f"{mount.mnt}/slot", "wb", buffering=0) as file:
            for at in range(0, len(content), MIB):
                assert file.write(content[at:at + MIB]) == len(content[at:at + MIB])

    for content in contents:
        kvmount.run_as(rewrite, content)
        with open(f"{mount.mnt}/slot", "rb") as file:
            assert file.read() == content
        watch.wait_calm(mount)
        assert watch.budget(mount)["used"] <= size
    assert mount.status()["counts"]["poisoned"] == 0
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


@pytest.mark.limit(600 if kvmount.FULL else 150)
def test_min_free_is_kept_when_the_budget_is_larger_than_the_disk(limited, seed):
    mount = limited(size=1 << 40, disk=512 * MIB, options=["--min-free", "20%"])
    least = watch.budget(mount)["min_free"]
    assert least >= 80 * MIB
    jobs = stores.make_jobs(random.Random(seed), TIMES * 512 * MIB, [64 * KIB, 2 * MIB])
    with watch.Sampler(lambda: watch.available_bytes(mount.disk.path)) as free:
        run_flood(mount, "sglang", jobs, seed)
    print(f"at least {free.lowest / MIB:.0f} MiB free, {least / MIB:.0f} are to stay")
    assert free.lowest >= least - SLACK
    # What was more than is allowed for a moment is given back.
    kvmount.wait_until(lambda: watch.available_bytes(mount.disk.path) >= least, 10, "min-free")
    check_all(mount, "sglang", jobs, seed)


@pytest.mark.limit(600 if kvmount.FULL else 150)
def test_lookups_go_on_while_writers_wait(limited, seed, tmp_path):
    """In the very directory that is written to: what slows a writer holds no lock there."""
    size, total = 64 * MIB, TIMES * BUDGET
    chance = random.Random(seed)
    jobs = stores.make_jobs(chance, total, [64 * KIB, 4 * MIB])
    with kvmount.LoopFs("ext4", size=total * 9 // 8 + 256 * MIB) as control:
        with watch.LookUps(control.path, str(tmp_path / "stop")) as theirs:
            done = kvmount.Child(stores.flood, control.path, "lmcache", jobs, seed).result(SECONDS)
        assert done["errors"] == []
    print(f"ext4:  {theirs}")
    mount = limited(size=size, disk=DISK)
    with kvmount.Beside(mount.work) as beside:
        with watch.LookUps(mount.mnt, str(tmp_path / "stop")) as ours:
            for _ in range(5):  # Until they outrun the evictor: on some machines at once.
                run_flood(mount, "lmcache", jobs, seed)
                slowed = mount.status()["counts"]["slowed"]
                if slowed:
                    break
                jobs = stores.make_jobs(chance, total, [64 * KIB, 4 * MIB])
        print(f"mount: {ours}; {slowed} closes slowed")
        assert slowed > 0, "the writers were not throttled: this proves nothing"
        beside.add(ours.p99, max(0.010, 2 * theirs.p99), "p99 of lookups")
        beside.add(ours.longest, max(0.250, 2 * theirs.longest), "the longest lookup")
