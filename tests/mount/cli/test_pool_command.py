"""`kvcachefs pool`: each failure is one line and an exit code, and none of them makes anything."""

import os
import signal
import subprocess

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the command line of kvcachefs")
COMMANDS = ("init", "status", "check", "gc")


def pool(command, uri):
    return subprocess.run([os.path.join(kvmount.BIN, "kvcachefs"), "pool", command, uri],
                          capture_output=True, text=True, timeout=300, check=False)


def refused(command, uri, code, *said, by=pool):
    done = by(command, uri)
    assert done.returncode == code and done.stdout == "", (command, uri, done)
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("kvcachefs: pool: "), done
    for part in said:
        assert part in done.stderr, (part, done.stderr)


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_address_is_wrong_usage(command):
    for uri in ("", "/a/path", "dir://", "dir://relative", "dir:///a/../b", "dir:///%zz", "nfs://",
                "nfs://host", "nfs://ho st/x", "nfs://host:2049/x", "nfs://host/x?nfsport=0",
                "nfs://host/x?nfsport=65536", "nfs://host/x?frob=1", "smb://host/x", "dir:///a\nb/.."):
        refused(command, uri, 2, "write dir:///PATH or nfs://HOST/EXPORT")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_that_is_not_there_or_none(command, tmp_path):
    refused(command, f"dir://{tmp_path}/absent", 1, "No such file", "name a directory")
    (tmp_path / "file").write_bytes(b"")
    refused(command, f"dir://{tmp_path}/file", 1, "Not a directory")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_a_directory_that_is_no_pool(command, tmp_path):
    refused(command, f"dir://{tmp_path}", 1, "no pool stands there", "pool init")
    assert os.listdir(tmp_path) == []


def test_a_pool_that_one_makes_can_be_asked(tmp_path):
    (tmp_path / "a b").mkdir()
    for command in (*COMMANDS, "init"):
        done = pool(command, f"dir://{tmp_path}/a b/")
        assert done.returncode == 0 and done.stderr == "" and done.stdout, (command, done)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_that_one_may_not_enter(command, tmp_path):
    os.chmod(tmp_path, 0o755)
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    assert pool("init", f"dir://{closed}").returncode == 0

    def as_nobody(*words):
        return kvmount.run_as(pool, *words, uid=kvmount.NOBODY)

    # Its parents are pytest's, and closed as well.
    refused(command, f"dir://{closed}", 1, "Permission denied", by=as_nobody)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_that_is_not_there(command):
    port = pools.free_ports()
    where = f"/export?nfsport={port}&mountport={port + 1}"
    refused(command, f"nfs://127.0.0.1{where}", 1, "see whether its server answers")
    refused(command, f"nfs://no-such-host.invalid{where}", 1, "not known")


def test_a_filesystem_that_hangs(mounts):
    """A directory on a mount whose daemon has stopped."""
    mount = mounts()
    os.mkdir(f"{mount.mnt}/pool")
    os.kill(mount.pid(), signal.SIGSTOP)
    try:
        kvmount.wait_until(lambda: kvmount.is_stopped(mount.pid()), 20, "the daemon to stop")
        refused("gc", f"dir://{mount.mnt}/pool", 1, "does not answer")
    finally:
        os.kill(mount.pid(), signal.SIGCONT)


def test_a_server_that_hangs():
    with pools.Pool("nfs", own=True) as place:
        assert pool("init", place.uri).returncode == 0
        assert pool("gc", place.uri).returncode == 0
        place.stop()
        try:
            refused("gc", place.uri, 1, "see whether its server answers")
        finally:
            place.resume()
