"""A mount with two disks, of which one stops to answer: it gives nothing and takes nothing, or only takes nothing."""

import collections
import contextlib
import fcntl
import os
import signal
import time

import kvmount

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878  # linux/fs.h
KIB = 1 << 10
FILES = 96


def size_of(number):
    """Each its own, so that a backing file tells whose it is."""
    return 64 * KIB + 4 * KIB * number


def bytes_of(number):
    return bytes([number]) * size_of(number)


class Disks:
    """A mount with two disks, of which one falls silent while a `with silence()` lasts."""

    def __init__(self, stack, transport, data_path, size="", options=(), state_on=0):
        """`size`: of each disk's budget; `options`: of the mount; `state_on`: which disk has the state."""
        self.below = stack.enter_context(kvmount.Mount("below", data_path="daemon", transport="dev"))
        healthy = stack.enter_context(kvmount.LoopFs("ext4", size=512 << 20))
        sick = stack.enter_context(
            kvmount.LoopFs("ext4", size=512 << 20, direct=True, image=f"{self.below.mnt}/image"))
        self.paths = [healthy.path, sick.path]
        self.nvme = [f"{path}/nvme" for path in self.paths]
        for path in self.nvme:
            os.mkdir(path, 0o700)
        self.control = f"{healthy.path}/control"
        os.mkdir(self.control)
        self.mount = stack.enter_context(
            kvmount.Mount("above", nvme=self.nvme[0], size=size[1:] or None, state=f"{self.paths[state_on]}/state",
                          options=["--nvme", self.nvme[1] + size, *options], transport=transport, data_path=data_path))
        self.directory = f"{self.mount.mnt}/d"

    def fill(self, files=FILES):
        """The numbers of the files on the healthy disk, and of those on the other; nothing of them is in memory."""
        os.mkdir(self.directory)
        for number in range(files):
            for directory in (self.directory, self.control):
                with open(f"{directory}/f{number}", "wb") as file:
                    file.write(bytes_of(number))
        self.mount.flush()
        at = {}
        for which, nvme in enumerate(self.nvme):
            for folder, _, names in os.walk(f"{nvme}/objects"):
                at.update({os.stat(f"{folder}/{name}").st_size: which for name in names})
        numbers = [[n for n in range(files) if at[size_of(n)] == which] for which in (0, 1)]
        assert min(map(len, numbers)) >= files // 4, numbers
        self.mount.stop()
        self.mount.start()
        # The walk over all files at the start looks at each.
        kvmount.wait_until(lambda: all(tier["objects"] is not None for tier in self.mount.status()["tiers"]), 60, "the walk")
        kvmount.drop_caches()
        return numbers

    @contextlib.contextmanager
    def silence(self):
        pid = self.below.pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            kvmount.wait_until(lambda: kvmount.is_stopped(pid), 20, "the end of answers")
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def frozen(path):
    """FIFREEZE of the filesystem at `path`: writes wait, reads do not."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, FIFREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(fd, FITHAW, 0)
    finally:
        os.close(fd)


def read(directory, number):
    with open(f"{directory}/f{number}", "rb", buffering=0) as file:
        return file.read(size_of(number)) == bytes_of(number)


def timed(function, *arguments):
    began = time.monotonic()
    result = function(*arguments)
    return time.monotonic() - began, result


def store(directory, number):
    with open(f"{directory}/new", "wb", buffering=0) as file:
        file.write(bytes_of(number))
    os.rename(f"{directory}/new", f"{directory}/s{number}")


def look(directory, number):
    try:
        return os.stat(f"{directory}/f{number}").st_size == size_of(number)
    except FileNotFoundError:
        return "miss"


def use_the_healthy_one(directory, control, numbers, stores=20):
    """By turns with the plain directory: the longest time of each call, ours and the control's."""
    longest = collections.defaultdict(lambda: [0.0, 0.0])
    for number in numbers:
        for call in (look, read):
            for which, place in enumerate((directory, control)):
                taken, is_right = timed(call, place, number)
                assert is_right is True, f"{call.__name__} of {place}/f{number}: {is_right}"
                longest[call.__name__][which] = max(longest[call.__name__][which], taken)
    for number in range(stores):
        for which, place in enumerate((directory, control)):
            longest["store"][which] = max(longest["store"][which], timed(store, place, number)[0])
    return dict(longest)


def judge(longest, is_known=True):
    """`is_known`: when the calls began it was known that the other disk does not answer, for which it takes two seconds."""
    for call, (ours, control) in longest.items():
        print(f"{call}: the longest {ours * 1e3:.1f} ms; ext4 {control * 1e3:.1f} ms")
        # A store may have come to the disk before its silence was known.
        most = 3 if not is_known else 2 if call == "store" else 1
        kvmount.check_time(ours, most, f"the longest {call}", control, times=5)


def line_of(mount, text):
    """The first line of `kvcachefs status`, where it has that text; else None."""
    first = mount.cli("status", mount.mnt).stdout.partition("\n")[0]
    return first if text in first else None
