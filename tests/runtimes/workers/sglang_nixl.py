"""SGLang's HiCacheNixl over NIXL's POSIX plugin (see serve.py), directory from the environment.

A page is a file of keys and one of values, moved by NIXL between the file and the host's KV pool,
which is ours here: two arrays that say where a page lies.
Settings: wheel, nixl (its wheel), extra (--hicache-storage-backend-extra-config), count, bytes.
"""

import mmap
import sys

import numpy as np

import partial_import
import serve
import sglang_file


class Buffer:
    """Memory that NIXL registers: what it asks of a tensor."""

    def __init__(self, array):
        self.array = array

    def data_ptr(self):
        return self.array.ctypes.data

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize


class HostPool:
    """SGLang's pool of pages in memory, in the layout that is moved without a copy."""

    layout = "page_first"
    page_size = 1

    def __init__(self, pages, page_bytes):
        memory = np.frombuffer(mmap.mmap(-1, pages * page_bytes), np.uint8)
        self.pages = memory.reshape(pages, 2, page_bytes // 2)
        self.kv_buffer = Buffer(memory)

    def is_stride_page_aligned(self, alignment):
        return self.pages.strides[1] % alignment == 0 and self.pages.ctypes.data % alignment == 0

    def get_page_buffer_meta(self, pages):
        halves = [self.pages[page, half] for page in pages.numpy() for half in (0, 1)]
        return [half.ctypes.data for half in halves], [half.size for half in halves]


def import_nixl(wheel):
    """The package `nixl` of PyPI is a few lines that hand on this one."""
    sys.path.insert(0, wheel)
    import nixl_cu12
    import nixl_cu12._api
    sys.modules["nixl"], sys.modules["nixl._api"] = nixl_cu12, nixl_cu12._api


class Tier:
    def __init__(self, settings):
        import_nixl(settings["nixl"])
        storage = sglang_file.import_storage(settings["wheel"])
        partial_import.module("sglang.srt.mem_cache.pool_host", HostKVCache=HostPool)
        partial_import.module("sglang.srt.mem_cache.storage.mmap", alloc_mmap=None)
        from sglang.srt.mem_cache.storage.nixl import hicache_nixl
        self.keys = [key.hex() for key in serve.keys(settings["count"])]
        self.backend = hicache_nixl.HiCacheNixl(
            sglang_file.storage_config(storage, settings["extra"]))
        self.pool = HostPool(settings["count"], settings["bytes"])
        self.backend.register_mem_pool_host(self.pool)

    def about(self):
        return {"plugin": self.backend.backend_selector.backend_name,
                "path_mode": self.backend.registry.path_mode,
                "o_direct": self.backend.file_manager.use_direct_io,
                "zero_copy": self.backend.is_zero_copy,
                "cleaner": self.backend._l3_cleaner is not None}

    def key(self, number):
        return self.keys[number]

    def find(self, numbers):
        return int(self.backend.batch_exists([self.keys[number] for number in numbers]))

    def save(self, numbers):
        for number in numbers:
            page = self.pool.pages[number]
            page[:] = serve.content(number, page.size).reshape(page.shape)
        return all(self.backend.batch_set_v1([self.keys[number] for number in numbers],
                                             partial_import.Tensor(np.array(numbers))))

    def load(self, numbers):
        self.pool.pages[numbers] = 0
        loaded = self.backend.batch_get_v1([self.keys[number] for number in numbers],
                                           partial_import.Tensor(np.array(numbers)))
        return [serve.verdict(self.pool.pages[number].reshape(-1) if good else None, number)
                for number, good in zip(numbers, loaded)]

    def close(self):
        self.backend.close()


if __name__ == "__main__":
    serve.serve(Tier)
