"""Ends what a failed test left behind: processes of this run, mounts that are dead."""

import os
import re
import signal
import subprocess
import time

NAMES = ("kvcachefs", "mount.kvcachefs", "ganesha.nfsd", "rpcbind", "qemu-system-x86")


def processes(mark):
    """(pid, name, command line) of each process that was started by the run with that mark."""
    wanted = f"KVCACHEFS_TEST_RUN={mark}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{pid}/comm") as file:
                name = file.read().strip()
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # It has ended.
        yield int(pid), name, line


GOING_S = 30


def end_tests(mark):
    """Asks the tests of an interrupted run to end, which unmount then, and waits for that."""
    for pid, name, _ in list(processes(mark)):
        if name.startswith("python") or name == "pytest":
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
    until = time.monotonic() + GOING_S
    while time.monotonic() < until and any(name.startswith("python") for _, name, _ in processes(mark)):
        time.sleep(0.2)  # The poll interval.


def end_processes(mark, everything=False):
    """Kills the daemons and servers that have outlived their label, or all that the run started; returns lines about them."""
    lines = []
    for pid, name, line in list(processes(mark)):
        if everything or name in NAMES:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            if not everything:
                lines.append(f"left behind: {name}, pid {pid}: {line}")
    return lines


def test_mounts():
    """Mount points of tests. The mount of another run is among them."""
    with open("/proc/self/mountinfo", "rb") as table:
        for line in table:
            fields = line.split()
            path = os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), fields[4]))
            kind = fields[fields.index(b"-") + 1]
            if path.startswith("/var/tmp/kvcachefs-") and kind.startswith(b"fuse"):
                yield path


def end_mounts():
    """Detaches the dead and hanging mounts of tests; one that answers belongs to another run. Returns lines about them."""
    lines = []
    for path in list(test_mounts()):
        try:
            answers = subprocess.run(["timeout", "-k", "1", "5", "stat", "-c", "%i", path], check=False,
                                     capture_output=True, timeout=10).returncode == 0
        except subprocess.TimeoutExpired:
            answers = False
        if not answers:
            lines.append(f"left behind: a dead mount on {path}")
            subprocess.run(["umount", "--lazy", path], capture_output=True, timeout=60, check=False)
    return lines


def clean_up(context):
    return end_processes(context.mark) + end_mounts()
