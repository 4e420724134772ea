"""Files by their prefix hash: what a caller could not reach by path he cannot learn, hold or be given, and nobody's files of one
hash hold up the others."""

import errno
import os

import pytest

import kvmount
import onlooker
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 knows no hashes")

MANY = 4096
OTHER = 1234  # Another user than nobody.
HASHES = [f"{number:064x}" for number in range(0xabc, 0xabc + 8)]


def name_of(text, page="p"):
    """A block of sglang: its directory says nothing, so that any number of directories may have one."""
    return f"{text}_{page}.bin"


def store(path, data=b"bytes"):
    pools.store(os.path.dirname(path), os.path.basename(path), data)


@pytest.fixture(name="mount")
def made_mount():
    with kvmount.Mount("by-hash") as mount:
        os.chmod(mount.mnt, 0o777)
        yield mount


def by_prefix(mount, *names):
    return os.path.join(mount.mnt, ".kvcachefs", "by-prefix", *names)


def is_there(path):
    """Whether lstat(2) finds it; a miss is ENOENT and nothing else."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def make_directories(root, uid, mode, names):
    for name in names:
        os.mkdir(os.path.join(root, name), 0o755)
        os.chown(os.path.join(root, name), uid, uid)
        os.chmod(os.path.join(root, name), mode)


@pytest.mark.gate
@pytest.mark.parametrize("mode, enters", [(0o700, False), (0o750, False), (0o751, True), (0o701, True), (0o744, False)])
def test_what_may_not_be_entered_is_not_there(mount, mode, enters):
    """Two levels down: the directory above decides. Root, and the owner, see it in any case."""
    text = HASHES[0]
    make_directories(mount.mnt, OTHER, 0o755, ["private"])
    os.mkdir(f"{mount.mnt}/private/deep")
    os.chown(f"{mount.mnt}/private/deep", OTHER, OTHER)
    kvmount.run_as(store, f"{mount.mnt}/private/deep/{name_of(text)}", uid=OTHER)
    os.chmod(f"{mount.mnt}/private", mode)
    own = name_of(HASHES[1])
    kvmount.run_as(store, f"{mount.mnt}/{own}", uid=kvmount.NOBODY)

    def look():
        listed = text in os.listdir(by_prefix(mount))
        try:
            os.setxattr(f"{mount.mnt}/{own}", "user.kvcachefs.parent", text.encode())
            follows = True
        except OSError as error:
            assert error.errno == errno.ENODATA, error
            follows = False
        return is_there(by_prefix(mount, text)), listed, follows

    assert kvmount.run_as(look, uid=kvmount.NOBODY) == (enters, enters, enters)
    assert kvmount.run_as(is_there, by_prefix(mount, text), uid=OTHER)
    assert kvmount.run_as(is_there, by_prefix(mount, text), uid=0)
    # A member of the directory's group.
    assert kvmount.run_as(is_there, by_prefix(mount, text), uid=kvmount.NOBODY, groups=[OTHER]) == bool(mode & 0o010)


@pytest.mark.gate
def test_an_access_list_counts(mount):
    """setfacl -m u:nobody:x, and a list that takes a group's rights from one of its members."""
    text = HASHES[0]
    make_directories(mount.mnt, OTHER, 0o700, ["private"])
    kvmount.run_as(store, f"{mount.mnt}/private/{name_of(text)}", uid=OTHER)

    def entry(tag, perm, number=0xffffffff):
        return tag.to_bytes(2, "little") + perm.to_bytes(2, "little") + number.to_bytes(4, "little")

    def give(perm, mask):
        value = (2).to_bytes(4, "little") + entry(1, 7) + entry(2, perm, kvmount.NOBODY) + entry(4, 0) + entry(16, mask) + \
            entry(32, 0)
        os.setxattr(f"{mount.mnt}/private", "system.posix_acl_access", value)

    for perm, mask, enters in ((1, 7, True), (6, 7, False), (1, 6, False)):
        give(perm, mask)
        assert kvmount.run_as(is_there, by_prefix(mount, text), uid=kvmount.NOBODY) == enters, (perm, mask)
        assert not kvmount.run_as(is_there, by_prefix(mount, text), uid=OTHER + 1)


@pytest.mark.gate
def test_a_hash_leads_to_nobody_elses_file(mount):
    """Of two owners one's file goes: what led to it leads to nothing, and not to the other's."""
    text = HASHES[0]
    make_directories(mount.mnt, OTHER, 0o755, ["theirs"])
    make_directories(mount.mnt, kvmount.NOBODY, 0o755, ["mine"])
    kvmount.run_as(store, f"{mount.mnt}/mine/{name_of(text)}", b"mine", uid=kvmount.NOBODY)
    mine = by_prefix(mount, text)

    def load(path):
        with open(path, "rb") as file:
            return file.read()

    assert kvmount.run_as(load, mine, uid=kvmount.NOBODY) == b"mine"
    kvmount.run_as(store, f"{mount.mnt}/theirs/{name_of(text)}", b"theirs", uid=OTHER)
    labels = kvmount.run_as(os.listdir, mine, uid=kvmount.NOBODY)
    own = [label for label in labels if not label.endswith(f",u{OTHER}")]
    assert len(labels) == 2 and len(own) == 1, labels
    assert kvmount.run_as(load, os.path.join(mine, own[0]), uid=kvmount.NOBODY) == b"mine"
    os.unlink(f"{mount.mnt}/mine/{name_of(text)}")
    assert kvmount.run_as(os.listdir, mine, uid=kvmount.NOBODY) == [own[0] + f",u{OTHER}"]
    assert not kvmount.run_as(is_there, os.path.join(mine, own[0]), uid=kvmount.NOBODY)
    # To its owner it is a link.
    assert kvmount.run_as(load, mine, uid=OTHER) == b"theirs"
    # What is root's leads everybody.
    os.unlink(f"{mount.mnt}/theirs/{name_of(text)}")
    os.mkdir(f"{mount.mnt}/of-root")
    store(f"{mount.mnt}/of-root/{name_of(text)}", b"root's")
    assert kvmount.run_as(load, mine, uid=kvmount.NOBODY) == b"root's"


def store_many(directory, text, count):
    for number in range(count):
        os.mkdir(f"{directory}/{number}")
        store(f"{directory}/{number}/{name_of(text)}", b"b")


def look_them_up(goes_on, number, place):  # pylint: disable=unused-argument
    while goes_on():
        for label in os.listdir(place):
            if not goes_on():
                break
            os.path.lexists(os.path.join(place, label))


@pytest.mark.limit(300)
def test_thousands_of_one_hash_hold_nobody_up(mount):
    """All of one label, so that a number has to tell them apart."""
    text = HASHES[0]
    make_directories(mount.mnt, kvmount.NOBODY, 0o755, ["theirs"])
    kvmount.run_as(store_many, f"{mount.mnt}/theirs", text, MANY, uid=kvmount.NOBODY, seconds=200)
    place = by_prefix(mount, text)
    with kvmount.Beside() as beside:
        looker = onlooker.Onlooker(mount)
        with onlooker.hogs(look_them_up, place, count=4):
            looker.during(4)
        looker.judge(beside, f"{MANY} files of one hash")
    labels = os.listdir(place)
    assert len(labels) == len(set(labels)) == MANY


def make_and_look_up(directory, place, count):
    """Long paths, for which a file with many names is enough."""
    os.chdir(directory)
    for _ in range(15):
        os.mkdir("w" * 240)
        os.chdir("w" * 240)
    with open("file", "wb") as file:
        file.write(b"one for all")
    fds = []
    for number in range(count):
        os.link("file", name_of(f"{number:064x}"))
        # The kernel remembers what is open.
        fds.append(os.open(os.path.join(place, f"{number:064x}"), os.O_PATH | os.O_NOFOLLOW))
    return [os.readlink(b"", dir_fd=fd).endswith(os.fsencode(name_of(f"{number:064x}")))
            for number, fd in ((count - 1, fds[-1]),)]


@pytest.mark.limit(200)
def test_what_is_looked_up_by_hash_takes_little_memory(mount):
    make_directories(mount.mnt, kvmount.NOBODY, 0o755, ["theirs"])
    before = kvmount.rss_bytes(mount.pid())
    found = kvmount.run_as(make_and_look_up, f"{mount.mnt}/theirs", by_prefix(mount), 19_000, uid=kvmount.NOBODY, seconds=150)
    assert found == [True]
    grown = kvmount.rss_bytes(mount.pid()) - before
    print(f"grown by {grown >> 20} MiB")
    assert kvmount.SANITIZER or grown < 64 << 20
    # The kernel still knows the first by a number that the daemon has forgotten.
    assert kvmount.run_as(os.path.getsize, by_prefix(mount, f"{0:064x}"), uid=kvmount.NOBODY) == len("one for all")
