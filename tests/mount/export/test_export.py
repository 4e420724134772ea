"""A mount that is served by NFS (kvcachefs export): real server, real client, and what dies in between."""

import errno
import os
import random
import signal
import subprocess

import pytest

import exports
import kvmount
import nfs_client
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the export of kvcachefs")

KIB = 1024
FILES = 20
SIZE = 300 * KIB


@pytest.fixture
def exported():
    with exports.rpcbind(), kvmount.Mount("export", foreground=False, options=["--lease", "2s"]) as mount:
        export = exports.Export(mount, "--squash", "none")
        try:
            export.wait()
            yield mount, export
        finally:
            export.end()


def content(number, seed):
    return random.Random(f"{seed}-{number}").randbytes(SIZE)


def is_the_same(file, expected):
    try:
        return file.read(SIZE) == expected
    except OSError:  # The server is not there yet.
        return False


@pytest.mark.limit(200)
def test_open_files_outlive_the_caches_the_daemon_and_the_server(exported, seed):
    mount, export = exported
    client = nfs_client.NfsClient(export.url)
    client.mkdir("/blocks")
    expected = [content(number, seed) for number in range(FILES)]
    for number, data in enumerate(expected):
        client.store(f"/blocks/{number}", data)
        with open(f"{mount.mnt}/blocks/{number}", "rb") as file:
            assert file.read() == data
    files = [client.open(f"/blocks/{number}") for number in range(FILES)]

    def all_good():
        assert [file.read(SIZE) for file in files] == expected

    kvmount.drop_caches()
    all_good()
    os.kill(export.server(), signal.SIGKILL)
    export.wait()
    kvmount.drop_caches()
    all_good()
    mount.kill()
    mount.start()
    export.wait()
    kvmount.wait_until(lambda: is_the_same(files[0], expected[0]), 30, "the server")
    all_good()
    # The other way round: what is stored here is found there, and what is evicted has gone.
    with open(f"{mount.mnt}/blocks/here", "wb") as file:
        file.write(expected[0])
    assert client.load("/blocks/here", SIZE) == expected[0]
    for file in files:
        file.close()
    client.unlink("/blocks/here")
    assert not os.path.exists(f"{mount.mnt}/blocks/here")
    client.close()


@pytest.mark.gate
@pytest.mark.limit(200)
def test_what_was_evicted_is_a_miss_at_once(exported, seed):
    mount, export = exported
    client = nfs_client.NfsClient(export.url)
    client.store("/block", content(0, seed))
    file = client.open("/block")
    # The server asks for a sync of whatever is stored: that does not say that it is needed for ever. It closes what
    # nobody reads: only then may it go.
    assert "policy       cache" in mount.cli("explain", f"{mount.mnt}/block").stdout
    kvmount.wait_until(lambda: mount.cli("evict", f"{mount.mnt}/block").returncode == 0, 30,
                       "an eviction")
    with pytest.raises(OSError) as gone:
        file.read(SIZE)
    # libnfs 4.0.0 has no number of its own for NFS3ERR_STALE.
    assert gone.value.errno in (errno.ESTALE, errno.ENOENT, errno.EFAULT), gone.value
    with pytest.raises(OSError) as gone:
        client.open("/block")
    assert gone.value.errno == errno.ENOENT, gone.value
    client.store("/block", content(1, seed))
    assert client.load("/block", SIZE) == content(1, seed)
    client.close()


@pytest.mark.limit(200)
def test_who_has_no_fuse_shares_it_as_a_pool(exported, seed):
    """A directory of the mount is the pool of a mount on another machine."""
    mount, export = exported
    nfs_client.NfsClient(export.url).mkdir("/pool")
    uri = export.url.replace("/kvcachefs?", "/kvcachefs/pool?")
    with kvmount.Mount("importer", options=["--pool", uri], foreground=False) as other:
        pools.wait_until_joined(other)
        with open(f"{other.mnt}/block", "wb") as file:
            file.write(content(0, seed))
        done = other.cli("flush", other.mnt)
        assert done.returncode == 0, done.stderr
        with open(f"{mount.mnt}/pool/block", "rb") as file:
            assert file.read() == content(0, seed)


def refused(*words, code=1):
    done = subprocess.run([os.path.join(kvmount.BIN, "kvcachefs"), "export", *words],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code and done.stdout == "", done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_what_cannot_be_served_is_refused(tmp_path):
    assert "no kvcachefs is mounted" in refused(str(tmp_path))
    with kvmount.Mount("export", allow_other=False, foreground=False) as mount:
        assert "--allow-other" in refused(mount.mnt)
    with kvmount.Mount("export", foreground=False) as mount:
        assert "--listen" in refused("--listen", "nowhere", mount.mnt, code=2)
        assert "--client" in refused("--client", "10.0.0.0/24; }", mount.mnt, code=2)
        assert "--as" in refused("--as", "kv\" ; x", mount.mnt, code=2)
        refused("--squash", "some", mount.mnt, code=2)
        refused("--nfs", "2", mount.mnt, code=2)
        refused("--port", "99999", mount.mnt, code=2)
        printed = mount.cli("export", "--client", "10.0.0.0/24", "--client", "host", mount.mnt)
        assert printed.returncode == 0
        assert "Clients = 10.0.0.0/24, host; Access_Type = RW; Squash = Root_Squash" in printed.stdout
        assert f'Path = "{mount.mnt}"' in printed.stdout


def test_a_port_that_is_taken_is_said_and_a_second_one_is_refused(exported):
    mount, export = exported
    again = refused("--run", "--port", str(export.port), "--mount-port", str(export.port + 1),
                    "--work", export.work, mount.mnt)
    assert "another kvcachefs export" in again
    other = refused("--run", "--port", str(export.port), "--mount-port", str(export.port + 1),
                    "--work", export.work + "2", mount.mnt)
    assert f"--port {export.port}: in use" in other
    assert not os.path.exists(export.work + "2")


@pytest.mark.limit(200)
def test_it_waits_for_a_mount_that_has_gone(exported, seed):
    mount, export = exported
    mount.kill()
    kvmount.wait_until(lambda: "waits for it" in export.text(), 30, "it is said")
    mount.start()
    export.wait()
    client = nfs_client.NfsClient(export.url)
    client.store("/block", content(0, seed))
    assert client.load("/block", SIZE) == content(0, seed)
    client.close()
