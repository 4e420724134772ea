"""One user's bytes do not take everybody's room."""

import errno
import os
import threading

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="what kvcachefs counts, and against whom")

MIB = 1 << 20
SIZE = 256 * MIB


@pytest.fixture(name="full")
def made_full(request):
    """A mount whose budget is used, by root's blocks of a megabyte; nobody has a directory. (mount, names of the blocks)"""
    with kvmount.LoopFs("ext4", size=2 * SIZE) as disk, kvmount.Mount(
            request.node.name, nvme=os.path.join(disk.path, "nvme"), size=SIZE, options=["--lease", "1s"]) as mount:
        theirs = os.path.join(mount.mnt, "theirs")
        os.mkdir(theirs)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        for number in range(300):
            with open(f"{mount.mnt}/block-{number}", "wb") as file:
                file.write(os.urandom(MIB))
        mount.flush()
        yield mount, theirs


def blocks(mount):
    return [name for name in os.listdir(mount.mnt) if name.startswith("block-")]


def allocate(path, size, offset=0):
    """The errno of posix_fallocate(2), 0 when it was done."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.posix_fallocate(fd, offset, size)
        return 0
    except OSError as error:
        return error.errno
    finally:
        os.close(fd)


def dropped(mount):
    return mount.status()["dropped"]["room"]["files"]


@pytest.mark.gate
@pytest.mark.parametrize("size", [2 * SIZE, 1 << 40, SIZE + MIB])
def test_what_cannot_fit_costs_nobody_anything(full, size):
    """Refused at once; nothing is evicted, and others store on."""
    mount, theirs = full
    before = dropped(mount)
    with kvmount.Beside() as beside:
        began = os.times().elapsed
        assert kvmount.run_as(allocate, f"{theirs}/huge", size, uid=kvmount.NOBODY) == errno.ENOSPC
        beside.add(os.times().elapsed - began, 2, "the refusal")
    assert dropped(mount) == before
    with open(f"{mount.mnt}/block-new", "wb") as file:
        file.write(bytes(MIB))
    assert os.path.getsize(f"{mount.mnt}/block-new") == MIB


@pytest.mark.gate
def test_what_fits_makes_its_room_first(full):
    """Half of the budget: the oldest blocks go, and there is no moment without room for others."""
    mount, theirs = full
    assert kvmount.run_as(allocate, f"{theirs}/half", SIZE // 2, uid=kvmount.NOBODY) == 0
    assert os.stat(f"{theirs}/half").st_blocks * 512 >= SIZE // 2
    assert blocks(mount), "all went for half of the room"
    # What has its room is not asked for more.
    assert kvmount.run_as(allocate, f"{theirs}/half", SIZE // 2, uid=kvmount.NOBODY) == 0
    # In steps it comes to no more than in one.
    assert kvmount.run_as(allocate, f"{theirs}/half", SIZE * 2, SIZE // 2, uid=kvmount.NOBODY) == errno.ENOSPC


@pytest.mark.gate
def test_a_quota_holds_for_what_is_allocated(full):
    mount, theirs = full
    assert mount.cli("set", theirs, "quota=64MiB").returncode == 0
    before = len(blocks(mount))
    for size in (65 * MIB, 5 << 30):
        assert kvmount.run_as(allocate, f"{theirs}/f", size, uid=kvmount.NOBODY) == errno.EDQUOT, size
    assert kvmount.run_as(allocate, f"{theirs}/f", 40 * MIB, uid=kvmount.NOBODY) == 0
    assert kvmount.run_as(allocate, f"{theirs}/g", 40 * MIB, uid=kvmount.NOBODY) == errno.EDQUOT
    assert len(blocks(mount)) > before // 2


@pytest.mark.gate
def test_a_nameless_file_is_its_directorys(full):
    """O_TMPFILE: the quota holds for it as for a file with a name."""
    mount, theirs = full
    assert mount.cli("set", theirs, "quota=64MiB").returncode == 0

    def allocate_nameless(size):
        fd = os.open(theirs, os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            return 0
        except OSError as error:
            return error.errno
        finally:
            os.close(fd)

    assert kvmount.run_as(allocate_nameless, 100 * MIB, uid=kvmount.NOBODY) == errno.EDQUOT
    assert kvmount.run_as(allocate_nameless, 20 * MIB, uid=kvmount.NOBODY) == 0


@pytest.mark.gate
def test_statvfs_below_a_quota_is_the_quotas(full):
    """Runtimes size themselves by it at their start."""
    mount, theirs = full
    os.mkdir(f"{theirs}/deep")
    assert mount.cli("set", theirs, "quota=64MiB").returncode == 0
    whole = os.statvfs(mount.mnt)
    assert whole.f_blocks * whole.f_frsize > 2 * SIZE // 3
    for path in (theirs, f"{theirs}/deep"):
        below = os.statvfs(path)
        assert below.f_blocks * below.f_frsize == 64 * MIB, path
        assert below.f_bavail == below.f_bfree <= below.f_blocks
    with open(f"{theirs}/f", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 16 * MIB)
        assert os.statvfs(f"{theirs}/f").f_bavail * whole.f_frsize <= 48 * MIB
    # The database shares the disk, and grows.
    assert abs(os.statvfs(mount.mnt).f_blocks - whole.f_blocks) * whole.f_frsize < 8 * MIB


@pytest.mark.gate
@pytest.mark.short
def test_attributes_are_as_many_as_on_ext4():
    """A block of them at most, so that a million of one file cannot be."""
    with kvmount.Mount("attributes") as mount:
        counts = []
        for tree in (mount.mnt, mount.control):
            path = os.path.join(tree, "f")
            with open(path, "wb"):
                pass
            with pytest.raises(OSError) as caught:
                os.setxattr(path, "user.large", bytes(60_000))
            assert caught.value.errno == errno.ENOSPC
            with pytest.raises(OSError) as caught:
                for number in range(10_000):
                    os.setxattr(path, f"user.of-number-{number:05}", b"value of it")
            assert caught.value.errno == errno.ENOSPC
            assert number == len(os.listxattr(path))
            counts.append(number)
            # What is there can be replaced and removed.
            os.setxattr(path, "user.of-number-00000", b"VALUE OF IT")
            os.removexattr(path, "user.of-number-00001")
            os.setxattr(path, "user.of-number-99999", b"value of it")
        assert 0.9 * counts[1] <= counts[0] <= 1.1 * counts[1], counts


def test_many_who_allocate_at_once_do_not_overrun(full):
    """Each sees the others' bytes before they are there."""
    mount, theirs = full
    results = []

    def one(number):
        results.append(kvmount.run_as(allocate, f"{theirs}/part-{number}", SIZE // 4, uid=kvmount.NOBODY))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) <= {0, errno.ENOSPC} and 1 <= results.count(0) <= 4, results
    used = sum(os.stat(f"{theirs}/{name}").st_blocks * 512 for name in os.listdir(theirs))
    assert used <= SIZE
