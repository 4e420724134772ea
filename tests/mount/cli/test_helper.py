"""mount(8), fstab and systemd: mount.kvcachefs, remount, and the unit in packaging/."""

import fcntl
import os
import re
import subprocess
import urllib.request

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the mount helper of kvcachefs")
HELPER = os.path.join(kvmount.BIN, "mount.kvcachefs")


LINKS = ("/sbin/mount.kvcachefs", "/sbin/mount.fuse.kvcachefs")


def only_one(lock):
    """Whether no other process of the tests uses the links; none begins to while this one has the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_links():
    for link in LINKS:
        # Not those of an installed package.
        if os.path.islink(link) and os.readlink(link).endswith("/bin/mount.kvcachefs"):
            os.unlink(link)


@pytest.fixture(scope="module")
def helper():
    """The helper where mount(8) looks for it, for the time of these tests, in all processes that run some of them: the first makes
    the links, the last removes them."""
    lock = os.open("/run/kvcachefs-tests-helper.lock", os.O_RDWR | os.O_CREAT, 0o600)

    def are_there():
        if only_one(lock):
            remove_links()
            for link in LINKS:
                os.symlink(HELPER, link)
        fcntl.flock(lock, fcntl.LOCK_SH)
        # Of the last one they are gone by now.
        return all(map(os.path.lexists, LINKS))

    kvmount.wait_until(are_there, 30, "the helper's links")
    for link in LINKS:
        assert os.path.realpath(link) == os.path.realpath(HELPER), f"{link} is another's"
    yield
    if only_one(lock):
        remove_links()
    os.close(lock)


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


@pytest.mark.gate
@pytest.mark.short
def test_the_unit_leaves_little_open(tmp_path):
    """The exposure by systemd's own measure: 5.0 at most. None of what it sets hides the mount from others."""
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=50", unit(tmp_path))
    assert done.returncode == 0, done.stdout[-400:] + done.stderr
    with open(unit(tmp_path), encoding="utf-8") as file:
        said = file.read()
    # Each gives a service a mount namespace (systemd.exec(5)): a mount made there stays there.
    for name in ("ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "ProtectProc",
                 "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups",
                 "ReadOnlyPaths", "InaccessiblePaths", "RootDirectory"):
        assert not re.search(rf"^{name}=", said, re.MULTILINE), name


def allowed_calls(said):
    """The system calls that the unit's SystemCallFilter lets through."""
    (line,) = re.findall(r"^SystemCallFilter=(.*)$", said, re.MULTILINE)
    waiting, calls = line.split(), set()
    while waiting:
        name = waiting.pop()
        if not name.startswith("@"):
            calls.add(name)
            continue
        listed = run("systemd-analyze", "syscall-filter", "--no-pager", name)
        assert listed.returncode == 0, listed.stderr
        waiting += re.findall(r"^ +([@a-z0-9_-]+)$", listed.stdout, re.MULTILINE)
    return calls


@pytest.mark.skipif(kvmount.SANITIZER, reason="a sanitizer makes calls of its own")
@pytest.mark.parametrize("pool", ["dir", "nfs"])
@pytest.mark.parametrize("served", ["dev", "auto"])
def test_the_unit_lets_through_what_the_daemon_calls(tmp_path, served, pool):
    """All system calls of a daemon's life, by strace, are those of the unit's filter."""
    with open(unit(tmp_path), encoding="utf-8") as file:
        allowed = allowed_calls(file.read())
    counted = tmp_path / "calls"
    with pools.Pool(pool) as place:
        mount = pools.node(place, "calls", size=128 << 20)
        mount.transport = served
        port = pools.free_ports()
        mount.options += ["--metrics", str(port)]
        mount.wrapper = ["strace", "-f", "-c", "-qq", "-o", str(counted)]
        with mount, pools.node(place, "other") as other:
            pools.wait_until_joined(mount, other)
            for number in range(160):  # Some go again.
                pools.store(mount.mnt, pools.block_name("model", number), bytes(1 << 20))
            pools.store(other.mnt, "theirs", bytes(1 << 20))
            kvmount.wait_until(lambda: os.path.exists(f"{mount.mnt}/theirs"), 60, "the other's file")
            assert pools.load(f"{mount.mnt}/theirs") == bytes(1 << 20)
            exercise(mount)
            mount.flush()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as metrics:
                assert metrics.status == 200
    used = {words[-1] for line in counted.read_text().splitlines()
            if (words := line.split()) and re.fullmatch(r"[0-9.]+", words[0]) and words[-1] != "total"}
    assert len(used) > 50 and {"mount", "openat", "fdatasync"} <= used, used
    assert used - allowed == set(), used - allowed


def exercise(mount):
    """A call of each kind that comes to the daemon."""
    os.makedirs(f"{mount.mnt}/own/d")
    path = f"{mount.mnt}/own/f"
    with open(path, "wb") as file:
        file.write(bytes(1 << 20))
        os.posix_fallocate(file.fileno(), 0, 2 << 20)
        os.fsync(file.fileno())
        os.fchown(file.fileno(), kvmount.NOBODY, kvmount.NOBODY)
    os.chmod(path, 0o600)
    os.setxattr(path, "user.a", b"b")
    os.utime(path, (1, 1))
    os.truncate(path, 5)
    os.link(path, f"{mount.mnt}/own/g")
    os.symlink("g", f"{mount.mnt}/own/h")
    os.mkfifo(f"{mount.mnt}/own/i")
    with open(path, "rb") as read, open(f"{mount.mnt}/own/j", "wb") as write:
        os.copy_file_range(read.fileno(), write.fileno(), 5)
    os.rename(path, f"{mount.mnt}/own/k")
    os.statvfs(mount.mnt)
    os.unlink(f"{mount.mnt}/own/g")
    os.sync()
    for words in (("ls",), ("status",), ("explain",)):
        assert mount.cli(*words, mount.mnt).returncode == 0, words
