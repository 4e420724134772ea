"""A state directory or a device that is damaged, foreign, newer, full, read-only or exposed.

Either the mount refuses with one line that names what, on what and the fix, and changes nothing; or
it serves all that is good, and a damaged name is a miss, never wrong bytes.
"""

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
import uuid

import pytest

import crashes
import kvmount
import load
import rocks

FILES = 12
SIZE = 300_000
GOOD, BAD = "good-0", "good-5"


def fill(mount):
    """Sealed files of known bytes."""
    for number in range(FILES):
        path = os.path.join(mount.mnt, f"good-{number}")
        load.store_bytes(path + ".tmp", load.content(f"good-{number}", SIZE), "plain",
                         _Pieces(), os.O_EXCL, None)
        os.rename(path + ".tmp", path)
    crashes.wait_sealed(mount)


class _Pieces:
    def choice(self, values):
        return values[1]


def read(mount, name):
    with open(os.path.join(mount.mnt, name), "rb") as f:
        return f.read()


def check_good(mount, without=()):
    for number in range(FILES):
        name = f"good-{number}"
        if name not in without:
            assert read(mount, name) == load.content(name, SIZE), f"{name} differs"


def backing_file(mount, name):
    """The file on the device that holds the bytes of `name`: the only one with its content."""
    wanted = load.content(name, SIZE)
    for directory, _, files in os.walk(os.path.join(mount.nvme, "objects")):
        for file in files:
            path = os.path.join(directory, file)
            if os.path.getsize(path) == SIZE:
                with open(path, "rb") as f:
                    if f.read() == wanted:
                        return path
    raise AssertionError(f"no backing file holds the bytes of {name}")


def refused(mount, *mentions, fix=()):
    """Mounting fails with one line on stderr that names each of `mentions` and one of `fix`."""
    done = subprocess.run(mount.command(), capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 1, f"exit {done.returncode}: {done.stderr}"
    assert kvmount.mount_entry(mount.mnt) is None, "refused, and mounted all the same"
    lines = [l for l in done.stderr.splitlines() if l.strip()]
    assert len(lines) == 1 and lines[0].startswith("kvcachefs: "), done.stderr
    for word in mentions:
        assert word in lines[0], f"{word!r} is not named in: {lines[0]}"
    assert not fix or any(word in lines[0] for word in fix), f"no fix of {fix} in: {lines[0]}"
    return lines[0]


@pytest.fixture
def stopped(request):
    """A mount that was filled, sealed and cleanly stopped."""
    mount = kvmount.Mount(request.node.name, foreground=False).create()
    try:
        mount.start()
        fill(mount)
        mount.stop()
        yield mount
    finally:
        mount.close()


# --- one damaged file beside good ones --------------------------------------------------------


def after_damage(mount, damage, miss=True, was_killed=False):
    """Damages the backing file of BAD while nothing runs; the good ones must read."""
    path = backing_file(mount, BAD)
    if was_killed:
        mount.start()
        mount.kill()
    damage(path)
    mount.start()
    found = kvmount.load_or_miss(read, mount, BAD)
    if miss:
        assert found is None, f"{BAD} should be a miss and gave {len(found)} bytes"
    else:
        assert found in (None, load.content(BAD, SIZE)), f"{BAD} has wrong bytes"
    check_good(mount, without=(BAD,))
    # A name that is a miss can be stored again, and is then like any other.
    if found is None:
        with open(os.path.join(mount.mnt, BAD), "wb") as f:
            f.write(load.content("again", 1000))
        assert read(mount, BAD) == load.content("again", 1000)
    crashes.wait_sealed(mount)
    mount.stop()
    crashes.check_fsck(mount)
    mount.start()
    check_good(mount, without=(BAD,))
    return mount.status()["counts"]


@pytest.mark.promise(1, 7)
@pytest.mark.short
@pytest.mark.parametrize("was_killed", [False, True], ids=["clean", "killed"])
def test_backing_file_missing(stopped, was_killed):
    after_damage(stopped, os.unlink, was_killed=was_killed)


@pytest.mark.parametrize("was_killed", [False, True], ids=["clean", "killed"])
def test_backing_file_truncated(stopped, was_killed):
    after_damage(stopped, lambda p: os.truncate(p, SIZE - 1), was_killed=was_killed)


def test_backing_file_emptied(stopped):
    after_damage(stopped, lambda p: os.truncate(p, 0))


def test_backing_file_grown(stopped):
    def grow(path):
        with open(path, "ab") as f:
            f.write(b"more")
    after_damage(stopped, grow, miss=False)


def test_backing_file_replaced_by_a_directory(stopped):
    def replace(path):
        os.unlink(path)
        os.mkdir(path)
    after_damage(stopped, replace)
    assert len(os.listdir(f"{stopped.nvme}/quarantine")) == 1


def test_backing_file_replaced_by_a_symlink(stopped, tmp_path):
    """A link out of the device is not followed, to whatever it points."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"s" * SIZE)

    def replace(path):
        os.unlink(path)
        os.symlink(secret, path)
    after_damage(stopped, replace)
    assert secret.read_bytes() == b"s" * SIZE


def test_backing_file_taken_while_mounted(stopped):
    """Missing behind the back of a running daemon: who has the file open reads its bytes, and
    so may who opens it beside him; once the kernel has forgotten it, the name is a miss."""
    path = backing_file(stopped, BAD)
    stopped.start()
    with open(os.path.join(stopped.mnt, BAD), "rb") as file:
        os.unlink(path)
        kvmount.drop_caches()
        assert kvmount.load_or_miss(read, stopped, BAD) in (None, load.content(BAD, SIZE))
        assert file.read() == load.content(BAD, SIZE)

    def is_a_miss():
        kvmount.drop_caches(2)
        found = kvmount.load_or_miss(read, stopped, BAD)
        assert found in (None, load.content(BAD, SIZE)), f"{BAD} has wrong bytes"
        return found is None

    kvmount.wait_until(is_a_miss, 20, "the miss")
    assert BAD not in os.listdir(stopped.mnt)
    check_good(stopped, without=(BAD,))


def test_missing_file_is_reported_and_repaired_by_fsck(stopped):
    os.unlink(backing_file(stopped, BAD))
    code, text = stopped.fsck()
    assert code == 4, f"fsck says {code} with a backing file missing:\n{text}"
    code, text = stopped.fsck(repair=True)
    assert code == 1, f"fsck --repair says {code}:\n{text}"
    crashes.check_fsck(stopped)
    stopped.start()
    assert kvmount.load_or_miss(read, stopped, BAD) is None
    check_good(stopped, without=(BAD,))


def test_what_is_to_be_kept_is_not_dropped_for_what_stands_in_its_place(stopped):
    """A check of the filesystem below may bring it back."""
    path = backing_file(stopped, BAD)
    stopped.start()
    assert stopped.cli("pin", os.path.join(stopped.mnt, BAD)).returncode == 0
    stopped.stop()
    os.rename(path, path + ".away")
    os.mkdir(path)
    stopped.start()
    with pytest.raises(OSError) as refused_it:
        read(stopped, BAD)
    assert refused_it.value.errno == errno.EBADMSG
    stopped.stop()
    os.rmdir(path)
    os.rename(path + ".away", path)
    stopped.start()
    check_good(stopped)


def test_stray_file_in_the_device_is_left_alone(stopped):
    """What is not ours is not deleted."""
    path = os.path.join(stopped.nvme, "objects", "00", "notes.txt")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write("someone's")
    stopped.start()
    check_good(stopped)
    stopped.stop()
    assert os.path.exists(path)


# --- the database -----------------------------------------------------------------------------


def database(mount):
    return os.path.join(mount.state, "db")


def unchanged(mount, keep, *mentions, fix=()):
    """Refused without touching the device; with the good database back, all is there."""
    before = sorted(os.listdir(os.path.join(mount.nvme, "objects")))
    refused(mount, *mentions, fix=fix)
    assert sorted(os.listdir(os.path.join(mount.nvme, "objects"))) == before
    shutil.rmtree(database(mount))
    shutil.copytree(keep, database(mount))
    mount.start()
    check_good(mount)


@pytest.fixture
def kept(stopped, tmp_path):
    return shutil.copytree(database(stopped), tmp_path / "db")


@pytest.mark.gate
@pytest.mark.short
def test_newer_format(stopped, kept):
    def raise_format(path):
        db = rocks.RocksDb(path)
        newer = int.from_bytes(db.get(b"format"), "little") + 1
        db.write([(b"format", newer.to_bytes(4, "little"))])
        db.close()
        return newer

    version = rocks.in_child(raise_format, database(stopped))
    unchanged(stopped, kept, "newer", str(version), fix=("use that version", "use the newer"))


def test_table_of_a_newer_version(stopped, kept):
    def add_family(path):
        db = rocks.RocksDb(path)
        db.add_family("prefix_index_of_tomorrow")
        db.close()

    rocks.in_child(add_family, database(stopped))
    unchanged(stopped, kept, "prefix_index_of_tomorrow", "newer")


@pytest.mark.promise(7)
@pytest.mark.parametrize("what", ["CURRENT", "MANIFEST"])
def test_corrupt_database(stopped, kept, what):
    name = next(n for n in os.listdir(database(stopped)) if n.startswith(what))
    path = os.path.join(database(stopped), name)
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        f.write(os.urandom(size))
    unchanged(stopped, kept, database(stopped), fix=("restore", "backup"))


def test_table_file_missing(stopped, kept):
    tables = [n for n in os.listdir(database(stopped)) if n.endswith(".sst")]
    assert tables, "a clean stop left no table file: the test tests nothing"
    for name in tables:
        os.unlink(os.path.join(database(stopped), name))
    unchanged(stopped, kept, database(stopped), fix=("restore", "backup"))


@pytest.mark.gate
def test_device_without_its_state_is_not_taken_over(stopped, tmp_path):
    """A new state directory must not adopt, or empty, a device that belongs to another."""
    other = kvmount.Mount("other-state", foreground=False, nvme=stopped.nvme,
                          state=str(tmp_path / "state")).create()
    try:
        refused(other, stopped.nvme, fix=("state directory",))
    finally:
        other.close()
    stopped.start()
    check_good(stopped)


# --- directories that cannot be used ----------------------------------------------------------


@pytest.mark.short
def test_state_that_others_can_write(stopped):
    for mode in (0o777, 0o770):
        os.chmod(stopped.state, mode)
        refused(stopped, stopped.state, "write", fix=("chmod",))
    os.chmod(stopped.state, 0o700)
    stopped.start()
    check_good(stopped)


def test_state_of_another_user(stopped):
    os.chown(stopped.state, kvmount.NOBODY, kvmount.NOBODY)
    refused(stopped, stopped.state, fix=("chown",))
    os.chown(stopped.state, 0, 0)
    stopped.start()
    check_good(stopped)


def test_device_that_others_can_write(stopped):
    os.chmod(stopped.nvme, 0o777)
    refused(stopped, stopped.nvme, fix=("chmod",))
    os.chmod(stopped.nvme, 0o700)
    stopped.start()
    check_good(stopped)


def test_state_that_is_a_file(stopped, tmp_path):
    path = tmp_path / "state"
    path.write_text("not a directory", encoding="utf-8")
    stopped.state = str(path)
    refused(stopped, str(path), "not a directory", fix=("--state",))
    assert path.read_text(encoding="utf-8") == "not a directory"


def test_state_on_a_read_only_filesystem(stopped):
    with kvmount.LoopFs("ext4", 64 << 20) as disk:
        mine = stopped.state
        stopped.state = os.path.join(disk.path, "state")
        subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True, timeout=60)
        refused(stopped, stopped.state, fix=("--state", "remount"))
        stopped.state = mine
    stopped.start()
    check_good(stopped)


def test_mounted_filesystem_turns_read_only():
    """The whole device read-only at a later start: refused, and whole when it is back."""
    with kvmount.LoopFs("ext4", 256 << 20) as disk:
        nvme = os.path.join(disk.path, "nvme")
        with kvmount.Mount("ro-disk", nvme=nvme, foreground=False) as mount:
            fill(mount)
            mount.stop()
            subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True, timeout=60)
            refused(mount, nvme)
            subprocess.run(["mount", "-o", "remount,rw", disk.path], check=True, timeout=60)
            mount.start()
            check_good(mount)


@contextlib.contextmanager
def state_on_its_own_disk():
    """(the disk, a filled mount whose state directory is on it, while its files are
    elsewhere)."""
    with kvmount.LoopFs("ext4", 64 << 20, mkfs=["-m", "0"]) as disk:
        with kvmount.Mount("full-state", state=os.path.join(disk.path, "state"),
                           foreground=False) as mount:
            fill(mount)
            yield disk, mount


def test_state_on_a_full_filesystem_is_refused():
    """When there is room again everything is there."""
    with state_on_its_own_disk() as (disk, mount):
        mount.stop()
        fill_up(disk.path)
        refused(mount, disk.path, "full", fix=("free",))
        os.unlink(os.path.join(disk.path, "filler"))
        mount.start()
        check_good(mount)
        os.mkdir(os.path.join(mount.mnt, "room-again"))
        mount.stop()
        crashes.check_fsck(mount)


def test_the_filesystem_of_the_state_fills_up():
    """A call that needs a new record fails with ENOSPC; all else goes on, and what was
    acknowledged is there after a kill."""
    with state_on_its_own_disk() as (disk, mount):
        fill_up(disk.path)
        made = []

        def is_full():
            try:
                os.mkdir(os.path.join(mount.mnt, f"d{len(made)}"))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
                return True
            made.append(f"d{len(made)}")
            return False

        kvmount.wait_until(is_full, 20, "ENOSPC")
        check_good(mount)
        os.unlink(os.path.join(mount.mnt, BAD))
        mount.kill()
        os.unlink(os.path.join(disk.path, "filler"))
        mount.start()
        check_good(mount, without=(BAD,))
        good = [f"good-{number}" for number in range(FILES) if f"good-{number}" != BAD]
        assert sorted(os.listdir(mount.mnt)) == sorted(good + made)
        os.mkdir(os.path.join(mount.mnt, "room-again"))
        mount.stop()
        crashes.check_fsck(mount)


def test_who_filled_the_disk_can_mount_and_remove(tmp_path):
    """State and data on one disk, filled to the last block while nothing was mounted."""
    with kvmount.LoopFs("ext4", 256 << 20, mkfs=["-m", "0"]) as disk:
        nvme = os.path.join(disk.path, "nvme")
        os.mkdir(nvme, 0o700)
        with kvmount.Mount("full-disk", nvme=nvme, foreground=False) as mount:
            # Else it would make room by itself.
            os.setxattr(mount.mnt, "user.kvcachefs.policy", b"pin")
            fill(mount)
            with open(f"{mount.mnt}/big", "wb") as file:
                file.write(bytes(32 << 20))
            mount.stop()
            fill_up(disk.path)
            mount.start()
            check_good(mount)
            os.unlink(f"{mount.mnt}/big")
            kvmount.wait_until(lambda: os.statvfs(disk.path).f_bavail * 4096 > 30 << 20, 30,
                               "the room of the removed file")
            os.unlink(os.path.join(disk.path, "filler"))
            os.mkdir(f"{mount.mnt}/room-again")
            mount.stop()
            crashes.check_fsck(mount)


def fill_up(directory):
    fd = os.open(os.path.join(directory, "filler"), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    os.write(fd, b"f" * size)
            except OSError:
                pass
        os.fsync(fd)
    finally:
        os.close(fd)


def test_device_path_missing(stopped, tmp_path):
    stopped.nvme = str(tmp_path / "none" / "nvme")
    refused(stopped, stopped.nvme, fix=("create", "make"))


def test_device_path_is_a_file(stopped, tmp_path):
    path = tmp_path / "file"
    path.write_text("x", encoding="utf-8")
    stopped.nvme = str(path)
    refused(stopped, str(path), "ot a directory")


def superblock(mount):
    files = [e.path for e in os.scandir(mount.nvme) if e.is_file()]
    assert len(files) == 1, f"which of {files} is the superblock?"
    return files[0]


def test_superblock_of_another_device(stopped):
    """Two devices swapped, or one copied: never served as if it were the other."""
    with kvmount.Mount("foreign", foreground=False) as other:
        path = superblock(stopped)
        mine = open(path, "rb").read()
        shutil.copy(superblock(other), path)
        refused(stopped, stopped.nvme, fix=("state directory",))
    with open(path, "wb") as f:
        f.write(mine)
    stopped.start()
    check_good(stopped)


@pytest.mark.parametrize("damage", ["missing", "empty", "random", "newer", "uuid"])
def test_superblock_damaged(stopped, damage):
    path = superblock(stopped)
    mine = open(path, "rb").read()
    if damage == "missing":
        os.unlink(path)
    else:
        with open(path, "wb") as f:
            f.write({"empty": b"", "random": os.urandom(len(mine)),
                     "newer": mine.replace(b"format 1\n", b"format 2\n"),
                     "uuid": mine.replace(_device_uuid(mine), str(uuid.uuid4()).encode()),
                     }[damage])
    refused(stopped, stopped.nvme)
    with open(path, "wb") as f:
        f.write(mine)
    os.chmod(path, 0o600)
    stopped.start()
    check_good(stopped)


def _device_uuid(text):
    return next(l.split()[1] for l in text.splitlines() if l.startswith(b"device "))


# --- who may ----------------------------------------------------------------------------------


@pytest.fixture
def home_of_nobody():
    path = tempfile.mkdtemp(prefix="kvcachefs-nobody-", dir="/var/tmp")
    for name in ("", "nvme", "mnt"):
        os.makedirs(os.path.join(path, name), exist_ok=True)
        os.chown(os.path.join(path, name), kvmount.NOBODY, kvmount.NOBODY)
        os.chmod(os.path.join(path, name), 0o700)
    try:
        yield path
    finally:
        kvmount.lazy_unmount(os.path.join(path, "mnt"))
        shutil.rmtree(path)


def test_allow_other_by_a_user_who_may_not(home_of_nobody):
    """`nobody` asks for --allow-other: refused with what to do, nothing is left mounted."""
    mountpoint = os.path.join(home_of_nobody, "mnt")
    if os.path.exists("/etc/fuse.conf"):
        with open("/etc/fuse.conf", encoding="utf-8") as conf:
            assert not any(line.strip() == "user_allow_other" for line in conf), (
                "/etc/fuse.conf here lets every user ask for allow_other: cannot be tested")

    def mount():
        done = subprocess.run(
            [os.path.join(kvmount.BIN, "kvcachefs"), "mount", "--nvme",
             os.path.join(home_of_nobody, "nvme"), "--allow-other", mountpoint],
            capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False,
            cwd="/")
        return done.returncode, done.stderr

    code, stderr = kvmount.run_as(mount, uid=kvmount.NOBODY, seconds=60)
    assert code == 1, stderr
    lines = stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("kvcachefs: "), stderr
    assert "allow" in lines[0] and "fuse.conf" in lines[0], lines[0]
    assert kvmount.mount_entry(mountpoint) is None
