"""A filesystem that runs out of inodes before it runs out of bytes."""

import os
import random

import pytest

import kvmount
import stores
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 evicts nothing")


def test_many_small_files(limited, seed):
    """Evicted by number: their bytes are a small part of the budget."""
    mount = limited(size=400 * MIB, disk=512 * MIB, mkfs=["-N", "3000"])
    inodes = os.statvfs(mount.disk.path).f_files
    assert inodes < 10_000, "mkfs made more than it was asked for"
    jobs = stores.make_jobs(random.Random(seed), (10 if kvmount.FULL else 3) * inodes * 4 * KIB,
                            [4 * KIB])
    with watch.Sampler(lambda: os.statvfs(mount.disk.path).f_favail) as free:
        done = kvmount.Child(stores.flood, mount.mnt, "sglang", jobs, seed).result(300)
    print(f"{len(jobs)} files on {inodes} inodes, at least {free.lowest} free")
    assert done["errors"] == []
    assert free.lowest > 0
    watch.wait_at_rest(mount)
    found = kvmount.run_as(stores.check, mount.mnt, "sglang", jobs, seed)
    assert found["wrong"] == [] and len(found["there"]) > inodes // 2
    watch.wait_calm(mount)
    status = mount.status()
    assert status["dropped"]["room"]["files"] == len(jobs) - len(found["there"])
    assert status["tiers"][0]["budget"]["used"] < 100 * MIB
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text
