"""vLLM's filesystem tier, SGLang's HiCacheFile and its NIXL backend, unmodified, from their wheels.

Each is made with the settings of packaging/recipes.md, the directory being the only thing changed.
Not run by any test, for they need PyTorch: AIBrix, LMCache, the example connectors (tests/mount/replay
makes their calls). Nor other packagings of llama.cpp, which is in test_llama.py: node-llama-cpp, Debian's.
"""

import json
import os

import pytest

import kvmount
import recipes
import tiers
import wheels

ROUNDS = 8  # of two processes that store the same blocks at the same time
FULL_FACTOR = 8 if kvmount.FULL else 1


class Vllm:
    runtime, model = "vllm", "meta-llama_Llama-3.1-8B"
    blocks, size, files = 32 * FULL_FACTOR, 1 << 20, 1
    about = {"cpp": True, "o_direct": True}  # what runs in production, not what it falls back to

    @staticmethod
    def command(recipe):
        config = json.loads(recipe.options["--kv-transfer-config"])["kv_connector_extra_config"]
        (tier,) = config["secondary_tiers"]
        return "vllm_tier", {"wheel": wheels.vllm(), "tier": tier}

    @staticmethod
    def gone_after_lookup(numbers, gone):
        """A job of 16 blocks ends at the first that is not there; what came before it is kept."""
        rest = range(gone, gone - gone % 16 + 16)
        return ["absent" if number in rest else "right" for number in numbers]


class SglangFile:
    runtime, model = "sglang_file", "meta-llama-Llama-3.1-8B"
    blocks, size, files = 16 * FULL_FACTOR, 2 << 20, 1
    about = {}

    @staticmethod
    def command(recipe):
        return "sglang_file", {"wheel": wheels.sglang(), "extra": {}}

    @staticmethod
    def gone_after_lookup(numbers, gone):
        return ["absent" if number == gone else "right" for number in numbers]


class SglangNixl:
    runtime, model = "sglang_nixl", "meta-llama-Llama-3.1-8B"
    blocks, size, files = 16 * FULL_FACTOR, 2 << 20, 2  # keys and values
    about = {"plugin": "POSIX", "path_mode": True, "o_direct": True, "zero_copy": True,
             "cleaner": False}

    @staticmethod
    def command(recipe):
        extra = json.loads(recipe.options["--hicache-storage-backend-extra-config"])
        return "sglang_nixl", {"wheel": wheels.sglang(), "nixl": wheels.nixl(),
                               "extra": extra}

    @staticmethod
    def gone_after_lookup(numbers, gone):
        """NIXL opens the files of a batch or none."""
        return ["absent"] * len(numbers)


@pytest.fixture(params=[Vllm, SglangFile, SglangNixl], ids=lambda kind: kind.runtime)
def kind(request):
    return request.param


@pytest.fixture
def start(kind, place, venv_python):
    """start() begins a process with the storage class on `place`; all are ended at the end."""
    running = []

    def new():
        recipe = recipes.Recipe(kind.runtime, place)
        script, settings = kind.command(recipe)
        tier = tiers.Tier(venv_python, script,
                          {**settings, "count": kind.blocks, "bytes": kind.size},
                          recipe.environment)
        running.append(tier)
        return tier

    yield new
    for tier in running:
        tier.kill()


def load_all(kind, start):
    """In a new process, as after a restart: every block is found, and right."""
    with start().ready() as tier:
        everything = range(kind.blocks)
        assert tier.ask("find", everything) == kind.blocks
        assert tier.ask("load", everything) == ["right"] * kind.blocks


def test_blocks_survive_restart_and_kill(kind, start, place, shared_mount):
    with start().ready() as tier:
        assert kind.about.items() <= tier.about.items(), tier.about
        assert tier.ask("save", range(kind.blocks))
    load_all(kind, start)
    shared_mount.remount()
    load_all(kind, start)
    if not kvmount.PLAIN:
        shared_mount.crash()
        load_all(kind, start)
        load_all(kind, start)
        assert_known(kind, start, place, shared_mount)


def assert_known(kind, start, place, shared_mount):
    """The mount's account of a directory that holds all blocks, and was looked up in order."""
    with start().ready() as tier:
        keys = [tier.ask("key", number=number) for number in range(kind.blocks)]
    known = tiers.by_prefix(place)
    assert known.keys() == set(keys)
    learned, wrong = [], []
    for before, key in zip([None, *keys], keys):
        paths = known[key]
        assert len(paths) == kind.files
        assert {tiers.known(path, "runtime") for path in paths} == {kind.runtime}
        assert {tiers.known(path, "model") for path in paths} == {kind.model}
        assert {tiers.known(path, "policy") for path in paths} == {recipes.policy(kind.runtime)}
        assert set(tiers.files_of_prefix(shared_mount.mnt, key)) == set(paths)
        # A block's second file follows its first, which follows the block before.
        parents = {tiers.known(path, "parent") for path in paths} - {None, key}
        learned.append(parents == {before})
        wrong.append(not parents <= {before})
    assert sum(learned) >= 0.9 * (kind.blocks - 1), learned
    # Runtimes load by several threads: what these swap on a busy machine nobody can tell from outside.
    assert sum(wrong) <= 0.1 * kind.blocks, wrong


def test_two_processes_store_the_same_blocks(kind, start, place):
    """Round by round both are told to store the same blocks before either has answered."""
    # One after the other: SGLang makes its directory when it sees none, and fails when another was faster.
    pair = [start().ready(), start().ready()]
    overlaps = 0
    step = kind.blocks // ROUNDS
    for first in range(0, kind.blocks, step):
        answers, overlap = tiers.together(pair, "save", range(first, first + step))
        assert answers == [True, True]
        overlaps += overlap
    assert overlaps, "they never ran at the same time"
    answers, _ = tiers.together(pair, "load", range(kind.blocks))
    assert answers == [["right"] * kind.blocks] * 2
    for tier in pair:
        tier.end()
    assert not [path for path in tiers.files(place) if ".tmp" in path]
    if not kvmount.PLAIN:
        assert all(len(paths) == kind.files for paths in tiers.by_prefix(place).values())
    load_all(kind, start)


def block_file(place, tier, kind, number):
    """The file of a block, found by what the mount knows; on a plain directory by its name."""
    key = tier.ask("key", number=number)
    if kvmount.PLAIN:
        return next(path for path in tiers.files(place) if key in os.path.basename(path))
    return tiers.by_prefix(place)[key][0]


def test_a_miss_and_a_removed_file(kind, start, place):
    half = kind.blocks // 2
    gone = half // 2
    with start().ready() as tier:
        stored, missing = range(half), range(half, kind.blocks)
        assert tier.ask("save", stored)
        assert tier.ask("find", range(kind.blocks)) == half
        assert tier.ask("find", missing) == 0
        assert tier.ask("load", missing) == ["absent"] * len(missing)
        assert tier.ask("load", stored) == ["right"] * half

        # Removed after it was found: the load says so, and nothing else is wrong.
        assert tier.ask("find", stored) == half
        os.unlink(block_file(place, tier, kind, gone))
        assert tier.ask("load", stored) == kind.gone_after_lookup(stored, gone)
        assert tier.ask("find", stored) == gone
        others = [number for number in stored if number != gone]
        assert tier.ask("find", others) == len(others)
        assert tier.ask("load", others) == ["right"] * len(others)

    with start().ready() as tier:  # A new process agrees, and whoever computes it stores it again.
        assert tier.ask("find", stored) == gone
        assert tier.ask("save", [gone])
        assert tier.ask("find", stored) == half
        assert tier.ask("load", stored) == ["right"] * half
