"""When a read moves an access time: files, directories and symlinks, by what mount(8) was told, with ext4 as the control."""

import contextlib
import mmap
import os
import subprocess
import time

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory is mounted as it is")

NOW = int(time.time())
COARSE = 5  # CLOCK_REALTIME_COARSE, of <linux/time.h>
# Access, modification: the change is always now, but what is made once more in the same way reads as older below.
AGES = {"unread": (NOW - 1000, NOW - 500), "read": (NOW + 1000, NOW - 500), "read long ago": (NOW - 90_000, NOW - 100_000)}


def read(path):
    with open(path, "rb") as file:
        file.read()


def read_directly(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        os.preadv(fd, [mmap.mmap(-1, 4096)], 0)
    finally:
        os.close(fd)


def map_it(path):
    fd = os.open(path, os.O_RDONLY)
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapping:
        mapping.read(1)
    os.close(fd)


def copy_from(path):
    fd = os.open(path, os.O_RDONLY)
    target = os.open(f"{path}-copy", os.O_WRONLY | os.O_CREAT) if os.access(path, os.W_OK) else None
    if target is not None:
        os.copy_file_range(fd, target, 4096)
        os.close(target)
    os.close(fd)


def open_only(path):
    os.close(os.open(path, os.O_RDONLY))


WAYS = {"file": [read, read_directly, map_it, open_only, os.stat], "directory": [os.listdir, os.stat],
        "symlink": [os.readlink, os.lstat]}


def make(root):
    """One inode for each way and age."""
    for kind, ways in WAYS.items():
        for way in ways:
            for age in AGES:
                path = f"{root}/{kind} {way.__name__} {age}"
                if kind == "file":
                    with open(path, "wb") as file:
                        file.write(bytes(8192))
                elif kind == "directory":
                    os.mkdir(path)
                    with open(f"{path}/name", "wb"):
                        pass
                else:
                    os.symlink("nowhere", path)
    for path in os.listdir(root):
        age = next((AGES[age] for age in sorted(AGES, key=len, reverse=True) if path.endswith(f" {age}")), None)
        if age is not None:
            os.utime(f"{root}/{path}", age, follow_symlinks=False)


def atime(path):
    """As ls(1) and find(1) ask for it."""
    shown = subprocess.run(["stat", "-c", "%.9X", path], check=True, capture_output=True, text=True).stdout
    assert float(shown) == pytest.approx(os.lstat(path).st_atime_ns / 1e9, abs=1e-6)
    return float(shown)


def wait_for_a_tick():
    """The kernel's file times are of a coarse clock."""
    before = time.clock_gettime_ns(COARSE)
    kvmount.wait_until(lambda: time.clock_gettime_ns(COARSE) > before, 10, "a tick")


def moved(root, times):
    """{what: whether the access time is another one after it was read that often}."""
    seen = {}
    for kind, ways in WAYS.items():
        for way in ways:
            for age in AGES:
                path = f"{root}/{kind} {way.__name__} {age}"
                for turn in range(times):
                    before = atime(path)
                    wait_for_a_tick()
                    with contextlib.suppress(OSError):
                        way(path)
                    seen[f"{kind} {way.__name__} {age} {turn}"] = atime(path) != before
    return seen


OPTIONS = ["", "noatime", "relatime", "strictatime", "nodiratime", "ro"]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option or "default")
def test_reads_move_access_times_as_on_ext4(mounts, data_path, option):
    """The default is as the disk is mounted: relatime. Twice, for what has been read since its change; but what the kernel has
    in its memory it does not read from the daemon once more."""
    times = 1 if (option, data_path) == ("strictatime", "daemon") else 2
    words = [] if option in ("", "ro") else ["-o", option]
    mount = mounts(data_path=data_path, options=words)
    with kvmount.LoopFs("ext4", options=option.replace("ro", "") or "") as disk:
        control = f"{disk.path}/control"
        os.mkdir(control)
        for root in (mount.mnt, control):
            make(root)
        mount.wait_sealed()
        if option == "ro":
            mount.remount(options=["-o", "ro"])
            subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
        ours, theirs = moved(mount.mnt, times), moved(control, times)
    assert ours == theirs
    expected = {"file": option not in ("noatime", "ro"), "directory": option not in ("noatime", "nodiratime", "ro"),
                "symlink": option not in ("noatime", "ro")}
    for kind, moves in expected.items():
        assert any(value for what, value in theirs.items() if what.startswith(kind)) == moves, kind


@pytest.mark.parametrize("below", ["noatime", "strictatime"])
def test_by_default_it_is_as_the_disk_is_mounted(mounts, data_path, below):
    with kvmount.LoopFs("ext4", options=below) as disk:
        seen = []
        for options in ([], ["-o", "relatime"], ["-o", "noatime" if below == "strictatime" else "strictatime"]):
            mount = mounts(data_path=data_path, nvme=os.path.join(disk.path, f"nvme-{len(seen)}"), options=options)
            path = f"{mount.mnt}/f"
            with open(path, "wb") as file:
                file.write(bytes(8192))
            turns = []
            for _ in range(2):
                before = atime(path)
                wait_for_a_tick()
                read(path)
                turns.append(atime(path) != before)
            seen.append(turns)
            mount.stop()
        other = below == "noatime"
        # Who reads from the kernel's memory does not come to the daemon.
        again = data_path == "passthrough"
        assert seen == [[not other, not other and again], [True, False], [other, other and again]]


@pytest.mark.parametrize("option", ["", "strictatime"], ids=["default", "strictatime"])
def test_nothing_of_our_own_moves_it(mounts, data_path, option):
    """The seal, the scrub, fsck and a start read a file: nobody has used it."""
    mount = mounts(data_path=data_path, options=["--scrub", "4GiB"] + (["-o", option] if option else []))
    path = f"{mount.mnt}/f"
    with open(path, "wb") as file:
        file.write(os.urandom(1 << 20))
    os.utime(path, (1_600_000_000, 1_600_000_001))
    before = atime(path)
    mount.wait_sealed()
    kvmount.wait_until(lambda: mount.status()["counts"]["scrub_pass_end"], 60, "the scrub")
    assert atime(path) == before
    mount.remount()
    assert atime(path) == before
    mount.crash()
    assert atime(path) == before
    mount.stop()
    assert mount.fsck()[0] == 0
    mount.start()
    assert atime(path) == before
    read(path)
    assert atime(path) > before


def test_what_is_read_lasts(mounts):
    """The time of a listing and of a readlink is written down, and no use of names."""
    mount = mounts()
    os.mkdir(f"{mount.mnt}/d")
    os.symlink("nowhere", f"{mount.mnt}/s")
    for path in (f"{mount.mnt}/d", f"{mount.mnt}/s"):
        os.utime(path, (1_600_000_000, 1_600_000_001), follow_symlinks=False)
    os.listdir(f"{mount.mnt}/d")
    os.readlink(f"{mount.mnt}/s")
    times = [atime(f"{mount.mnt}/{name}") for name in "ds"]
    assert min(times) > NOW - 10
    mount.remount()
    assert [atime(f"{mount.mnt}/{name}") for name in "ds"] == times
