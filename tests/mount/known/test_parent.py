"""`user.kvcachefs.parent`: the order of blocks, learned from calls, told by sessions and by the xattr;
it outlives restarts."""

import errno
import os
import time

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 knows no blocks")

PARENT = "user.kvcachefs.parent"


def parent_of(path):
    try:
        return os.getxattr(path, PARENT).decode()
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return None


class Blocks:
    """A chain of blocks as vLLM names them."""

    def __init__(self, root, first, count):
        self.root = root
        self.hashes = [f"{(first + i) * 0x9e3779b97f4a7c15 % 2**64:016x}" * 4 for i in range(count)]

    def path(self, text):
        return f"{self.root}/org-model_0123456789ab_r0/{text[:3]}/{text[3:5]}_g0/{text}.bin"

    def paths(self):
        return [self.path(text) for text in self.hashes]

    def probe(self):
        return [os.path.exists(path) for path in self.paths()]

    def store(self):
        for path in self.paths():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + "_1.tmp", "wb") as file:
                file.write(b"block")
            os.rename(path + "_1.tmp", path)

    def parents(self):
        return [parent_of(path) for path in self.paths()]


def let_names_expire():
    """The kernel remembers names of blocks for a second, and we have no lookup of theirs until then."""
    time.sleep(1.1)


def learn(blocks):
    """A miss, the store, and two hits: what a runtime does with a prefix that comes three times."""
    assert not any(blocks.probe())
    blocks.store()
    for _ in range(2):
        let_names_expire()
        assert all(blocks.probe())


@pytest.fixture(name="mount", scope="module")
def mounted():
    with kvmount.Mount("parent") as mount:
        yield mount


@pytest.mark.gate
@pytest.mark.short
def test_is_learned_and_outlives_restarts(mount):
    blocks = Blocks(mount.mnt, 1000, 12)
    learn(blocks)
    expected = [None] + blocks.hashes[:-1]
    assert blocks.parents() == expected
    mount.remount()
    # What it was is read beside the first requests.
    kvmount.wait_until(lambda: blocks.parents() == expected, 10, "the order of the last run")
    # A name that goes takes its own order with it, and no other's.
    os.unlink(blocks.paths()[5])
    assert parent_of(blocks.paths()[7]) == blocks.hashes[6]
    with pytest.raises(FileNotFoundError):
        parent_of(blocks.paths()[5])


def test_can_be_told(mount):
    blocks = Blocks(mount.mnt, 2000, 4)
    blocks.store()
    paths, hashes = blocks.paths(), blocks.hashes
    os.setxattr(paths[3], PARENT, hashes[0].encode())
    assert parent_of(paths[3]) == hashes[0]
    mount.remount()
    kvmount.wait_until(lambda: parent_of(paths[3]) == hashes[0], 10, "what was told")
    for path, value, code in [(paths[0], hashes[3].encode(), errno.EINVAL),  # A circle.
                              (paths[0], hashes[0].encode(), errno.EINVAL),
                              (paths[0], b"", errno.EINVAL), (paths[0], b"not hex", errno.EINVAL),
                              (paths[0], b"a" * 200, errno.EINVAL),
                              (paths[0], b"f" * 64, errno.ENODATA)]:
        with pytest.raises(OSError) as refused:
            os.setxattr(path, PARENT, value)
        assert refused.value.errno == code, value
    assert PARENT not in os.listxattr(paths[3])
    plain = f"{mount.mnt}/plain"
    with open(plain, "wb"):
        pass
    assert parent_of(plain) is None
    with pytest.raises(OSError) as refused:
        os.setxattr(plain, PARENT, hashes[0].encode())
    assert refused.value.errno == errno.ENODATA


def test_what_was_told_can_be_taken_back(mount):
    blocks = Blocks(mount.mnt, 2100, 3)
    blocks.store()
    path, hashes = blocks.paths()[2], blocks.hashes
    os.setxattr(path, PARENT, hashes[0].encode())
    with pytest.raises(FileExistsError):
        os.setxattr(path, PARENT, hashes[1].encode(), os.XATTR_CREATE)
    os.setxattr(path, PARENT, hashes[1].encode(), os.XATTR_REPLACE)
    assert parent_of(path) == hashes[1]
    os.removexattr(path, PARENT)
    assert parent_of(path) is None
    for call in (lambda: os.removexattr(path, PARENT),
                 lambda: os.setxattr(path, PARENT, hashes[0].encode(), os.XATTR_REPLACE)):
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.errno == errno.ENODATA
    last = Blocks(mount.mnt, 2200, 2)
    last.store()
    os.setxattr(last.paths()[1], PARENT, last.hashes[0].encode())
    mount.remount()
    kvmount.wait_until(lambda: parent_of(last.paths()[1]) == last.hashes[0], 10,
                       "the order of the last run")
    assert parent_of(path) != hashes[1]


def test_a_listing_teaches_nothing(mount):
    blocks = Blocks(mount.mnt, 3000, 12)

    def store_backwards():
        for path in reversed(blocks.paths()):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb"):
                pass

    def walk():
        for _ in range(3):
            let_names_expire()
            for directory, _, names in os.walk(f"{mount.mnt}/org-model_0123456789ab_r0"):
                for name in names:
                    os.stat(os.path.join(directory, name))

    kvmount.run_as(store_backwards)
    before = blocks.parents()
    kvmount.run_as(walk)
    assert blocks.parents() == before


def test_sessions_tell_it(mount):
    blocks = Blocks(mount.mnt, 4000, 6)
    os.makedirs(f"{mount.mnt}/prefix", exist_ok=True)
    os.makedirs(f"{mount.mnt}/session/talk")
    files = [f"{mount.mnt}/prefix/{text}" for text in blocks.hashes]

    def store_and_link():
        for path in files:
            with open(path, "wb") as file:
                file.write(b"block")
        # Not in order.
        for position in (0, 3, 1, 2, 5, 4):
            os.link(files[position], f"{mount.mnt}/session/talk/{position}")

    # By who has not just looked another chain up, as the tests before have.
    kvmount.run_as(store_and_link)
    assert [parent_of(path) for path in files] == [None] + blocks.hashes[:-1]
    kvmount.remove_tree(f"{mount.mnt}/session/talk")
    assert [parent_of(path) for path in files] == [None] + blocks.hashes[:-1]
