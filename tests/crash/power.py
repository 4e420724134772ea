"""Power cuts: a backing filesystem on a loop device that is shut down under everything."""

import fcntl
import os
import struct
import time

import kvmount

EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32); XFS_IOC_GOINGDOWN is the same number.
# Both filesystems give the three kinds the same values: all data and the log written out first
# (a machine that goes down in order), the log only, nothing.
KINDS = {"default": 0, "logflush": 1, "nologflush": 2}


def cut(disk, kind):
    """From here on nothing reaches the disk. Returns the time (monotonic, ns) just before."""
    fd = os.open(disk.path, os.O_RDONLY)
    try:
        when = time.monotonic_ns()
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", KINDS[kind]))
    finally:
        os.close(fd)
    return when


def power_up(disk):
    """Unmounts what is left of the filesystem and mounts it again: its log is replayed."""
    def unmounted():
        try:
            disk.unmount()
        except OSError:
            return False
        except Exception as error:  # pylint: disable=broad-except
            if type(error).__name__ != "CalledProcessError":
                raise
            return False
        return True

    # The last file descriptors of killed processes are closed a moment after they are reaped.
    kvmount.wait_until(unmounted, 15, f"unmount of {disk.path} after the power cut")
    disk.mount()
