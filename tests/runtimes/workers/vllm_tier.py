"""vLLM's filesystem tier, Python and C++: vllm_tier.py WHEEL_DIR ROOT save|load BLOCKS BYTES.

The last line of output is JSON: hits, verified blocks, whether its C++ code and O_DIRECT ran.
"""

import hashlib
import json
import logging
import mmap
import os
import sys
import time
import types

import numpy as np

import partial_import

BLOCKS_PER_JOB = 16
DEADLINE_S = 120


def import_tier(wheel):
    partial_import.small_torch()
    offloading = "vllm.distributed.kv_transfer.kv_connector.v1.offloading"
    parts = offloading.split(".")
    for name in ["vllm.v1", "vllm.v1.metrics"] + [".".join(parts[:n + 1])
                                                  for n in range(len(parts))]:
        partial_import.package(name, wheel)
    partial_import.module("vllm.logger", init_logger=logging.getLogger)
    partial_import.module(offloading + ".canonical_mapping", canonical_format_id=None)
    partial_import.empty_libraries(os.path.join(wheel, "empty"),
                                   ["libtorch.so", "libtorch_cpu.so", "libc10.so"])
    from vllm.v1.kv_offload import base, config
    from vllm.v1.kv_offload.tiering import base as tiering
    from vllm.v1.kv_offload.tiering.fs import io, manager
    return base, config, tiering, io, manager


def make_tier(config, manager, root, memory, block_bytes):
    settings = config.OffloadingConfig(
        groups=(config.OffloadingGroupConfig(16, ("layer",), 0),),
        worker_kv_bytes_per_block=block_bytes, enable_kv_cache_events=False, extra_config={},
        engine_id="engine",
        model=config.OffloadingModelConfig("meta-llama/Llama-3.1-8B", "bfloat16"),
        cache=config.OffloadingCacheConfig(16, 1),
        parallel=config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True))
    spec = types.SimpleNamespace(config=settings, blocks_per_chunk=1, kv_events_config=None)
    return manager.FileSystemTierManager(spec, memory, "fs", root_dir=root)


def block(number, size):
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


def look_up(tier, base, tiering, keys, request):
    """Verdict of every key; the tier answers RETRY until its lookup thread has run."""
    deadline = time.monotonic() + DEADLINE_S
    tier.on_new_request(request)
    while True:
        verdicts = [tier.lookup(key, request) for key in keys]
        tier.on_schedule_end(tiering.ScheduleEndContext((), ()))
        if base.LookupResult.RETRY not in verdicts:
            return verdicts
        if time.monotonic() > deadline:
            sys.exit("lookup does not end")
        time.sleep(0.001)


def transfer(tier, tiering, submit, keys, is_load, request):
    waiting, good = set(), True
    for first in range(0, len(keys), BLOCKS_PER_JOB):
        part = keys[first:first + BLOCKS_PER_JOB]
        submit(tiering.TransferJob(first, part, np.arange(first, first + len(part)), is_load,
                                   request))
        waiting.add(first)
    deadline = time.monotonic() + DEADLINE_S
    while waiting:
        for result in tier.get_finished_jobs():
            waiting.discard(result.job_id)
            good = good and result.success
        if time.monotonic() > deadline:
            sys.exit("transfer does not end")
        time.sleep(0.001)
    return good


def main():
    wheel, root, mode, count, size = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    base, config, tiering, io, manager = import_tier(wheel)
    memory = np.frombuffer(mmap.mmap(-1, count * size), np.uint8).reshape(count, size)
    tier = make_tier(config, manager, root, memoryview(memory), size)
    request = base.ReqContext("request")
    keys, digest = [], b""
    for number in range(count):
        digest = hashlib.sha256(digest + number.to_bytes(8, "little")).digest()
        keys.append(base.make_offload_key(digest, 0))

    answer = {"cpp": io._HAS_FSIO_C, "o_direct": tier._use_o_direct}
    if mode == "save":
        for number in range(count):
            memory[number] = block(number, size)
        answer["ok"] = transfer(tier, tiering, tier.submit_store, keys, False, request)
    else:
        verdicts = look_up(tier, base, tiering, keys, request)
        answer["hits"] = sum(verdict == base.LookupResult.HIT for verdict in verdicts)
        answer["ok"] = transfer(tier, tiering, tier.submit_load, keys, True, request)
        answer["verified"] = sum(np.array_equal(memory[number], block(number, size))
                                 for number in range(count))
    tier.shutdown()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
