"""The daemon dies at a chosen system call of a chosen step.

A recording of each step tells which calls it makes and how often; (call, N) of it are then
tried until so many as are wanted have killed. What must hold afterwards is what holds after any
kill.
"""

import os
import random

import pytest

import crashes
import kvmount
import load
import model
import strace

SAMPLES = crashes.count(full=40, normal=3, short=1)  # Of each step and data path.
START_SAMPLES = crashes.count(full=60, normal=5, short=2)


def _file(name, tag, **more):
    return {"path": name, "tag": tag, "size": 50_000, "way": "plain", **more}


# What is there before, and then the operation in which the daemon dies. `sealed` waits for the
# seal of what the operation left, so that the death can be inside that.
STEPS = {
    "create": ([], [{"op": "mkdir", "path": "d"},
                    {"op": "create", **_file("d/new", "create")}], False),
    "publish": ([], [{"op": "store", "tmp": ".t", "sync": "none", **_file("p", "publish")}], False),
    "publish_synced": ([], [{"op": "store", "tmp": ".t", "sync": "dir",
                             **_file("p", "synced")}], False),
    "seal": ([], [{"op": "store", "tmp": ".t", "sync": "none", **_file("p", "seal")}], True),
    "replace": ([{"op": "store", "tmp": ".t", "sync": "none", **_file("p", "old")}],
                [{"op": "store", "tmp": ".t", "sync": "none", **_file("p", "new")}], True),
    "rewrite": ([{"op": "store", "tmp": ".t", "sync": "none", **_file("p", "old")}],
                [{"op": "rewrite", "reader": False, "settled": True,
                  **_file("p", "new")}], True),
    "rename": ([{"op": "store", "tmp": ".t", "sync": "none", **_file("p", "one")},
                {"op": "store", "tmp": ".t", "sync": "none", **_file("q", "two")}],
               [{"op": "rename", "source": "p", "path": "q"},
                {"op": "rename", "source": "q", "path": "r"}], False),
    "unlink": ([{"op": "store", "tmp": ".t", "sync": "none", **_file("p", "one")},
                {"op": "link", "source": "p", "path": "l"}],
               [{"op": "unlink", "path": "p"}, {"op": "unlink", "path": "l"}], True),
}


# Calls of the control socket, which the test itself asks, and of the C library's memory.
NOT_OF_THE_STEP = {"accept4", "getsockopt", "poll", "recvfrom", "sendto", "getpid", "fstatfs",
                   "mprotect", "brk", "mmap", "munmap", "madvise"}
SHORT_STEPS = ("publish_synced", "seal")
DAEMON_STEPS = ("publish", "seal", "rewrite")  # Where the daemon itself moves the bytes.


def perform(root, log_path, state, operations):
    """In a child: the operations, one after the other, until one meets the dead daemon."""
    worker = load.Worker(root, load.AckLog(log_path), 0, state, 0, "kill")
    try:
        for op in operations:
            worker.perform(op)
    except OSError as error:
        if error.errno not in load.CRASH_ERRNOS:
            raise


class Tries:
    """Calls of a recording, until enough of them have killed. A step makes a call less often at
    one time than at another: the first of that call is tried next, and then it is chosen no
    more."""

    MOST = 4 * SAMPLES + 4

    def __init__(self, rng, calls):
        self._rng, self._calls = rng, dict(calls)
        self._last = None
        self.made = self.killed = 0

    def choose(self):
        """(call, N)"""
        assert self._calls and self.made < self.MOST, f"the recorded calls do not kill: {self}"
        self.made += 1
        if self._last is None:
            call = self._rng.choice(sorted(self._calls))
            self._last = call, self._rng.randint(1, self._calls[call])
        return self._last

    def tell(self, died):
        """Whether the daemon died of what was chosen."""
        call, nth = self._last
        self._last = None
        if died:
            self.killed += 1
        elif nth > 1:
            self._last = call, 1
        else:
            del self._calls[call]

    def __str__(self):
        return f"{self.killed} of {self.made} tries killed, {SAMPLES} have to"


class Step:
    """One step on one mount: set up, done under strace, checked."""

    def __init__(self, mount, name, logs):
        self.mount, self.logs = mount, logs
        self.before, self.operations, self.sealed = STEPS[name]
        self.root = ""
        self.serial = 0

    def set_up(self):
        self.serial += 1
        self.root = os.path.join(self.mount.mnt, f"w{self.serial}")
        os.mkdir(self.root)
        log = os.path.join(self.logs, f"before-{self.serial}")
        kvmount.run_as(perform, self.root, log, {}, self.before)
        self.state = model.Replay(log, {}).state
        crashes.wait_sealed(self.mount)

    def run(self, command):
        """The operations with strace attached; True when the daemon died of it."""
        victim = crashes.Victim(self.mount)
        tracer = strace.Attached(victim.pid, command)
        self.log = os.path.join(self.logs, f"during-{self.serial}")
        try:
            kvmount.run_as(perform, self.root, self.log, self.state, self.operations)
            if self.sealed and victim.alive():
                self._wait_sealed(victim)
        finally:
            if not victim.died():
                tracer.detach()
            tracer.wait()
        died = victim.died()
        if died:
            victim.kill()
            kvmount.lazy_unmount(self.mount.mnt)
        return died

    def _wait_sealed(self, victim):
        def settled():
            if not victim.alive():
                return True
            try:
                return self.mount.status()["counts"]["unsealed"] == 0
            except (kvmount.MountError, ValueError, KeyError):
                return not victim.alive()

        kvmount.wait_until(settled, 60, "seal under strace")

    def check(self):
        replay = model.Replay(self.log, self.state)
        lines = model.check_after_kill(self.root, replay)[1]
        assert not lines, "\n".join(lines)


@pytest.mark.limit(150)
@pytest.mark.parametrize("name, path", [
    pytest.param(name, path, marks=[pytest.mark.short, pytest.mark.promise(7)] if name in SHORT_STEPS else ())
    for path in ("passthrough", "daemon") for name in STEPS
    if path == "passthrough" or name in DAEMON_STEPS or kvmount.FULL])
def test_killed_at_the_nth_call(name, path, tmp_path, seed):
    trace = str(tmp_path / "trace")
    with kvmount.Mount(f"nth-{name}", data_path=path, foreground=False) as mount:
        step = Step(mount, name, str(tmp_path))
        step.set_up()
        assert not step.run(strace.record_command(trace)), "the daemon died while recorded"
        step.check()
        calls = strace.counts(trace)
        calls = {c: n for c, n in calls.items() if c not in NOT_OF_THE_STEP}
        assert calls, "the recording saw no system call"
        tries = Tries(random.Random(f"{seed}/{name}"), calls)
        while tries.killed < SAMPLES:
            call, nth = tries.choose()
            step.set_up()
            died = step.run(strace.kill_command(trace, call, nth))
            try:
                if died:
                    mount.start()
                step.check()
            except Exception as error:
                error.add_note(f"killed at {call} number {nth} (seed {seed})")
                raise
            tries.tell(died)
        mount.stop()
        crashes.check_fsck(mount)
    print(f"{name}, {path}: {tries}; calls {calls}")


def try_start(mount, command):
    """A start under strace; True when the daemon died of it."""
    # It may end by itself, of a helper's death. LeakSanitizer cannot look at a traced process.
    leaks = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
    try:
        mount.start(wrapper=command, foreground=True, env=leaks)
    except (kvmount.MountError, AssertionError, OSError, RuntimeError):
        pass
    finally:
        mount.wrapper, mount.foreground, mount.env = [], False, {}
    died = mount.process is None or mount.process.poll() is not None
    if died:
        mount._reap()
    else:
        try:
            mount.kill()
        except (OSError, ValueError, IndexError):  # it had not come as far as writing its pid
            mount.process.kill()
            mount._reap()
    crashes.end_leftover(mount)
    return died


@pytest.mark.limit(200)
@pytest.mark.parametrize("fresh", [
    pytest.param(True, id="first_start", marks=[pytest.mark.short, pytest.mark.promise(7)]),
    pytest.param(False, id="later_start")])
def test_killed_while_starting(fresh, tmp_path, seed):
    """A start that dies, on a new directory or on one with data, leaves the next one whole."""
    rng = random.Random(f"{seed}/{fresh}")
    trace = str(tmp_path / "trace")
    killed, calls, step = 0, None, None
    for number in range(START_SAMPLES + 1):
        if fresh or step is None:
            mount = kvmount.Mount("nth-start", foreground=False).create()
        try:
            if not fresh and step is None:
                mount.start()
                step = Step(mount, "rename", str(tmp_path))
                step.set_up()
                mount.kill()
            if calls is None:
                assert not try_start(mount, strace.record_command(trace))
                calls = strace.counts(trace)
                assert calls, "the recording saw no system call"
            else:
                call = rng.choice(sorted(calls))
                nth = rng.randint(1, calls[call])
                killed += try_start(mount, strace.kill_command(trace, call, nth))
                try:
                    mount.start()
                    if step:
                        lines = model.diff(model.Tree(step.root), step.state)
                        assert not lines, lines
                    mount.stop()
                    crashes.check_fsck(mount)
                except Exception as error:
                    error.add_note(f"start killed at {call} number {nth}, seed {seed}")
                    raise
        finally:
            if fresh or number == START_SAMPLES:
                mount.close()
    print(f"{killed} of {START_SAMPLES} starts were killed; calls {calls}")
    assert killed, "no sample killed the start: nothing was tried"
