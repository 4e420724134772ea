"""A client of Mooncake's store that offloads to a directory (see serve.py). Everything that
Mooncake reads from the environment comes from there.

Keys are those that SGLang gives it. Settings: wheel, count, bytes.
"""

import os
import sys
import time

import numpy as np

import serve

DEADLINE_S = 60


class Tier:
    def __init__(self, settings):
        sys.path.insert(0, settings["wheel"])
        from mooncake import mooncake_config, store
        config = mooncake_config.MooncakeConfig.load_from_env()
        self.store = store.MooncakeDistributedStore()
        code = self.store.setup({
            "local_hostname": config.local_hostname, "metadata_server": config.metadata_server,
            "global_segment_size": config.global_segment_size,
            "local_buffer_size": config.local_buffer_size, "protocol": config.protocol,
            "rdma_devices": config.device_name,
            "master_server_addr": config.master_server_address,
            "enable_ssd_offload": config.enable_ssd_offload,
            "ssd_offload_path": config.ssd_offload_path})
        if code != 0:
            sys.exit(f"setup: {code}")
        self.size = settings["bytes"]
        self.keys = [key.hex() + "_0_k" for key in serve.keys(settings["count"])]

    def about(self):
        return {}

    def find(self, numbers):
        found = self.store.batch_is_exist([self.keys[number] for number in numbers])
        return [answer == 1 for answer in [*found, 0]].index(False)

    def save(self, numbers):
        """Returns once all are on disk, which the next heartbeat brings about."""
        for number in numbers:
            code = self.store.put(self.keys[number], serve.content(number, self.size).tobytes())
            if code != 0:
                return False
        deadline = time.monotonic() + DEADLINE_S
        while not all(self._on_disk(number) for number in numbers):
            if time.monotonic() > deadline:
                sys.exit("nothing is offloaded")
            time.sleep(0.01)
        return True

    def _on_disk(self, number):
        return any(replica.is_local_disk_replica()
                   for replica in self.store.get_replica_desc(self.keys[number]))

    def load(self, numbers):
        loaded = [self.store.get(self.keys[number]) for number in numbers]
        return [serve.verdict(np.frombuffer(data, np.uint8) if data else None, number)
                for data, number in zip(loaded, numbers)]

    def close(self):
        """Without its threads, which take seconds to end: a process may die at any time."""
        self.store.close()
        os._exit(0)


if __name__ == "__main__":
    serve.serve(Tier)
