"""A sealed file that is added to is read anew by its seal where something may have changed, and
nowhere else; its checksums are right whatever was done to it."""

import fcntl
import os
import random

import pytest

import damage
import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 takes no checksums")

MIB = 1 << 20
SIZE = 48 * MIB + 12_345


def read_bytes(mount):
    """That the daemon has read, of files and all else, since its start."""
    with open(f"/proc/{mount.pid()}/io") as figures:
        return next(int(line.split()[1]) for line in figures if line.startswith("rchar:"))


@pytest.fixture(name="sealed")
def a_sealed_file(mounts, data_path, seed):
    mount = mounts(data_path=data_path)
    path = f"{mount.mnt}/log"
    with open(path, "wb") as file:
        file.write(random.Random(seed).randbytes(SIZE))
    mount.wait_sealed()
    return mount, path


def append(path, text):
    with open(path, "ab") as file:
        file.write(text)


def check(mount, path, content):
    """The bytes are these, and their checksums are taken of them."""
    mount.wait_sealed()
    with open(path, "rb") as file:
        assert file.read() == content
    mount.stop()
    code, text = mount.fsck()
    assert code == 0 and "no longer hold" not in text, text
    mount.start()
    with open(path, "rb") as file:
        assert file.read() == content
    assert mount.status()["counts"]["damaged"] == 0


def test_appends_cost_what_they_add(sealed):
    mount, path = sealed
    with open(path, "rb") as file:
        content = file.read()
    before = read_bytes(mount)
    for number in range(12):
        append(path, b"line %d\n" % number)
        content += b"line %d\n" % number
        mount.wait_sealed()
    # Twelve times the last chunk, and the database.
    assert read_bytes(mount) - before < 24 * MIB
    with open(path, "ab") as file:
        file.write(bytes(3 * MIB))
        file.write(b"end")
    check(mount, path, content + bytes(3 * MIB) + b"end")


def overwrite(path):
    with open(path, "r+b") as file:
        file.seek(5 * MIB)
        file.write(b"other")
    append(path, b"line")


def overwrite_through_a_mapping(path):
    """Which outlives its descriptor, and another seal."""
    mapping = damage.Mapping(path)
    append(path, b"line")
    mapping.put(5 * MIB, b"other")
    append(path, b"line")
    mapping.close()


def take_append_back(path):
    """What only appends may write anywhere from here on."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"line")
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    os.pwrite(fd, b"other", 5 * MIB)
    os.close(fd)


def cut_and_append(path):
    os.truncate(path, 7 * MIB + 3)
    append(path, bytes(50 * MIB))


def punch_and_append(path):
    kvmount.run_as(os.system, f"fallocate --punch-hole --offset {3 * MIB} --length {MIB} {path}")
    append(path, b"line")


def copy_into(path):
    fd = os.open(path, os.O_RDWR)
    os.copy_file_range(fd, fd, MIB, 0, 9 * MIB)
    os.close(fd)
    append(path, b"line")


@pytest.mark.parametrize("change", [overwrite, overwrite_through_a_mapping, take_append_back, cut_and_append,
                                    punch_and_append, copy_into], ids=lambda change: change.__name__)
def test_what_else_changes_is_in_the_checksums(sealed, change):
    mount, path = sealed
    append(path, b"first line")  # The seal after it trusts the one before.
    mount.wait_sealed()
    change(path)
    mount.wait_sealed()
    append(path, b"last line")
    with open(path, "rb") as file:
        content = file.read()
    check(mount, path, content)


def test_what_changes_again_and_again_waits_for_its_seal(mounts, data_path, seed):
    """Unless somebody waits for that."""
    mount = mounts(data_path=data_path)
    path = f"{mount.mnt}/database"
    with open(path, "wb") as file:
        file.write(random.Random(seed).randbytes(96 * MIB))
    mount.wait_sealed()
    before = read_bytes(mount)
    for number in range(4):
        with open(path, "r+b") as file:
            file.seek(number * MIB)
            file.write(b"changed")
        # A file that was stored meanwhile is sealed soon.
        with open(f"{mount.mnt}/small-{number}", "wb") as file:
            file.write(b"small")
        kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] <= 1, 10, "the seal of the small one")
    # Of five seals that were due since, one or two at most.
    assert read_bytes(mount) - before < 2.5 * 96 * MIB
    mount.wait_sealed()
    with open(path, "rb") as file:
        content = file.read()
    check(mount, path, content)
