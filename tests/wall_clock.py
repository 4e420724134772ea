"""A daemon whose wall clock is off; wall_clock.c says how."""

import contextlib
import mmap
import os
import struct
import subprocess
import tempfile


class WallClock:
    """What a daemon with `environment` takes for the time."""

    def __init__(self, directory):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wall_clock.c")
        library = os.path.join(directory, "wall_clock.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library,
                        source, "-ldl", "-pthread"], check=True, timeout=120)
        self._path = os.path.join(directory, "offset")
        with open(self._path, "wb") as file:
            file.write(bytes(8))
        self.environment = {"LD_PRELOAD": library, "WALL_CLOCK_OFFSET": self._path}

    def set_off(self, seconds):
        """From here on the clock is off by so many seconds."""
        with open(self._path, "r+b") as file, mmap.mmap(file.fileno(), 8) as view:
            view[:] = struct.pack("q", seconds)


@contextlib.contextmanager
def wall_clock():
    with tempfile.TemporaryDirectory(prefix="kvcachefs-clock-", dir="/var/tmp") as directory:
        yield WallClock(directory)


def check_that_it_is_off(mount, name, seconds):
    """A directory has its stamps from the daemon alone, so it shows what that takes for the
    time."""
    path = os.path.join(mount.mnt, name)
    os.mkdir(path)
    control = os.path.join(mount.control, name)
    os.mkdir(control)
    off = os.stat(path).st_mtime - os.stat(control).st_mtime
    assert abs(off - seconds) < 60, f"the clock is off by {off} s, not {seconds}"
