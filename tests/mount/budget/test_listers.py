"""Which processes count as crawlers where the kernel answers listings by itself."""

import os
import random

import pytest

import kvmount
import stores
import watch
from stores import KIB, MIB
from test_leases import put

pytestmark = [pytest.mark.usefixtures("page_cache"),
              pytest.mark.skipif(kvmount.PLAIN, reason="ext4 grants no leases"),
              pytest.mark.short]

COUNT = 20


def counts(mount):
    status = mount.status()
    listings = sum(status["operations"][name]["count"] for name in ("readdir", "readdirplus")
                   if name in status["operations"])
    return listings, status["counts"]["leases"]


@pytest.fixture
def listed(limited, data_path, transport):
    """A mount whose directory d the kernel remembers; nothing else of it, and no lease."""
    mount = limited(size=96 * MIB, disk=256 * MIB, data_path=data_path, transport=transport)
    put(mount, [f"d/{number}" for number in range(COUNT)], size=64 * KIB)
    watch.wait_calm(mount)
    kvmount.drop_caches(2)
    kvmount.run_as(os.listdir, f"{mount.mnt}/d")
    before = counts(mount)
    assert len(kvmount.run_as(os.listdir, f"{mount.mnt}/d")) == COUNT
    assert counts(mount) == before == (before[0], 0), "the kernel does not remember it"
    mount.listings = before[0]
    return mount


def stat_all(directory):
    for number in range(COUNT):
        os.stat(f"{directory}/{number}")


def list_and_stat(directory):
    with os.scandir(directory) as entries:
        for entry in list(entries):
            os.stat(entry.path)


def stat_each_while_listing(directory):
    with os.scandir(directory) as entries:
        for entry in entries:
            os.stat(entry.path)
    stat_all(directory)


def sync_and_stat(directory, times=1):
    for _ in range(times):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)
    stat_all(directory)


def sync_several_and_stat(directory):
    """Open at the same time."""
    fds = [os.open(directory, os.O_RDONLY | os.O_DIRECTORY) for _ in range(3)]
    for fd in fds:
        os.fsync(fd)
    stat_all(directory)
    for fd in fds:
        os.close(fd)


def base_and_stat(directory):
    """O_PATH opens nothing, so that it lists nothing."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    for number in range(COUNT):
        os.stat(f"{number}", dir_fd=fd)
    os.close(fd)


def change_sync_and_stat(directory):
    """The kernel would ask for the names: an open alone lists nothing."""
    os.mknod(f"{directory}/new")
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(COUNT):
        os.stat(f"{number}", dir_fd=fd)
    os.fsync(fd)
    os.close(fd)


def list_sync_and_stat(directory):
    """What it has listed counts, whatever it syncs."""
    os.listdir(directory)
    sync_and_stat(directory)


@pytest.mark.parametrize("crawler", [list_and_stat, stat_each_while_listing, list_sync_and_stat])
def test_who_lists_from_memory_is_a_crawler_before_it_closes(listed, crawler):
    kvmount.run_as(crawler, f"{listed.mnt}/d")
    assert counts(listed) == (listed.listings, 0)


@pytest.mark.parametrize("other", [stat_all, sync_and_stat, sync_several_and_stat, base_and_stat,
                                   change_sync_and_stat])
def test_who_does_not_list_has_its_leases(listed, other):
    kvmount.run_as(other, f"{listed.mnt}/d")
    assert counts(listed) == (listed.listings, COUNT)


def test_listings_lose_what_is_evicted(limited, seed):
    """While files are stored and others evicted, and two list: a name that a listing has lost does not
    come back, and at rest a listing shows what is found by name."""
    mount = limited(size=96 * MIB, disk=256 * MIB)
    os.mkdir(f"{mount.mnt}/d")
    os.chmod(f"{mount.mnt}/d", 0o777)
    chance = random.Random(seed)

    def list_until(stop):
        """Names that came back."""
        lost, last, back, listings = set(), set(), set(), 0
        while not os.path.exists(stop):
            now = set(os.listdir(f"{mount.mnt}/d"))
            back |= now & lost
            lost |= last - now
            last = now
            listings += 1
        return back, len(lost), listings

    stop = f"{mount.work}/stop"
    listers = [kvmount.Child(list_until, stop) for _ in range(2)]
    try:
        jobs = [stores.Job(f"d/{number}", chance.choice((64 * KIB, 256 * KIB)), "buffered")
                for number in range(1600)]
        done = kvmount.run_as(stores.flood, mount.mnt, "plain", jobs, 0, 2, seconds=120)
        assert done["errors"] == []
        watch.wait_at_rest(mount)
    finally:
        with open(stop, "w"):
            pass
        found = [lister.result() for lister in listers]
    print(found)
    for back, lost, listings in found:
        assert back == set()
        assert listings > 1
    assert mount.status()["dropped"]["room"]["files"] > 100
    for _ in range(2):
        names = os.listdir(f"{mount.mnt}/d")
        there = [name for name in (job.key[2:] for job in jobs)
                 if os.path.exists(f"{mount.mnt}/d/{name}")]
        watch.wait_at_rest(mount)
        assert sorted(name for name in names if not name.endswith(".tmp")) == sorted(there)
