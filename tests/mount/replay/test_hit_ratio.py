"""The hit ratio that `status` shows is the one that the runtime has: for every layout, by the calls of
its runtime, by model and in all."""

import os
import random
import threading
import urllib.request

import pytest

import kvmount
from replay_engines import (AibrixShfs, LlamaCppSlot, LlmdFs, MooncakeFilePerKey, SglangFile, SglangNixl,
                            TrtExample, VllmExample, VllmFsTier)
from replay_lmcache import (LmcacheFsConnector, LmcacheFsNative, LmcacheGds, LmcacheLocalDirect,
                            LmcacheLocalDisk, LmcacheMpFs, NixlDynamic, NixlNative, NixlStoreDynamic)

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 counts no hits")

SEED = kvmount.seed()
KEYS = 1000 if kvmount.FULL else 100


def named(kind, path):
    """The runtime with the names that it gives to files, by which the mount knows its blocks; `path(root, hash)`."""
    return type(kind.__name__, (kind,), {"path": lambda self, key: path(self.root, self.hash(key))})


def gds_path(root, h):
    digits = str(int(h, 16))
    return f"{root}/{digits[:2]}/{digits[2:4]}/m%401%400%40{h}%40bfloat16.kvcache.safetensors"


NIXL = [named(kind, lambda root, h: f"{root}/m_01000100_0_{h}.bin")
        for kind in (NixlDynamic, NixlStoreDynamic, NixlNative)]
LLMD = named(LlmdFs, lambda root, h: f"{root}/m_1a2b3c4d5e6f_r0/{h[:3]}/{h[3:5]}_g0/{h}.bin")
LMCACHE_FS = named(LmcacheFsConnector, lambda root, h: f"{root}/m@2@0@{h[:16]}@bfloat16.data")
MOONCAKE = named(MooncakeFilePerKey, lambda root, h: f"{root}/{chr(97 + int(h[0], 16))}/"
                                                     f"{chr(97 + int(h[1], 16))}/{h}_k")
GDS = named(LmcacheGds, gds_path)
# Runtimes whose names nobody would recognise untold.
TOLD = {VllmExample: b"vllm_example", TrtExample: b"tensorrt_example", AibrixShfs: b"aibrix",
        LlamaCppSlot: b"llama_cpp"}
LOOK_BEFORE_THEY_STORE = {VllmFsTier, LLMD, LmcacheMpFs, SglangFile}
# Pools and buckets are missing: their runtimes ask an index of their own.
KINDS = [VllmFsTier, LLMD, LmcacheLocalDisk, LmcacheLocalDirect, LMCACHE_FS, LmcacheMpFs,
         LmcacheFsNative, GDS, *NIXL, SglangFile, SglangNixl,
         TrtExample, VllmExample, MOONCAKE, AibrixShfs, LlamaCppSlot]


def serve_one(scenario, key):
    """A request: true when the block was there."""
    if scenario.probe(key):
        assert scenario.load(key), key
        return True
    scenario.store(key)
    return False


def by_one_thread(scenario, keys):
    return sum(serve_one(scenario, key) for key in keys)


def by_one_that_asks_first(scenario, keys):
    """One thread asks for eight blocks, and another one stores and loads them then."""
    hits = 0
    for at in range(0, len(keys), 8):
        batch = keys[at:at + 8]
        found = [scenario.probe(key) for key in batch]
        hits += sum(found)
        errors = []

        def work(batch=batch, found=found, errors=errors):
            try:
                for key, is_there in zip(batch, found):
                    if is_there:
                        assert scenario.load(key), key
                    else:
                        scenario.store(key)
            except Exception as error:  # Raised below.
                errors.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        if errors:
            raise errors[0]
    return hits


def by_many_threads(scenario, keys):
    found = []
    threads = [threading.Thread(target=lambda mine=keys[at::8]: found.append(by_one_thread(scenario, mine)))
               for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(threads)
    return sum(found)


WAYS = [by_one_thread, by_one_that_asks_first, by_many_threads]


def counted(mount):
    """((hits, misses) of all, (hits, misses) of blocks)"""
    status = mount.status()
    return ((status["lookups"]["hit"], status["lookups"]["miss"]),
            (sum(model["hits"] for model in status["models"]),
             sum(model["misses"] for model in status["models"])))


def run(kind, way, root, keys):
    scenario = kind(root, SEED)
    scenario.prepare()
    hits = way(scenario, keys)
    scenario.finish()
    return hits


@pytest.mark.short
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_half_of_the_blocks_are_there(mounts, kind):
    print(f"KVCACHEFS_SEED={SEED}")
    mount = mounts()
    keys = list(range(KEYS))
    random.Random(SEED).shuffle(keys)
    for way in WAYS:
        root = f"{mount.mnt}/{way.__name__}"
        os.mkdir(root)
        if kind in TOLD:
            os.setxattr(root, "user.kvcachefs.layout", TOLD[kind])
        scenario = kind(root, SEED)
        scenario.prepare()
        for key in keys[:KEYS // 2]:
            scenario.store(key)
        scenario.finish()
    mount.wait_sealed(60)
    asked = len(WAYS) * KEYS // 2 if kind in LOOK_BEFORE_THEY_STORE else 0
    assert counted(mount) == ((0, asked), (0, asked)), "what is stored unasked was not looked up"
    mount.remount()
    for way in WAYS:
        shuffled = list(keys)
        random.Random(f"{SEED}{way.__name__}").shuffle(shuffled)
        before = counted(mount)
        child = kvmount.Child(run, kind, way, f"{mount.mnt}/{way.__name__}", shuffled)
        try:
            assert child.result(120) == KEYS // 2
        finally:
            child.end()
        after = counted(mount)
        for what, old, new in zip(("all", "blocks"), before, after):
            hits, misses = new[0] - old[0], new[1] - old[1]
            assert abs(hits - KEYS // 2) + abs(misses - KEYS // 2) <= KEYS // 100, (
                way.__name__, what, f"{hits} hits, {misses} misses of {KEYS // 2} each")


@pytest.mark.short
def test_tenants_and_metrics_say_the_same(mounts):
    port = kvmount.free_port()
    mount = mounts(options=["--metrics", str(port)])
    roots = {}
    for tenant, stored in (("often", 30), ("seldom", 10)):
        roots[tenant] = f"{mount.mnt}/{tenant}"
        os.mkdir(roots[tenant])
        os.setxattr(roots[tenant], "user.kvcachefs.quota", b"1GiB")
        scenario = VllmFsTier(roots[tenant], SEED)
        scenario.prepare()
        for key in range(stored):
            scenario.store(key)
    mount.wait_sealed(60)
    mount.remount()
    for root in roots.values():
        run(VllmFsTier, by_one_thread, root, list(range(40)))
    status = mount.status()
    assert {tenant["path"]: (tenant["hits"], tenant["misses"]) for tenant in status["tenants"]} == {
        "often": (30, 10), "seldom": (10, 30)}
    assert status["hit_ratio"] == 0.5 and [model["hit_ratio"] for model in status["models"]] == [0.5]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert 'kvcachefs_lookups_total{result="hit"} 40' in lines
    assert 'kvcachefs_lookups_total{result="miss"} 40' in lines
    of_tenants = [line for line in lines if line.startswith("kvcachefs_tenant_lookups_total{")]
    assert sorted(int(line.rsplit(" ", 1)[1]) for line in of_tenants) == [10, 10, 30, 30], of_tenants
