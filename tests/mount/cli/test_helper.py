"""mount(8), fstab and systemd: mount.kvcachefs, remount, and the unit in packaging/."""

import os
import re
import subprocess

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the mount helper of kvcachefs")
HELPER = os.path.join(kvmount.BIN, "mount.kvcachefs")


@pytest.fixture(scope="module")
def helper():
    """The helper where mount(8) looks for it, for the time of these tests."""
    links = ["/sbin/mount.kvcachefs", "/sbin/mount.fuse.kvcachefs"]
    made = []
    for link in links:
        if not os.path.lexists(link):
            os.symlink(HELPER, link)
            made.append(link)
        assert os.path.realpath(link) == os.path.realpath(HELPER), f"{link} is another's"
    yield
    for link in made:
        os.unlink(link)


@pytest.fixture
def place(request, helper):
    mount = kvmount.Mount(request.node.name, foreground=False).create()
    yield mount
    mount.close()


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


def options_of(mount):
    return kvmount.mount_entry(mount.mnt)[2].split(",")


@pytest.mark.gate
@pytest.mark.short
def test_mount_with_a_type(place):
    done = run("mount", "-t", "kvcachefs", place.nvme, place.mnt, "-o",
               "allow_other,noexec,data_path=daemon")
    assert done.returncode == 0, done.stderr
    kind, source, _ = kvmount.mount_entry(place.mnt)
    assert (kind, source) == ("fuse.kvcachefs", place.nvme)
    assert {"noexec", "nosuid", "nodev"} <= set(options_of(place))
    assert place.status()["data_path"]["mode"] == "daemon"
    place.stop()


def test_an_fstab_line(place):
    table = f"{place.work}/fstab"
    with open(table, "w") as file:
        file.write(f"{place.nvme} {place.mnt} kvcachefs "
                   "allow_dev,allow_suid,nofail,_netdev,x-systemd.automount,allow_other 0 0\n")
    assert run("mount", "--fstab", table, place.mnt).returncode == 0
    assert not {"nosuid", "nodev"} & set(options_of(place))
    # mount -a passes over what is mounted already.
    done = run("mount", "--fstab", table, "-a")
    assert done.returncode == 0, done.stderr
    assert run("umount", place.mnt).returncode == 0
    kvmount.wait_until(lambda: run("mount", "--fstab", table, place.mnt).returncode == 0, 30,
                       "a mount after the umount")
    place.stop()


def test_a_source_that_says_nothing(place):
    done = run(HELPER, "none", place.mnt, "-o", f"nvme={place.nvme}:1GiB", "-v")
    assert done.returncode == 0, done.stderr
    assert place.status()["tiers"][0]["size_limit"] == 1 << 30
    place.stop()


def test_the_exit_codes_are_those_of_mount(place):
    assert run(HELPER, place.nvme).returncode == 1
    assert run(HELPER, place.nvme, place.mnt, "-o", "frobnicate").returncode == 1
    done = run(HELPER, f"{place.work}/absent", place.mnt)
    assert done.returncode == 32 and "absent" in done.stderr, done.stderr
    assert run(HELPER, place.nvme, place.mnt, "-f").returncode == 0
    assert not place.is_mounted()
    done = run(HELPER, "none", place.mnt, "-o", "remount,ro")
    assert done.returncode == 32 and "no kvcachefs is mounted" in done.stderr, done.stderr


@pytest.mark.gate
@pytest.mark.short
def test_remount_read_only_and_back(place):
    assert run("mount", "-t", "kvcachefs", place.nvme, place.mnt).returncode == 0
    with open(f"{place.mnt}/f", "wb") as file:
        file.write(b"x")
    done = run("mount", "-o", "remount,ro", place.mnt)
    assert done.returncode == 0, done.stderr
    assert "ro" in options_of(place) and "nosuid" in options_of(place)
    with pytest.raises(OSError):
        os.mkdir(f"{place.mnt}/d")
    done = run("mount", "-o", "remount,rw", place.mnt)
    assert done.returncode == 0, done.stderr
    os.mkdir(f"{place.mnt}/d")
    with open(f"{place.mnt}/f", "ab") as file:
        done = run("mount", "-o", "remount,ro", place.mnt)
        assert done.returncode == 32 and "open for writing" in done.stderr, done.stderr
    place.stop()


def test_a_mount_that_began_read_only_stays_so(place):
    assert run("mount", "-t", "kvcachefs", place.nvme, place.mnt, "-r").returncode == 0
    assert "ro" in options_of(place)
    done = run("mount", "-o", "remount,rw", place.mnt)
    assert done.returncode == 32 and "read-only" in done.stderr, done.stderr
    assert place.status()["read_only"] is True
    place.stop()


def test_in_another_mount_namespace(place):
    holder = subprocess.Popen([*kvmount.unshared("private", place.mnt), "sleep", "600"])
    try:
        own = os.readlink("/proc/self/ns/mnt")
        kvmount.wait_until(lambda: os.readlink(f"/proc/{holder.pid}/ns/mnt") != own, 20, "unshare")
        done = run(HELPER, place.nvme, place.mnt, "-N", str(holder.pid))
        assert done.returncode == 0, done.stderr
        assert not place.is_mounted()
        inside = run("nsenter", "-t", str(holder.pid), "-m",
                     os.path.join(kvmount.BIN, "kvcachefs"), "umount", place.mnt)
        assert inside.returncode == 0, inside.stderr
    finally:
        holder.kill()
        holder.wait()


def unit(tmp_path):
    """The unit template as it is installed, with the programs of this build."""
    with open(os.path.join(kvmount.ROOT, "packaging", "kvcachefs@.service.in")) as file:
        text = file.read().replace("@CMAKE_INSTALL_FULL_BINDIR@", kvmount.BIN)
    assert not re.search(r"@[A-Z_]+@", text)
    path = tmp_path / "kvcachefs@.service"
    path.write_text(text)
    return str(path)


@pytest.mark.gate
@pytest.mark.short
def test_the_unit_verifies(tmp_path):
    done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "kvcachefs" not in done.stderr, done.stderr


def test_the_unit_says_what_a_mount_needs(tmp_path):
    with open(unit(tmp_path)) as file:
        text = file.read()
    for line in ("Type=notify", "Restart=on-failure", "RequiresMountsFor=", "OOMScoreAdjust=-",
                 "LimitNOFILE=", "LimitCORE=0", "--foreground", "/etc/kvcachefs/%i.toml"):
        assert line in text, line
