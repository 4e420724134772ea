"""File handles: open_by_handle_at works after the inode was forgotten and after a remount."""

import errno
import os

import pytest

import kvmount
from posix_calls import name_to_handle, open_by_handle

COUNT = 2000 if kvmount.FULL else 200


def make_tree(root):
    """path -> (handle, inode number, content or None) of files, directories and a symlink."""
    made = {}
    for index in range(COUNT):
        directory = f"{root}/h{index % 7}/s{index % 3}"
        os.makedirs(directory, exist_ok=True)
        path = f"{directory}/f{index}"
        with open(path, "wb") as file:
            file.write(b"content %d" % index)
    os.symlink("f0", f"{root}/h0/link")
    for base, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(base, name)
            body = None
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    body = file.read()
            made[path] = (name_to_handle(path), os.lstat(path).st_ino, body)
    assert len(made) > COUNT
    return made


def check(mnt, made):
    top = os.open(mnt, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for path, (handle, number, body) in made.items():
            flags = os.O_PATH if os.path.islink(path) else os.O_RDONLY
            fd = open_by_handle(top, handle, flags)
            try:
                assert os.fstat(fd).st_ino == number, path
                if body is not None:
                    assert os.read(fd, 100) == body, path
            finally:
                os.close(fd)
    finally:
        os.close(top)


@pytest.mark.gate
@pytest.mark.short
def test_handles_outlive_the_cache(shared_mount):
    root = f"{shared_mount.mnt}/cached"
    os.mkdir(root)
    made = make_tree(root)
    check(shared_mount.mnt, made)
    kvmount.drop_caches(2)
    check(shared_mount.mnt, made)


def test_handles_outlive_a_remount(shared_mount):
    root = f"{shared_mount.mnt}/remounted"
    os.mkdir(root)
    made = make_tree(root)
    shared_mount.remount()
    check(shared_mount.mnt, made)


def test_handles_outlive_a_kill(shared_mount):
    root = f"{shared_mount.mnt}/killed"
    os.mkdir(root)
    made = make_tree(root)
    shared_mount.crash()
    check(shared_mount.mnt, made)


@pytest.mark.gate
@pytest.mark.short
def test_a_removed_file_is_stale(shared_mount):
    path = f"{shared_mount.mnt}/gone"
    with open(path, "wb") as file:
        file.write(b"x")
    handle = name_to_handle(path)
    os.unlink(path)
    with open(path, "wb") as file:  # A new file under the name is another inode.
        file.write(b"y")
    top = os.open(shared_mount.mnt, os.O_RDONLY)

    def is_stale():
        """The kernel has the old inode until the daemon has answered its RELEASE, after close()."""
        kvmount.drop_caches(2)
        try:
            fd = open_by_handle(top, handle, os.O_RDONLY)
        except OSError as error:
            assert error.errno == errno.ESTALE
            return True
        try:
            assert os.read(fd, 2) == b"x" and os.fstat(fd).st_nlink == 0
        finally:
            os.close(fd)
        return False

    try:
        kvmount.wait_until(is_stale, 30, "the removed file's inode to go")
    finally:
        os.close(top)


@pytest.mark.short
def test_a_moved_file_keeps_its_handle(shared_mount):
    path = f"{shared_mount.mnt}/before"
    with open(path, "wb") as file:
        file.write(b"moving")
    handle = name_to_handle(path)
    os.makedirs(f"{shared_mount.mnt}/elsewhere", exist_ok=True)
    os.rename(path, f"{shared_mount.mnt}/elsewhere/after")
    kvmount.drop_caches(2)
    top = os.open(shared_mount.mnt, os.O_RDONLY)
    try:
        fd = open_by_handle(top, handle, os.O_RDWR)
        assert os.read(fd, 10) == b"moving"
        os.close(fd)
    finally:
        os.close(top)
