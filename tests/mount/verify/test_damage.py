"""Bytes that a disk has damaged are never served: the name is a miss, counted, the copy set aside."""

import contextlib
import os
import random

import pytest

import damage
import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 verifies nothing")

COUNT = 999 if kvmount.FULL else 81
GOOD = 18  # Whole files among them.
LARGEST = 3 * damage.CHUNK // (1 if kvmount.FULL else 2)


@contextlib.contextmanager
def mount_on_disk(request, data_path, *options, state=None):
    """A mount whose device is a loop device of its own; stopped by whoever damages it."""
    with kvmount.LoopFs("ext4", size=(2048 if kvmount.FULL else 256) << 20) as disk:
        nvme = os.path.join(disk.path, "nvme")
        mount = kvmount.Mount(request.node.name, data_path=data_path, nvme=nvme, state=state,
                              options=["--scrub", "off", *options])
        try:
            mount.create().start()
            yield mount, disk
        finally:
            mount.close()


def store(mount, contents):
    """Stores and seals; returns {name: path of its backing file}."""
    for name, content in contents.items():
        with open(os.path.join(mount.mnt, name), "wb") as file:
            file.write(content)
    damage.wait_sealed(mount)
    return dict(zip(contents, mount.backing_files(), strict=True))


@contextlib.contextmanager
def disk_apart(mount, disk):
    """Neither mount nor disk is in use; both are back afterwards, with nothing in the page cache."""
    mount.stop()
    disk.unmount()
    yield
    disk.mount()
    mount.start()


def make_contents(chance):
    sizes = [chance.choice([chance.randint(1, 4 * damage.BLOCK), chance.randint(1, LARGEST),
                            damage.CHUNK, damage.CHUNK + 1]) for _ in range(COUNT + GOOD)]
    return {f"f{number}": chance.randbytes(size) for number, size in enumerate(sizes)}


def spoil(mount, disk, backing, names, chance):
    """Damages each of these files in one of the ways, in turn."""
    patches = {name: damage.Patch(disk.image, backing[name]) for name in names}
    with disk_apart(mount, disk):
        for number, name in enumerate(names):
            before = patches[name].read(0, patches[name].size)
            list(damage.DAMAGES.values())[number % 3](patches[name], chance)
            if patches[name].read(0, patches[name].size) == before:  # A zero byte was torn off.
                damage.flip(patches[name], chance)


@pytest.mark.promise(1)
@pytest.mark.limit(300)
def test_damaged_files_are_misses(request, data_path, seed):
    chance = random.Random(seed)
    contents = make_contents(chance)
    names = list(contents)
    with mount_on_disk(request, data_path) as (mount, disk):
        backing = store(mount, contents)
        spoiled = names[:COUNT]
        spoil(mount, disk, backing, spoiled, chance)
        chance.shuffle(names)
        wrong = []
        loads = list(damage.LOADS.items())
        for name in names:
            # Each way of damage meets each way of loading.
            kind, load = loads[int(name[1:]) // 3 % 3]
            found = kvmount.load_or_miss(load, os.path.join(mount.mnt, name))
            if found != (None if name in spoiled else contents[name]):
                wrong.append((name, kind, len(contents[name]), found and len(found)))
        assert not wrong
        counts = mount.status()["counts"]
        assert counts["damaged"] == len(spoiled)
        assert counts["verified_opens"] >= len(spoiled)
        aside = os.listdir(os.path.join(mount.nvme, "quarantine"))
        assert len(aside) == min(64, len(spoiled))
        log = mount.logs(limit=1 << 20)
        assert all(f'path="{name}"' in log for name in spoiled)
        # A name that is a miss can be stored again.
        with open(os.path.join(mount.mnt, spoiled[0]), "wb") as file:
            file.write(b"again")
        assert damage.load_read(os.path.join(mount.mnt, spoiled[0])) == b"again"
        mount.stop()
        code, text = mount.fsck()
        assert code == 0, text
        mount.start()


@pytest.mark.gate
@pytest.mark.short
def test_the_damage_of_these_tests_is_real(request, data_path, seed):
    """Without verification it is served."""
    chance = random.Random(seed)
    contents = {f"f{number}": chance.randbytes(3 * damage.CHUNK) for number in range(9)}
    with mount_on_disk(request, data_path, "--verify", "off") as (mount, disk):
        spoil(mount, disk, store(mount, contents), list(contents), chance)
        for number, (name, content) in enumerate(contents.items()):
            load = list(damage.LOADS.values())[number % 3]
            found = load(os.path.join(mount.mnt, name))
            if found == content:  # A page that another processor holds for a moment is not dropped.
                kvmount.drop_caches()
                found = load(os.path.join(mount.mnt, name))
            assert len(found) == len(content) and found != content
        assert mount.status()["counts"]["damaged"] == 0


@pytest.mark.short
def test_many_cold_opens_at_once(request, data_path, seed):
    """More than there are workers and parked requests; each file by two readers."""
    chance = random.Random(seed)
    contents = {f"f{number}": chance.randbytes(damage.CHUNK + 1) for number in range(60)}
    bad = list(contents)[::10]
    with mount_on_disk(request, data_path) as (mount, disk):
        spoil(mount, disk, store(mount, contents), bad, chance)
        readers = [(name, kvmount.Child(kvmount.load_or_miss, damage.load_read,
                                        os.path.join(mount.mnt, name)))
                   for name in contents for _ in range(2)]
        for name, reader in readers:
            assert reader.result() == (None if name in bad else contents[name])
        counts = mount.status()["counts"]
        assert counts["damaged"] == len(bad)
        assert counts["verified_opens"] >= len(contents)


def test_what_the_device_cannot_read_is_a_miss(request, seed, tmp_path):
    """The disk ends before the last file's bytes."""
    chance = random.Random(seed)
    contents = {f"f{number}": chance.randbytes(4 * damage.CHUNK) for number in range(20)}
    with mount_on_disk(request, "auto", state=str(tmp_path / "state")) as (mount, disk):
        backing = store(mount, contents)
        last = max(backing, key=lambda name: damage.extents(backing[name])[-1][1])
        end = damage.extents(backing[last])[-1]
        with disk_apart(mount, disk):
            pass
        for folder, _, names in os.walk(disk.path):  # What the filesystem knows of itself stays.
            for name in names:
                os.stat(os.path.join(folder, name))
        os.truncate(disk.image, end[1])
        try:
            assert kvmount.load_or_miss(damage.load_read, os.path.join(mount.mnt, last)) is None
        finally:
            os.truncate(disk.image, disk.size)
        counts = mount.status()["counts"]
        assert (counts["damaged"], counts["unreadable"]) == (1, 1)
        others = [name for name in contents if name != last]
        for name in others:
            assert damage.load_read(os.path.join(mount.mnt, name)) == contents[name]


def test_the_scrub_finds_what_nobody_opens(request, seed):
    chance = random.Random(seed)
    contents = {f"f{number}": chance.randbytes(2 * damage.CHUNK + 5) for number in range(20)}
    bad = list(contents)[::4]
    with mount_on_disk(request, "auto") as (mount, disk):
        backing = store(mount, contents)
        mount.options[mount.options.index("off")] = "1GiB"
        spoil(mount, disk, backing, bad, chance)
        kvmount.wait_until(lambda: mount.status()["counts"]["scrub_pass_end"], 60, "a pass")
        counts = mount.status()["counts"]
        assert counts["damaged"] == len(bad)
        assert counts["verified_opens"] == 0
        assert counts["scrubbed_bytes"] >= sum(len(contents[n]) for n in contents if n not in bad)
        assert sorted(os.listdir(mount.mnt)) == sorted(n for n in contents if n not in bad)
        assert "damaged (see quarantine/" in mount.cli("status", mount.mnt).stdout
