"""A process that starts others while it writes: what they close was inherited, and nothing is
published by it."""

import os
import signal
import subprocess

import pytest

import kvmount


def save(root, ready, child):
    """A new file and a rewritten one, half written when a child comes and goes."""
    new = os.open(f"{root}/new", os.O_WRONLY | os.O_CREAT, 0o600)
    slot = os.open(f"{root}/slot", os.O_WRONLY | os.O_TRUNC)
    for fd in (new, slot):
        os.set_inheritable(fd, True)
        os.write(fd, b"n" * 1_000_000)
    if child == "exec":
        subprocess.run(["true"], check=True, close_fds=False)
    else:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    os.write(ready, b"r")
    signal.pause()


@pytest.mark.promise(1)
@pytest.mark.short
@pytest.mark.parametrize("child", ["exec", "fork"])
def test_a_child_publishes_nothing(data_path, child):
    with kvmount.Mount(f"inherited-{child}", data_path=data_path, foreground=False) as mount:
        with open(f"{mount.mnt}/slot", "wb") as file:
            file.write(b"o" * 3_000_000)
        # One that somebody has open is truncated in place; the kernel tells of a close later.
        kvmount.wait_until(lambda: mount.status()["counts"]["open_files"] == 0, 10, "the close")
        reader, ready = os.pipe()
        writer = kvmount.Child(save, mount.mnt, ready, child)
        try:
            os.close(ready)
            assert os.read(reader, 1) == b"r", writer.result(1)
            mount.crash()
        finally:
            writer.end()
            os.close(reader)
        assert os.listdir(mount.mnt) == ["slot"]
        with open(f"{mount.mnt}/slot", "rb") as file:
            assert file.read() == b"o" * 3_000_000
