"""Files of a runtime that has its index in memory stay while it lives, and go first when it has ended."""

import os
import random
import signal

import pytest

import kvmount
import stores
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 knows no writers")

BUDGET = 96 * MIB
FILES, SIZE = 64, 256 * KIB


def name(number):
    """As LMCache's disk backend has it: policy process."""
    return f"meta-llama-Llama-3.1-8B-Instruct@1@0@{0x3f2a0000 + number:x}@bfloat16.pt"


def serve(root, started):
    """An engine that stores, and lives."""
    for number in range(FILES):
        with open(os.path.join(root, name(number)), "wb", buffering=0) as file:
            file.write(bytes([number]) * SIZE)
    os.close(started)
    signal.pause()


def stat_of(paths):
    return [path for path in paths if os.path.exists(path)]


def flood(mount, times, seed):
    jobs = stores.make_jobs(random.Random(seed), int(times * BUDGET), [SIZE])
    done = kvmount.Child(stores.flood, mount.mnt, "vllm", jobs, seed, 4).result(120)
    assert done["errors"] == []


@pytest.fixture(name="engine")
def make_engine():
    """engine(root): a process that has stored and lives; its end() ends it."""
    engines = []

    def start(root):
        started, has_started = os.pipe()
        child = kvmount.Child(serve, root, has_started)
        engines.append(child)
        os.close(has_started)
        assert os.read(started, 1) == b"", "it has stored all"
        os.close(started)
        return child

    yield start
    for child in engines:
        child.end()


def room_evictions(mount):
    return mount.status()["dropped"]["room"]["files"]


@pytest.mark.gate
@pytest.mark.short
def test_what_a_process_wrote_lives_as_long_as_it_and_goes_first_then(limited, engine, seed):
    mount = limited(size=BUDGET, disk=512 * MIB, options=["--lease", "1s"])
    server = engine(mount.mnt)
    paths = [os.path.join(mount.mnt, name(number)) for number in range(FILES)]
    flood(mount, 3, seed)
    assert len(kvmount.run_as(stat_of, paths)) == FILES
    kvmount.wait_until(lambda: "stays: the process that wrote it lives"
                       in mount.cli("explain", paths[0]).stdout, 30, "its seal")
    mount.crash()  # Who wrote what is known afterwards, too.
    kvmount.wait_until(lambda: mount.status()["tiers"][0]["budget"]["used"] is not None, 30,
                       "the count")
    flood(mount, 2, seed + 1)
    assert len(kvmount.run_as(stat_of, paths)) == FILES
    server.end()
    kvmount.wait_until(lambda: "goes first" in mount.cli("explain", paths[0]).stdout, 30,
                       "the end of its writer")
    before = room_evictions(mount)
    flood(mount, 0.1, seed + 2)
    evicted = room_evictions(mount) - before
    left = len(kvmount.run_as(stat_of, paths))
    # All that had to go was theirs, but for what was leased or young just then.
    assert FILES - left >= 0.9 * evicted > 0, (left, evicted)
