"""`kvcachefs flush` of a mount without a pool: what it waits for, what it does not, and that it ends. What a power cut leaves
is in tests/crash/test_flush.py."""

import json
import os
import signal
import subprocess
import threading

import pytest

import kvmount

FLUSHED = "all that was closed is on the disk\n"

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="a command of kvcachefs")


def store(mount, name, data=b"bytes"):
    with open(os.path.join(mount.mnt, name), "wb") as file:
        file.write(data)


def is_sealed(mount, name):
    done = mount.cli("explain", "--json", os.path.join(mount.mnt, name))
    return json.loads(done.stdout)["state"] == "sealed"


@pytest.mark.short
def test_all_that_was_closed_is_sealed(mounts):
    mount = mounts()
    os.mkdir(os.path.join(mount.mnt, "d"))
    for number in range(5):
        for name in (f"f{number}", f"d/f{number}"):
            store(mount, name)
        done = mount.cli("flush", mount.mnt)
        assert (done.returncode, done.stdout, done.stderr) == (0, FLUSHED, "")
        assert is_sealed(mount, f"f{number}") and is_sealed(mount, f"d/f{number}")
        assert mount.status()["counts"]["unsealed"] == 0
    store(mount, "d/last")
    done = mount.cli("flush", "--json", os.path.join(mount.mnt, "d"))
    assert done.returncode == 0 and done.stdout.count("\n") == 1
    assert json.loads(done.stdout) == {
        "unsealed": 0, "more_unsealed": False, "open": 0, "pool": False, "files": 0, "directories": 0,
        "removed": 0, "owners": 0, "more": False,
        "skipped": 0, "obstructed": 0, "up": False, "stopped_for": None}
    assert is_sealed(mount, "d/last")
    assert mount.cli("flush", "--timeout", "soon", mount.mnt).returncode == 2


def test_a_writer_that_never_closes_is_not_waited_for(mounts):
    mount = mounts()
    with open(os.path.join(mount.mnt, "open"), "wb", buffering=0) as writer:
        writer.write(b"bytes")
        store(mount, "closed")
        done = mount.cli("flush", mount.mnt)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == FLUSHED + "not waited for: 1 file that a program writes to\n"
        assert is_sealed(mount, "closed") and not is_sealed(mount, "open")
        told = json.loads(mount.cli("flush", "--json", mount.mnt).stdout)
        assert (told["open"], told["unsealed"]) == (1, 0)


def test_a_file_that_is_rewritten_all_the_time_holds_no_flush_up(mounts):
    mount = mounts()
    ends = threading.Event()
    rewrites = 0

    def rewrite():
        nonlocal rewrites
        while not ends.is_set():
            store(mount, "rewritten", b"%d" % rewrites)
            rewrites += 1

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        kvmount.wait_until(lambda: rewrites > 0, 20, "the first rewrite")
        for number in range(5):
            store(mount, f"f{number}")
            before = rewrites
            done = mount.cli("flush", "--timeout", "20s", mount.mnt)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith(FLUSHED)
            assert is_sealed(mount, f"f{number}")
            kvmount.wait_until(lambda before=before: rewrites > before, 20, "another rewrite")
    finally:
        ends.set()
        writer.join(60)


def test_it_ends_with_the_daemon(mounts):
    """It has asked the daemon, or is about to: the daemon has stopped and is killed before it has answered."""
    mount = mounts()
    store(mount, "f")
    pid = mount.pid()
    os.kill(pid, signal.SIGSTOP)
    kvmount.wait_until(lambda: kvmount.is_stopped(pid), 20, "the daemon to stop")
    flush = subprocess.Popen([os.path.join(kvmount.BIN, "kvcachefs"), "flush", mount.mnt], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    mount.kill(unmount=False)
    out, said = flush.communicate(timeout=60 * kvmount.SLOWNESS)
    assert flush.returncode == 1 and out == "" and said.count("\n") == 1, (out, said)
    mount.close()
