"""Two devices, one of which dies or becomes read-only under the mount: it costs its own files alone."""

import contextlib
import errno
import os
import subprocess

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has one device")

MIB = 1 << 20
FILES = 40


@pytest.fixture
def two(request):
    """A mount on two small filesystems, its state elsewhere: (mount, the two LoopFs)."""
    with contextlib.ExitStack() as stack:
        disks = [stack.enter_context(kvmount.LoopFs("ext4", size=128 * MIB)) for _ in range(2)]
        nvme = [os.path.join(disk.path, "nvme") for disk in disks]
        mount = kvmount.Mount(name=request.node.name, nvme=nvme[0], options=["--nvme", nvme[1]],
                              state="")
        mount.create()
        stack.callback(mount.close)
        mount.state = os.path.join(mount.work, "state")
        for path in (nvme[1], mount.state):
            os.mkdir(path, 0o700)
        mount.start()
        stack.callback(lambda: mount.is_mounted() and mount.kill())
        yield mount, disks


def content(name):
    return (name * 40000).encode()[:100000]


def store(mount, names):
    for name in names:
        path = os.path.join(mount.mnt, name)
        with open(path + ".tmp", "wb") as file:
            file.write(content(name))
        os.rename(path + ".tmp", path)


def load(mount, names):
    """Those that are there; what is there is right."""
    found = []
    for name in names:
        try:
            with open(os.path.join(mount.mnt, name), "rb") as file:
                assert file.read() == content(name), name
        except FileNotFoundError:
            continue
        found.append(name)
    return found


def states(mount):
    return [tier["state"] for tier in mount.status()["tiers"]]


def wait_sealed(mount):
    mount.wait_sealed(20)


def make_read_only(path):
    """Not as long as the kernel remembers a descriptor that could write."""

    def attempt():
        kvmount.drop_caches()
        return subprocess.run(["mount", "-o", "remount,ro", path], capture_output=True,
                              check=False).returncode == 0

    kvmount.wait_until(attempt, 20, "a read-only filesystem")


def test_a_read_only_device_is_read(two):
    mount, disks = two
    old = [f"old-{number}" for number in range(FILES)]
    store(mount, old)
    wait_sealed(mount)
    assert states(mount) == ["well", "well"]
    make_read_only(disks[0].path)
    new = [f"new-{number}" for number in range(FILES)]
    store(mount, new)
    kvmount.drop_caches()
    assert load(mount, old + new) == old + new
    kvmount.wait_until(lambda: states(mount) == ["read_only", "well"], 20, "the state")
    assert "read-only" in mount.cli("status", mount.mnt).stdout.splitlines()[0]
    subprocess.run(["mount", "-o", "remount,rw", disks[0].path], check=True)
    kvmount.wait_until(lambda: states(mount) == ["well", "well"], 20, "the state")
    more = [f"more-{number}" for number in range(FILES)]
    store(mount, more)
    assert load(mount, old + new + more) == old + new + more
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


def test_beside_a_read_only_device_a_full_one_is_full(two):
    mount, disks = two
    store(mount, [f"old-{number}" for number in range(FILES)])
    wait_sealed(mount)
    make_read_only(disks[0].path)
    store(mount, ["looks"])
    kvmount.wait_until(lambda: states(mount) == ["read_only", "well"], 20, "the state")
    os.mkdir(f"{mount.mnt}/kept")
    assert mount.cli("pin", f"{mount.mnt}/kept").returncode == 0
    with pytest.raises(OSError) as raised:
        for number in range(256):
            with open(f"{mount.mnt}/kept/{number}", "wb") as file:
                file.write(b"k" * MIB)
    assert raised.value.errno == errno.ENOSPC
    mount.wait_sealed(20)
    space = os.statvfs(mount.mnt)
    assert space.f_bavail * space.f_frsize < 16 * MIB
    budget = mount.status()["tiers"][0]["budget"]
    assert budget["evictable"] == 0 and budget["kept"] > 0


@pytest.mark.promise(7)
def test_a_dead_device_costs_its_own_files(two):
    """Its filesystem is shut down: each read and write that reaches the disk is EIO."""
    mount, disks = two
    old = [f"old-{number}" for number in range(FILES)]
    store(mount, old)
    wait_sealed(mount)
    disks[1].shutdown()
    new = [f"new-{number}" for number in range(FILES)]
    store(mount, new)
    kvmount.wait_until(lambda: states(mount) == ["well", "lost"], 20, "the state")
    kvmount.drop_caches()
    assert set(new) <= set(load(mount, new)), "stored after the loss"
    left = load(mount, old)
    assert len(left) == FILES // 2
    store(mount, [name for name in old if name not in left])
    assert load(mount, old + new) == old + new
    assert "lost" in mount.cli("status", mount.mnt).stdout.splitlines()[0]
    assert os.statvfs(mount.mnt).f_blocks > 0
    text = mount.logs()
    assert text.count("event=lost") == 1, text
