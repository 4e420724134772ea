"""Every runtime's calls on the mount: store, verify, remount and verify, kill -9 and verify."""

import os
import random
import threading

import pytest

import kvmount
from replay_engines import (AibrixShfs, LlamaCppSlot, LlmdFs, MooncakeBucket,
                            MooncakeFilePerKey, SglangFile, SglangNixl, TrtExample, VllmExample,
                            VllmFsTier)
from replay_lmcache import (LmcacheFsConnector, LmcacheFsNative, LmcacheGds, LmcacheLocalDirect,
                            LmcacheLocalDisk, LmcacheMpFs, NixlDynamic, NixlNative, NixlStatic,
                            NixlStoreDynamic)
from replay_pools import Kvbm, MooncakeOffset, SglangHf3fs, TrtV2, VllmSimpleDisk

ALL = [VllmFsTier, LlmdFs, LmcacheLocalDisk, LmcacheLocalDirect, LmcacheFsConnector, LmcacheMpFs,
       LmcacheFsNative, LmcacheGds, NixlStatic, NixlDynamic, NixlStoreDynamic, NixlNative,
       SglangFile, SglangNixl, SglangHf3fs, VllmSimpleDisk, Kvbm, TrtV2, TrtExample, VllmExample,
       MooncakeFilePerKey, MooncakeBucket, MooncakeOffset, AibrixShfs, LlamaCppSlot]
SEED = kvmount.seed()
KEYS = 512 if kvmount.FULL else 32


def on_threads(count, keys, operation):
    """operation(key) for every key on `count` threads; raises the first error."""
    errors = []
    start = threading.Barrier(count)

    def worker(number):
        try:
            start.wait(60)
            for key in keys[number::count]:
                operation(key)
        except Exception as error:  # Handed to the caller below.
            errors.append(error)

    threads = [threading.Thread(target=worker, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def present(scenario):
    """load() that takes no miss for an answer."""
    def check(key):
        assert scenario.probe(key), f"{scenario.name}: key {key} is gone (probe)"
        assert scenario.load(key), f"{scenario.name}: key {key} is gone (load)"
    return check


def verify(kind, root, keys, threads=8):
    """What a freshly started process sees."""
    scenario = kind(root, SEED)
    scenario.prepare()
    try:
        on_threads(threads, keys, present(scenario))
        scenario.check_directory(keys)
    finally:
        scenario.finish()


def store_and_verify(kind, root, keys, threads, alone=True):
    """One process's life. Beside another that stores the same keys only what is its own can be
    verified: most direct writers truncate a file that is there.
    """
    scenario = kind(root, SEED)
    scenario.prepare()
    try:
        random.Random(SEED).shuffle(keys)
        on_threads(threads, keys, scenario.store)
        if alone or not kind.lasting:
            on_threads(threads, keys, present(scenario))
    finally:
        scenario.finish()


@pytest.mark.parametrize("kind", ALL, ids=lambda k: k.name)
@pytest.mark.parametrize("threads", [1, pytest.param(16, marks=[pytest.mark.short, pytest.mark.promise(1)]), 64])
def test_threads(shared_mount, kind, threads):
    root = f"{shared_mount.mnt}/{kind.name}-{threads}"
    keys = list(range(max(KEYS, threads)))
    print(f"KVCACHEFS_SEED={SEED}")
    store_and_verify(kind, root, list(keys), threads)
    if kind.lasting:
        verify(kind, root, keys, threads)


@pytest.mark.parametrize("kind", ALL, ids=lambda k: k.name)
def test_two_processes(shared_mount, kind):
    """8 threads each; the middle third of the keys is stored by both where the runtime may."""
    root = f"{shared_mount.mnt}/{kind.name}-2x8"
    keys = list(range(KEYS))
    print(f"KVCACHEFS_SEED={SEED}")
    first = kind(root, SEED)  # A pool file is made by one of them.
    first.prepare()
    first.finish()
    low, high = (KEYS // 3, 2 * KEYS // 3) if kind.collides else (KEYS // 2, KEYS // 2)
    children = [kvmount.Child(store_and_verify, kind, root, part, 8, False)
                for part in (keys[:high], keys[low:])]
    try:
        for child in children:
            child.result(60)
    finally:
        for child in children:
            child.end()
    if kind.lasting:
        verify(kind, root, keys)


MIB = 1 << 20
REAL_SIZES = [(VllmFsTier, 5 * MIB), (LmcacheMpFs, 17_989_632), (LmcacheGds, 20 * MIB),
              (LmcacheLocalDirect, 32 * MIB), (NixlNative, 10 * MIB), (SglangFile, 8 * MIB),
              (MooncakeBucket, 24 * MIB + 1000), (LlamaCppSlot, 16 * MIB + 12)]


@pytest.mark.parametrize("kind,size", REAL_SIZES,
                         ids=lambda v: v.name if isinstance(v, type) else str(v))
def test_real_sizes(shared_mount, kind, size):
    """Unscaled blocks: each read and write is many requests, or many pages of a mapping."""
    real = of_size(kind, size)
    keys = list(range(8 if kvmount.FULL else 2))
    root = f"{shared_mount.mnt}/{kind.name}-real"
    store_and_verify(real, root, list(keys), 2)
    verify(real, root, keys, 2)


def of_size(kind, size):
    return type(kind.__name__, (kind,), {"size": size})


@pytest.fixture(scope="module")
def survivors(shared_mount):
    """[(scenario class, directory, keys)] that are stored on this mount: of every runtime whose
    files outlive it, and unscaled blocks."""
    chosen = [(kind, f"{kind.name}-survival", KEYS) for kind in ALL if kind.lasting]
    if not kvmount.SANITIZER:
        chosen += [(of_size(kind, size), f"{kind.name}-real-survival", 2)
                   for kind, size in REAL_SIZES]
    made = []
    for kind, directory, count in chosen:
        root, keys = f"{shared_mount.mnt}/{directory}", list(range(count))
        store_and_verify(kind, root, list(keys), min(16, count))
        made.append((kind, root, keys))
    return made


@pytest.mark.short
@pytest.mark.limit(180)
def test_all_survive_a_remount(shared_mount, survivors):
    shared_mount.remount()
    for kind, root, keys in survivors:
        verify(kind, root, keys)


@pytest.mark.promise(7)
@pytest.mark.short
@pytest.mark.limit(180)
def test_all_survive_a_kill(shared_mount, survivors):
    """Everything here was closed or renamed: a dead daemon loses none of it."""
    fresh = []
    for kind in ALL:  # Beside what is long sealed: files published just before the kill.
        if kind.lasting:
            root = f"{shared_mount.mnt}/{kind.name}-fresh"
            store_and_verify(kind, root, list(range(16)), 4)
            fresh.append((kind, root, list(range(16))))
    shared_mount.crash()
    for kind, root, keys in fresh + survivors:
        verify(kind, root, keys)
    if not kvmount.PLAIN:
        recovery = shared_mount.status()["recovery"]
        assert recovery["kind"] == "daemon", recovery
    shared_mount.stop()
    code, text = shared_mount.fsck()
    shared_mount.start()
    assert code == 0, text


WRITE_ONCE = [VllmFsTier, LlmdFs, LmcacheFsConnector, SglangFile, NixlNative, LmcacheGds,
              TrtExample, MooncakeFilePerKey]
REPORTS = (400 if kvmount.FULL else 30) * len(WRITE_ONCE)  # Published files before the kill.


def store_until_it_fails(root, writer):
    """Stores keys of every write-once layout and reports each one after its rename or close."""
    scenarios = [kind(f"{root}/{kind.name}", SEED) for kind in WRITE_ONCE]
    for scenario in scenarios:
        scenario.prepare()

    def worker(number):
        scenario = scenarios[number]
        for key in range(100_000):
            try:
                scenario.store(key)
            except OSError:
                return  # The daemon is dead.
            os.write(writer, b"%d %d\n" % (number, key))

    threads = [threading.Thread(target=worker, args=(n,)) for n in range(len(scenarios))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.gate
@pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no daemon to kill")
def test_killed_in_the_middle_of_stores(mounts, data_path):
    """What was reported before the kill is there; what was not is whole or absent."""
    mount = mounts(data_path=data_path)
    print(f"KVCACHEFS_SEED={SEED}")
    reader, writer = os.pipe()
    child = kvmount.Child(store_until_it_fails, mount.mnt, writer)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as reports:
            lines = [reports.readline() for _ in range(REPORTS)]
            mount.kill(unmount=False)  # Else the stores would go on in the directory below.
            lines += reports.readlines()
        try:
            child.result(30)
        except RuntimeError as died:  # A store through a mapping of a dead mount is a SIGBUS.
            assert "SIGBUS" in str(died), died
        kvmount.lazy_unmount(mount.mnt)
    finally:
        child.end()
    assert b"" not in lines[:REPORTS], "the stores ended before the kill"
    published = {}
    for line in lines:
        number, key = map(int, line.split())
        published.setdefault(number, set()).add(key)
    mount.start()
    for number, kind in enumerate(WRITE_ONCE):
        scenario = kind(f"{mount.mnt}/{kind.name}", SEED)
        keys = published.get(number, set())
        for key in keys:
            present(scenario)(key)
        for key in range(max(keys, default=0) + 1, max(keys, default=0) + 20):
            if kind is not MooncakeFilePerKey:  # It writes onto the final name.
                scenario.load(key)  # Raises if there is a file and it is not the right one.
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text
