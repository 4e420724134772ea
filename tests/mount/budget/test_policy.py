"""A trace played as the calls of a runtime on a mount that holds a part of its blocks: as much of the
prompts is found as the policy's own code finds in simulation.

tests/sim/policy_mount.cc says how.
"""

import gzip
import itertools
import json
import os
import statistics
import subprocess

import pytest

import kvmount
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 evicts nothing")

TRACE = os.path.join(kvmount.TESTS, "data", "traces", "agentic_coding.jsonl.gz")
SAME = 0.02
# Runtime, percent of the blocks that the requests have, how much faster than an engine. What was stored or
# used within the last second stays, at any speed: the more of the mount that is, the worse it chooses.
CASES = ([(runtime, percent, 2) for runtime in ("vllm-all", "fsnative32") for percent in (20, 30)]
         if kvmount.FULL else [("vllm-all", 25, 4)])
REQUESTS = 600 if kvmount.FULL else 300
BYTES = 16 * KIB
SMALLEST = 64 * MIB  # Of a budget.


def distinct_blocks():
    blocks = set()
    with gzip.open(TRACE, "rt") as lines:
        for line in itertools.islice(lines, REQUESTS):
            for first, count in json.loads(line)["hash_runs"]:
                blocks.update(range(first, first + count))
    return len(blocks)


def command(*arguments):
    done = subprocess.run([os.path.join(kvmount.BIN, "policy_mount"), *map(str, arguments)],
                          capture_output=True, text=True, check=False, timeout=2300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Held(watch.Looks):
    """How many blocks the mount held on average, from the first eviction to the end of the `with`."""

    def __init__(self, mount, size):
        super().__init__(self._sample, 0.1)
        self._mount, self._size = mount, size
        self._samples = []

    def _sample(self):
        status = self._mount.status()
        room = status["tiers"][0]["budget"]
        if status["dropped"]["room"]["files"] > 0:
            self._samples.append((room["evictable"] + room["settling"]) // self._size)

    @property
    def blocks(self):
        return round(statistics.mean(self._samples))


@pytest.mark.alone  # Its engines think in real time.
@pytest.mark.limit(2400 if kvmount.FULL else 200)
@pytest.mark.parametrize("runtime,percent,speed", CASES)
def test_a_mount_finds_what_the_policy_finds(limited, seed, runtime, percent, speed):
    blocks = distinct_blocks() * percent // 100
    size = BYTES
    # An eighth of so small a budget is kept free ahead of the writers.
    while blocks * size * 8 // 7 < SMALLEST:
        size *= 2
    budget = blocks * size * 8 // 7
    mount = limited(size=budget, disk=budget + 256 * MIB, options=["--lease", "1s"])
    part = (TRACE, REQUESTS, runtime, 4, seed, speed)
    with Held(mount, size) as held:
        ours = command("play", *part, size, mount.mnt)
    evicted = mount.status()["dropped"]["room"]["files"]
    simulated = command("simulate", *part, held.blocks)
    print(f"{runtime} {percent} % of {REQUESTS} requests' blocks: {held.blocks} of {size // KIB} KiB "
          f"held, {evicted} evicted: {ours}, in simulation {simulated}")
    assert evicted > blocks
    # Where both find the same, nothing is told of the policy.
    assert kvmount.FULL or simulated["chain"] - simulated["lru"] >= .1, "the case proves nothing"
    if kvmount.FULL:
        assert abs(ours["usable"] - simulated["chain"]) <= SAME
    else:
        assert ours["usable"] > (simulated["chain"] + simulated["lru"]) / 2
    watch.wait_calm(mount)
