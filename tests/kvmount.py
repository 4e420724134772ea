"""A kvcachefs mount for tests: start, stop, kill, remount, inspect, and always clean up.

A Mount owns a work directory /var/tmp/kvcachefs-<name>-XXXX with

    nvme/     the device directory given to kvcachefs
    mnt/      the mount point
    control/  a plain directory on the same disk: the oracle
    log       the daemon's log; daemon.err its stderr (sanitizer reports)

With KVCACHEFS_TARGET=ext4 "the mount" is a plain directory, so that the tests themselves are
proved against a filesystem known to be right: start, stop, kill and remount then do nothing.

Environment: KVCACHEFS_BIN (directory of the executables), KVCACHEFS_SEED, KVCACHEFS_FULL=1 (full
counts), KVCACHEFS_SANITIZER=1 (slower bounds), KVCACHEFS_DATA_PATHS and KVCACHEFS_TRANSPORTS
(comma lists that narrow what the tests are parametrized with), KVCACHEFS_TRANSPORT (auto, uring or
dev: the transport of every mount whose test asks for none), KVCACHEFS_BELOW=xfs (the device directory
of every mount whose test gives none is on an xfs of its own; control/ stays where it is, for the
promise is that a mount behaves as ext4 does, whatever is below).
"""

import collections
import contextlib
import errno
import fcntl
import json
import lzma
import os
import pickle
import random
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TESTS)
BIN = os.environ.get("KVCACHEFS_BIN", os.path.join(ROOT, "build", "release", "bin"))
PLAIN = os.environ.get("KVCACHEFS_TARGET", "") == "ext4"
FULL = os.environ.get("KVCACHEFS_FULL", "") == "1"
SANITIZER = os.environ.get("KVCACHEFS_SANITIZER", "") == "1"
TRANSPORT = os.environ.get("KVCACHEFS_TRANSPORT", "") or "auto"
NOBODY = 65534

# Deadlines of the tests are written for an idle release build; a sanitizer build on a shared
# machine is several times slower.
SLOWNESS = 6 if SANITIZER else 2

_SANITIZER_REPORT = re.compile(
    r"(ERROR: (Address|Leak|Memory)Sanitizer|WARNING: ThreadSanitizer|runtime error:)")

BELOW = os.environ.get("KVCACHEFS_BELOW", "") or "ext4"
BELOW_BYTES = 16 << 30  # Sparse: what a filesystem below may hold at most.
if BELOW not in ("ext4", "xfs"):
    raise ValueError(f"KVCACHEFS_BELOW={BELOW}: neither ext4 nor xfs")
if TRANSPORT not in ("auto", "uring", "dev"):
    raise ValueError(f"KVCACHEFS_TRANSPORT={TRANSPORT}: neither auto nor uring nor dev")

live_mounts = []  # Every Mount that was entered and not yet closed; the watchdog kills these.


class MountError(Exception):
    """The product did not do what the fixture asked for; carries what it said."""


class Late(AssertionError):
    """A bound on time was exceeded. Wrong bytes, names, errnos and counts are plain
    AssertionErrors."""


class Never(Late):
    """What a wait was for did not come in NEVER_S seconds: no load explains that, and so it is
    not tried again."""


NEVER_S = 60


def seed():
    """The seed of this run: KVCACHEFS_SEED, or a random one. The caller prints it."""
    given = os.environ.get("KVCACHEFS_SEED")
    return int(given) if given else random.SystemRandom().randrange(1 << 32)


def is_dead(path):
    """Whether a mount says that its daemon has gone: asked in a way that no cache answers."""
    try:
        os.statvfs(path)
    except OSError as error:
        return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    return not os.path.ismount(path)


def wait_until(condition, seconds, what):
    """Polls `condition` until it holds; raises Late, or Never, naming `what` at the deadline."""
    deadline = time.monotonic() + seconds * SLOWNESS
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise (Never if seconds >= NEVER_S else Late)(f"{what}: not within {seconds * SLOWNESS} s")
        time.sleep(pause)  # The poll interval, not an assumption about how long it takes.
        pause = min(pause * 2, 0.05)


def check_time(taken, most, what, control=0.0, times=2):
    """Raises Late when `what` took more than `most` seconds (six times as many under a
    sanitizer) and more than `times` the seconds of `control`: of the like in the same run
    without the mount."""
    limit = max(most * (SLOWNESS if SANITIZER else 1), times * control)
    if taken > limit:
        raise Late(f"{what}: {taken:.3f} s, at most {limit:.3f} s (control {control:.3f} s)")


class Beside:
    """Measures what the machine gives to a process beside the one under test while the `with`
    lasts: of a CPU, and given a `directory` also of the disk below it (tests/beside.py). What
    was added is judged at its end, by bounds that are scaled by that."""

    MOST = 10  # A bound grows at most by this, so that a hang remains one.

    def __init__(self, directory=""):
        self._directory = directory
        self._added = []

    def add(self, taken, most, what):
        """`what` took so many seconds, and may take `most`; else the end of the `with` raises
        Late."""
        self._added.append((taken, most, what))

    def __enter__(self):
        # Not a fork: it would hold descriptors of the mount open.
        words = [sys.executable, "-S", os.path.join(TESTS, "beside.py"), self._directory]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True)
        if self._process.stdout.readline() != "ready\n":
            self._end()
            raise RuntimeError("tests/beside.py does not start")
        return self

    def _end(self):
        try:
            return self._process.communicate(timeout=60 * SLOWNESS)[0]
        finally:
            self._process.kill()
            self._process.wait()

    def __exit__(self, kind, *_):
        said = self._end()
        if kind is not None or not self._added:
            return
        told = json.loads(said)
        slowness = min(max(told["waited"] / told["computed"], 1), self.MOST)
        print(f"beside it a CPU was {slowness:.2f} times as slow, the longest turn took "
              f"{told['longest']:.3f} s")
        for taken, most, what in self._added:
            longest = min(told["longest"], most * self.MOST / 3)
            check_time(taken, most * slowness, what, longest, times=3)
        taken, most, what = max(self._added, key=lambda one: one[0] / one[1])
        print(f"nearest to its bound: {what}, {taken:.3f} s of {most} s")


def free_port():
    """A port of loopback that nobody has now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_pidfd(pidfd, seconds):
    """True when the process behind `pidfd` has ended within `seconds`."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(int(seconds * 1000 * SLOWNESS)))


def mount_entry(path):
    """(filesystem type, source, options) of the topmost mount on `path`, or None."""
    wanted = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)
    found = None
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            fields = line.split()
            point = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), fields[4])
            if os.fsdecode(point) == wanted:
                dash = fields.index(b"-")
                found = (fields[dash + 1].decode(), os.fsdecode(fields[dash + 2]),
                         fields[5].decode() + "," + fields[dash + 3].decode())
    return found


def unshared(propagation, keep):
    """The words before a command that is to run in a mount namespace of its own. Of the FUSE mounts it has those at `keep`
    and below: the others' would not end before it."""
    return ["unshare", "--mount", "--propagation", propagation, "sh", "-c",
            'awk -v keep="$0/" \'$3 ~ /^fuse(\\.|$)/ && index($2 "/", keep) != 1 {print $2}\' /proc/self/mounts |'
            ' xargs -r -n1 umount -l; exec "$@"', keep]


def lazy_unmount(path):
    """Detaches every mount on `path`, dead or alive."""
    for _ in range(16):  # Stacked mounts are a leftover of failed tests; more is a loop of ours.
        if mount_entry(path) is None:
            return
        subprocess.run(["umount", "-l", path], capture_output=True, timeout=60, check=False)
    raise MountError(f"cannot detach {path}")


class Child:
    """function(*args) in a forked child as (uid, gid); result() gives what it returned.

    An exception there is raised by result() with the child's traceback as its text. A child that
    outlives the deadline is killed and reported as a hang.
    """

    def __init__(self, function, *args, uid=0, gid=None, groups=()):
        self.name = f"{getattr(function, '__name__', function)} as uid {uid}"
        self.ending = "nothing yet"
        self.reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(writer, function, args, uid, uid if gid is None else gid, groups)
        os.close(writer)
        self.pidfd = os.pidfd_open(self.pid)

    def _run(self, writer, function, args, uid, gid, groups):
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.close(self.reader)
            os.umask(0o022)
            if os.getuid() == 0:
                os.setgroups(list(groups))
                os.setresgid(gid, gid, gid)
                os.setresuid(uid, uid, uid)
            try:
                outcome = (True, function(*args))
            except BaseException:  # The parent must learn of everything, SystemExit included.
                outcome = (False, traceback.format_exc())
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(outcome, pipe)
        finally:
            os._exit(0)

    def has_ended(self):
        return bool(select.select([self.pidfd], [], [], 0)[0])

    def _stack(self):
        """Where it is in the kernel."""
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/stack") as stack:
            return stack.read()

    def result(self, seconds=60):
        received = bytearray()
        try:
            deadline = time.monotonic() + seconds * SLOWNESS
            while True:
                left = deadline - time.monotonic()
                if not select.select([self.reader], [], [], max(left, 0))[0]:
                    raise TimeoutError(f"{self.name} hung for {seconds * SLOWNESS} s\n{self._stack()}")
                chunk = os.read(self.reader, 1 << 20)
                if not chunk:
                    self.end(ended=True)
                    break
                received += chunk
        finally:
            self.end()
        if not received:
            raise RuntimeError(f"{self.name}: the child died of {self.ending}")
        good, value = pickle.loads(received)
        if not good:
            raise AssertionError(f"{self.name}:\n{value}")
        return value

    def end(self, ended=False):
        """Kills the child unless it has ended by itself, and forgets it."""
        if self.pidfd < 0:
            return
        if not ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        if wait_pidfd(self.pidfd, 10):  # Else it is stuck in the kernel: the watchdog's business.
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self.ending = signal.Signals(-code).name if code < 0 else f"exit {code}"
        os.close(self.pidfd)
        os.close(self.reader)
        self.pidfd = -1


def run_as(function, *args, uid=0, gid=None, groups=(), seconds=60):
    """Child(...).result(): one call in a process of its own."""
    return Child(function, *args, uid=uid, gid=gid, groups=groups).result(seconds)


def load_or_miss(load, *arguments):
    """load(*arguments), or None for a miss: its name is not there. Any other errno is
    raised."""
    try:
        return load(*arguments)
    except FileNotFoundError:
        return None


def remove_tree(path):
    """rm -rf, which is several times faster than shutil on hundred thousands of names."""
    subprocess.run(["rm", "-rf", "--one-file-system", path], capture_output=True, timeout=900,
                   check=False)


def fsync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


PAGE_CACHE_LOCK = "/run/lock/kvcachefs-tests-page-cache"
_page_cache_holders = 0


@contextlib.contextmanager
def page_cache():
    """While this process holds it, no other test drops the machine's caches, in whatever clone it runs."""
    global _page_cache_holders
    os.makedirs(os.path.dirname(PAGE_CACHE_LOCK), exist_ok=True)
    with open(PAGE_CACHE_LOCK, "a") as lock:
        if not _page_cache_holders:
            fcntl.flock(lock, fcntl.LOCK_EX)
        _page_cache_holders += 1
        try:
            yield
        finally:
            _page_cache_holders -= 1


def drop_caches(level=3):
    """Asks the kernel to forget clean pages (1), dentries and inodes (2), or both (3)."""
    with page_cache(), open("/proc/sys/vm/drop_caches", "w") as control:
        control.write(str(level))


def cpu_seconds(pid):
    """What the threads of process `pid` have run so far, to the nanosecond: ticks of 10 ms are by chance."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # A thread that has ended.
            with open(f"/proc/{pid}/task/{task}/schedstat") as stat:
                total += int(stat.read().split()[0])
    return total / 1e9


def is_stopped(pid):
    """Whether every thread of process `pid` has taken its SIGSTOP."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # A thread that has ended.
            with open(f"/proc/{pid}/task/{task}/stat") as stat:
                if stat.read().rpartition(") ")[2][0] != "T":
                    return False
    return True


def rss_bytes(pid, field="VmRSS"):
    """Resident set of process `pid`."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    raise MountError(f"process {pid} has no {field}")


def most_rss_bytes(pid):
    """The largest one that it has had."""
    return rss_bytes(pid, "VmHWM")


# Of the daemon's memory (Mount.memory), with what the allocator loses: an inode that is in
# memory (at most 65,536 that nobody uses), and a name that is stored or was looked up.
INODE_BYTES = 900
NAME_BYTES = 150

Memory = collections.namedtuple("Memory", "bytes inodes")


def check_memory(before, after, names, what, slack=4 << 20):
    """The daemon's memory grew by no more than the inodes that are in memory now and `names`
    cost. Sanitizers have a memory of their own: with them this is only printed."""
    inodes = max(after.inodes - before.inodes, 0)
    grown, most = after.bytes - before.bytes, INODE_BYTES * inodes + NAME_BYTES * names + slack
    said = (f"{what}: memory grew from {before.bytes / 2**20:.1f} MiB by {grown / 2**20:.1f} of at "
            f"most {most / 2**20:.1f}, with {names} names and {inodes} inodes more")
    print(said)
    assert SANITIZER or grown <= most, said


class Mount:
    """One kvcachefs mount. `with Mount("name") as m:` starts it and cleans up after it.

    data_path   auto | passthrough | daemon
    transport   auto | uring | dev, None for that of KVCACHEFS_TRANSPORT
    options     further words for `kvcachefs mount`, before the mount point
    foreground  True keeps the daemon as a child; False lets it go to the background
    nofile      RLIMIT_NOFILE of the daemon, None to inherit
    nvme        a device directory elsewhere (a LoopFs), None for one of our own
    size        its budget in bytes, None for the default
    """

    def __init__(self, name="test", data_path="auto", transport=None, options=(), nvme=None,
                 size=None, state=None, foreground=True, nofile=None, allow_other=True, env=None,
                 wrapper=()):
        self.name = re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:40]
        self.data_path = data_path
        self.transport = TRANSPORT if transport is None else transport
        self.options = list(options)
        self.foreground = foreground
        self.nofile = nofile
        self.allow_other = allow_other
        self.env = dict(env or {})
        self.size = size
        self.wrapper = list(wrapper)  # A command that execs the daemon, for example strace.
        self._given_nvme = nvme
        self._given_state = state
        self.process = None
        self.work = None
        self.below = None  # The filesystem of our own that the device directory is on, if there is one.

    # ---- life --------------------------------------------------------------------------------

    def create(self):
        """Makes the work directory without starting anything."""
        self.work = tempfile.mkdtemp(prefix=f"kvcachefs-{self.name}-", dir="/var/tmp")
        os.chmod(self.work, 0o755)  # `nobody` must reach the mount point.
        self.nvme = self._given_nvme or self._nvme_of_our_own()
        self.state = self._given_state or os.path.join(self.nvme, "state")
        self.mnt = os.path.join(self.work, "mnt")
        self.control = os.path.join(self.work, "control")
        self.log = os.path.join(self.work, "log")
        self.stderr = os.path.join(self.work, "daemon.err")
        os.makedirs(self.nvme, mode=0o700, exist_ok=True)
        for path in (self.mnt, self.control):
            os.mkdir(path, 0o755)
        live_mounts.append(self)
        return self

    def _nvme_of_our_own(self):
        if BELOW == "ext4" or PLAIN:
            return os.path.join(self.work, "nvme")
        self.below = LoopFs(BELOW, BELOW_BYTES).__enter__()
        return os.path.join(self.below.path, "nvme")

    def __enter__(self):
        self.create()
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind, value, trace):
        try:
            if kind is None and self.is_mounted():
                self.stop()
        finally:
            self.close()

    def command(self):
        """The argv that start() runs."""
        argv = list(self.wrapper)
        if self.nofile is not None:
            argv += ["prlimit", f"--nofile={self.nofile}:{self.nofile}"]
        nvme = self.nvme if self.size is None else f"{self.nvme}:{self.size}"
        argv += [os.path.join(BIN, "kvcachefs"), "mount", "--nvme", nvme, "--state", self.state,
                 "--data-path", self.data_path, "--transport", self.transport,
                 "--log", self.log]
        if self.allow_other:
            argv.append("--allow-other")
        if self.foreground:
            argv.append("--foreground")
        return argv + self.options + [self.mnt]

    def start(self, **changes):
        """Mounts and returns self once the mount answers. `changes` set attributes first."""
        for key, value in changes.items():
            setattr(self, key, value)
        if PLAIN:
            return self
        environment = {**os.environ, **self.env}
        with open(self.stderr, "ab") as stderr:
            if not self.foreground:
                done = subprocess.run(self.command(), stdin=subprocess.DEVNULL, stdout=stderr,
                                      stderr=stderr, env=environment, timeout=60 * SLOWNESS,
                                      check=False)
                if done.returncode != 0 or not self.is_mounted():
                    raise MountError(f"mount: exit {done.returncode}\n{self.logs()}")
                return self
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL,
                                            stdout=stderr, stderr=stderr, env=environment)

        def mounted():
            if self.process.poll() is not None:
                raise MountError(f"mount: exit {self.process.returncode}\n{self.logs()}")
            return self.is_mounted()

        wait_until(mounted, 30, f"mount of {self.mnt}")
        # The mount table shows it before the daemon has answered INIT: a call by another
        # process, which can be given up on, tells when it answers.
        run_as(os.statvfs, self.mnt, seconds=30)
        return self

    def stop(self):
        """Unmounts through the CLI and waits until the daemon has ended, cleanly."""
        if PLAIN:
            return
        pid = self.pid()
        pidfd = os.pidfd_open(pid)
        try:
            done = subprocess.run([os.path.join(BIN, "kvcachefs"), "umount", self.mnt],
                                  capture_output=True, text=True, timeout=60 * SLOWNESS,
                                  check=False)
            if done.returncode != 0:
                raise MountError(f"umount: exit {done.returncode}: {done.stderr}{self.logs()}")
            if not wait_pidfd(pidfd, 30):
                raise MountError(f"umount returned, daemon {pid} lives on\n{self.logs()}")
        finally:
            os.close(pidfd)
        code = self._reap()
        if code not in (0, None):
            raise MountError(f"daemon ended with {code}\n{self.logs()}")
        if not self._came_to_its_end():
            raise MountError(f"daemon {pid} died on its way out\n{self.logs()}")
        if self.is_mounted():
            raise MountError("umount returned and the mount is still there")
        self.check_sanitizers()

    def backing_files(self):
        """The paths of all objects, in the order of their making: ids increase."""
        found = [os.path.join(folder, name)
                 for folder, _, names in os.walk(os.path.join(self.nvme, "objects"))
                 for name in names]
        return sorted(found, key=os.path.basename)

    def kill(self, unmount=True):
        """SIGKILLs the daemon, waits until it is gone and detaches the dead mount."""
        if PLAIN:
            return
        pid = self.pid()
        # A daemon that somebody else has killed already is what was asked for.
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                if not wait_pidfd(pidfd, 30):
                    raise MountError(f"daemon {pid} survived SIGKILL")
            finally:
                os.close(pidfd)
        self._reap()
        if unmount:
            lazy_unmount(self.mnt)
        else:
            # The kernel ends the connection a moment after the process.
            wait_until(lambda: is_dead(self.mnt), 30, "the end of the connection")

    def remount(self, **changes):
        """A clean stop and a start."""
        self.stop()
        return self.start(**changes)

    def crash(self, **changes):
        """kill -9 and a start."""
        self.kill()
        return self.start(**changes)

    def close(self):
        """Leaves nothing behind, whatever state the mount is in. Never raises for the daemon."""
        if self.work is None:
            return
        with contextlib.suppress(MountError, OSError, ValueError):
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
            elif not PLAIN and self.is_mounted():
                os.kill(self.pid(), signal.SIGKILL)
        self._reap()
        lazy_unmount(self.mnt)
        if self.below is not None:
            self.below.__exit__(None, None, None)
            self.below = None
        remove_tree(self.work)
        if self in live_mounts:
            live_mounts.remove(self)
        self.work = None

    def abort(self):
        """For the watchdog: ends the daemon so that callers stuck in the mount get an error."""
        with contextlib.suppress(Exception):
            if self.process is not None:
                self.process.kill()
            else:
                os.kill(self.pid(), signal.SIGKILL)

    def _reap(self):
        if self.process is None:
            return None
        try:
            code = self.process.wait(timeout=30 * SLOWNESS)
        except subprocess.TimeoutExpired:
            raise MountError(f"daemon {self.process.pid} does not end\n{self.logs()}") from None
        self.process = None
        return code

    def _came_to_its_end(self):
        """A daemon in the background has no exit code for us, but its log has a last line."""
        try:
            with open(self.log, errors="replace") as file:
                log = file.read()
        except OSError:
            return True
        return log.rfind("mount event=stopped") >= log.rfind("mount event=ready")

    # ---- seeing ------------------------------------------------------------------------------

    def is_mounted(self):
        return PLAIN or mount_entry(self.mnt) is not None

    def pid(self):
        """The daemon's pid, from the lock of its state directory."""
        with open(os.path.join(self.state, "lock")) as lock:
            return int(lock.read().split()[0])

    def wait_for_the_ends_of_leases(self, seconds):
        wait_until(lambda: self.status()["counts"]["leases"] == 0, seconds, "the ends of leases")

    def flush(self, seconds=60, check=True):
        """All that was closed is on the disk when it returns, and on the pool where there is one. Without `check` it may
        also be that something has failed: of tests in which stores do."""
        if PLAIN:
            return
        done = self.cli("flush", "--timeout", f"{seconds * SLOWNESS}s", self.mnt, seconds=2 * seconds)
        if check and done.returncode != 0:
            raise MountError(f"flush: exit {done.returncode}: {done.stderr}{self.logs()}")

    def wait_sealed(self, seconds=60):
        """Returns when all is sealed, of a mount without a pool: a power cut keeps it from here on. Does not wait for the
        sealer's quiet time."""
        self.flush(seconds, check=False)
        wait_until(lambda: self.status()["counts"]["unsealed"] == 0, seconds, "the seals")

    def status(self):
        """`kvcachefs status --json` as a dict."""
        if PLAIN:
            return {"data_path": {"mode": self.data_path}, "transport": {"mode": "none"}}
        done = self.cli("status", "--json", self.mnt)
        if done.returncode != 0:
            raise MountError(f"status: exit {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def memory(self):
        """Memory of the daemon but for what has a bound of its own: its database's memory and
        the order of blocks."""
        counts = self.status()["counts"]
        bounded = counts["catalog_memory_bytes"] + counts["order_bytes"]
        return Memory(rss_bytes(self.pid()) - bounded, counts["inodes_cached"])

    def cli(self, *words, seconds=60):
        """Runs `kvcachefs WORDS…`; the CompletedProcess has text in stdout and stderr."""
        return subprocess.run([os.path.join(BIN, "kvcachefs"), *words], capture_output=True,
                              text=True, timeout=seconds * SLOWNESS, check=False)

    def fsck(self, repair=False):
        """Offline check of the state directory: (exit code, text)."""
        if PLAIN:
            return 0, ""
        words = ["fsck", "--state", self.state] + (["--repair"] if repair else [])
        done = self.cli(*words, seconds=300)
        return done.returncode, done.stdout + done.stderr

    def logs(self, limit=6000):
        """The tails of the daemon's log and stderr."""
        text = ""
        for path in (self.log, self.stderr):
            with contextlib.suppress(OSError):
                with open(path, errors="replace") as file:
                    body = file.read()
                if body:
                    text += f"--- {os.path.basename(path)}\n{body[-limit:]}\n"
        return text

    def check_sanitizers(self):
        """Raises when the daemon's stderr holds a sanitizer report."""
        with contextlib.suppress(FileNotFoundError):
            with open(self.stderr, errors="replace") as file:
                body = file.read()
            if _SANITIZER_REPORT.search(body):
                raise MountError(f"sanitizer report\n{body[-20000:]}")


# ---- a filesystem of one's own -----------------------------------------------------------------

_EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32); XFS answers the same number.


class LoopFs:
    """ext4 or xfs on a loop file: small disks, power cuts, read-only devices.

    `with LoopFs("ext4", 256 << 20) as disk:` gives disk.path, mounted. An xfs is never smaller than its
    mkfs allows.
    """

    SMALLEST_XFS = 300 << 20

    def __init__(self, kind="ext4", size=512 << 20, options="", mkfs=(), direct=False, content=None, image=None):
        self.kind, self.options, self.mkfs = kind, options, list(mkfs)
        self.size = max(size, self.SMALLEST_XFS) if kind == "xfs" else size
        self.content = content  # A filesystem that is there already: its image, compressed by xz.
        self.direct = direct  # Past the page cache, which keeps everything twice otherwise.
        self.image = image  # Where its bytes are; None for a place of its own.
        self.work = None

    def __enter__(self):
        self.work = tempfile.mkdtemp(prefix="kvcachefs-loop-", dir="/var/tmp")
        os.chmod(self.work, 0o755)
        self.image = self.image or os.path.join(self.work, "image")
        self.path = os.path.join(self.work, "disk")
        os.mkdir(self.path)
        try:
            if self.content:
                self._unpack()
            else:
                self._make()
            self.mount()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make(self):
        with open(self.image, "wb") as image:
            image.truncate(self.size)
        quiet = ["-q", "-F"] if self.kind == "ext4" else ["-q"]
        subprocess.run([f"mkfs.{self.kind}", *quiet, *self.mkfs, self.image], check=True,
                       capture_output=True, timeout=120)

    def _unpack(self):
        with lzma.open(self.content) as packed, open(self.image, "wb") as image:
            shutil.copyfileobj(packed, image, 1 << 20)

    def mount(self):
        options = "loop" + ("," + self.options if self.options else "")

        def attempt():  # Loop devices are few and shared with whatever else runs here.
            done = subprocess.run(["mount", "-t", self.kind, "-o", options, self.image,
                                   self.path], capture_output=True, text=True, timeout=120,
                                  check=False)
            self._said = done.stderr
            return done.returncode == 0

        try:
            wait_until(attempt, 10, "loop mount")
        except Late as late:
            raise MountError(f"{late}: {self._said}") from None
        if self.direct:
            subprocess.run(["losetup", "--direct-io=on", *self._devices()], check=True,
                           capture_output=True, timeout=30)

    def unmount(self):
        """Returns when the filesystem has ended: another process's namespace may have a copy."""
        subprocess.run(["umount", self.path], check=True, capture_output=True, timeout=120)
        wait_until(lambda: not self._devices(), 20, f"end of the filesystem on {self.image}")

    def _devices(self):
        return subprocess.run(["losetup", "-n", "-O", "NAME", "-j", self.image], check=True,
                              capture_output=True, text=True, timeout=30).stdout.split()

    def shutdown(self, flush_log=False):
        """A power cut: nothing more reaches the image. Unmount and mount to see what is left."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            flags = struct.pack("I", 1 if flush_log else 2)  # LOGFLUSH or NOLOGFLUSH
            fcntl.ioctl(handle, _EXT4_IOC_SHUTDOWN, flags)
        finally:
            os.close(handle)

    def __exit__(self, kind, value, trace):
        lazy_unmount(self.path)
        remove_tree(self.work)


def errno_name(number):
    """ENOENT for 2; one name where Linux has two."""
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, str(number))

