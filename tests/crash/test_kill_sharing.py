"""kill -9 of a daemon or of the server while several mounts publish, fetch, evict and remove on one
pool: on every node each name is whole and right, or a miss; nobody but who used the killed mount sees
an error; and what was queued is done afterwards.

The names say what is in the files, so that any of them can be checked at any time. `config.json` does
not: it is one of the versions that were stored, whole.
"""

import errno
import hashlib
import json
import os
import random
import threading
import time

import pytest

import crashes
import kvmount
import pools

MIB = 1 << 20
ROUNDS = crashes.count(full=200, normal=20, short=4)
NODES = 3
WORKERS = 2  # of each node
BLOCKS = 80
# About half of what the blocks add up to: the pool evicts all the time.
POOL_SIZE = 24 * MIB
# What a call on a mount whose daemon was killed may say.
# makedirs() takes a directory that does not answer for a file.
DEAD = {errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED, errno.EIO, errno.EEXIST}


def block_data(number):
    chance = random.Random(number)
    return chance.randbytes(chance.choice([1, 5000, 300_000, MIB, 2 * MIB]))


def config_data(version):
    text = json.dumps({"version": version, "padding": "x" * 20_000})
    return json.dumps({"text": text, "sum": hashlib.sha256(text.encode()).hexdigest()}).encode()


def is_config(data):
    try:
        whole = json.loads(data)
        return hashlib.sha256(whole["text"].encode()).hexdigest() == whole["sum"]
    except (ValueError, KeyError):
        return False


class Load:
    """What the workers of one node do, and what they saw that must not be."""

    def __init__(self, mount, seed):
        self.mount = mount
        self.seed = seed
        self.wrong = []
        self.ending = False
        self.dying = False
        self.loads = self.hits = 0
        self.threads = []

    def start(self):
        self.ending = self.dying = False
        self.threads = [threading.Thread(target=self._run, args=(worker,), daemon=True)
                        for worker in range(WORKERS)]
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join(60 * kvmount.SLOWNESS)
            assert not thread.is_alive(), f"a call on {self.mount.name} does not come back"

    def _run(self, worker):
        chance = random.Random(self.seed * 100 + worker)
        self.seed += 1
        while not self.ending:
            try:
                self._act(chance, worker)
            except FileNotFoundError:
                pass
            except OSError as error:
                if self.dying and error.errno in DEAD:
                    return
                self.wrong.append(f"{self.mount.name}: {error}")
                return

    def _act(self, chance, worker):
        number = chance.randrange(BLOCKS)
        directory = os.path.join(self.mount.mnt, f"model-{number % 4}")
        path = os.path.join(directory, pools.block(number))
        act = chance.random()
        if act < 0.5:
            self.check(number, path)
        elif act < 0.85:
            self.store(path, block_data(number), worker)
        elif act < 0.9:
            os.unlink(path)
        elif act < 0.95:
            self.store(os.path.join(self.mount.mnt, "config.json"),
                       config_data(chance.randrange(1 << 30)), worker)
        else:
            os.listdir(directory)

    @staticmethod
    def store(path, data, worker):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{worker}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, path)

    def check(self, number, path):
        self.loads += 1
        with open(path, "rb") as file:
            if file.read() != block_data(number):
                self.wrong.append(f"{self.mount.name}: wrong bytes of {path}")
        self.hits += 1


def check_all(nodes):
    """Each name on each node is right, or not there."""
    for mount in nodes:
        for number in range(BLOCKS):
            path = os.path.join(mount.mnt, f"model-{number % 4}", pools.block(number))
            try:
                with open(path, "rb") as file:
                    assert file.read() == block_data(number), f"wrong bytes: {path}"
            except FileNotFoundError:
                pass
        try:
            with open(os.path.join(mount.mnt, "config.json"), "rb") as file:
                assert is_config(file.read()), f"config.json of {mount.name}"
        except FileNotFoundError:
            pass


def evictions(nodes):
    """Of the pool, by these runs of the daemons."""
    return sum(pools.state(mount)["evicted"] for mount in nodes)


def check_pool(pool, mount):
    """What stands there is whole, whoever reads it, and nothing is left over."""
    for number in range(BLOCKS):
        path = pool.path(f"model-{number % 4}", pools.block(number))
        try:
            with open(path, "rb") as file:
                assert file.read() == block_data(number), f"wrong bytes: {path}"
        except FileNotFoundError:
            pass
    done = mount.cli("pool", "check", "--read", pool.uri)
    assert done.returncode == 0, done
    left = [os.path.join(where, name)
            for where, _, names in os.walk(pool.path(".kvcachefs", "tmp")) for name in names]
    assert left == []


@pytest.mark.limit(900 if kvmount.FULL else 240)
@pytest.mark.parametrize("kind", [pytest.param("nfs", marks=pytest.mark.promise(1, 7)), "dir"])
def test_everything_is_right_whoever_is_killed(kind):
    seed = kvmount.seed()
    print(f"KVCACHEFS_SEED={seed}")
    chance = random.Random(seed)
    options = ["--pool-size", str(POOL_SIZE), "--lease", "1s"]
    rounds = ROUNDS if kind == "nfs" else max(2, ROUNDS // 4)
    with pools.Pool(kind, own=True) as pool, \
            pools.node(pool, "a", options=options) as a, \
            pools.node(pool, "b", options=options) as b, \
            pools.node(pool, "c", options=options) as c:
        nodes = [a, b, c][:NODES]
        pools.wait_until_joined(*nodes)
        loads = [Load(mount, seed + 1000 * at) for at, mount in enumerate(nodes)]
        killed = {"server": 0, "node": 0}
        evicted = 0
        for round_number in range(rounds):
            for one in loads:
                one.start()
            # When it happens; nothing is waited for, but in the last round, in which the pool evicts.
            time.sleep(chance.uniform(2, 4) if round_number % 4 == 3 else chance.uniform(0.05, 0.8))
            if round_number == rounds - 1:
                kvmount.wait_until(lambda: evictions(nodes) > 0, 60, "evictions of the pool")
            evicted += evictions(nodes)
            victim = chance.choice(loads + ([pool] if kind == "nfs" else []))
            if victim is pool:
                killed["server"] += 1
                pool.kill()
                time.sleep(chance.uniform(0, 0.5))
                pool.up()
            else:
                killed["node"] += 1
                victim.dying = True
                victim.mount.kill(unmount=False)
                victim.ending = True
                victim.join()
                victim.mount.kill()
                victim.mount.start()
            for one in loads:
                one.ending = True
            for one in loads:
                one.join()
                assert one.wrong == []
            check_all(nodes)
        print(f"killed: {killed}, loads: {sum(one.loads for one in loads)}, "
              f"hits: {sum(one.hits for one in loads)}, evictions seen: {evicted}")
        assert sum(one.hits for one in loads) > 0 and evicted > 0
        for mount in nodes:
            done = mount.cli("flush", "--timeout", "30s", mount.mnt)
            assert done.returncode == 0, (done, pools.state(mount))
        # What a kill has left is swept by the next start.
        for mount in nodes:
            mount.stop()
            mount.start()
        pools.wait_until_joined(*nodes)
        kvmount.wait_until(lambda: pools.users_bytes(pool) <= POOL_SIZE * 9 // 10, 60,
                           "the pool is within its size")
        check_all(nodes)
        check_pool(pool, a)
