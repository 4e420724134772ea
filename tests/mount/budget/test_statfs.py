"""What statfs and du tell is what the cleaners that runtimes bring along need: they leave evictable
files alone, and see at once what was freed."""

import contextlib
import os
import random
import shutil
import subprocess
import time

import pytest

import kvmount
import stores
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no budget")

BUDGET = 128 * MIB
# What is always being written, and the inodes that are not files.
LITTLE = 4 * MIB


# ---- the arithmetic of cleaners: whether each would delete now, from os.statvfs() --------------

def sglang_nixl(space):
    """nixl_cleaner.py: from 80 % on, down to 70 %."""
    total = space.f_blocks * space.f_frsize
    return 100 * (total - space.f_bavail * space.f_frsize) / total >= 80


def sglang_lru(space, stores_bytes=2 * MIB):
    """lru_file_evictor.py with min_free of a tenth: before each store."""
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    return free - stores_bytes < total // 10


def llmd_pvc_evictor(space):
    """pvc_evictor/utils/system.py: from 85 % on, down to 70 %."""
    total = space.f_blocks * space.f_frsize
    return (total - space.f_bfree * space.f_frsize) / total * 100 >= 85


def lmcache_disk_guard(space):
    """disk_guard.py with high_watermark 0.9: df's arithmetic; a negative room makes its adapter evict."""
    used = (space.f_blocks - space.f_bfree) * space.f_frsize
    available = space.f_bavail * space.f_frsize
    return int(0.9 * (used + available)) - used < 0


def mooncake(space):
    """storage_backend.cpp: from 90 % on, down to 80 %."""
    return (space.f_blocks - space.f_bavail) / space.f_blocks >= 0.9


CLEANERS = [sglang_nixl, sglang_lru, llmd_pvc_evictor, lmcache_disk_guard, mooncake]


def starting(mount):
    """The names of those that would delete now."""
    space = os.statvfs(mount.mnt)
    return [cleaner.__name__ for cleaner in CLEANERS if cleaner(space)]


def fill(mount, folder, total, sync=False, size=2 * MIB):
    """Stores files of `size`; with `sync` as an application does that cannot do without them."""
    def store_all():
        os.makedirs(folder, exist_ok=True)
        content = stores.Content(0)
        for number in range(total // size):
            path = f"{folder}/{number:05}"
            with open(path, "wb", buffering=0) as file:
                file.write(content.of(path, size))
                if sync:
                    os.fsync(file.fileno())

    kvmount.run_as(store_all)
    watch.wait_calm(mount)


def told(mount, *words):
    done = mount.cli(*words)
    assert done.returncode == 0, done.stderr


# ---- evictable files ---------------------------------------------------------------------------

@pytest.mark.gate
@pytest.mark.short
def test_no_cleaner_starts_while_all_is_evictable(limited):
    mount = limited(exact=True, size=BUDGET, disk=256 * MIB)
    fill(mount, f"{mount.mnt}/cache", 3 * BUDGET // 2)
    assert watch.budget(mount)["used"] > BUDGET * 8 // 10, "not full: this proves nothing"
    space = os.statvfs(mount.mnt)
    assert (space.f_bsize, space.f_frsize) == (4096, 4096)
    assert space.f_blocks * space.f_frsize == BUDGET
    assert space.f_bfree == space.f_bavail
    assert space.f_bavail * space.f_frsize >= BUDGET - LITTLE
    assert starting(mount) == []
    usage = shutil.disk_usage(mount.mnt)
    assert usage.total == BUDGET and usage.used + usage.free == usage.total
    assert usage.used <= LITTLE
    df = subprocess.run(["df", "--output=pcent", mount.mnt], capture_output=True, text=True,
                        timeout=60, check=True).stdout.split()
    assert int(df[1].rstrip("%")) < 10


def test_no_cleaner_starts_during_a_flood(limited, seed):
    """What is closed may go, although its seal comes later."""
    mount = limited(exact=True, size=BUDGET, disk=384 * MIB)
    jobs = stores.make_jobs(random.Random(seed), 4 * BUDGET, [64 * KIB, 2 * MIB])
    with watch.Sampler(lambda: len(starting(mount))) as cleaners, \
            watch.Sampler(lambda: watch.available_bytes(mount.mnt)) as free:
        done = kvmount.Child(stores.flood, mount.mnt, "sglang", jobs, seed).result()
    assert done["errors"] == []
    print(f"{free.samples} samples, at least {free.lowest / MIB:.0f} of {BUDGET / MIB:.0f} MiB free")
    assert cleaners.highest == 0


def test_leases_are_not_subtracted(limited):
    mount = limited(exact=True, size=BUDGET, disk=256 * MIB)
    fill(mount, f"{mount.mnt}/cache", BUDGET // 2)

    def look_up():
        for number in range(BUDGET // 2 // (2 * MIB)):
            os.stat(f"{mount.mnt}/cache/{number:05}")

    kvmount.run_as(look_up)
    assert mount.status()["counts"]["leases"] > 0
    assert watch.available_bytes(mount.mnt) >= BUDGET - LITTLE


# ---- files that must stay ----------------------------------------------------------------------

def fsynced(mount, folder):
    fill(mount, folder, BUDGET * 92 // 100, sync=True)


def told_before(policy):
    def make(mount, folder):
        os.mkdir(folder)
        told(mount, "set", folder, f"policy={policy}")
        fill(mount, folder, BUDGET * 92 // 100)
    return make


def told_after(mount, folder):
    """The policy holds for what is there already: so much that nothing of it has to go before."""
    fill(mount, folder, BUDGET * 70 // 100)
    assert starting(mount) == []
    told(mount, "pin", folder)
    fill(mount, f"{folder}/later", BUDGET * 22 // 100)


KEPT = {"fsynced": fsynced, "keep": told_before("keep"), "pin": told_before("pin"),
        "pinned-later": told_after}


@pytest.mark.parametrize("how", KEPT)
def test_cleaners_start_when_kept_files_fill_it(limited, how):
    mount = limited(exact=True, size=BUDGET, disk=256 * MIB)
    folder = f"{mount.mnt}/kept"
    KEPT[how](mount, folder)
    everyone = [cleaner.__name__ for cleaner in CLEANERS]
    kvmount.wait_until(lambda: starting(mount) == everyone, 5, "all cleaners")
    # And they get what they delete: unlinked is free within a second.
    names = sorted(kvmount.run_as(os.listdir, folder))
    before = watch.available_bytes(mount.mnt)
    with kvmount.Beside(mount.work) as beside:
        for name in names[:8]:
            os.unlink(f"{folder}/{name}")
        begin = time.monotonic()
        kvmount.wait_until(lambda: watch.available_bytes(mount.mnt) - before >= 16 * MIB, 5,
                           "the room of what was unlinked")
        beside.add(time.monotonic() - begin, 1, "the room of what was unlinked")


def test_unpinned_files_are_free_again(limited):
    mount = limited(exact=True, size=BUDGET, disk=256 * MIB)
    told_before("pin")(mount, f"{mount.mnt}/kept")
    assert starting(mount) != []
    told(mount, "unpin", f"{mount.mnt}/kept")
    kvmount.wait_until(lambda: starting(mount) == [], 5, "nobody to delete")


@pytest.mark.gate
@pytest.mark.short
def test_what_is_being_written_is_not_free(limited, data_path):
    mount = limited(exact=True, size=BUDGET, disk=256 * MIB, data_path=data_path)
    before = watch.available_bytes(mount.mnt)
    with open(f"{mount.mnt}/f", "wb", buffering=0) as file:
        file.write(bytes(32 * MIB))
        kvmount.wait_until(lambda: watch.available_bytes(mount.mnt) <= before - 32 * MIB, 1,
                           "the writer's bytes")
    watch.wait_calm(mount)
    assert watch.available_bytes(mount.mnt) >= before - MIB


# ---- what a file occupies ----------------------------------------------------------------------

def test_du_is_truthful(limited):
    """The same calls on the mount and on ext4; bytes by du, and of each file by st_blocks."""
    mount = limited(exact=True, size=BUDGET, disk=256 * MIB)

    def occupy(folder):
        with open(f"{folder}/small", "wb") as file:
            file.write(b"x" * (64 * KIB))
        with open(f"{folder}/sparse", "wb") as file:
            file.truncate(64 * MIB)
            file.seek(32 * MIB)
            file.write(b"x" * 4 * KIB)
        with open(f"{folder}/allocated", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, MIB)
        with open(f"{folder}/linked", "wb") as file:
            file.write(b"x" * MIB)
        os.link(f"{folder}/linked", f"{folder}/link")
        paths = [f"{folder}/{name}" for name in ("small", "sparse", "allocated", "linked", "link")]
        for path in paths:
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        told = subprocess.run(["du", "--block-size=1", "--total", *paths], capture_output=True,
                              text=True, timeout=60, check=True).stdout
        return [os.stat(path).st_blocks for path in paths], int(told.splitlines()[-1].split()[0])

    ours = kvmount.run_as(occupy, mount.mnt)
    with kvmount.LoopFs("ext4", size=256 * MIB) as control:
        assert ours == kvmount.run_as(occupy, control.path)
    watch.wait_calm(mount)
    used = watch.budget(mount)["used"]
    assert used == ours[1], "the budget counts what du does"


@pytest.mark.short
def test_a_size_that_others_have_filled_is_said_and_not_shown():
    """Programs that believe df would never see a size full that cannot be reached."""
    mount = kvmount.Mount("reached").create()
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(kvmount.LoopFs("ext4", size=512 * MIB))
        stack.callback(mount.close)
        with open(os.path.join(disk.path, "of-others"), "wb") as others:
            os.posix_fallocate(others.fileno(), 0, 300 * MIB)
        below = os.statvfs(disk.path)
        nvme = os.path.join(disk.path, "nvme")
        os.mkdir(nvme, 0o700)
        done = mount.cli("mount", "--nvme", f"{nvme}:400MiB", "--state", mount.state, mount.mnt)
        assert done.returncode == 0, done.stderr
        (said,) = [line for line in done.stderr.splitlines() if "can be reached" in line]
        assert f"--nvme: {nvme}:400MiB: " in said and "others have the rest" in said, said
        shown = os.statvfs(mount.mnt)
        assert 64 * MIB < shown.f_blocks * shown.f_frsize <= below.f_bavail * below.f_frsize
        mount.stop()
