"""packaging/quickstart.sh as a new user runs it, against executables that are built already."""

import os
import re
import signal
import subprocess

import pytest

import kvmount
from programs import QUICKSTART, run

SCRIPT = os.path.join(os.path.dirname(QUICKSTART), "quickstart.sh")
PROMPT_TOKENS = "200"


@pytest.fixture
def home():
    """A mount's work directory with its mount taken down: room for the script's own."""
    mount = kvmount.Mount("quickstart").create()
    yield mount
    if kvmount.mount_entry(mount.mnt) is not None:
        mount.cli("umount", mount.mnt)
    mount.close()


def environment(mount):
    return {**os.environ, "KVCACHEFS_BIN": kvmount.BIN, "KVCACHEFS_DATA": mount.nvme,
            "KVCACHEFS_QUICKSTART_TOKENS": PROMPT_TOKENS}


def quickstart(mount, *before):
    return run([*before, SCRIPT, mount.mnt], seconds=240, env=environment(mount))


def assert_shown(mount, output):
    assert re.search(r"^  the same \d+ tokens: YES$", output, re.MULTILINE), output
    times = [float(found) for found in
             re.findall(r"time to first token, .*?(\d+\.\d\d) s ", output)]
    assert len(times) == 2 and times[1] < times[0], output
    assert "What to do next" in output
    assert mount.status()["counts"]["damaged"] == 0
    kind = kvmount.mount_entry(mount.mnt)[0]
    assert kind.startswith("fuse"), kind


@pytest.mark.limit(300)
@pytest.mark.skipif(kvmount.PLAIN, reason="mounts by itself")
def test_first_run_second_run_and_a_run_after_a_crash(home):
    assert_shown(home, quickstart(home))
    output = quickstart(home)
    assert "is mounted already: unmounting it first" in output
    assert_shown(home, output)

    pid = home.pid()
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert kvmount.wait_pidfd(pidfd, 30)
    os.close(pidfd)
    output = quickstart(home)
    assert "was left dead by a crash" in output
    assert_shown(home, output)


def refused(mount, *before):
    done = subprocess.run([*before, SCRIPT, mount.mnt], env=environment(mount), text=True,
                          capture_output=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def test_without_root_it_says_what_is_missing(home):
    said = refused(home, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert "root: run it as root" in said


def test_without_dev_fuse_it_says_what_is_missing(home):
    said = refused(home, "unshare", "--mount", "sh", "-c",
                   'mount --bind /etc/passwd /dev/fuse && exec "$@"', "sh")
    assert "/dev/fuse:" in said and "root:" not in said


def test_without_the_right_to_mount_it_says_what_is_missing(home):
    said = refused(home, "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
    assert "CAP_SYS_ADMIN:" in said


def test_a_mount_of_another_kind_is_left_alone(home):
    run(["mount", "-t", "tmpfs", "tmpfs", home.mnt])
    try:
        said = subprocess.run([SCRIPT, home.mnt], env=environment(home), text=True,
                              capture_output=True, timeout=60, check=False)
        assert said.returncode == 1 and "a tmpfs is mounted there" in said.stderr
        assert kvmount.mount_entry(home.mnt)[0] == "tmpfs"
    finally:
        kvmount.lazy_unmount(home.mnt)
