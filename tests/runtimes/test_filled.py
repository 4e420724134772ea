"""Runtimes write five times what the mount may hold, run after run, and keep working: what has been
evicted between their runs is a miss to them, never an error and never other bytes.

Each run is a process of its own, as after a restart of the engine. What it stores is the next part of
the blocks; then it loads those, and another process loads what the run before has stored.
"""

import contextlib
import os

import pytest

import kvmount
import recipes
import runtime
import tiers
from test_llama import ANSWER_TOKENS, PROMPT_TOKENS, assert_continues, converse, model  # A fixture.
from test_mooncake import SIZE, Cluster
from test_storage_classes import SglangFile, SglangNixl, Vllm

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory would be full")

MIB = 1 << 20
BUDGET = 192 * MIB if kvmount.FULL else 96 * MIB
PRESSURE = 5
RUNS = 20 if kvmount.FULL else 10
A_RUN = PRESSURE * BUDGET // RUNS  # Bytes: a quarter of the budget, or half of it.
# Runs follow one another at once: of a minute, the default, all that there is would be leased, and nothing
# but what was just stored could go.
LEASE_S = 1


@pytest.fixture
def filling(request):
    """A mount with a small budget, on a disk of its own."""
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(kvmount.LoopFs("ext4", size=8 * BUDGET))
        mount = kvmount.Mount(request.node.originalname, size=BUDGET,
                              nvme=os.path.join(disk.path, "nvme"),
                              options=["--lease", f"{LEASE_S}s"]).create()
        stack.callback(mount.close)
        mount.start()
        yield mount
        mount.stop()


@pytest.fixture
def running():
    """What is in the list is called at the end."""
    ends = []
    yield ends
    for end in ends:
        end()


def dropped(mount):
    return mount.status()["dropped"]["room"]["files"]


def assert_nothing_went_wrong(mount):
    counts = mount.status()["counts"]
    assert (counts["poisoned"], counts["damaged"], counts["lost"]) == (0, 0, 0)


def assert_well(mount):
    """Room was made, and that is all that happened."""
    assert dropped(mount) > 0
    assert_nothing_went_wrong(mount)
    assert mount.status()["tiers"][0]["budget"]["used"] <= BUDGET


def by_size(kind, size):
    """The runtime with so many blocks of that size."""
    return type(kind.__name__, (kind,), {"blocks": PRESSURE * BUDGET // size, "size": size})


@pytest.mark.parametrize("kind", [Vllm, SglangFile, SglangNixl], ids=lambda kind: kind.runtime)
def test_storage_classes(kind, filling, running, venv_python):
    kind = by_size(kind, MIB)
    recipe = recipes.Recipe(kind.runtime, filling.mnt)
    script, settings = kind.command(recipe)
    settings = {**settings, "count": kind.blocks, "bytes": kind.size}

    def start():
        tier = tiers.Tier(venv_python, script, settings, recipe.environment)
        running.append(tier.kill)
        return tier.ready()

    step = A_RUN // kind.size
    misses = hits = 0
    for run in range(RUNS):
        new = range(run * step, (run + 1) * step)
        filling.wait_for_the_ends_of_leases(20 * LEASE_S)
        with start() as tier:
            assert tier.ask("find", new) == 0
            assert tier.ask("save", new)
            assert tier.ask("find", new) == step
            assert tier.ask("load", new) == ["right"] * step
            # The next turn looks its prompt up, when the kernel has forgotten the names: one burst,
            # however long the stores have taken.
            filling.wait_for_the_ends_of_leases(20 * LEASE_S)
            assert tier.ask("find", new) == step
        if run == 0:
            continue
        with start() as tier:  # What has gone of the last run's are the ends of its prefix.
            last = range(new.start - step, new.start)
            found = tier.ask("find", last)
            assert tier.ask("load", last[:found]) == ["right"] * found
            behind = tier.ask("load", last[found:])  # A whole batch may be a miss for one.
            assert set(behind) <= {"right", "absent"}
            hits += found
            misses += step - found
        if run == RUNS // 2:
            filling.remount()
    print(f"{hits} blocks found, {misses} missed, {dropped(filling)} files evicted after the remount")
    # Who looks up the run before makes it younger than the last one: of every second run much is there.
    assert hits >= RUNS // 2 * step // 4
    filling.wait_for_the_ends_of_leases(20 * LEASE_S)
    with start() as tier:  # And what is missed is computed and stored again.
        assert tier.ask("find", range(step)) == 0
        assert tier.ask("save", range(step))
        assert tier.ask("load", range(step)) == ["right"] * step
    assert_well(filling)


def test_llama_slots(filling, running, venv_python, model, tmp_path):
    """Slots are kept, unless the directory is told that they may go."""
    slots = recipes.Recipe("llama_cpp", filling.mnt).options["--slot-save-path"]
    os.mkdir(slots)
    os.setxattr(slots, "user.kvcachefs.layout", b"llama_cpp")
    os.setxattr(slots, "user.kvcachefs.policy", b"cache")

    def start():
        server = runtime.Runtime(venv_python, model, slots, 1024,
                                 str(tmp_path / f"runtime-{len(running)}.log"))
        running.append(server.stop)
        return server

    server = start()
    prompt = server.tokenize(runtime.long_prompt(PROMPT_TOKENS))
    conversation, _, size = converse(server, "0.bin", prompt)
    count = PRESSURE * BUDGET // size + 1
    for run in range(4):
        last = (run + 1) * count // 4
        for number in range(run * count // 4, last):
            server.save(f"{number}.bin")
        saved = converse(server, f"{last}.bin", prompt[:1] + prompt[10 + run:])
        server.stop()
        server = start()
        assert_continues(server, f"{last}.bin", *saved)
        if run == 1:
            filling.remount()
    assert not os.path.exists(f"{slots}/0.bin")
    with pytest.raises(runtime.RuntimeFailure, match="HTTP 400"):
        server.restore("0.bin")
    server = start()
    answer = server.complete(conversation, ANSWER_TOKENS)
    assert answer.reused == 0 and answer.evaluated == len(conversation)
    assert_well(filling)


MOONCAKE_BUDGET = 512 * MIB  # It leaves 256 MiB free, wherever it is.


@pytest.mark.full
@pytest.mark.limit(300)  # It offloads once in some seconds; beside two that compute 180 were not enough.
def test_mooncake_buckets(filling, running, venv_python, tmp_path):
    """The mount keeps its files, because the index is in memory: Mooncake's own eviction goes by what
    statfs says. (With a file for each key it makes no room for itself, on any filesystem.)"""
    filling.remount(size=MOONCAKE_BUDGET)
    recipe = recipes.Recipe("mooncake_bucket", filling.mnt)
    objects = PRESSURE * MOONCAKE_BUDGET // SIZE
    directory = recipe.environment["MOONCAKE_OFFLOAD_FILE_STORAGE_PATH"]
    more = {"MOONCAKE_OFFLOAD_BUCKET_MAX_TOTAL_SIZE": str(MOONCAKE_BUDGET * 3 // 4),
            "MOONCAKE_GLOBAL_SEGMENT_SIZE": str(objects // 4 * SIZE)}

    def start():
        cluster = Cluster(venv_python, recipe, [directory],
                          tmp_path / f"master-{len(running)}.log", objects, more)
        running.append(cluster.kill)
        return cluster

    step = objects // 20
    for begin in range(0, objects, step):
        if begin % (5 * step) == 0:
            cluster = start()
            client, = cluster.clients
        new = range(begin, begin + step)
        assert client.ask("save", new)
        assert client.ask("load", new) == ["right"] * step
        if begin % (5 * step) == 4 * step:
            cluster.kill()
            filling.remount()
    cluster = start()
    client, = cluster.clients
    last = range(objects - step, objects)
    kvmount.wait_until(lambda: client.ask("find", last) == step, 20, "the last objects")
    assert client.ask("load", last) == ["right"] * step
    assert client.ask("load", range(step)) == ["absent"] * step
    assert_nothing_went_wrong(filling)
    assert dropped(filling) == 0, "it has room of its own making"
