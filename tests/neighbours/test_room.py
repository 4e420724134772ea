"""One user's bytes do not take everybody's room."""

import concurrent.futures
import contextlib
import errno
import grp
import os
import time

import pytest

import kvmount
import onlooker
import watch

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="what kvcachefs counts, and against whom")

MIB = 1 << 20
SIZE = 256 * MIB


@pytest.fixture(name="full")
def made_full(request):
    """A mount whose budget is used, by root's blocks of a megabyte; nobody has a directory. (mount, that directory). The disk
    is twice as large, or as many times as the test says."""
    with kvmount.LoopFs("ext4", size=getattr(request, "param", 2) * SIZE) as disk, kvmount.Mount(
            request.node.name, nvme=os.path.join(disk.path, "nvme"), size=SIZE, options=["--lease", "1s"]) as mount:
        theirs = os.path.join(mount.mnt, "theirs")
        os.mkdir(theirs)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        for number in range(300):
            with open(f"{mount.mnt}/block-{number}", "wb") as file:
                file.write(os.urandom(MIB))
        watch.wait_at_rest(mount)
        with onlooker.watched(mount, request.node.name):
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


def take_at_once(theirs, take):
    """Eight new files, all open until the last take(file) is done: (what each call said, 0 or its errno; the bytes that they
    have)."""
    fds = [os.open(f"{theirs}/part-{number}", os.O_WRONLY | os.O_CREAT) for number in range(8)]

    def one(fd):
        try:
            take(fd)
            return 0
        except OSError as error:
            return error.errno

    with concurrent.futures.ThreadPoolExecutor(len(fds)) as threads:
        results = list(threads.map(one, fds))
    return results, sum(os.fstat(fd).st_blocks * 512 for fd in fds)


def test_many_who_allocate_at_once_do_not_overrun(full):
    """Each sees the others' bytes before they are there. All are open until the last is done: what is closed can go."""
    mount, theirs = full

    def take(fd):
        os.posix_fallocate(fd, 0, SIZE // 4)

    results, used = kvmount.run_as(take_at_once, theirs, take, uid=kvmount.NOBODY)
    assert set(results) <= {0, errno.ENOSPC} and 1 <= results.count(0) <= 4, results
    assert used <= SIZE


def test_many_who_copy_at_once_do_not_overrun_a_quota(full):
    """One call copies as many bytes as the quota has and keeps them; of what others stored no more goes than that."""
    mount, theirs = full
    assert mount.cli("set", theirs, "quota=64MiB").returncode == 0
    source = f"{mount.mnt}/source"
    put(source, 48 * MIB)
    os.chmod(source, 0o644)
    watch.wait_at_rest(mount)
    before = len(blocks(mount))

    def take(fd):
        come, done = os.open(source, os.O_RDONLY), 0
        while done < 48 * MIB:
            done += os.copy_file_range(come, fd, 48 * MIB - done, done, done)

    results, used = kvmount.run_as(take_at_once, theirs, take, uid=kvmount.NOBODY)
    assert set(results) == {0, errno.EDQUOT} and results.count(0) == 1, results
    assert 48 * MIB <= used <= 64 * MIB
    assert len(blocks(mount)) >= before - 64


def write_until_refused(fd, size):
    """Bytes that were taken, and the errno of the first call that failed; 0 when all were taken, and the close."""
    done, code = 0, 0
    try:
        while done < size:
            done += os.write(fd, bytes(MIB))
    except OSError as error:
        code = error.errno
    try:
        os.close(fd)
    except OSError as error:
        code = code or error.errno
    return done, code


@pytest.mark.gate
@pytest.mark.parametrize("what", ["name", "nameless", "unlinked", "sparse"])
def test_one_file_does_not_escape_a_quota(full, what):
    """What is open or unlinked cannot be evicted to get below it."""
    mount, theirs = full
    assert mount.cli("set", theirs, "quota=64MiB").returncode == 0
    before = len(blocks(mount))

    def fill():
        if what == "nameless":
            fd = os.open(theirs, os.O_TMPFILE | os.O_RDWR, 0o600)
        else:
            fd = os.open(f"{theirs}/f", os.O_CREAT | os.O_WRONLY, 0o600)
        if what == "unlinked":
            os.unlink(f"{theirs}/f")
        if what == "sparse":
            os.ftruncate(fd, 4 * SIZE)
        return write_until_refused(fd, 3 * SIZE)

    done, code = kvmount.run_as(fill, uid=kvmount.NOBODY)
    assert code == errno.EDQUOT and 60 * MIB <= done <= 96 * MIB, (done, code)
    assert len(blocks(mount)) > before // 2
    # It has gone, and the room is there again.
    kvmount.wait_until(lambda: tenant(mount)["used"] == 0, 20, "what was written to go")
    fd = os.open(f"{theirs}/g", os.O_CREAT | os.O_WRONLY, 0o600)
    assert write_until_refused(fd, 32 * MIB) == (32 * MIB, 0)


def tenant(mount):
    (found,) = mount.status()["tenants"]
    return found


# The disk takes all that is written, although the evictor gets no CPU for a while.
@pytest.mark.gate
@pytest.mark.parametrize("full", [8], indirect=True)
@pytest.mark.parametrize("what", ["name", "unlinked", "rewritten"])
def test_who_was_let_in_before_does_not_escape_a_quota(full, what):
    """The kernel writes for him without asking: what is far beyond the quota is taken back."""
    mount, theirs = full
    path = f"{theirs}/f"
    assert mount.cli("set", theirs, "quota=1TiB").returncode == 0
    if what == "rewritten":
        with open(path, "wb") as file:
            file.write(b"x" * MIB)
        os.chown(path, kvmount.NOBODY, kvmount.NOBODY)
        mount.flush()
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.lseek(fd, 0, os.SEEK_END)
    if what == "unlinked":
        os.unlink(path)
    assert mount.cli("set", theirs, "quota=64MiB").returncode == 0
    size, done = 6 * SIZE, 0
    with open(mount.mnt + "/small", "wb") as file:
        while done < size:
            done += os.write(fd, b"y" * MIB)
            if done % (64 * MIB) == 0:
                # Others store on all the time.
                file.seek(0)
                file.write(b"x" * 4096)
                file.flush()
    with pytest.raises(OSError) as caught:
        os.close(fd)
    assert caught.value.errno == errno.EDQUOT
    if what == "name":
        kvmount.wait_until(lambda: not os.path.exists(path), 20, "what is not whole to be a miss")
    if what == "rewritten":
        with open(path, "rb") as file:
            left = file.read()
        # No hole: what was written behind the cut has gone with it.
        assert left[:MIB] == b"x" * MIB and left[MIB:].count(b"y") == len(left) - MIB
    kvmount.wait_until(lambda: tenant(mount)["used"] <= 72 * MIB, 20, "what is too much to go")


@pytest.mark.gate
def test_a_quota_that_is_lowered_costs_nothing_that_was_there(full):
    """Who has a file open, and has more than the quota by now, loses what he adds, not what he had."""
    mount, theirs = full
    data = os.urandom(64 * MIB)
    path = f"{theirs}/database"
    with open(path, "wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    with open(path, "r+b", buffering=0) as file:
        assert mount.cli("set", theirs, "quota=16MiB").returncode == 0
        until, number = time.monotonic() + 0.5, 0
        while time.monotonic() < until:  # In place, as a database does, for some looks of the evictor.
            file.seek(number % 64 * MIB)
            file.write(data[number % 64 * MIB:(number % 64 + 1) * MIB])
            number += 1
        os.fsync(file.fileno())
        assert os.fstat(file.fileno()).st_size == len(data)
    mount.flush(check=False)
    with open(path, "rb") as file:
        assert file.read() == data


def put(path, size, sync=False):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    try:
        os.write(fd, bytes(size))
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)


def keep_all(theirs, how, size):
    """Stores files of a megabyte and keeps each, until that is refused: (how many were kept, the errno)."""
    for number in range(size // MIB):
        path = f"{theirs}/kept-{number}"
        try:
            put(path, MIB, sync=how == "fsync")
            if how == "pin":
                os.setxattr(path, "user.kvcachefs.policy", b"pin")
        except OSError as error:
            return number, error.errno
    return size // MIB, 0


@pytest.mark.gate
@pytest.mark.parametrize("terms", ["quota", "share"])
@pytest.mark.parametrize("how", ["fsync", "pin", "policy"])
def test_what_is_kept_counts_against_its_own(full, how, terms):
    """Never against what others' shares promise them: who has stored nothing yet gets his share all the same."""
    mount, theirs = full
    promised = f"{mount.mnt}/promised"
    os.mkdir(promised)
    assert mount.cli("set", promised, "share=50%").returncode == 0
    if terms == "quota":
        assert mount.cli("set", theirs, "quota=64MiB").returncode == 0
    if how == "policy":
        assert mount.cli("set", theirs, "policy=keep").returncode == 0
    count, code = kvmount.run_as(keep_all, theirs, how, 2 * SIZE, uid=kvmount.NOBODY)
    at_least, at_most, refused = (56, 66, errno.EDQUOT) if terms == "quota" else (90, 132, errno.ENOSPC)
    assert code == refused and at_least <= count <= at_most, (count, code)
    for number in range(100):
        put(f"{promised}/{number}", MIB)
    mount.flush(check=False)  # It says that a file was not written in full.
    assert sum(os.path.exists(f"{promised}/{number}") for number in range(100)) == 100
    for number in range(count):
        assert os.path.getsize(f"{theirs}/kept-{number}") == MIB, number


def keep_small(theirs, most):
    """Keeps files of a byte until that is refused: (how many were kept, the errno)."""
    for number in range(most):
        try:
            put(f"{theirs}/kept-{number}", 1, sync=True)
        except OSError as error:
            return number, error.errno
    return most, 0


@pytest.mark.gate
def test_kept_files_take_no_inodes_of_others_shares():
    """Small ones hold few bytes, yet each an inode of the disk below, which has a fixed number of them."""
    inodes = 2000
    with kvmount.LoopFs("ext4", size=2 * SIZE, mkfs=["-N", str(inodes)]) as disk, kvmount.Mount(
            "inodes", nvme=os.path.join(disk.path, "nvme"), size=SIZE, options=["--lease", "1s"]) as mount:
        theirs, promised = f"{mount.mnt}/theirs", f"{mount.mnt}/promised"
        os.mkdir(theirs)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        os.mkdir(promised)
        assert mount.cli("set", promised, "share=50%").returncode == 0
        there = os.statvfs(disk.path).f_files
        count, code = kvmount.run_as(keep_small, theirs, there, uid=kvmount.NOBODY)
        assert code == errno.ENOSPC and .4 * there <= count <= .6 * there, (count, code, there)
        for number in range(there // 4):
            put(f"{promised}/{number}", 4096)
        mount.flush()
        assert sum(os.path.exists(f"{promised}/{number}") for number in range(there // 4)) == there // 4
        assert len(os.listdir(theirs)) >= count


def test_what_is_told_to_be_kept_later_takes_nobodys_share(full):
    """A directory's files stay as far as they fit; the others are cache, and `explain` says why."""
    mount, theirs = full
    promised = f"{mount.mnt}/promised"
    os.mkdir(promised)
    for number in range(200):
        put(f"{theirs}/{number}", MIB)
    mount.flush()
    assert mount.cli("set", promised, "share=75%").returncode == 0
    assert mount.cli("set", theirs, "policy=keep").returncode == 0
    kvmount.wait_until(lambda: kept(mount) >= 48 * MIB, 20, "some to be kept")
    for number in range(150):
        put(f"{promised}/{number}", MIB)
    mount.flush()
    assert all(os.path.exists(f"{promised}/{number}") for number in range(150))
    left = [number for number in range(200) if os.path.exists(f"{theirs}/{number}")]
    assert 48 <= len(left) < 120, len(left)
    assert 48 * MIB <= kept(mount) <= 68 * MIB
    said = [mount.cli("explain", f"{theirs}/{number}").stdout for number in left]
    assert all("policy       keep" in text for text in said)
    beyond = [text for text in said if "others' shares" in text]
    assert len(said) - len(beyond) >= 48 and all("(told to theirs)" in text for text in said), said[0]


def kept(mount):
    return mount.status()["tiers"][0]["budget"]["kept"] or 0


@pytest.mark.gate
@pytest.mark.parametrize("who", ["root", "group:nogroup"])
def test_who_may_keep_is_said_by_the_mount(who):
    """--keep-by: what all others fsync, pin, tell, or store under a name that a layout keeps, is cache."""
    block = "a/b/" + 64 * "5" + "_k"
    with kvmount.Mount("keepers", size=SIZE, options=["--keep-by", who, "--lease", "1s"]) as mount:
        def store(name):
            path = f"{mount.mnt}/{name}"
            os.makedirs(f"{path}/a/b")
            put(f"{path}/{block}", MIB)
            put(f"{path}/f", MIB, sync=True)
            with open(f"{path}/f", "r+b") as file:
                file.truncate(MIB // 2)
                os.fsync(file.fileno())
            codes = []
            for policy in (b"pin", b"keep", b"cache"):
                try:
                    os.setxattr(f"{path}/f", "user.kvcachefs.policy", policy)
                    codes.append(0)
                except OSError as error:
                    codes.append(error.errno)
            os.removexattr(f"{path}/f", "user.kvcachefs.policy")
            return codes

        os.chmod(mount.mnt, 0o777)
        of_group = grp.getgrnam("nogroup").gr_gid
        assert store("of-root") == [0, 0, 0]
        assert kvmount.run_as(store, "of-another", uid=1234, gid=1234) == [errno.EPERM, errno.EPERM, 0]
        member = kvmount.run_as(store, "of-a-member", uid=1235, gid=of_group)
        assert member == ([errno.EPERM, errno.EPERM, 0] if who == "root" else [0, 0, 0])
        if who != "root":
            assert kvmount.run_as(store, "of-one-besides", uid=1236, gid=1236, groups=[of_group]) == [0, 0, 0]
        mount.flush()
        for name, stays in (("of-root", True), ("of-another", False), ("of-a-member", who != "root")):
            for path in ("f", block):
                said = mount.cli("explain", f"{mount.mnt}/{name}/{path}").stdout
                assert ("policy       keep" if stays else "policy       cache") in said, (name, path, said)


def test_a_share_of_an_empty_directory_is_there_after_a_restart():
    """Nobody has asked for anything below it since: it is promised its room all the same."""
    with kvmount.Mount("promised", size=SIZE) as mount:
        os.mkdir(f"{mount.mnt}/promised")
        assert mount.cli("set", f"{mount.mnt}/promised", "share=25%", "quota=1GiB").returncode == 0
        mount.stop()
        mount.start()
        kvmount.wait_until(lambda: mount.status()["tenants"], 20, "the tenants of the last run")
        assert tenant(mount)["path"].strip("/") == "promised"


def keep_by_process(goes_on, _, theirs):
    """Stores files that live as long as this process, and waits; the errno where that is refused."""
    os.mkdir(f"{theirs}/p")
    try:
        os.setxattr(f"{theirs}/p", "user.kvcachefs.policy", b"process")
    except OSError as error:
        return error.errno
    for number in range(2 * SIZE // MIB):
        with contextlib.suppress(OSError):
            put(f"{theirs}/p/{number}", MIB)
    kvmount.wait_until(lambda: not goes_on(), 60, "the end of the test")
    return 0


@pytest.mark.gate
@pytest.mark.parametrize("keep_by", ["anyone", "root"])
def test_what_lives_with_its_process_takes_nobodys_share(keep_by):
    with kvmount.LoopFs("ext4", size=2 * SIZE) as disk, kvmount.Mount(
            "process", nvme=os.path.join(disk.path, "nvme"), size=SIZE,
            options=["--lease", "1s", "--keep-by", keep_by]) as mount:
        theirs, promised = f"{mount.mnt}/theirs", f"{mount.mnt}/promised"
        for path in (theirs, promised):
            os.mkdir(path)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        assert mount.cli("set", promised, "share=50%").returncode == 0
        with onlooker.hogs(keep_by_process, theirs) as (keeper,):
            if keep_by == "anyone":
                kvmount.wait_until(lambda: kept(mount) >= 64 * MIB, 60, "files to be kept")
                for number in range(100):
                    put(f"{promised}/{number}", MIB)
                mount.flush(check=False)
                assert sum(os.path.exists(f"{promised}/{number}") for number in range(100)) == 100
        assert keeper.returned == (0 if keep_by == "anyone" else errno.EPERM)


def test_a_move_to_another_tenant_takes_nobodys_room(full):
    """What must stay has to fit where it goes; a directory goes nowhere else, as with quotas of ext4's projects."""
    mount, theirs = full
    other = f"{mount.mnt}/other"
    os.mkdir(other)
    os.mkdir(f"{other}/d")
    assert mount.cli("set", theirs, "quota=8MiB").returncode == 0
    put(f"{other}/small", 4 * MIB, sync=True)
    put(f"{other}/large", 9 * MIB, sync=True)
    put(f"{other}/cache", 9 * MIB)
    mount.flush()
    os.rename(f"{other}/small", f"{theirs}/small")
    for name, code in (("large", errno.EDQUOT), ("d", errno.EXDEV)):
        with pytest.raises(OSError) as failed:
            os.rename(f"{other}/{name}", f"{theirs}/{name}")
        assert failed.value.errno == code, name
    os.rename(f"{other}/cache", f"{theirs}/cache")
    assert os.path.getsize(f"{other}/large") == 9 * MIB


def test_what_is_removed_can_be_stored_at_once(full):
    """After a refusal, too."""
    mount, theirs = full
    assert mount.cli("set", theirs, "quota=16MiB").returncode == 0
    for number in range(7):
        put(f"{theirs}/{number}", 2 * MIB, sync=True)
    for number in range(7, 17):
        with pytest.raises(OSError) as failed:
            for more in range(3):
                put(f"{theirs}/{number}-{more}", 2 * MIB, sync=True)
        assert failed.value.errno == errno.EDQUOT
        for name in os.listdir(theirs):
            if name.startswith(f"{number}-") or name == str(number - 7):
                os.unlink(f"{theirs}/{name}")
        put(f"{theirs}/{number}", 2 * MIB, sync=True)


@pytest.mark.gate
def test_further_names_are_a_part_of_the_budget(full):
    """They are in the database, and no byte of a file goes when they are to go."""
    mount, theirs = full
    most = SIZE // 16 // 512
    before = len(blocks(mount))

    def make_all():
        os.chdir(theirs)
        put("file", 0)
        number = 0
        try:
            for number in range(2 * most):
                os.link("file", f"{number:0200}")
        except OSError as error:
            return number, error.errno
        return number, 0

    count, code = kvmount.run_as(make_all, uid=kvmount.NOBODY)
    assert code == errno.ENOSPC and 0.9 <= count / most <= 1, (count, most, code)
    assert len(blocks(mount)) > before * 3 // 4
    # Who removes some may make others; nobody else has fewer.
    kvmount.run_as(os.unlink, f"{theirs}/{0:0200}", uid=kvmount.NOBODY)
    kvmount.run_as(os.symlink, "short", f"{theirs}/symlink", uid=kvmount.NOBODY)
    with pytest.raises(AssertionError, match="No space left"):
        kvmount.run_as(os.mkfifo, f"{theirs}/fifo", uid=kvmount.NOBODY)
    os.mkfifo(f"{mount.mnt}/of-root")
    # A link that is published in place of a temporary name.
    put(f"{mount.mnt}/temporary", MIB)
    os.link(f"{mount.mnt}/temporary", f"{mount.mnt}/published")
    os.unlink(f"{mount.mnt}/temporary")


def link_and_remove(theirs, count):
    """Whether so many can be made."""
    made = 0
    try:
        for made in range(count):
            os.link(f"{theirs}/file", f"{theirs}/{made}")
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        return False
    finally:
        for number in range(made + 1):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{theirs}/{number}")
    return True


@pytest.mark.gate
def test_a_crash_leaves_no_count_of_names_that_are_gone(full):
    mount, theirs = full
    most = SIZE // 16 // 512

    def make(count):
        put(f"{theirs}/file", 0)
        for number in range(count):
            os.link(f"{theirs}/file", f"{theirs}/{number}")

    kvmount.run_as(make, most // 2, uid=kvmount.NOBODY)
    mount.remount()  # It is written down.
    for number in range(most // 2):
        os.unlink(f"{theirs}/{number}")
    mount.crash()
    kvmount.wait_until(lambda: kvmount.run_as(link_and_remove, theirs, most * 9 // 10, uid=kvmount.NOBODY), 30,
                       "as many names as before")
    # What was made since the last count is counted, too.
    kvmount.run_as(make, most // 2, uid=kvmount.NOBODY)
    mount.crash()
    kvmount.wait_until(lambda: not kvmount.run_as(more_than, theirs, most * 6 // 10, uid=kvmount.NOBODY), 30, "a count of them")


def more_than(theirs, count):
    os.makedirs(f"{theirs}/more", exist_ok=True)
    if not os.path.exists(f"{theirs}/more/file"):
        put(f"{theirs}/more/file", 0)
    return link_and_remove(f"{theirs}/more", count)


@pytest.mark.gate
@pytest.mark.parametrize("what", ["symlinks", "attributes"])
def test_metadata_is_a_part_of_the_budget(full, what):
    """What is long is in the database, which takes its room from all files: a sixteenth of the budget at most."""
    mount, theirs = full
    before = len(blocks(mount))

    def make_all():
        for number in range(3 * SIZE // 16 // 4096):
            try:
                if what == "symlinks":
                    os.symlink("x" * 4000, f"{theirs}/{number}")
                else:
                    put(f"{theirs}/{number}", 0)
                    os.setxattr(f"{theirs}/{number}", "user.long", bytes(3900))
            except OSError as error:
                return number, error.errno
        return number, 0

    count, code = kvmount.run_as(make_all, uid=kvmount.NOBODY)
    # Of what the database itself leaves.
    assert code == errno.ENOSPC and 0.9 <= count / (SIZE // 16 // 4096) <= 1, (count, code)
    assert len(blocks(mount)) > before * 3 // 4
    # Others have some as well.
    os.symlink("y" * 4000, f"{mount.mnt}/of-root")
    os.unlink(f"{mount.mnt}/of-root")
    # Who removes his own may make others, also after a restart.
    for number in range(100):
        os.unlink(f"{theirs}/{number}")
    mount.remount()
    kvmount.run_as(make_some, theirs, 50, uid=kvmount.NOBODY)
    with pytest.raises(AssertionError, match="No space left"):
        kvmount.run_as(make_some, theirs, 400, uid=kvmount.NOBODY)


def make_some(theirs, count):
    for number in range(count):
        os.symlink("z" * 4000, f"{theirs}/again-{count}-{number}")
