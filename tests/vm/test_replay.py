"""The calls of runtimes' file backends (tests/mount/replay) on a machine without FUSE, by the kernel's NFS client."""

import pytest

import guest
from machine import USER

pytestmark = pytest.mark.limit(1800)

KEYS = list(range(6))
# Without those that go another way on NFS than their replay: fallocate() with KEEP_SIZE is not supported, f_bsize is large.
KINDS = [("replay_engines", name) for name in
         ("VllmFsTier", "LlmdFs", "TrtExample", "MooncakeFilePerKey", "AibrixShfs", "LlamaCppSlot")]
KINDS += [("replay_lmcache", name) for name in ("LmcacheLocalDisk", "LmcacheFsConnector", "LmcacheMpFs")]


def test_one_process_stores_and_another_loads(vm, client, seed):
    there, here = client
    with vm.worker(uid=USER) as writer:
        for kind in KINDS:
            writer.call(guest.replay, kind, f"{there}/{kind[1]}", seed, KEYS, True)
    vm.drop_caches()
    with vm.worker(uid=USER) as reader:
        for kind in KINDS:
            reader.call(guest.replay, kind, f"{there}/{kind[1]}", seed, KEYS, False)
    for kind in KINDS:  # And on the mount itself.
        vm.call(guest.replay, kind, f"{here}/{kind[1]}", seed, KEYS, False)
