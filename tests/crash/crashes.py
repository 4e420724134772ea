"""What the crash tests share: bounds, cleaning up after a death, and the checks that follow."""

import contextlib
import os
import select
import signal
import stat

import kvmount
import model

_REMOUNT_S = 2  # The promise.


def check_remount_time(seconds):
    """Raises Late when a remount took longer than is promised on a machine that has a CPU for
    it; with more that run than there are CPUs, longer by that ratio."""
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    kvmount.check_time(seconds, _REMOUNT_S * crowd, "remount")


def count(full, normal, short):
    """How often a test repeats its crash: `short` with a sanitizer and in the gate, which runs it at every change."""
    if kvmount.SANITIZER or os.environ.get("KVCACHEFS_GATE") == "1":
        return short
    return full if kvmount.FULL else normal


class Victim:
    """The daemon of a mount, held so that it can be killed when its state cannot be read."""

    def __init__(self, mount):
        self.mount = mount
        self.pid = mount.pid()
        self._pidfd = os.pidfd_open(self.pid)

    def alive(self):
        return not select.select([self._pidfd], [], [], 0)[0]

    def died(self):
        """Whether it is dead, or dying: then its end is waited for."""
        if self.alive() and self._answers():
            return False
        return kvmount.wait_pidfd(self._pidfd, 10)

    def _answers(self):
        try:
            return bool(self.mount.status())
        except (kvmount.MountError, ValueError):
            return False

    def kill(self):
        """SIGKILL, unless it has died already. The dead mount stays."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        assert kvmount.wait_pidfd(self._pidfd, 30), f"daemon {self.pid} survived SIGKILL"
        os.close(self._pidfd)


def end_leftover(mount):
    """After a start that was killed, a daemon may be alive for a moment: ends it and detaches."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = mount.pid()
        pidfd = os.pidfd_open(pid)
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                if "kvcachefs" in comm.read():
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    assert kvmount.wait_pidfd(pidfd, 30), f"daemon {pid} survived SIGKILL"
        finally:
            os.close(pidfd)
    kvmount.lazy_unmount(mount.mnt)


def wait_sealed(mount):
    """Until every published file has its seal: from here on a power cut keeps it."""
    mount.wait_sealed()


def check_fsck(mount):
    code, text = mount.fsck()
    assert code == 0, f"fsck says {code} after the recovery:\n{text}"


def check_killed(root, replays):
    """Every worker's tree is one that its log allows; returns the states found."""
    states, wrong = [], []
    for index, replay in enumerate(replays):
        state, lines = model.check_after_kill(os.path.join(root, f"w{index}"), replay)
        states.append(state)
        wrong += lines
    assert not wrong, "after the kill:\n" + "\n".join(wrong)
    return states


def _occupied(mount):
    """What each object occupies, in bytes."""
    found = []
    for path in mount.backing_files():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.lstat(path).st_blocks * 512)
    return found


def _named_files(root):
    """How many regular files the names below root lead to."""
    found = set()
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(os.path.join(folder, name))
                if stat.S_ISREG(status.st_mode):
                    found.add(status.st_ino)
    return len(found)


def check_space(mount):
    """After a while all is sealed, reaped and counted, and the evictor has no reason to go on; then
    each object has a name, and the budget says what is on the disk. Returns (objects, bytes)."""
    seen = {}
    mount.flush(check=False)

    def settled():
        status = mount.status()
        tier = status["tiers"][0]
        budget = tier["budget"]
        files = _occupied(mount)
        seen.update(unsealed=status["counts"]["unsealed"], leaving=budget["leaving"],
                    missing=max(budget["headroom"] - budget["room"], 0),
                    used=budget["used"], occupied=sum(files),
                    objects=tier["objects"], files=len(files))
        # What the last run has left to the reaper is no user's, and not counted as leaving.
        seen.update(named=kvmount.run_as(_named_files, mount.mnt))
        return (seen["unsealed"] == seen["leaving"] == seen["missing"] == 0 and
                seen["used"] == seen["occupied"] and
                seen["objects"] == seen["files"] == seen["named"])

    try:
        kvmount.wait_until(settled, 15, "the budget, the disk and the names to agree")
    except kvmount.Late as late:
        raise kvmount.Late(f"{late}: {seen}") from None
    return seen["objects"], seen["occupied"]
