"""The budget and the order of eviction outlast the daemon, however it ended."""

import os
import random
import subprocess

import pytest

import kvmount
import stores
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 evicts nothing")

BUDGET = (512 if kvmount.FULL else 128) * MIB
ENDS = {"clean": lambda mount: mount.remount(), "killed": lambda mount: mount.crash()}


def store_in_order(mount, begin, count):
    """Plain names, one after the other: they go by their last use."""
    keys = [f"{number:06}" for number in range(begin, begin + count)]
    jobs = [stores.Job(key, MIB if int(key) % 4 else 64 * KIB, "buffered") for key in keys]
    done = kvmount.run_as(stores.flood, mount.mnt, "plain", jobs, 0, 1, seconds=300)
    assert done["errors"] == []
    return keys


def is_there(mount, keys):
    """Those that answer, asked by a process that lists: its lookups are no uses."""
    def ask():
        present = set(os.listdir(mount.mnt))
        return [key for key in keys if key in present]

    return kvmount.run_as(ask)


# Stored within the same hundredth of a second: any of them may go first.
AT_ONCE = 48
# One that is still being sealed when its turn comes is passed over, and goes with the next walk
# over all.
IN_USE = 2


def check_oldest_went(keys, left):
    """Those left of `keys` are the last ones stored."""
    assert left, "all gone"
    assert len(left) < len(keys), "nothing gone"
    oldest = left[min(IN_USE, len(left) - 1)]
    assert oldest >= keys[max(len(keys) - len(left) - AT_ONCE, 0)], (left[:IN_USE + 1], keys[-len(left)])


def check_counts(mount):
    """What the status tells is what is on the disk."""
    watch.wait_at_rest(mount)

    seen = []

    def agrees():
        seen[:] = [mount.status()["tiers"][0]["objects"], len(mount.backing_files())]
        return seen[0] == seen[1]

    try:
        kvmount.wait_until(agrees, 10, "as many backing files as objects")
    except kvmount.Late as late:
        raise kvmount.Late(f"{late}: objects and files {seen}") from None
    told = subprocess.run(["du", "--summarize", "--block-size=1", f"{mount.nvme}/objects"],
                          capture_output=True, text=True, timeout=60, check=True).stdout
    folders = sum(os.lstat(folder).st_blocks * 512
                  for folder, _, _ in os.walk(f"{mount.nvme}/objects"))
    occupied = int(told.split()[0]) - folders
    used = watch.budget(mount)["used"]
    print(f"used {used}, du {occupied}")
    assert abs(used - occupied) <= occupied // 50
    assert used <= BUDGET


@pytest.mark.short
@pytest.mark.parametrize("end", ENDS)
def test_the_budget_and_the_order_outlast_the_daemon(limited, data_path, end):
    mount = limited(size=BUDGET, disk=BUDGET + 256 * MIB, data_path=data_path)
    megabytes = BUDGET // MIB
    first = store_in_order(mount, 0, 2 * megabytes)
    check_counts(mount)
    left = is_there(mount, first)
    check_oldest_went(first, left)
    ENDS[end](mount)
    check_counts(mount)
    assert is_there(mount, first) == left, "nothing goes by a restart"
    second = store_in_order(mount, len(first), megabytes // 2)
    check_counts(mount)
    still = is_there(mount, first + second)
    check_oldest_went(left + second, still)
    content = stores.Content(0)
    for key in still:
        size = MIB if int(key) % 4 else 64 * KIB
        assert stores.load(f"{mount.mnt}/{key}") == content.of(key, size), key
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


@pytest.mark.parametrize("end", ENDS)
def test_what_was_kept_is_kept_and_counted(limited, end):
    mount = limited(size=BUDGET, disk=BUDGET + 256 * MIB)
    os.mkdir(f"{mount.mnt}/kept")
    assert mount.cli("set", f"{mount.mnt}/kept", "policy=keep").returncode == 0
    keys = [f"kept/{number:03}" for number in range(BUDGET // MIB // 4)]
    jobs = [stores.Job(key, MIB, "buffered") for key in keys]
    assert kvmount.run_as(stores.flood, mount.mnt, "plain", jobs, 0, 1)["errors"] == []
    check_counts(mount)
    kept = watch.budget(mount)["kept"]
    assert kept == len(keys) * MIB
    ENDS[end](mount)
    check_counts(mount)
    assert watch.budget(mount)["kept"] == kept
    store_in_order(mount, 0, 2 * BUDGET // MIB)
    content = stores.Content(0)
    for key in keys:
        assert stores.load(f"{mount.mnt}/{key}") == content.of(key, MIB), key


def test_killed_in_the_middle_of_a_flood(limited, seed):
    """Nothing that was being written, evicted or unlinked stays on the disk uncounted."""
    mount = limited(size=BUDGET, disk=BUDGET + 256 * MIB)
    chance = random.Random(seed)
    jobs = stores.make_jobs(chance, 8 * BUDGET, [64 * KIB, 2 * MIB], ways=["buffered", "direct"])
    for round_number in range(8 if kvmount.FULL else 2):
        child = kvmount.Child(stores.flood, mount.mnt, "sglang", jobs, seed)
        try:
            kvmount.wait_until(lambda: mount.status()["dropped"]["room"]["files"] >
                               chance.randrange(50, 200), 60, "evictions")
            mount.kill(unmount=False)  # Else the stores would go on in the directory below.
            child.result(60)  # Most of its stores failed: the daemon was dead.
        finally:
            child.end()
        kvmount.lazy_unmount(mount.mnt)
        mount.start()
        check_counts(mount)
        found = kvmount.run_as(stores.check, mount.mnt, "sglang", jobs, seed)
        print(f"round {round_number}: {len(found['there'])} files")
        assert found["wrong"] == []
    done = kvmount.Child(stores.flood, mount.mnt, "sglang", jobs[:len(jobs) // 4], seed).result(60)
    assert done["errors"] == []
    check_counts(mount)
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text
