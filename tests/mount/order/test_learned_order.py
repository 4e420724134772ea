"""A trace played as the calls of runtimes on a mount: the order that the mount learns is the true one.

tests/sim/order_mount.cc says what is scaled. It makes the calls, reads user.kvcachefs.parent of each
block at its second sighting, and plays the same part of the trace in virtual time for comparison.
"""

import json
import os
import subprocess

import pytest

import kvmount

TRACE = os.path.join(kvmount.TESTS, "data", "traces", "mooncake_conversation.jsonl.gz")
# Exact at the second sighting, and on a wrong chain, of the whole trace in simulation: one thread that looks up, 4 workers,
# 32. What threads of a real machine add to it is within SAME.
ONE, FOUR, MANY = (0.99, 0.01), (0.94, 0.01), (0.60, 0.06)
RUNTIMES = {"vllm-all": ONE, "vllm-stop": ONE, "llm-d": ONE, "lmc-fs": ONE, "sglang": ONE,
            "fsnative4": FOUR, "fsnative32": MANY}
SAME = 0.03
CASES = ([(runtime, count) for runtime in RUNTIMES for count in (1, 4, 16)] if kvmount.FULL else
         [("vllm-all", 4), ("fsnative4", 4)])
# With as many requests in flight as that, engines at their real pace; with fewer, or much to store,
# faster ones.
REAL_PACE = 16
REQUESTS = 3000 if kvmount.FULL else 1500  # Of fewer, chains and what is learned are too short.


@pytest.mark.alone  # Its engines think in real time.
@pytest.mark.limit(1500 if kvmount.FULL else 150)
@pytest.mark.skipif(kvmount.PLAIN, reason="ext4 learns nothing")
@pytest.mark.parametrize("runtime,in_flight", CASES)
def test_links_on_a_mount_are_those_of_the_simulation(mounts, seed, runtime, in_flight):
    mount = mounts()
    part = "whole" if runtime == "fsnative32" else "reused"
    speed = 20
    if kvmount.FULL:
        speed = max(REAL_PACE // in_flight, 4 if part == "whole" else 1)
    done = subprocess.run([os.path.join(kvmount.BIN, "order_mount"), mount.mnt, TRACE,
                           str(REQUESTS), runtime, str(in_flight), str(seed),
                           str(speed), part],
                          capture_output=True, text=True, check=False, timeout=2800)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    grades = json.loads(done.stdout)
    exact, wrong = RUNTIMES[runtime]
    ours = grades["mount"]
    assert ours["blocks"] > 5000
    assert ours["coverage"] >= 0.65
    assert ours["exact"] >= exact - SAME
    assert ours["wrong"] <= wrong + SAME
