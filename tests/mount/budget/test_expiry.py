"""What goes although there is room: files past their time to live, and temporaries of a day ago."""

import os
import time

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 evicts nothing")

DAY = 24 * 3600


def store(path, content=b"k" * 65536):
    with open(path, "wb") as file:
        file.write(content)


def names(directory):
    return set(os.listdir(directory))


@pytest.mark.gate
@pytest.mark.short
def test_a_time_to_live(mounts):
    mount = mounts(options=["--lease", "1s"])
    for name in ("short", "long", "kept"):
        os.mkdir(os.path.join(mount.mnt, name))
    short, kept = (os.path.join(mount.mnt, name) for name in ("short", "kept"))
    for directory in (short, kept, os.path.join(mount.mnt, "long")):
        store(os.path.join(directory, "f"))
    store(os.path.join(short, "own"))
    os.setxattr(os.path.join(short, "own"), "user.kvcachefs.ttl", b"1h")
    os.setxattr(kept, "user.kvcachefs.policy", b"pin")
    for directory in (short, kept):
        os.setxattr(directory, "user.kvcachefs.ttl", b"3s")
    kvmount.wait_until(lambda: names(short) == {"own"}, 60, "the file's end")
    assert names(kept) == {"f"} and names(os.path.join(mount.mnt, "long")) == {"f"}
    dropped = mount.status()["dropped"]["expired"]
    assert (dropped["files"], dropped["bytes"]) == (1, 65536)
    assert "expired" in mount.cli("explain", os.path.join(short, "f")).stdout


def test_use_puts_it_off(mounts):
    mount = mounts(options=["--lease", "1s"])
    os.setxattr(mount.mnt, "user.kvcachefs.ttl", b"4s")
    used, idle = (os.path.join(mount.mnt, name) for name in ("used", "idle"))
    store(used)
    store(idle)

    def idle_has_gone():
        with open(used, "rb") as file:
            assert len(file.read()) == 65536
        return names(mount.mnt) == {"used"}

    kvmount.wait_until(idle_has_gone, 60, "the idle file's end")
    kvmount.wait_until(lambda: not names(mount.mnt), 60, "the other's, when nobody reads it any more")


def test_temporaries_of_yesterday(mounts):
    mount = mounts()
    long_ago = time.time() - 2 * DAY
    for name in ("a.tmp", "b.bin.tmp.4711", "c.bin", "fresh.tmp"):
        store(os.path.join(mount.mnt, name))
        if name != "fresh.tmp":
            os.utime(os.path.join(mount.mnt, name), (long_ago, long_ago))
    mount.remount()
    kvmount.wait_until(lambda: names(mount.mnt) == {"c.bin", "fresh.tmp"}, 60,
                       "the end of what nobody goes on with")
