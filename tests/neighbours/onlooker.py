"""What root sees of a mount while somebody else does something to it: the times of his own calls, beside the same calls on a
plain directory of the same disk."""

import contextlib
import errno
import os
import statistics
import time

import kvmount

# The p99 of a call may be so much on a machine with nothing else to do; more where processes wait for a CPU (kvmount.Beside), or
# where the same call on the plain directory takes so many times less at most.
MOST_S = {"stat": 0.010, "open": 0.010, "create": 0.010, "fsync": 0.100}
TIMES = 5
# The p99 of fewer calls is the longest of them, and that of a few syncs the disk's own affair:
# their median is judged.
FEW = 50
# What calls get whose daemon ends, and others find in the directory below the mount point.
ENDED = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED, errno.ENOENT)
# The file that watched() looks at.
LOOKED_AT = ".of-root"


def judged(times):
    return p99(times) if len(times) >= FEW else statistics.median(times)


def p99(times):
    return statistics.quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else max(times)


class Onlooker:
    """Calls in turn on the mount and on the plain directory; judged beside what a process of the same machine gets."""

    def __init__(self, mount, name="of-root"):
        self.trees = {"mount": mount.mnt, "control": mount.control}
        self.name = name
        self.times = {(tree, call): [] for tree in self.trees for call in ("stat", "open", "create", "fsync")}
        for tree in self.trees.values():
            os.mkdir(os.path.join(tree, name))
            for number in range(100):
                with open(os.path.join(tree, name, f"f{number}"), "wb") as file:
                    file.write(b"of root" * 100)

    @contextlib.contextmanager
    def timed(self, tree, call):
        began = time.monotonic()
        yield
        self.times[tree, call].append(time.monotonic() - began)

    def round(self, number, calls):
        for tree, root in self.trees.items():
            path = os.path.join(root, self.name, f"f{number % 100}")
            if "stat" in calls:
                with self.timed(tree, "stat"):
                    os.stat(path)
            if "open" in calls:
                with self.timed(tree, "open"):
                    os.close(os.open(path, os.O_RDONLY))
            if "create" in calls:
                with self.timed(tree, "create"):
                    os.close(os.open(path + ".new", os.O_WRONLY | os.O_CREAT, 0o600))
                os.unlink(path + ".new")
            if "fsync" in calls and number % 10 == 0:
                fd = os.open(path, os.O_WRONLY)
                os.pwrite(fd, b"more", 0)
                with self.timed(tree, "fsync"):
                    os.fsync(fd)
                os.close(fd)

    def during(self, seconds, calls=("stat", "open")):
        """Rounds for so long. The pause between them leaves the machine to the others."""
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            self.round(number, calls)
            number += 1
            time.sleep(0.002)
        return self

    def judge(self, beside, what, calls=tuple(MOST_S)):
        judge(self.times, beside, what, calls)


def judge(all_times, beside, what, calls=tuple(MOST_S)):
    """Gives the p99 of each of these calls that is beyond the control's to `beside`."""
    for (tree, call), times in all_times.items():
        if tree != "mount" or not times:
            continue
        control = p99(all_times["control", call])
        print(f"{what}: {call}: p50 {statistics.median(times) * 1e3:.2f}, p99 {p99(times) * 1e3:.2f}, longest "
              f"{max(times) * 1e3:.1f} ms, of {len(times)}; control p99 {control * 1e3:.2f} ms")
        if call in calls and judged(times) > TIMES * judged(all_times["control", call]):
            beside.add(judged(times), MOST_S[call], f"{what}: root's {call}, {len(times)} times")


@contextlib.contextmanager
def hogs(function, *arguments, count=1, uid=kvmount.NOBODY, seconds=60):
    """So many processes of another user that run function(goes_on, number, *arguments); they end with the `with`, or say why
    they failed. `returned` of each is what it gave, from then on."""
    stop = os.path.join("/dev/shm", f"kvcachefs-hogs-{os.getpid()}-{time.monotonic_ns()}")
    with open(stop, "wb"):
        pass
    children = [kvmount.Child(_hog, function, stop, number, *arguments, uid=uid) for number in range(count)]
    try:
        yield children
    finally:
        os.unlink(stop)
        for child in children:
            child.returned = child.result(seconds)


def _hog(function, stop, number, *arguments):
    return function(lambda: os.path.exists(stop), number, *arguments)


def look_without_end(goes_on, _, roots):
    """(tree, call) -> the seconds that each stat and open of one file took; a look each 20 ms."""
    times = {(tree, call): [] for tree in roots for call in ("stat", "open")}
    while goes_on():
        for tree, root in roots.items():
            path = os.path.join(root, LOOKED_AT)
            for call, look in (("stat", os.stat), ("open", lambda name: os.close(os.open(name, os.O_RDONLY)))):
                began = time.monotonic()
                try:
                    look(path)
                except OSError as error:
                    # The test ends its daemon, and starts another.
                    assert tree == "mount" and error.errno in ENDED, error
                    continue
                times[tree, call].append(time.monotonic() - began)
        time.sleep(0.02)
    return times


@contextlib.contextmanager
def watched(mount, what):
    """Whatever is done to the mount while the `with` lasts, root's stat and open are answered as soon as the module says.
    The file that they are of is pinned, so that it stays there."""
    roots = {"mount": mount.mnt, "control": mount.control}
    for root in roots.values():
        with open(os.path.join(root, LOOKED_AT), "wb") as file:
            file.write(b"of root" * 100)
    os.setxattr(os.path.join(mount.mnt, LOOKED_AT), "user.kvcachefs.policy", b"pin")
    with kvmount.Beside() as beside:
        with hogs(look_without_end, roots, uid=0, seconds=120) as (watcher,):
            yield
        judge(watcher.returned, beside, what)
