"""`kvcachefs export --run` for tests, and the rpcbind that it needs for version 3."""

import contextlib
import fcntl
import os
import re
import subprocess

import kvmount
import pools

RPCBIND = "/run/rpcbind.sock"


@contextlib.contextmanager
def rpcbind():
    """The server registers version 3 with one. Ours, where none runs, hears on no network; one test at a time."""
    with open(os.path.abspath(__file__)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(RPCBIND):
            yield
            return
        process = subprocess.Popen(["unshare", "--net", "rpcbind", "-f"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            kvmount.wait_until(lambda: os.path.exists(RPCBIND), 10, "rpcbind")
            yield
        finally:
            process.terminate()
            process.wait(20)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(RPCBIND)


class Export:
    """`kvcachefs export --run` of a mount."""

    def __init__(self, mount, *options):
        self.port = pools.free_ports()
        self.work = os.path.join(mount.work, "nfs")
        self.said = os.path.join(mount.work, "export.said")
        self.url = f"nfs://127.0.0.1/kvcachefs?nfsport={self.port}&mountport={self.port + 1}"
        with open(self.said, "w") as out:
            self.process = subprocess.Popen(
                [os.path.join(kvmount.BIN, "kvcachefs"), "export", "--run", "--port",
                 str(self.port), "--mount-port", str(self.port + 1), "--work", self.work, *options,
                 mount.mnt], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.starts = 0

    def wait(self):
        """Until the server serves, once more than the last time."""
        self.starts += 1
        kvmount.wait_until(lambda: self.text().count("NFS clients mount it by") >= self.starts
                           or self.process.poll() is not None, 30, "the export")
        assert self.process.poll() is None, self.text()

    def text(self):
        with open(self.said) as said:
            return said.read()

    def mount_line(self):
        """The command that it tells clients, without their directory."""
        return re.search(r"^  (mount .*) DIRECTORY$", self.text(), re.MULTILINE)[1]

    def server(self):
        with open(os.path.join(self.work, "pid")) as file:
            return int(file.read())

    def end(self):
        self.process.terminate()
        assert self.process.wait(30) == 0, self.text()
