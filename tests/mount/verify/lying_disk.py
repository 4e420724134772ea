"""A disk that lies: ext4 on a loop device on a file that lies as it is told (fuse_file.py)."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import kvmount

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuse_file.py")


class LyingDisk(kvmount.LoopFs):
    """A LoopFs; `truth` is the file with the bytes that the disk has in truth."""

    def __init__(self, size):
        super().__init__("ext4", size)
        self.server = None

    def mount(self):
        if self.server is None:
            self.truth, self.image = self.image, os.path.join(self.work, "served")
            self._serve()
        super().mount()
        # A request is of one file, so that what happens to it happens to no other. And it is small
        # enough for one of FUSE: when the second of two writes fails, a loop device says nothing.
        device = os.path.basename(kvmount.mount_entry(self.path)[1])
        for limit, value in ("nomerges", 2), ("max_sectors_kb", 512):
            with open(f"/sys/block/{device}/queue/{limit}", "w") as queue:
                queue.write(str(value))

    def _serve(self):
        with open(self.image, "xb"):
            pass
        self.socket, theirs = socket.socketpair()
        # Nothing that it does takes long; a server that is stuck must not make the test hang.
        self.socket.settimeout(60 * kvmount.SLOWNESS)
        with theirs:
            self.server = subprocess.Popen(
                [sys.executable, _PROGRAM, self.truth, self.image, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self.lines = self.socket.makefile("rw")
        assert json.loads(self.lines.readline()) == "mounted"

    def lie(self, lies):
        """Tells these lies from now on: [(kind, begin, end, argument)]; [] is the truth. Returns
        how often each of those before was told."""
        self.lines.write(json.dumps(lies) + "\n")
        self.lines.flush()
        return json.loads(self.lines.readline())

    def check(self):
        """What the filesystem's own fsck says, once it is unmounted: (exit code, text)."""
        done = subprocess.run(["e2fsck", "-f", "-n", self.truth], capture_output=True, text=True,
                              timeout=300, check=False)
        return done.returncode, done.stdout + done.stderr

    def __exit__(self, kind, value, trace):
        if self.server is not None:
            with contextlib.suppress(OSError, ValueError):
                self.lie([])
            kvmount.lazy_unmount(self.path)
            with contextlib.suppress(kvmount.Late):  # The loop device lets go a moment later.
                kvmount.wait_until(self._unserve, 10, "the end of the loop device")
            self.lines.close()
            self.socket.close()
            try:
                self.server.wait(timeout=10 * kvmount.SLOWNESS)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
            kvmount.lazy_unmount(self.image)
        super().__exit__(kind, value, trace)

    def _unserve(self):
        return kvmount.mount_entry(self.image) is None or subprocess.run(
            ["umount", self.image], capture_output=True, timeout=60, check=False).returncode == 0
