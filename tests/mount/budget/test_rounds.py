"""Three runtimes beside each other on small mounts, in seeded rounds: no store is refused while
anything but leased bytes within their half can go, SIZE is kept, and `status` never says
"healthy" beside a store that was refused.

12 rounds; 120 with KVCACHEFS_FULL=1, or as many as KVCACHEFS_ROUNDS says.
"""

import collections
import errno
import multiprocessing
import os
import random
import shutil
import time

import pytest

import kvmount
import stores
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 evicts nothing")

ROUNDS = int(os.environ.get("KVCACHEFS_ROUNDS", 120 if kvmount.FULL else 12))
# Most rounds are of the small mounts, where a file is a larger part of all.
SIZES = [64 * MIB] * 6 + [256 * MIB] * 3 + [1024 * MIB]
POLICIES = [None, None, "cache", "keep", "pin", "process"]
# The database, directories, and what the disk takes for inodes.
BESIDE = 40 * MIB
SECONDS = 120 * kvmount.SLOWNESS

# A store that failed: in which directory, of how many bytes, by which call, and what `status`
# said right afterwards.
Refused = collections.namedtuple("Refused", "directory size call status text")


def lmcache_disk(key):
    """LMCache's local disk writes under the final name, and removes what it has too much of."""
    return f"meta-llama-Llama-3.1-8B-Instruct@1@0@{key}@bfloat16.pt", None


def lmcache_fs(key):
    path = f"meta-llama-SEP-Llama-3.1-8B@0x01000100@0@{key}.data"
    return path, path + ".tmp"


RUNTIMES = {"vllm": stores.vllm, "sglang": stores.sglang, "lmcache_fs": lmcache_fs,
            "lmcache_disk": lmcache_disk, "plain": stores.plain}


class Runtime:
    """One process that stores, looks up and reads. Runs in a Child."""

    def __init__(self, mount, directory, layout, seed, sizes, total, own_limit):
        self._mount, self._layout = mount, layout
        self._root = os.path.join(mount.mnt, directory)
        self._directory = directory
        self._chance = random.Random(f"{seed}/{directory}")
        self._sizes, self._total, self._own_limit = sizes, total, own_limit
        self._content = stores.Content(seed)
        self._stored = []  # (path, key, size), the oldest first
        self.told = {"refused": [], "wrong": [], "stored": 0, "hits": 0, "misses": 0,
                     "longest": 0.0}

    def _call(self, name, size, function, *arguments):
        """What it returns; None after ENOSPC, which is noted."""
        begin = time.monotonic()
        try:
            return function(*arguments)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            text = self._mount.cli("status", self._mount.mnt).stdout.splitlines()
            self.told["refused"].append(
                Refused(self._directory, size, name, self._mount.status(), text[:1]))
            return None
        finally:
            self.told["longest"] = max(self.told["longest"], time.monotonic() - begin)

    def _store(self, key, size):
        final, temporary = RUNTIMES[self._layout](key)
        final = os.path.join(self._root, final)
        target = os.path.join(self._root, temporary) if temporary else final
        os.makedirs(os.path.dirname(final), exist_ok=True)
        fd = self._call("open", size, os.open, target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        if fd is None:
            return
        data, whole = self._content.of(key, size), True
        while data and whole:
            done = self._call("write", size, os.write, fd, data[:4 * MIB])
            whole = done is not None
            data = data[done or 0:]
        # A failure that nobody has seen yet is told here.
        if self._call("close", size, self._close, fd) is None or not whole:
            return
        if temporary and not self._rename(target, final, size):
            return
        self._stored.append((final, key, size))
        self.told["stored"] += size

    def _close(self, fd):
        os.close(fd)
        return True

    def _rename(self, target, final, size):
        try:
            return self._call("rename", size, os.rename, target, final) is None and os.path.exists(final)
        except FileNotFoundError:
            return False  # What failed is gone.

    def _look_up(self):
        if not self._stored:
            return
        path, key, size = self._chance.choice(self._stored[-40:])
        try:
            found = os.stat(path).st_size
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            self.told["misses"] += 1
            return
        self.told["hits"] += 1
        if found != size or data != bytes(self._content.of(key, size)):
            self.told["wrong"].append(path)

    def _remove_own(self):
        """As LMCache's local disk keeps to its own limit."""
        while sum(size for _, _, size in self._stored) > self._own_limit:
            path, _, _ = self._stored.pop(0)
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def run(self):
        stored = 0
        while stored < self._total:
            size = self._chance.choice(self._sizes)
            self._store(f"{self._chance.getrandbits(256):064x}", size)
            stored += size
            for _ in range(self._chance.randrange(3)):
                self._look_up()
            if self._layout == "lmcache_disk":
                self._remove_own()
        return self.told


def run_runtime(all_done, *arguments):
    """Ends with the others: what it owns under policy process could go then."""
    told = Runtime(*arguments).run()
    all_done.wait(SECONDS)
    return told


def could_go(status):
    """Bytes that could be evicted when `status` was asked, whatever leases within their half hold."""
    budget = status["tiers"][0]["budget"]
    leased = min(status["counts"]["leased_bytes"], budget["bytes"] // 2)
    return budget["evictable"] + budget["settling"] - leased


def check_refusals(refused):
    for one in refused:
        left = could_go(one.status)
        budget = one.status["tiers"][0]["budget"]
        said = (f"{one.call} of {one.size} bytes in {one.directory}: {left / MIB:.1f} MiB could go: "
                f"{budget}, leased {one.status['counts']['leased_bytes']}")
        assert left < one.size + max(-budget["room"], 0), said
        assert "healthy" not in one.text[0], said


def choose(chance):
    """What a round is: (SIZE, lease, by directory its layout and policy)."""
    size = chance.choice(SIZES)
    runtimes = {}
    for number, layout in enumerate(chance.sample(sorted(RUNTIMES), 3)):
        runtimes[f"{layout}-{number}"] = (layout, chance.choice(POLICIES))
    return size, chance.choice(["1s", "60s"]), runtimes


def run_round(seed, disk):
    chance = random.Random(seed)
    size, lease, runtimes = choose(chance)
    print(f"KVCACHEFS_SEED={seed}: {size // MIB} MiB, lease {lease}, {runtimes}", flush=True)
    largest = size // chance.choice([8, 16, 32])
    sizes = [64 * KIB, largest // 4, largest]
    nvme = os.path.join(disk.path, "nvme")
    with kvmount.Mount("rounds", nvme=nvme, size=size,
                       options=["--lease", lease]) as mount:
        for directory, (_, policy) in runtimes.items():
            os.mkdir(os.path.join(mount.mnt, directory))
            if policy:
                done = mount.cli("set", os.path.join(mount.mnt, directory), f"policy={policy}")
                assert done.returncode == 0, done.stderr
        before = watch.used_bytes(disk.path)
        with watch.Sampler(lambda: watch.used_bytes(disk.path) - before) as used:
            all_done = multiprocessing.Barrier(len(runtimes))
            children = [kvmount.Child(run_runtime, all_done, mount, directory, layout, seed, sizes,
                                      size * 2 // 3, size * 2 // 5)
                        for directory, (layout, _) in runtimes.items()]
            told = [child.result(SECONDS) for child in children]
        refused = [one for each in told for one in each["refused"]]
        print(f"    at most {used.highest / MIB:.0f} MiB used, {len(refused)} refused, stored "
              f"{sum(each['stored'] for each in told) // MIB} MiB, longest call "
              f"{max(each['longest'] for each in told):.2f} s", flush=True)
        assert [each["wrong"] for each in told] == [[], [], []]
        check_refusals(refused)
        # Each writer may have one file under way.
        assert used.highest <= size + 3 * largest + BESIDE
        watch.wait_calm(mount)

        def is_within():
            status = mount.status()
            return status["tiers"][0]["budget"]["room"] >= 0 or could_go(status) <= 0

        kvmount.wait_until(is_within, 10, "what is used to be within SIZE")
        mount.stop()
        code, text = mount.fsck()
        assert code == 0, text
    shutil.rmtree(nvme)
    return len(refused)


@pytest.mark.short
@pytest.mark.limit(150 + ROUNDS * 30)
@pytest.mark.timeout(300 + ROUNDS * 60)
def test_three_runtimes_in_rounds(seed):
    with kvmount.LoopFs("ext4", size=1400 * MIB) as disk:
        refused = [run_round(seed * 10_000 + number, disk) for number in range(ROUNDS)]
    print(f"{sum(refused)} stores refused, in {sum(one > 0 for one in refused)} of {ROUNDS} rounds")
