"""Directories far below the root: what is found out by a walk upwards is found out without anybody
waiting for it, and what was told above holds however deep."""

import errno
import os
import statistics
import time

import pytest

import kvmount
import onlooker
import watch

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="of the daemon's own walks")

MIB = 1 << 20
DEEPEST = 1024  # Directories above a new one.
LINKS = 60


@pytest.fixture(name="theirs")
def made_theirs():
    """(mount, a directory of nobody's)"""
    with kvmount.Mount("deep", size=256 * MIB, options=["--lease", "1s"]) as mount:
        theirs = f"{mount.mnt}/theirs"
        os.mkdir(theirs)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        yield mount, theirs


def descend(levels, name="d"):
    for _ in range(levels):
        os.mkdir(name)
        os.chdir(name)


def with_deep_links(theirs):
    """A file with names in many directories, the deepest ones, below one that was told something."""
    os.chdir(theirs)
    os.setxattr(".", "user.kvcachefs.policy", b"cache")
    with open("file", "wb"):
        pass
    top = os.open(".", os.O_PATH)
    descend(DEEPEST - LINKS - 4)
    for _ in range(LINKS):
        descend(1)
        os.link("file", "link", src_dir_fd=top)


def look_for_what_it_is(goes_on, _, theirs):
    file = os.open(f"{theirs}/file", os.O_RDONLY)
    while goes_on():
        try:
            os.getxattr(file, "user.kvcachefs.model")
        except OSError as error:
            assert error.errno == errno.ENODATA, error


def look_up_deep(goes_on, number, theirs):
    """One renames a directory, after which nothing is known of where any hangs; the others look names up far below."""
    os.chdir(theirs)
    if number == 0:
        os.mkdir("a")
        while goes_on():
            os.rename("a", "b")
            os.rename("b", "a")
    for _ in range(DEEPEST - 8):
        os.chdir("d")
    while goes_on():
        assert not os.path.exists(f"{os.urandom(32).hex()}_model.bin")


@pytest.mark.gate
@pytest.mark.parametrize("what", ["names", "lookups"])
def test_walks_hold_nobody_up(theirs, what):
    mount, theirs = theirs
    before, then = {"names": (with_deep_links, look_for_what_it_is),
                    "lookups": (with_deep_links, look_up_deep)}[what]
    kvmount.run_as(before, theirs, uid=kvmount.NOBODY, seconds=120)
    with kvmount.Beside() as beside:
        looker = onlooker.Onlooker(mount)
        with onlooker.hogs(then, theirs, count=12):
            looker.during(3)
        looker.judge(beside, what)
        # Most find the machine busy at most: a thread that serves them is not.
        beside.add(statistics.median(looker.times["mount", "stat"]), 0.0001, f"{what}: most of root's stats")


def store_siblings(theirs):
    os.chdir(theirs)
    os.setxattr(".", "user.kvcachefs.policy", b"cache")
    descend(DEEPEST - 4)
    for number in range(300):
        with open(f"{7:064x}_m{number}.bin", "wb") as file:
            file.write(os.urandom(200_000))


@pytest.mark.gate
def test_deep_blocks_of_one_hash_hold_no_eviction_up(theirs):
    mount, theirs = theirs
    kvmount.run_as(store_siblings, theirs, uid=kvmount.NOBODY, seconds=120)
    with kvmount.Beside() as beside:
        looker = onlooker.Onlooker(mount, "of-root")
        for number in range(300):
            with looker.timed("mount", "create"):
                with open(f"{mount.mnt}/of-root/block-{number}", "wb") as file:
                    file.write(os.urandom(MIB))
        times = looker.times["mount", "create"]
        print(f"p50 {statistics.median(times):.4f}, p90 {sorted(times)[-30]:.3f}, longest {max(times):.3f} s")
        # One that waits for room waits for evictions, which are some hundred a second.
        beside.add(sorted(times)[-30], 0.2, "the slowest stores but thirty of three hundred")
    watch.wait_at_rest(mount)
    began = time.monotonic()
    mount.stop()
    if time.monotonic() - began > 10 * kvmount.SLOWNESS:
        raise kvmount.Late("the end of the mount")


@pytest.mark.gate
def test_directories_lie_so_deep_at_most(theirs):
    mount, theirs = theirs

    def go_deep():
        os.chdir(theirs)
        os.mkdir("tree")
        os.mkdir("tree/below")
        tree = os.open(".", os.O_PATH)
        made = 1  # theirs
        with pytest.raises(OSError) as failed:
            for _ in range(2 * DEEPEST):
                descend(1)
                made += 1
        with open("file", "wb"):
            pass
        codes = [failed.value.errno]
        for call in (lambda: os.rename("tree", "tree", src_dir_fd=tree), lambda: os.makedirs("d/d")):
            with pytest.raises(OSError) as failed:
                call()
            codes.append(failed.value.errno)
        return made, codes

    made, codes = kvmount.run_as(go_deep, uid=kvmount.NOBODY, seconds=60)
    assert (made, codes) == (DEEPEST, [errno.ENAMETOOLONG] * 3)
    # It is listed and removed as any other.
    kvmount.remove_tree(theirs)
    assert not os.path.exists(theirs)


@pytest.mark.gate
def test_a_quota_holds_below_the_longest_path(theirs):
    """4096 bytes: who goes on from there by relative names has the same tenant."""
    mount, theirs = theirs
    assert mount.cli("set", theirs, "quota=16MiB").returncode == 0

    def fill():
        os.chdir(theirs)
        descend(30, "n" * 200)
        for number in range(64):
            try:
                with open(f"{number}", "wb") as file:
                    file.write(bytes(MIB))
                    os.fsync(file)
            except OSError as error:
                return number, error.errno
        return 64, 0

    number, code = kvmount.run_as(fill, uid=kvmount.NOBODY, seconds=60)
    assert code == errno.EDQUOT and 8 <= number <= 16, (number, code)
