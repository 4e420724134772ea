"""What is looked at while others write."""

import os
import threading
import time

import kvmount


class Looks:
    """Calls `look` every so many seconds while the `with` lasts."""

    def __init__(self, look, seconds):
        self._look, self._seconds = look, seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._done.wait(self._seconds):
            self._look()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()


class Sampler(Looks):
    """The largest and smallest of a figure."""

    def __init__(self, figure):
        super().__init__(self._sample, 0.005)
        self._figure = figure
        self.highest = self.lowest = figure()
        self.samples = 0

    def _sample(self):
        value = self._figure()
        self.highest, self.lowest = max(self.highest, value), min(self.lowest, value)
        self.samples += 1


def stacks(pid):
    """Where its threads are in the kernel."""
    text = ""
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stack") as stack, open(f"/proc/{pid}/task/{task}/comm") as name:
            text += f"{task} {name.read().strip()}:\n{stack.read()}"
    return text


def used_bytes(path):
    space = os.statvfs(path)
    return (space.f_blocks - space.f_bfree) * space.f_frsize


def available_bytes(path):
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def _look_up(directory, stop):
    """Seconds that each lookup of an absent name took, until `stop` exists."""
    seconds = []
    while not os.path.exists(stop):
        begin = time.monotonic()
        try:
            # A new name each time: what the kernel remembers would answer for the daemon.
            os.stat(f"{directory}/absent-{os.getpid()}-{len(seconds)}")
        except FileNotFoundError:
            pass
        seconds.append(time.monotonic() - begin)
        time.sleep(0.002)
    return seconds


class LookUps:
    """Lookups by a process of its own while the `with` lasts; then `seconds` is sorted."""

    def __init__(self, directory, stop):
        self._directory, self._stop = directory, stop
        self.seconds = []

    def __enter__(self):
        self._child = kvmount.Child(_look_up, self._directory, self._stop)
        return self

    def __exit__(self, *_):
        with open(self._stop, "w"):
            pass
        try:
            self.seconds = sorted(self._child.result(60))
        finally:
            os.unlink(self._stop)

    @property
    def longest(self):
        return self.seconds[-1]

    @property
    def p99(self):
        return self.seconds[len(self.seconds) * 99 // 100]

    def __str__(self):
        return (f"{len(self.seconds)} lookups: p50 {self.seconds[len(self.seconds) // 2] * 1e3:.2f} ms, "
                f"p99 {self.p99 * 1e3:.1f} ms, longest {self.longest * 1e3:.0f} ms")


def budget(mount):
    """tiers[0].budget of the status."""
    return mount.status()["tiers"][0]["budget"]


def wait_calm(mount):
    """All is sealed, counted, and what was evicted has gone from the disk."""
    seen = {}
    mount.flush(15, check=False)

    def calm():
        status = mount.status()
        room = status["tiers"][0]["budget"]
        seen.update(room, waiting=status["counts"]["unsealed"])
        return seen["waiting"] == 0 and room["leaving"] == 0 and room["used"] is not None

    try:
        kvmount.wait_until(calm, 15, "calm")
    except kvmount.Late as late:
        raise kvmount.Late(f"{late}: {seen}") from None


def wait_at_rest(mount):
    """Calm, there is room enough, and nothing was evicted for as long as the evictor takes to look
    again: what is there now stays while it is listed or read."""
    wait_calm(mount)
    last = None

    def rests():
        nonlocal last
        status = mount.status()
        room, files = status["tiers"][0]["budget"], status["dropped"]["room"]["files"]
        if room["room"] < room["headroom"] or last is None or last[0] != files:
            last = files, time.monotonic()
        return time.monotonic() - last[1] >= 1.5

    kvmount.wait_until(rests, 60, "the end of evictions")
