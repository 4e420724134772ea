"""A file that was changed below the mount between an unmount and the next mount is damaged: nobody can
have had it open or mapped. What its own users do is no damage, whenever they do it."""

import os
import signal

import pytest

import damage
import kvmount
import wall_clock

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no seals")

SIZE = 3 * 262_144 + 17
NEW = b"changed"
AT = 300_000


def store(mount, names):
    for name in names:
        with open(f"{mount.mnt}/{name}", "wb") as file:
            file.write(name.encode() * (SIZE // len(name)))
    mount.wait_sealed()


def backing_of(mount, name):
    """By its content, of a mount that is stopped."""
    for path in mount.backing_files():
        with open(path, "rb") as file:
            if file.read(len(name)) == name.encode():
                return path
    raise AssertionError(f"no backing file of {name}")


def overwrite(path):
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, NEW, AT)
    os.close(fd)


def overwrite_in_2096(path):
    """As it was then, by a wall clock that is right since."""
    overwrite(path)
    os.utime(path, (4 * 10**9, 4 * 10**9))


def lengthen(path):
    with open(path, "ab") as file:
        file.write(NEW)


def cut(path):
    os.truncate(path, AT)


@pytest.mark.gate
@pytest.mark.by_seed
@pytest.mark.parametrize("change", [overwrite, overwrite_in_2096, lengthen, cut], ids=lambda change: change.__name__)
def test_what_was_changed_below_is_a_miss(mounts, data_path, change):
    mount = mounts(data_path=data_path)
    store(mount, ["spoiled", "other"])
    mount.stop()
    change(backing_of(mount, "spoiled"))
    code, text = mount.fsck()
    assert code == 4 and "spoiled" not in text and "sealed" in text, text
    mount.start()
    with pytest.raises(FileNotFoundError):
        os.stat(f"{mount.mnt}/spoiled")
    with open(f"{mount.mnt}/other", "rb") as file:
        assert file.read(5) == b"other"
    assert mount.status()["counts"]["damaged"] == 1
    assert len(os.listdir(f"{mount.nvme}/quarantine")) == 1
    store(mount, ["spoiled"])
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


@pytest.mark.by_seed
def test_other_times_are_no_damage(mounts, data_path):
    mount = mounts(data_path=data_path)
    store(mount, ["touched"])
    mount.stop()
    os.utime(backing_of(mount, "touched"), ns=(10**18, 10**18))
    mount.start()
    with open(f"{mount.mnt}/touched", "rb") as file:
        assert file.read(7) == b"touched"
    mount.wait_sealed()
    assert mount.status()["counts"]["damaged"] == 0


def map_for_stores(mount, name):
    """A mapping that outlives its descriptor, and the seal. Without passthrough the file stays open by
    it."""
    mapping = damage.Mapping(f"{mount.mnt}/{name}")
    if mount.status()["data_path"]["mode"] == "passthrough":
        mount.wait_sealed()
    return mapping


def check_new(mount, name):
    with open(f"{mount.mnt}/{name}", "rb") as file:
        assert file.read()[AT:AT + len(NEW)] == NEW
    assert mount.status()["counts"]["damaged"] == 0


@pytest.mark.by_seed
def test_a_store_that_nobody_saw_is_no_damage(mounts, data_path):
    mount = mounts(data_path=data_path)
    store(mount, ["mapped"])
    mapping = map_for_stores(mount, "mapped")
    mapping.put(AT, NEW)
    mapping.close()
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text
    mount.start()
    check_new(mount, "mapped")
    mount.remount()
    check_new(mount, "mapped")


@pytest.mark.skipif(kvmount.SANITIZER, reason="a sanitizer wants to be loaded first")
def test_a_store_that_nobody_saw_is_no_damage_when_the_clock_was_ahead(mounts):
    with wall_clock.wall_clock() as clock:
        mount = mounts(env=clock.environment)
        if mount.status()["data_path"]["mode"] != "passthrough":
            pytest.skip("the kernel serves no mapping by itself")
        store(mount, ["mapped"])
        mount.stop()
        clock.set_off(14 * 365 * 86_400)
        mount.start()
        wall_clock.check_that_it_is_off(mount, "ahead", 14 * 365 * 86_400)
        mapping = map_for_stores(mount, "mapped")
        clock.set_off(0)
        mapping.put(AT, NEW)
        mapping.close()
        # The daemon knows by no inode in memory that it was open for writing.
        count = mount.status()["counts"]["inodes_cached"]
        kvmount.drop_caches(2)
        kvmount.wait_until(lambda: mount.status()["counts"]["inodes_cached"] < count, 30, "forgotten inodes")
        check_new(mount, "mapped")


def test_a_store_after_a_stop_by_signal_is_no_damage(mounts):
    """It detaches the mount: a mapping may be left."""
    mount = mounts()
    if mount.status()["data_path"]["mode"] != "passthrough":
        pytest.skip("the kernel serves no mapping by itself")
    store(mount, ["mapped"])
    mapping = map_for_stores(mount, "mapped")
    pidfd = os.pidfd_open(mount.pid())
    signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    assert kvmount.wait_pidfd(pidfd, 30)
    os.close(pidfd)
    mount._reap()
    mapping.put(AT, NEW)
    mapping.close()
    mount.start()
    check_new(mount, "mapped")


def test_what_is_older_than_a_crash_is_not_judged(mounts):
    """Who had it open may write on: the kernel serves a descriptor whose daemon has died."""
    mount = mounts()
    store(mount, ["old"])
    mount.kill()
    mount.start()
    store(mount, ["new"])
    mount.stop()
    for name in ("old", "new"):
        overwrite(backing_of(mount, name))
    mount.start()
    with pytest.raises(FileNotFoundError):
        os.stat(f"{mount.mnt}/new")
    with open(f"{mount.mnt}/old", "rb") as file:
        assert file.read()[AT:AT + len(NEW)] == NEW
