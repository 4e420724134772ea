"""Mounts with a budget, each on a filesystem of its own and of known size."""

import contextlib
import os
import subprocess
import tempfile

import pytest

import kvmount

MIB = 1 << 20


def runs(pid):
    """Neither gone nor about to go."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.fixture
def limited(request):
    """limited(size, disk, mkfs=…, kind=…, **arguments of Mount): a started Mount; `mount.disk` is its LoopFs.
    `exact`: the database is elsewhere, for it would be a part of the budget."""
    with contextlib.ExitStack() as stack:

        def start(size=192 * MIB, disk=512 * MIB, mkfs=(), exact=False, kind=kvmount.BELOW, **arguments):
            if mkfs and kind != "ext4":
                pytest.skip(f"mkfs.ext4 {' '.join(mkfs)} has no equal for {kind}")
            below = stack.enter_context(kvmount.LoopFs(kind, size=disk, mkfs=mkfs))
            arguments.setdefault("name", request.node.name)
            if exact:
                arguments["state"] = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="kvcachefs-state-", dir="/var/tmp"))
            mount = kvmount.Mount(nvme=os.path.join(below.path, "nvme"), size=size, **arguments)
            mount.create()
            stack.callback(mount.close)
            mount.start()
            os.chmod(mount.mnt, 0o777)
            mount.disk = below

            def stop():
                try:
                    if mount.process is not None and runs(mount.process.pid) and mount.is_mounted():
                        mount.stop()
                finally:
                    # A killed daemon may have a thread in the kernel that waits for a caller, who
                    # waits for the daemon: this ends both.
                    if kvmount.mount_entry(mount.mnt):
                        subprocess.run(["umount", "-f", mount.mnt], capture_output=True,
                                       timeout=60, check=False)

            stack.callback(stop)
            return mount

        yield start
