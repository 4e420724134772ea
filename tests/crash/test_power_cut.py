"""The backing filesystem loses power under a running load and two databases.

Sealed names, and fsynced ones not written since, are exact; every other name is exact or absent;
SQLite and RocksDB open with all that was committed. What the check can see is proved on the raw
filesystems by test_harness.py.
"""

import os
import random
import time

import pytest

import crashes
import databases
import kvmount
import load
import model
import power

WORKERS = 2
CUTS = crashes.count(full=100, normal=10, short=4)
DISK_BYTES = 1 << 30


def start_again(disk, mount):
    """After the cut, when the daemon has been killed."""
    kvmount.lazy_unmount(mount.mnt)
    power.power_up(disk)
    mount.start()
    recovery = mount.status()["recovery"]
    assert recovery["kind"] == "machine", recovery


class PowerCut:
    """One disk, one mount on it, and what should be there."""

    def __init__(self, disk, mount, logs, seed):
        self.disk, self.mount, self.logs = disk, mount, logs
        self.rng = random.Random(seed)
        self.states = [{} for _ in range(WORKERS)]
        self.databases = databases.Databases(mount.mnt, logs, seed)
        self.totals = {"required": 0, "exact": 0, "absent": 0}
        self.serial = 0

    def _load(self, operations):
        self.serial += 1
        return load.Load(self.mount.mnt, self.logs, self.rng.random(), self.serial, self.states,
                         "cut", operations=operations)

    def grow_sealed(self):
        """A load that ends, and the wait until all it left is sealed."""
        running = self._load(operations=25)
        running.start()
        codes = running.join(60)
        assert codes == [0] * WORKERS, f"{codes}: {running.errors()}"
        self.states = [model.Replay(running.log_path(i), self.states[i]).state
                       for i in range(WORKERS)]
        crashes.wait_sealed(self.mount)

    def cut(self, kind):
        running = self._load(operations=None)
        self.databases.start()
        running.start()
        running.wait_busy(5)
        self.databases.wait_busy(2)
        time.sleep(self.rng.uniform(0, 0.3))  # The random moment of the cut.
        daemon = crashes.Victim(self.mount)  # Its pid cannot be read from a dead disk.
        when = power.cut(self.disk, kind)
        daemon.kill()
        running.join()
        self.databases.join()
        start_again(self.disk, self.mount)
        self._check(running, when)

    def _check(self, running, when):
        wrong, acknowledged = [], 0
        for index in range(WORKERS):
            replay = model.Replay(running.log_path(index), self.states[index], when)
            early = replay.errors_before(when)
            assert not early, f"errors before the cut: {early}"
            acknowledged += replay.acknowledged
            self.states[index], lines, counts = model.check_after_cut(
                running.worker_root(index), replay)
            wrong += lines
            for name, value in counts.items():
                self.totals[name] += value
        assert acknowledged > 0, "nothing was acknowledged: the cut proves nothing"
        assert not wrong, "after the power cut:\n" + "\n".join(wrong)
        self.databases.check(when)


@pytest.mark.limit(200)
@pytest.mark.parametrize("backing", [pytest.param("ext4", marks=[pytest.mark.short, pytest.mark.promise(7)]), "xfs"])
def test_power_cut(tmp_path, seed, backing):
    kinds = ["nologflush", "logflush", "default"]
    with kvmount.LoopFs(backing, DISK_BYTES) as disk:
        nvme = os.path.join(disk.path, "nvme")
        with kvmount.Mount(f"cut-{backing}", nvme=nvme, foreground=False) as mount:
            test = PowerCut(disk, mount, str(tmp_path), seed)
            for number in range(max(1, CUTS // 2)):  # Half of the cuts on each filesystem.
                test.grow_sealed()
                try:
                    test.cut(kinds[number % 3])
                except Exception as error:
                    error.add_note(f"cut {number} ({kinds[number % 3]}) of seed {seed}")
                    raise
                mount.stop()
                crashes.check_fsck(mount)
                mount.start()
            totals = test.totals
    assert totals["required"] > 0 and totals["exact"] >= totals["required"]
    print(f"{max(1, CUTS // 2)} cuts on {backing}: {totals}")


@pytest.mark.limit(100)
def test_power_cut_in_daemon_served_mode(tmp_path, seed):
    with kvmount.LoopFs("ext4", DISK_BYTES) as disk:
        nvme = os.path.join(disk.path, "nvme")
        with kvmount.Mount("cut-daemon", nvme=nvme, foreground=False,
                           data_path="daemon") as mount:
            test = PowerCut(disk, mount, str(tmp_path), seed)
            for kind in ("nologflush", "logflush"):
                test.grow_sealed()
                test.cut(kind)
            mount.stop()
            crashes.check_fsck(mount)


@pytest.mark.promise(7)
@pytest.mark.short
def test_what_is_kept_is_there_when_its_close_has_returned(data_path, seed):
    """Stored, stored beside and renamed, moved there, and written anew, and the power goes at once."""
    rng = random.Random(seed)
    with kvmount.LoopFs("ext4", DISK_BYTES) as disk:
        nvme = os.path.join(disk.path, "nvme")
        with kvmount.Mount(f"kept-{data_path}", nvme=nvme, foreground=False,
                           data_path=data_path) as mount:
            kept, cache = os.path.join(mount.mnt, "kept"), os.path.join(mount.mnt, "cache")
            for directory, policy in ((kept, b"keep"), (cache, b"cache")):
                os.mkdir(directory)
                os.setxattr(directory, "user.kvcachefs.policy", policy)
            should = {}
            old = rng.randbytes(100_000)
            emptied = [f"emptied{number}" for number in range(8)]
            for name in emptied:
                store(os.path.join(kept, name), old)
            crashes.wait_sealed(mount)
            for number in range(8):
                whole = rng.randbytes(rng.randrange(1, 300_000))
                for directory in (kept, cache):
                    store(os.path.join(directory, f"closed{number}"), whole)
                    store(os.path.join(directory, f"t{number}"), whole)
                    os.rename(os.path.join(directory, f"t{number}"),
                              os.path.join(directory, f"renamed{number}"))
                store(os.path.join(cache, "elsewhere"), whole)
                os.rename(os.path.join(cache, "elsewhere"), os.path.join(kept, f"moved{number}"))
                store(os.path.join(kept, "anew"), whole)
                store(os.path.join(kept, emptied[number]), b"")
                should |= {f"closed{number}": whole, f"renamed{number}": whole,
                           f"moved{number}": whole, "anew": whole}
            daemon = crashes.Victim(mount)
            power.cut(disk, "nologflush")
            daemon.kill()
            start_again(disk, mount)
            found = {name: read(os.path.join(kept, name)) for name in os.listdir(kept)}
            # Nobody has to wait for what is empty: it may be as it was before.
            assert all(found.pop(name, None) in (b"", old) for name in emptied), sorted(found)
            assert found == should, sorted(set(should) ^ set(found))
            # That the cut takes what nobody waited for: else the above shows nothing.
            others = {name: read(os.path.join(cache, name)) for name in os.listdir(cache)}
            assert len(others) < 16
            assert all(should[name] == data for name, data in others.items())
            mount.stop()
            crashes.check_fsck(mount)


def store(path, data):
    with open(path, "wb") as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()
