"""NIXL's POSIX plugin on a pool as LMCache keeps it (see serve.py): files of one block each, named
obj_<number>_<4 hex digits>.bin, open for as long as the process lives, rewritten in place.

Settings: nixl (its wheel), queue (a parameter of the plugin), root, count, bytes.
"""

import mmap
import os

import numpy as np

import serve
import sglang_nixl

QUEUES = ("use_aio", "use_uring", "use_posix_aio")


class Tier:
    def __init__(self, settings):
        sglang_nixl.import_nixl(settings["nixl"])
        import nixl
        import nixl_cu12._bindings
        self.backend_error = nixl_cu12._bindings.nixlBackendError
        count, size = settings["count"], settings["bytes"]
        self.memory = np.frombuffer(mmap.mmap(-1, count * size), np.uint8).reshape(count, size)
        self.agent = nixl.nixl_agent("pool", nixl.nixl_agent_config(backends=[]))
        self.agent.create_backend("POSIX", {queue: str(queue == settings["queue"]).lower()
                                            for queue in QUEUES})
        self.files = [os.open(os.path.join(settings["root"], f"obj_{number}_{number:04x}.bin"),
                              os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o644)
                      for number in range(count)]
        everything = range(count)
        self.agent.register_memory([(*block, "") for block in self._memory(everything)], "DRAM")
        self.agent.register_memory([(*block, "") for block in self._pool(everything)], "FILE")

    def about(self):
        return self.agent.get_backend_params("POSIX")

    def _memory(self, numbers):
        return [(self.memory[number].ctypes.data, self.memory.shape[1], 0) for number in numbers]

    def _pool(self, numbers):
        return [(0, self.memory.shape[1], self.files[number]) for number in numbers]

    def _transfer(self, direction, numbers):
        handle = self.agent.initialize_xfer(
            direction, self.agent.get_xfer_descs(self._memory(numbers), "DRAM"),
            self.agent.get_xfer_descs(self._pool(numbers), "FILE"), "pool")
        try:
            state = self.agent.transfer(handle)
            while state == "PROC":
                state = self.agent.check_xfer_state(handle)
        except self.backend_error:
            return False
        finally:
            self.agent.release_xfer_handle(handle)
        return state == "DONE"

    def save(self, numbers):
        for number in numbers:
            self.memory[number] = serve.content(number, self.memory.shape[1])
        return self._transfer("WRITE", numbers)

    def load(self, numbers):
        self.memory[numbers] = 0
        good = self._transfer("READ", numbers)
        return [serve.verdict(self.memory[number] if good else None, number)
                for number in numbers]

    def close(self):
        for file in self.files:
            os.close(file)


if __name__ == "__main__":
    serve.serve(Tier)
