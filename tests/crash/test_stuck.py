"""A daemon is killed while a thread of it waits in the kernel for a caller that waits for the daemon:
it cannot end, and nor can the caller. The next mount, or the umount, ends both."""

import contextlib
import errno
import os
import signal
import subprocess

import pytest

import kvmount
import strace

LONG_S = 600  # The test is over long before.


def _states(pid):
    """The state of each thread, by its name."""
    found = {}
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/task/{thread}/stat", encoding="utf-8") as stat:
                    head, _, rest = stat.read().rpartition(")")
                    found[head.partition("(")[2]] = rest.split()[0]
    return found


def _create(path):
    """The errno, 0: it went well."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    except OSError as error:
        return error.errno
    return 0


def _look(path):
    """Has the daemon look at the file, whatever the kernel remembers."""
    return subprocess.run(["stat", "-L", "--cached=never", path], capture_output=True, timeout=60,
                          check=False).returncode


@pytest.mark.promise(2)
def test_the_next_mount_ends_a_stuck_daemon(mounts, tmp_path, data_path):
    # A worker of /dev/fuse that is delayed leaves the others free; a ring serves one processor.
    mount = mounts(foreground=False, data_path=data_path, transport="dev")
    os.mkdir(f"{mount.mnt}/d")
    with open(f"{mount.mnt}/kept", "wb") as file:
        file.write(b"kept")
    before = set(mount.backing_files())
    with open(f"{mount.mnt}/d/lost", "wb") as file:
        file.write(b"lost")
    (backing,) = set(mount.backing_files()) - before
    lost = os.open(f"{mount.mnt}/d/lost", os.O_PATH)
    os.unlink(backing)
    daemon = mount.pid()
    before = set(mount.backing_files())
    tracer = strace.Attached(daemon, strace.delay_command(str(tmp_path / "trace"), "openat2",
                                                          LONG_S))
    # It has the directory's lock in the kernel; the look finds the other file lost, and the notifier
    # wants that lock.
    creator = kvmount.Child(_create, f"{mount.mnt}/d/new")
    try:
        kvmount.wait_until(lambda: set(mount.backing_files()) - before, 30, "the create to be delayed")
        assert kvmount.run_as(_look, f"/proc/{os.getpid()}/fd/{lost}", seconds=20) != 0
        kvmount.wait_until(lambda: _states(daemon).get("kv-notifier") == "D", 30,
                           "the notifier to wait in the kernel")
        os.kill(daemon, signal.SIGKILL)
        tracer.end()  # A dead thread is there until it has been let go.
        kvmount.wait_until(lambda: _states(daemon) == {"kvcachefs": "Z", "kv-notifier": "D"}, 30,
                           "all threads to end but one")
        # Who unmounts ends it as well.
        command = mount.command() if data_path == "passthrough" else [
            mount.command()[0], "umount", "--lazy", mount.mnt]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0 and "could not end" in done.stderr, done.stderr
        if data_path != "passthrough":
            assert not mount.is_mounted()
            mount.start()
        assert creator.result(30) in (errno.ECONNABORTED, errno.ENOTCONN)
    finally:
        # What fails here must not leave a hang behind.
        if "kv-notifier" in _states(daemon):
            subprocess.run(["umount", "-f", mount.mnt], capture_output=True, timeout=60, check=False)
        os.close(lost)
        creator.end()
        tracer.end()
    with open(f"{mount.mnt}/kept", "rb") as file:
        assert file.read() == b"kept"
    assert os.listdir(f"{mount.mnt}/d") == []
