"""What the mount options change: devices, set-id bits, read-only, other users."""

import os
import shutil
import stat
import subprocess

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no options")


def caught(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return kvmount.errno_name(error.errno)
    return "ok"


def read_null(path):
    os.close(os.open(path, os.O_RDONLY))


def test_devices_need_the_option(mounts):
    mount = mounts()
    path = f"{mount.mnt}/null"
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert caught(read_null, path) == "EACCES"
    mount.remount(options=["-o", "dev"])
    assert caught(read_null, path) == "ok"
    entry = kvmount.mount_entry(mount.mnt)[2].split(",")
    assert "nodev" not in entry and "nosuid" in entry


def test_set_id_programs_need_the_option(mounts):
    mount = mounts()
    path = f"{mount.mnt}/id"
    shutil.copy("/usr/bin/id", path)
    os.chmod(path, 0o4755)

    def effective():
        done = subprocess.run([path, "-u"], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert kvmount.run_as(effective, uid=kvmount.NOBODY) == kvmount.NOBODY
    mount.remount(options=["-o", "suid"])
    assert kvmount.run_as(effective, uid=kvmount.NOBODY) == 0


def test_read_only(mounts):
    mount = mounts()
    with open(f"{mount.mnt}/f", "wb") as file:
        file.write(b"kept")
    mount.remount(options=["-o", "ro"])
    with open(f"{mount.mnt}/f", "rb") as file:
        assert file.read() == b"kept"
    assert caught(os.mkdir, f"{mount.mnt}/d") == "EROFS"
    assert caught(os.truncate, f"{mount.mnt}/f", 0) == "EROFS"
    assert caught(os.open, f"{mount.mnt}/f", os.O_RDWR) == "EROFS"
    mount.remount(options=[])
    os.mkdir(f"{mount.mnt}/d")


def test_other_users_need_allow_other(mounts):
    mount = mounts(allow_other=False)
    os.chmod(mount.mnt, 0o777)
    assert kvmount.run_as(caught, os.listdir, mount.mnt, uid=kvmount.NOBODY) == "EACCES"
    mount.remount(allow_other=True)
    assert kvmount.run_as(caught, os.listdir, mount.mnt, uid=kvmount.NOBODY) == "ok"
