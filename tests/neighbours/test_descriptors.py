"""The daemon has so many descriptors: one user's open files do not take those that others need."""

import os

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the daemon's descriptors")

LIMIT = 2048
EACH = 1500  # that a process of his opens
PROCESSES = 2


def hold(path, number):
    """In a child that has them open until it is ended."""
    fds = []
    for _ in range(number):
        fd = os.open(path, os.O_RDWR)
        fds.append(fd)
        # Neither the kernel nor a passthrough file can do this alone.
        os.posix_fallocate(fd, 0, 4096)
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0
    assert os.pread(fds[-1], 4, 0) == b"text"
    return len(fds)


def hold_and_say(path, number, ready, go_on):
    count = hold(path, number)
    os.write(ready, b"x")
    os.read(go_on, 1)
    return count


@pytest.mark.gate
def test_one_users_open_files_leave_descriptors_to_others(data_path):
    with kvmount.Mount("descriptors", nofile=LIMIT, data_path=data_path) as mount:
        theirs = f"{mount.mnt}/theirs"
        os.mkdir(theirs)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        for number in range(50):
            with open(f"{mount.mnt}/old-{number}", "wb") as file:
                file.write(b"of root")

        def make():
            with open(f"{theirs}/file", "wb") as file:
                file.write(b"text")

        kvmount.run_as(make, uid=kvmount.NOBODY)
        ready, said = os.pipe()
        waits, go_on = os.pipe()
        children = [kvmount.Child(hold_and_say, f"{theirs}/file", EACH, said, waits, uid=kvmount.NOBODY)
                    for _ in range(PROCESSES)]
        os.close(said)
        try:
            for _ in children:
                assert os.read(ready, 1) == b"x", "a child has ended"
            of_daemon = len(os.listdir(f"/proc/{mount.pid()}/fd"))
            print(f"{data_path}: {of_daemon} of {LIMIT}")
            assert of_daemon < LIMIT * 3 // 4
            for number in range(50):
                with open(f"{mount.mnt}/old-{number}", "rb") as file:
                    assert file.read() == b"of root"
                with open(f"{mount.mnt}/new-{number}", "wb") as file:
                    file.write(b"of root")
                    os.fsync(file)
        finally:
            os.close(waits)
            os.write(go_on, b"x" * PROCESSES)
            os.close(go_on)
            for child in children:
                assert child.result() == EACH
