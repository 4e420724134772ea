"""`kvcachefs export` before it serves: its directory, its ports, and signals. With a server that never comes up."""

import os
import signal
import socket
import subprocess

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the command line of kvcachefs")


class Starter:
    """Runs `kvcachefs export --run` of a mount with a ganesha.nfsd of ours."""

    def __init__(self, mount):
        self.mount = mount
        self.port = pools.free_ports()
        self.bin = os.path.join(mount.work, "bin")
        self.pid = os.path.join(mount.work, "server.pid")
        os.mkdir(self.bin)
        with open(os.path.join(self.bin, "ganesha.nfsd"), "w") as script:
            script.write(f"#!/bin/sh\necho $$ >{self.pid}.new\nmv {self.pid}.new {self.pid}\n"
                         "exec sleep 600\n")
        os.chmod(os.path.join(self.bin, "ganesha.nfsd"), 0o755)

    def command(self, *words):
        return [os.path.join(kvmount.BIN, "kvcachefs"), "export", "--run", "--nfs", "4", "--port",
                str(self.port), *words, self.mount.mnt]

    def environment(self):
        return {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def refused(self, *words, code=1, said=()):
        done = subprocess.run(self.command(*words), env=self.environment(), capture_output=True,
                              text=True, timeout=120, check=False, cwd=self.mount.work)
        assert done.returncode == code and done.stdout == "", done
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("kvcachefs: "), done
        for part in said:
            assert part in done.stderr, (part, done.stderr)
        assert not os.path.exists(self.pid)


@pytest.fixture
def starter(mounts):
    return Starter(mounts())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_may_be_ended_while_the_server_starts(starter, number):
    """With a directory that is named from where one is."""
    process = subprocess.Popen(starter.command("--work", "nfs"), env=starter.environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=starter.mount.work)
    try:
        kvmount.wait_until(lambda: os.path.exists(starter.pid), 30, "the server's start")
        process.send_signal(number)
        out, said = process.communicate(timeout=60 * kvmount.SLOWNESS)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, said) == (0, "", "")
    with open(starter.pid) as file:
        server = int(file.read())
    assert not os.path.exists(f"/proc/{server}")
    work = f"{starter.mount.work}/nfs"
    assert os.stat(work).st_mode & 0o7777 == 0o700
    with open(f"{work}/ganesha.conf") as file:
        assert f'RecoveryRoot = "{work}/recovery"' in file.read()


def test_the_directory_is_its_own(starter):
    work = starter.mount.work
    starter.refused("--work", f"{work}/absent/nfs", said=["absent", "make its parent directory"])
    assert not os.path.exists(f"{work}/absent")
    starter.refused("--work", f"{starter.mount.mnt}/nfs", code=2, said=["inside the mount"])
    starter.refused("--work", starter.pid + "\n\"", code=2, said=["--work", "character"])

    home = f"{work}/home"
    os.mkdir(home)
    os.chmod(home, 0o755)
    with open(f"{home}/letters", "wb"):
        pass
    starter.refused("--work", home, said=[home, "holds other things (letters)", "--work"])
    starter.refused("--work", f"{home}/letters", said=["not a directory"])
    os.unlink(f"{home}/letters")
    os.chmod(home, 0o777)
    starter.refused("--work", home, said=["other users may write"])
    os.chmod(home, 0o755)
    os.chown(home, kvmount.NOBODY, kvmount.NOBODY)
    starter.refused("--work", home, said=[f"belongs to uid {kvmount.NOBODY}"])
    assert os.listdir(home) == [] and os.stat(home).st_mode & 0o7777 == 0o755


def test_a_port_that_it_cannot_have(starter):
    work = f"{starter.mount.work}/nfs"
    with socket.socket() as other:
        other.bind(("127.0.0.1", starter.port))
        other.listen()
        starter.refused("--work", work, said=[f"--port {starter.port}", "in use"])
    starter.refused("--work", work, "--listen", "192.0.2.1", said=["--listen 192.0.2.1", "address"])
    for port in ("0", "65536", "-1", "text", "20.5", ""):
        for option in ("--port", "--mount-port"):
            starter.refused("--work", work, option, port, code=2, said=[option, "65535"])
    assert not os.path.exists(work)
