"""What stat(1), ls(1) and their kin are shown right after a change: these ask for a few of a file's attributes, and the
kernel answers from what it remembers where it may."""

import mmap
import os
import shutil
import subprocess

import pytest

import kvmount

OLD_NS = 1_600_000_000_123_456_789
SIZE = 3 * mmap.PAGESIZE


def stat1(path, what):
    """By statx(2), for nothing but what is asked."""
    return subprocess.run(["stat", "-c", what, path], check=True, capture_output=True, text=True).stdout.strip()


def listed(path):
    return subprocess.run(["ls", "-l", "--time-style=full-iso", path], check=True, capture_output=True, text=True).stdout


def make(path):
    """A file of long ago, which the kernel and everybody has looked at."""
    with open(path, "wb") as file:
        file.write(bytes(SIZE))
    os.utime(path, ns=(OLD_NS, OLD_NS))
    return stat1(path, "%.9Y %.9Z"), listed(path)


def store(fd):
    mapping = mmap.mmap(fd, SIZE)
    mapping[5:8] = b"new"
    return mapping


def stored_and_synced(path):
    fd = os.open(path, os.O_RDWR)
    mapping = store(fd)
    os.fsync(fd)
    shown = stat1(path, "%.9Y"), listed(path)
    mapping.close()
    os.close(fd)
    return shown


def stored_and_flushed(path):
    fd = os.open(path, os.O_RDWR)
    mapping = store(fd)
    mapping.flush()
    mapping.close()
    os.close(fd)
    return stat1(path, "%.9Y"), listed(path)


def stored_and_closed(path):
    fd = os.open(path, os.O_RDWR)
    store(fd).close()
    os.close(fd)
    return stat1(path, "%.9Y"), listed(path)


def stored_after_the_close(path):
    """What maps it needs no descriptor."""
    fd = os.open(path, os.O_RDWR)
    mapping = mmap.mmap(fd, SIZE)
    os.close(fd)
    make_known(path)
    mapping[5:8] = b"new"
    mapping.flush()
    mapping.close()
    return stat1(path, "%.9Y"), listed(path)


def make_known(path):
    os.stat(path)
    stat1(path, "%.9Y")


def written(path):
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, b"new", 5)
    os.close(fd)
    return stat1(path, "%.9Y"), listed(path)


WAYS = [stored_and_synced, stored_and_flushed, stored_and_closed, stored_after_the_close, written]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("sealed", [False, True], ids=["fresh", "sealed"])
def test_a_store_moves_the_time_that_is_shown(mounts, data_path, way, sealed):
    """fsync, and close of what was open for writing: the time is a new one right after it, to whoever asks for it
    alone."""
    mount = mounts(data_path=data_path)
    for root in (mount.mnt, mount.control):
        path = f"{root}/{way.__name__}"
        make(path)
        if sealed and root == mount.mnt and not kvmount.PLAIN:
            mount.wait_sealed()
        old = stat1(path, "%.9Y"), listed(path)
        make_known(path)
        shown = way(path)
        assert float(shown[0]) > OLD_NS / 1e9 + 1000 and shown[1] != old[1], (root, old, shown)
        assert stat1(path, "%.9Y") == "{}.{:09}".format(*divmod(os.stat(path).st_mtime_ns, 10**9))


def mode_after(path, change):
    """A set-id program of root's, that somebody else may write, and changes."""
    shutil.copy("/bin/true", path)
    os.chmod(path, 0o6777)
    assert stat1(path, "%a") == "6777"
    kvmount.run_as(change, path, uid=kvmount.NOBODY)
    return stat1(path, "%a")


def truncate_at_open(path):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def truncate_for_reading(path):
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))


def truncate(path):
    os.truncate(path, 1)


def append(path):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"x")
    assert stat1(path, "%a") == "777", "while it is open"
    os.close(fd)


def allocate(path):
    fd = os.open(path, os.O_WRONLY)
    os.posix_fallocate(fd, 0, 1 << 20)
    assert stat1(path, "%a") == "777", "while it is open"
    os.close(fd)


def copy_into(path):
    fd = os.open(path, os.O_RDWR)
    os.copy_file_range(fd, fd, 100, 0, 1 << 16)
    assert stat1(path, "%a") == "777", "while it is open"
    os.close(fd)


CHANGES = [truncate_at_open, truncate_for_reading, truncate, append, allocate, copy_into]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_set_id_bits_that_went_are_not_shown(mounts, data_path, change):
    """Who may write a set-id program and does takes the bits away; a shell asks for the mode alone."""
    mount = mounts(data_path=data_path)
    modes = [mode_after(f"{root}/program", change) for root in (mount.mnt, mount.control)]
    assert modes == ["777", "777"]


def made(path):
    os.mkdir(path)


def linked(path):
    os.symlink("nowhere", path)


def created(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


@pytest.mark.parametrize("later", [made, linked, created], ids=lambda later: later.__name__)
def test_what_is_made_later_looks_no_older(mounts, data_path, later):
    """The kernel stamps a file finely when its time was looked at since; so find -cnewer and make(1) see what came later."""
    mount = mounts(data_path=data_path)
    for root in (mount.mnt, mount.control):
        early = []
        for number in range(100):
            file = f"{root}/f-{number}"
            for content in (b"a", b"b"):
                with open(file, "wb") as out:
                    out.write(content)
                shown = os.stat(file)
            later(f"{root}/{later.__name__}-{number}")
            after = os.lstat(f"{root}/{later.__name__}-{number}")
            parent = os.stat(root)
            os.chmod(file, 0o600)
            chmod = os.stat(file).st_ctime_ns
            early.append(min(after.st_mtime_ns, after.st_ctime_ns, parent.st_mtime_ns, chmod) < max(
                shown.st_mtime_ns, shown.st_ctime_ns))
        assert not any(early), (root, sum(early))
