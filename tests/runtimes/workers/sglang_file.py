"""SGLang's HiCacheFile: sglang_file.py WHEEL_DIR ROOT save|load PAGES BYTES.

The last line of output is JSON: pages found and pages verified.
"""

import hashlib
import json
import sys

import numpy as np

import partial_import

BATCH = 128


def import_backend(wheel):
    partial_import.small_torch()
    for name in ("sglang", "sglang.srt", "sglang.srt.utils", "sglang.srt.mem_cache"):
        partial_import.package(name, wheel)
    partial_import.module("sglang.srt.utils.common", human_readable_int=int)
    from sglang.srt.mem_cache import hicache_storage
    return hicache_storage


def page(number, size):
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


def main():
    wheel, root, mode, count, size = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    storage = import_backend(wheel)
    backend = storage.HiCacheFile(
        storage.HiCacheStorageConfig(0, 1, 0, 1, 0, 1, False, False, True,
                                     "meta-llama/Llama-3.1-8B"), root)
    keys, digest = [], b""
    for number in range(count):
        digest = hashlib.sha256(digest + number.to_bytes(8, "little")).digest()
        keys.append(digest.hex())
    batches = [slice(first, first + BATCH) for first in range(0, count, BATCH)]
    if mode == "save":
        pages = [partial_import.Tensor(page(number, size)) for number in range(count)]
        stored = all(backend.batch_set(keys[part], pages[part]) for part in batches)
        print(json.dumps({"ok": bool(stored)}))
        return
    targets = [partial_import.Tensor(np.zeros(size, np.uint8)) for _ in range(count)]
    found = backend.batch_exists(keys)
    loaded = []
    for part in batches:
        loaded += backend.batch_get(keys[part], targets[part])
    verified = sum(got is not None and np.array_equal(got.numpy(), page(number, size))
                   for number, got in enumerate(loaded))
    print(json.dumps({"found": int(found), "verified": int(verified)}))


if __name__ == "__main__":
    main()
