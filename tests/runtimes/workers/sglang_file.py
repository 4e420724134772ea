"""SGLang's HiCacheFile (see serve.py). Its directory comes from the environment, as in SGLang.

Settings: wheel, extra (--hicache-storage-backend-extra-config), count, bytes.
"""

import numpy as np

import partial_import
import serve

PAGES_PER_BATCH = 128


def import_storage(wheel):
    partial_import.small_torch()
    for name in ("sglang", "sglang.srt", "sglang.srt.utils", "sglang.srt.mem_cache",
                 "sglang.srt.mem_cache.storage"):
        partial_import.package(name, wheel)
    partial_import.module("sglang.srt.utils.common", human_readable_int=int)
    from sglang.srt.mem_cache import hicache_storage
    return hicache_storage


def storage_config(storage, extra):
    return storage.HiCacheStorageConfig(
        tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
        is_mla_model=False, enable_storage_metrics=False, is_page_first_layout=True,
        model_name=serve.MODEL, extra_config=extra)


class Tier:
    def __init__(self, settings):
        storage = import_storage(settings["wheel"])
        self.size = settings["bytes"]
        self.keys = [key.hex() for key in serve.keys(settings["count"])]
        self.backend = storage.HiCacheFile(storage_config(storage, settings["extra"]))

    def about(self):
        return {"directory": self.backend.file_path}

    def key(self, number):
        return self.keys[number]

    def find(self, numbers):
        return int(self.backend.batch_exists([self.keys[number] for number in numbers]))

    def save(self, numbers):
        return all(
            self.backend.batch_set([self.keys[number] for number in part],
                                   [partial_import.Tensor(serve.content(number, self.size))
                                    for number in part])
            for part in _batches(numbers))

    def load(self, numbers):
        verdicts = []
        for part in _batches(numbers):
            targets = [partial_import.Tensor(np.zeros(self.size, np.uint8)) for _ in part]
            loaded = self.backend.batch_get([self.keys[number] for number in part], targets)
            verdicts += [serve.verdict(None if got is None else got.numpy(), number)
                         for number, got in zip(part, loaded)]
        return verdicts

    def close(self):
        pass


def _batches(numbers):
    return [numbers[first:first + PAGES_PER_BATCH]
            for first in range(0, len(numbers), PAGES_PER_BATCH)]


if __name__ == "__main__":
    serve.serve(Tier)
