"""prefix/<hash> and session/<id>/<n>: each rule, as programs see it."""

import contextlib
import errno
import hashlib
import mmap
import os
import shutil
import stat
import subprocess

import pytest

import kvmount
from native_calls import (RENAME_EXCHANGE, RENAME_NOREPLACE, copy_file_range, expect_errno,
                          link_fd, publish, read, renameat2)
from publishers import open_nameless

pytestmark = [pytest.mark.short, pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no native map")]


@pytest.fixture
def prefix(shared_mount, request):
    """The directory prefix/ of a mount, with a hash that no other test has used."""
    path = f"{shared_mount.mnt}/prefix"
    os.makedirs(path, exist_ok=True)
    return path, hashlib.sha256(request.node.name.encode()).hexdigest()


def duplicates(mount):
    counts = mount.status()["counts"]
    return counts["duplicates"], counts["duplicates_of_other_size"]


@pytest.mark.promise(5)
def test_the_second_writer_is_told_that_all_is_well(shared_mount, prefix):
    place, name = prefix
    final = f"{place}/{name}"
    before = duplicates(shared_mount)
    publish(final, b"first")
    with open(final, "rb") as early:
        number = os.stat(final).st_ino
        publish(final, b"second, and longer")  # A temporary beside it.
        publish(final, b"third", f"{shared_mount.mnt}/elsewhere")  # The kernel keeps its name 10 s.
        publish(final, b"4th", f"{shared_mount.mnt}/elsewhere")
        for _ in range(3):
            assert read(final) == b"first"
            assert os.stat(final).st_ino == number
            assert os.stat(final).st_size == 5
            assert os.stat(final).st_nlink == 1
        assert early.read() == b"first"
        assert os.fstat(early.fileno()).st_ino == number
    assert name in os.listdir(place)
    assert os.listdir(place).count(name) == 1
    after = duplicates(shared_mount)
    assert (after[0] - before[0], after[1] - before[1]) == (3, 2)
    text = shared_mount.cli("status", shared_mount.mnt).stdout
    assert "copies given up for one that was there" in text


@pytest.mark.parametrize("where", ["prefix/", ""])
def test_the_writer_of_the_second_copy_sees_the_first(shared_mount, prefix, where):
    place, name = prefix
    name += where.encode().hex()
    final = f"{place}/{name}"
    publish(final, b"first")
    temporary = f"{shared_mount.mnt}/{where}mine"
    with open(temporary, "w+b", buffering=0) as file, open(temporary, "rb", buffering=0) as reader:
        file.write(b"second")
        os.rename(temporary, final)
        # By name, at once, whatever it asks.
        assert os.stat(final).st_size == 5
        assert read(final) == b"first"
        assert os.access(final, os.R_OK)
        assert not os.path.exists(temporary)
        os.chmod(final, 0o640)
        assert stat.S_IMODE(os.stat(final).st_mode) == 0o640
        # Once the kernel has seen that no name is left it does not even ask.
        expect_errno((errno.ESTALE, errno.ENOENT), link_fd, file.fileno(), f"{place}/again")
        # Its descriptors go on with the second copy, which has no attributes any more.
        assert file.write(b" copy") == 5
        assert os.pread(file.fileno(), 100, 0) == b"second copy"
        assert os.pread(reader.fileno(), 100, 0) == b"second copy"
        assert os.lseek(reader.fileno(), 0, os.SEEK_END) == 11
        os.ftruncate(file.fileno(), 6)
        assert os.pread(reader.fileno(), 100, 0) == b"second"
        os.fsync(file.fileno())
        for fd in (file.fileno(), reader.fileno()):
            expect_errno(errno.ESTALE, os.fstat, fd)
            expect_errno(errno.ESTALE, os.getxattr, fd, "user.a")
            expect_errno(errno.ESTALE, os.setxattr, fd, "user.a", b"v")
            expect_errno(errno.ESTALE, os.listxattr, fd)
            expect_errno(errno.ESTALE, os.fchmod, fd, 0o600)
            expect_errno(errno.ESTALE, open, f"/proc/self/fd/{fd}", "rb")
    assert read(final) == b"first"


def test_a_second_copy_with_another_name_stays_under_it(shared_mount, prefix):
    place, name = prefix
    final = f"{place}/{name}"
    mine = f"{shared_mount.mnt}/mine-{name}"
    publish(final, b"first")
    with open(f"{place}/tmp", "wb") as file:
        file.write(b"second")
    os.link(f"{place}/tmp", mine)
    os.rename(f"{place}/tmp", final)
    assert read(final) == b"first"
    assert read(mine) == b"second"
    assert os.stat(mine).st_nlink == 1
    with open(mine, "ab") as file:
        file.write(b", changed")
    assert read(mine) == b"second, changed"
    # And from a directory whose names the kernel keeps: it has to hear of it first.
    os.link(mine, f"{mine}-too")
    os.rename(f"{mine}-too", final)
    kvmount.wait_until(lambda: read(final) == b"first", 5, "the first copy")
    assert read(mine) == b"second, changed"


def test_renaming_the_file_onto_itself_does_nothing(shared_mount, prefix):
    place, name = prefix
    publish(f"{place}/{name}", b"first")
    os.link(f"{place}/{name}", f"{place}/also")
    os.rename(f"{place}/also", f"{place}/{name}")
    assert os.stat(f"{place}/also").st_nlink == 2
    os.unlink(f"{place}/also")


@pytest.mark.promise(5)
def test_what_must_be_new_is_refused(shared_mount, prefix):
    place, name = prefix
    final = f"{place}/{name}"
    publish(final, b"first")
    with open(f"{place}/tmp", "wb") as file:
        file.write(b"second")
    expect_errno(errno.EEXIST, os.link, f"{place}/tmp", final)
    expect_errno(errno.EEXIST, renameat2, f"{place}/tmp", final, RENAME_NOREPLACE)
    expect_errno(errno.EEXIST, renameat2, f"{place}/tmp", final, RENAME_EXCHANGE)
    expect_errno(errno.EEXIST, renameat2, final, f"{place}/tmp", RENAME_EXCHANGE)
    expect_errno(errno.EEXIST, os.open, final, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    expect_errno(errno.EEXIST, os.mknod, final)
    expect_errno(errno.EEXIST, os.symlink, "tmp", final)
    expect_errno(errno.EEXIST, os.mkdir, final)
    os.symlink("tmp", f"{place}/symlink")
    expect_errno(errno.EEXIST, os.rename, f"{place}/symlink", final)
    os.mkdir(f"{place}/directory")
    expect_errno(errno.ENOTDIR, os.rename, f"{place}/directory", final)
    fd, nameless = open_nameless(place)
    expect_errno(errno.EEXIST, link_fd, fd, final)
    os.close(fd)
    if nameless is not None:
        os.unlink(nameless)
    assert read(final) == b"first" and read(f"{place}/tmp") == b"second"
    for leftover in ("tmp", "symlink"):
        os.unlink(f"{place}/{leftover}")
    os.rmdir(f"{place}/directory")


@pytest.mark.promise(1)
def test_a_published_file_is_never_opened_for_writing(shared_mount, prefix):
    place, name = prefix
    final = f"{place}/{name}"
    session = f"{shared_mount.mnt}/session/{name}"
    os.makedirs(session)
    publish(final, b"first")
    os.link(final, f"{session}/0")
    for path in (final, f"{session}/0"):
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC,
                      os.O_RDONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            expect_errno(errno.EEXIST, os.open, path, flags)
        expect_errno(errno.EEXIST, os.truncate, path, 0)
        os.chmod(path, 0o644)
        os.utime(path)
        os.setxattr(path, "user.note", b"of a person")
        assert read(path) == b"first"
    with open(final, "rb") as file:
        expect_errno(errno.EEXIST, open, f"/proc/self/fd/{file.fileno()}", "r+b")
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            assert view[:] == b"first"
    os.rename(final, f"{place}/kept")
    expect_errno(errno.EEXIST, open, f"{place}/kept", "ab")
    publish(final, b"new")
    assert (read(final), read(f"{place}/kept"), read(f"{session}/0")) == (
        b"new", b"first", b"first")
    os.unlink(final)
    assert not os.path.exists(final)
    publish(final, b"newest")
    assert read(final) == b"newest"


def test_who_had_it_open_cannot_cut_or_grow_it(shared_mount, prefix):
    place, name = prefix
    fd = os.open(f"{place}/tmp", os.O_CREAT | os.O_RDWR)
    source = os.open(f"{place}/source", os.O_CREAT | os.O_RDWR)
    os.write(source, b"source")
    os.write(fd, b"first, too long")
    os.ftruncate(fd, 5)
    os.rename(f"{place}/tmp", f"{place}/{name}")
    expect_errno(errno.EEXIST, os.ftruncate, fd, 0)
    expect_errno(errno.EEXIST, os.posix_fallocate, fd, 0, 100)
    expect_errno(errno.EEXIST, copy_file_range, source, fd, 6)
    assert os.fstat(fd).st_size == 5
    os.close(fd)
    os.close(source)
    os.unlink(f"{place}/source")
    assert read(f"{place}/{name}") == b"first"


def test_what_is_written_under_its_hash_is_seen_when_it_is_closed(shared_mount, prefix):
    place, name = prefix
    final = f"{place}/{name}"
    assert not os.path.exists(final)
    fd = os.open(final, os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"fir")
    os.close(os.dup(os.open("/dev/null", os.O_RDONLY)))
    for _ in range(2):
        kvmount.run_as(expect_errno, errno.ENOENT, os.stat, final)
        kvmount.run_as(expect_errno, errno.ENOENT, os.open, final, os.O_RDONLY)
        kvmount.run_as(expect_errno, errno.EEXIST, os.open, final, os.O_CREAT | os.O_RDWR)
        kvmount.run_as(expect_errno, errno.EEXIST, os.open, final,
                       os.O_CREAT | os.O_EXCL | os.O_RDWR)
    kvmount.run_as(expect_errno, errno.ENOENT, os.unlink, final)
    assert os.stat(final).st_size == 3  # Its own process sees it, and could give it up.
    expect_errno(errno.EEXIST, os.open, final, os.O_RDWR)
    os.write(fd, b"st")
    os.close(fd)
    assert kvmount.run_as(read, final) == b"first"
    expect_errno(errno.EEXIST, os.open, final, os.O_RDWR)


def test_its_writer_can_give_it_up(shared_mount, prefix):
    place, name = prefix
    fd = os.open(f"{place}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(fd, b"half of ")
    os.unlink(f"{place}/{name}")
    os.close(fd)
    assert not os.path.exists(f"{place}/{name}")
    publish(f"{place}/{name}", b"whole")
    assert read(f"{place}/{name}") == b"whole"


@pytest.mark.promise(5)
def test_a_rename_wins_against_who_is_still_writing(shared_mount, prefix):
    place, name = prefix
    fd = os.open(f"{place}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(fd, b"slow")
    kvmount.run_as(publish, f"{place}/{name}", b"whole")
    os.write(fd, b"ly written")
    os.close(fd)
    assert read(f"{place}/{name}") == b"whole"


@pytest.mark.gate
@pytest.mark.parametrize("command", ["echo bytes > {0}", "cat {1} > {0}", "cp {1} {0}",
                                     "(echo by; echo tes) > {0}", "dd if={1} of={0} bs=3",
                                     "cp {1} {0}.tmp && mv {0}.tmp {0}"])
def test_shells_write_whole_files(shared_mount, prefix, command):
    place, name = prefix
    final = f"{place}/{name[:32]}{command.encode().hex()[:64]}"
    source = f"{shared_mount.mnt}/source"
    with open(source, "wb") as file:
        file.write(b"bytes\n")
    subprocess.run(["sh", "-c", command.format(final, source)], check=True, capture_output=True,
                   timeout=60)
    assert read(final) == (b"by\ntes\n" if "tes)" in command else b"bytes\n")
    done = subprocess.run(["sh", "-c", f"echo other > {final}"], capture_output=True, timeout=60,
                          check=False)
    assert done.returncode != 0 and b"exist" in done.stderr
    subprocess.run(["sh", "-c", f"echo other > {final}.tmp && mv {final}.tmp {final}"], check=True,
                   timeout=60)
    assert b"other" not in read(final)


def test_an_empty_file_is_seen_after_its_last_close(shared_mount, prefix):
    place, name = prefix
    with open(f"{place}/{name}", "wb"):
        pass
    kvmount.wait_until(lambda: os.path.exists(f"{place}/{name}"), 5, "the release of the file")
    os.close(os.open(f"{place}/{name}00", os.O_CREAT | os.O_RDONLY))
    assert kvmount.run_as(os.path.getsize, f"{place}/{name}00") == 0
    os.mknod(f"{place}/{name}11")
    assert kvmount.run_as(os.path.getsize, f"{place}/{name}11") == 0


def test_other_names_are_plain_files(shared_mount, prefix):
    place, name = prefix
    os.makedirs(f"{place}/below", exist_ok=True)
    for path in (f"{place}/{name[:15]}", f"{place}/{name.upper()}", f"{place}/{name}x",
                 f"{place}/{name * 3}", f"{place}/below/{name}", f"{shared_mount.mnt}/{name}"):
        publish(path, b"first")
        publish(path, b"second")
        assert read(path) == b"second", path
        with open(path, "ab") as file:
            file.write(b", more")
        assert read(path) == b"second, more"
        os.unlink(path)


@pytest.mark.gate
def test_sessions_are_links(shared_mount, prefix):
    place, name = prefix
    top = f"{shared_mount.mnt}/session"
    blocks = [f"{place}/{name}{i:04x}" for i in range(20)]
    for index, block in enumerate(blocks):
        publish(block, b"block %d" % index)
    for session in ("a", "b"):
        os.makedirs(f"{top}/{session}-{name}")
        for index in (11, 3, 0, 17):
            os.link(blocks[index], f"{top}/{session}-{name}/{index}")
    publish(blocks[3], b"again")  # Links hold what the hash holds.
    subprocess.run(["cp", "-al", f"{top}/b-{name}", f"{top}/c-{name}"], check=True, timeout=60)
    shutil.rmtree(f"{top}/a-{name}")
    for session in ("b", "c"):
        assert sorted(map(int, os.listdir(f"{top}/{session}-{name}"))) == [0, 3, 11, 17]
        for index in (11, 3, 0, 17):
            assert read(f"{top}/{session}-{name}/{index}") == b"block %d" % index
    os.unlink(blocks[17])
    assert read(f"{top}/b-{name}/17") == b"block 17"
    for index, block in enumerate(blocks):
        if index != 17:
            assert read(block) == b"block %d" % index
    with open(f"{top}/b-{name}/notes.txt", "w", encoding="ascii") as file:
        file.write("plain")
    with open(f"{top}/b-{name}/notes.txt", "a", encoding="ascii") as file:
        file.write(", and changed")
    assert read(f"{top}/b-{name}/notes.txt") == b"plain, and changed"
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(f"{top}/c-{name}")


@pytest.mark.promise(7)
def test_all_of_it_outlives_the_mount(shared_mount, prefix):
    place, name = prefix
    final = f"{place}/{name}"
    publish(final, b"first")
    number = os.stat(final).st_ino
    for again in (shared_mount.remount, shared_mount.crash):
        again()
        expect_errno(errno.EEXIST, os.open, final, os.O_RDWR)
        publish(final, b"second")
        assert read(final) == b"first" and os.stat(final).st_ino == number


def test_where_prefix_is_renamed_the_rules_go_with_the_name(shared_mount, prefix):
    place, name = prefix
    old = f"{place}-of-{name}"
    publish(f"{place}/{name}", b"first")
    os.rename(place, old)
    publish(f"{old}/{name}", b"second")
    assert read(f"{old}/{name}") == b"second"
    os.mkdir(place)
    publish(f"{place}/{name}", b"third")
    publish(f"{place}/{name}", b"fourth")
    assert read(f"{place}/{name}") == b"third"


def test_the_second_copy_gives_its_space_back(shared_mount, prefix):
    place, name = prefix
    size = 1 << 20
    publish(f"{place}/{name}", b"1" * size)

    def blocks_of_objects():
        done = subprocess.run(["du", "-s", "-B1", f"{shared_mount.nvme}/objects"], check=False,
                              capture_output=True, timeout=60)  # Files go while it looks.
        return int(done.stdout.split()[0])

    before = blocks_of_objects()
    for _ in range(20):
        publish(f"{place}/{name}", b"2" * size)
    kvmount.wait_until(lambda: blocks_of_objects() < before + 2 * size, 20, "reaping")
    assert read(f"{place}/{name}") == b"1" * size
