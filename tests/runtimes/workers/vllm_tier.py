"""vLLM's filesystem tier, Python and C++, made by vLLM's own factory (see serve.py).

Settings: wheel, tier (an entry of "secondary_tiers"), count, bytes.
"""

import logging
import mmap
import os
import sys
import time
import types

import numpy as np

import partial_import
import serve

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


class Tier:
    def __init__(self, settings):
        import_tier(settings["wheel"])
        from vllm.v1.kv_offload import base, config
        from vllm.v1.kv_offload.tiering import base as tiering, factory
        from vllm.v1.kv_offload.tiering.fs import io
        self.base, self.tiering, self.io = base, tiering, io
        count, size = settings["count"], settings["bytes"]
        self.memory = np.frombuffer(mmap.mmap(-1, count * size), np.uint8).reshape(count, size)
        self.keys = [base.make_offload_key(key, 0) for key in serve.keys(count)]
        engine = config.OffloadingConfig(
            groups=(config.OffloadingGroupConfig(16, ("layer",), 0),),
            worker_kv_bytes_per_block=size, enable_kv_cache_events=False, extra_config={},
            engine_id="engine", model=config.OffloadingModelConfig(serve.MODEL, "bfloat16"),
            cache=config.OffloadingCacheConfig(16, 1),
            parallel=config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True))
        spec = types.SimpleNamespace(config=engine, blocks_per_chunk=1, kv_events_config=None)
        self.tier = factory.SecondaryTierFactory.create_secondary_tier(
            settings["tier"], memoryview(self.memory), spec)
        self.requests, self.request = 0, None
        self.jobs = 0

    def about(self):
        """Whether the code that runs in production does: C++, and O_DIRECT."""
        return {"cpp": self.io._HAS_FSIO_C, "o_direct": self.tier._use_o_direct}

    def key(self, number):
        return self.base.get_offload_block_hash(self.keys[number]).hex()

    def find(self, numbers):
        """How many of the blocks are there before the first that is not."""
        if self.request is not None:  # What it was told counts until it is finished.
            self.tier.on_request_finished(self.request)
        self.requests += 1
        request = self.request = self.base.ReqContext(f"request {self.requests}")
        self.tier.on_new_request(request)
        deadline = time.monotonic() + DEADLINE_S
        while True:  # It answers RETRY until its lookup thread has run.
            found = [self.tier.lookup(self.keys[number], request) for number in numbers]
            self.tier.on_schedule_end(self.tiering.ScheduleEndContext((), ()))
            if self.base.LookupResult.RETRY not in found:
                hits = [verdict == self.base.LookupResult.HIT for verdict in found]
                return (hits + [False]).index(False)
            if time.monotonic() > deadline:
                sys.exit("lookup does not end")
            time.sleep(0.001)

    def _transfer(self, numbers, is_load):
        """The keys of the blocks that were transferred."""
        submit = self.tier.submit_load if is_load else self.tier.submit_store
        jobs, good = {}, []
        for first in range(0, len(numbers), BLOCKS_PER_JOB):
            part = numbers[first:first + BLOCKS_PER_JOB]
            self.jobs += 1
            jobs[self.jobs] = [self.keys[number] for number in part]
            submit(self.tiering.TransferJob(self.jobs, jobs[self.jobs], np.array(part), is_load,
                                            self.base.ReqContext("transfer")))
        deadline = time.monotonic() + DEADLINE_S
        while jobs:
            for result in self.tier.get_finished_jobs():
                sent = jobs.pop(result.job_id)
                good += sent if result.success else list(result.successful_keys or ())
            if time.monotonic() > deadline:
                sys.exit("transfer does not end")
            time.sleep(0.001)
        return good

    def save(self, numbers):
        for number in numbers:
            self.memory[number] = serve.content(number, self.memory.shape[1])
        return len(self._transfer(numbers, is_load=False)) == len(numbers)

    def load(self, numbers):
        self.memory[numbers] = 0
        good = self._transfer(numbers, is_load=True)
        return [serve.verdict(self.memory[number] if self.keys[number] in good else None, number)
                for number in numbers]

    def close(self):
        self.tier.shutdown()


if __name__ == "__main__":
    serve.serve(Tier)
