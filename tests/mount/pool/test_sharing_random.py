"""Random operations on several mounts of one pool, against a model of what may be seen.

Between two barriers a node sees what it did itself, as long as nobody else changed that name; of names
that others change it sees what was there, or anything that was put there since. At a barrier all is
flushed, and from then on all nodes see the same: what the pool has, and that is what somebody did last.
"""

import os
import random

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

NODES = 8 if kvmount.FULL else 3
OPERATIONS = 10_000 if kvmount.FULL else 600
EPOCH = 100  # operations between two barriers
MISSING = None


PATHS = ([f"d{i % 3}/{pools.block(i)}" for i in range(15)] + [f"d{i % 3}/config{i}.json" for i in range(9)]
         + [f"top{i}.json" for i in range(4)])


def load(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return MISSING


class Model:
    def __init__(self, nodes, chance):
        self.nodes = nodes
        self.chance = chance
        self.settled = {path: MISSING for path in PATHS}
        self.version = 0
        self.begin_epoch()

    def begin_epoch(self):
        # By path and node, what it did, in order.
        self.done = {path: {} for path in PATHS}

    def data_of(self, path):
        if "@" in path:
            return random.Random(path).randbytes(1 + hash_of(path) % 400_000)
        self.version += 1
        return b"%d " % self.version * self.chance.choice([1, 1000, 30_000])

    def note(self, node, path, value):
        self.done[path].setdefault(node, []).append(value)

    def is_of_another(self, node, path):
        """Somebody else has changed it since the barrier, and its name does not say what is in it."""
        return "@" not in path and bool(set(self.done[path]) - {node})

    def may_be(self, node, path):
        """What the node may see there."""
        by = self.done[path]
        if set(by) == {node}:
            return [by[node][-1]]
        return [self.settled[path]] + [value for values in by.values() for value in values]

    def step(self):
        node = self.chance.randrange(len(self.nodes))
        path = self.chance.choice(PATHS)
        full = os.path.join(self.nodes[node].mnt, path)
        act = self.chance.random()
        # Of two nodes that replace one file within milliseconds the first may keep its own version: who replaces
        # cannot tell what it was that he replaced.
        if self.is_of_another(node, path):
            act = 0
        if act < 0.4:
            self.check(node, path)
        elif act < 0.7:
            data = self.data_of(path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full + ".tmp", "wb") as file:
                file.write(data)
            os.rename(full + ".tmp", full)
            self.note(node, path, data)
        elif act < 0.8:
            try:
                os.unlink(full)
            except FileNotFoundError:
                assert MISSING in self.may_be(node, path), f"{path} is missing on {node}"
            else:
                self.note(node, path, MISSING)
        elif act < 0.85:
            self.list(node, os.path.dirname(path))
        elif act < 0.9 and "@" not in path:
            self.rename(node, path)
        else:
            try:
                size = os.stat(full).st_size
            except FileNotFoundError:
                size = MISSING
            assert size in [None if value is MISSING else len(value)
                            for value in self.may_be(node, path)], f"{path} on {node}: {size}"

    def rename(self, node, old):
        """Of a file whose bytes are not here it says EXDEV, and tools copy."""
        new = self.chance.choice([path for path in PATHS if "@" not in path])
        top = self.nodes[node].mnt
        data = load(os.path.join(top, old))
        if data is MISSING or old == new or self.is_of_another(node, new):
            return
        assert data in self.may_be(node, old)
        os.makedirs(os.path.dirname(os.path.join(top, new)), exist_ok=True)
        try:
            os.rename(os.path.join(top, old), os.path.join(top, new))
        except FileNotFoundError:
            return  # Another took it away in between; checked by what may be seen from here on.
        self.note(node, old, MISSING)
        self.note(node, new, data)

    def check(self, node, path):
        seen = load(os.path.join(self.nodes[node].mnt, path))
        may = self.may_be(node, path)
        assert seen in may, (f"{path} on node {node}: {seen and seen[:20]}, and not one of "
                             f"{[value and value[:20] for value in may]}: {brief(self.done[path])}")

    def list(self, node, directory):
        try:
            names = os.listdir(os.path.join(self.nodes[node].mnt, directory))
        except FileNotFoundError:
            names = []
        for path in PATHS:
            if os.path.dirname(path) != directory:
                continue
            may = self.may_be(node, path)
            if MISSING not in may:
                assert os.path.basename(path) in names, f"{path} is not listed on {node}"
            if all(value is MISSING for value in may):
                assert os.path.basename(path) not in names, f"{path} is listed on {node}"

    def settle(self, pool):
        for node in self.nodes:
            done = node.cli("flush", node.mnt)
            assert done.returncode == 0, done
        for path in PATHS:
            last = [values[-1] for values in self.done[path].values()] or [self.settled[path]]
            there = {}

            def agree(path=path, there=there):
                there["pool"] = load(pool.path(path))
                for at, node in enumerate(self.nodes):
                    there[at] = load(os.path.join(node.mnt, path))
                return len(set(there.values())) == 1
            try:
                kvmount.wait_until(agree, 15, path)
            except kvmount.Late:
                pytest.fail(f"{path}: {brief(there)} after {brief(self.done[path])}; "
                            f"{[pools.state(node) for node in self.nodes]}")
            # Whoever removes it removes what he sees.
            assert there["pool"] in last or any(
                MISSING in values for values in self.done[path].values()), \
                f"{path}: {brief(there)} after {brief(self.done[path])}"
            self.settled[path] = there["pool"]
        self.begin_epoch()


def hash_of(text):
    return sum(text.encode()) * 7919


def brief(values):
    def one(value):
        return value[:12] if isinstance(value, bytes) else value
    return {key: [one(each) for each in value] if isinstance(value, list) else one(value)
            for key, value in values.items()}


@pytest.fixture(params=["dir", "nfs"])
def pool(request):
    with pools.Pool(request.param) as made:
        yield made


@pytest.mark.limit(1800 if kvmount.FULL else 180)
def test_all_see_what_may_be_seen(pool):
    seed = kvmount.seed()
    print(f"KVCACHEFS_SEED={seed}")
    chance = random.Random(seed)
    nodes = []
    try:
        for number in range(NODES):
            nodes.append(pools.node(pool, f"n{number}"))
            nodes[-1].__enter__()
        pools.wait_until_joined(*nodes)
        model = Model(nodes, chance)
        for step in range(OPERATIONS):
            model.step()
            if step % EPOCH == EPOCH - 1:
                model.settle(pool)
    finally:
        for node in nodes:
            node.__exit__(None, None, None)
