"""A directory of a server behind a cache for files of any kind, as Debian has one: a mount of rclone that keeps files on disk.

rclone has no NFS: another rclone serves the directory, at the far end of the link if there is one. Of what it can serve and
mount, plain HTTP was the quickest (see README.md).
"""

import os
import shutil
import socket
import subprocess
import tempfile

import kvmount
import pools


class Mount:
    """`with Mount(directory, link) as m:`; .mnt is the mount point. `link`: a link.Link, or None for loopback."""

    def __init__(self, directory, link=None):
        self.directory = directory
        self.there, self.address = (link.there, link.address) if link else ([], "127.0.0.1")
        self.processes = []

    def __enter__(self):
        self.work = tempfile.mkdtemp(prefix="kvcachefs-rclone-", dir="/var/tmp")
        self.mnt = os.path.join(self.work, "mnt")
        os.mkdir(self.mnt)
        port = pools.free_ports()
        try:
            self._start(*self.there, "rclone", "serve", "http", self.directory, "--read-only",
                        "--addr", f"{self.address}:{port}")
            kvmount.wait_until(lambda: self._answers(port), 30, "rclone to serve")
            self._start("rclone", "mount", ":http:", self.mnt, "--http-url",
                        f"http://{self.address}:{port}", "--read-only", "--vfs-cache-mode", "full",
                        "--cache-dir", os.path.join(self.work, "cache"))
            kvmount.wait_until(self._mounted, 30, "rclone to mount")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, *words):
        # Options and remotes of whoever runs this are not what is measured.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RCLONE_")}
        with open(os.path.join(self.work, "log"), "ab") as log:
            self.processes.append(subprocess.Popen(
                [*words, "--config", "/dev/null"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment, start_new_session=True))

    def _check(self):
        for process in self.processes:
            if process.poll() is not None:
                with open(os.path.join(self.work, "log"), encoding="utf-8") as log:
                    raise SystemExit(f"bench: rclone: exit {process.returncode}\n{log.read()[-2000:]}")

    def _answers(self, port):
        self._check()
        try:
            socket.create_connection((self.address, port), 5).close()
        except OSError:
            return False
        return True

    def _mounted(self):
        self._check()
        return kvmount.mount_entry(self.mnt) is not None

    def __exit__(self, *_):
        kvmount.lazy_unmount(self.mnt)
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
        shutil.rmtree(self.work, ignore_errors=True)
