"""`.kvcachefs/by-prefix`: what it answers is what a scan of the tree finds."""

import errno
import os
import random
import re

import pytest

import getdents
import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 knows no blocks")

OPERATIONS = 10_000 if kvmount.FULL else 1000
CHECKS = 20 if kvmount.FULL else 8
HASHES = 300  # Few enough that models share them and files are replaced.

# The test's own reading of two layouts.
VLLM = re.compile(r"(?:.*/)?[^/]+_[0-9a-f]{12}_r\d+/([0-9a-f]{3})/([0-9a-f]{2})_g\d+/([0-9a-f]{64})\.bin")
SGLANG = re.compile(r"(?:.*/)?([0-9a-f]{64})_[^/]+\.bin")
VLLM_DIRECTORIES = ["a-b_0123456789ab_r0", "a-b_0123456789ab_r1", "deep/er/c_ba9876543210_r0"]


def hash_in(path):
    match = VLLM.fullmatch(path)
    if match:
        return match[3] if match[3].startswith(match[1] + match[2]) else None
    match = SGLANG.fullmatch(path)
    return match[1] if match else None


def scan(root):
    """hash -> paths, by walking the tree."""
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), root)
            text = hash_in(path)
            if text:
                found.setdefault(text, set()).add(path)
    return found


def links_of(root, text):
    """The paths that by-prefix gives for a hash."""
    place = os.path.join(root, ".kvcachefs/by-prefix", text)
    if os.path.islink(place):
        links = [place]
    else:
        links = [os.path.join(place, name) for name in os.listdir(place)]
        assert len(links) > 1, links
    paths = set()
    for link in links:
        assert os.path.samefile(link, os.path.realpath(link))
        target = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
        paths.add(os.path.relpath(target, root))
    assert len(paths) == len(links)
    return paths


def ask(root):
    answers = {}
    for text in os.listdir(os.path.join(root, ".kvcachefs/by-prefix")):
        answers[text] = links_of(root, text)
    return answers


class Load:
    """Random changes of a tree of blocks."""

    def __init__(self, root, seed):
        self.root = root
        self.rng = random.Random(seed)
        self.hashes = [f"{self.rng.getrandbits(256):064x}" for _ in range(HASHES)]
        self.directories = list(VLLM_DIRECTORIES)
        self.paths = []
        self.counts = {}

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def new_path(self):
        text = self.rng.choice(self.hashes)
        if self.rng.random() < 0.3:
            return f"flat/{text}_model-{self.rng.randrange(2)}.bin"
        return f"{self.rng.choice(self.directories)}/{text[:3]}/{text[3:5]}_g0/{text}.bin"

    def publish(self):
        path = self.new_path()
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        temporary = self.path(f"{path}_{self.rng.randrange(1 << 30)}.tmp")
        with open(temporary, "wb") as file:
            file.write(path.encode())
        os.rename(temporary, self.path(path))
        if path not in self.paths:
            self.paths.append(path)

    def any_path(self):
        return self.rng.choice(self.paths) if self.paths else None

    def move(self):
        old, new = self.any_path(), self.new_path()
        if old is None:
            return
        if self.rng.random() < 0.3:
            new = f"{os.path.dirname(old)}/plain-{self.rng.randrange(100)}"
        os.makedirs(os.path.dirname(self.path(new)), exist_ok=True)
        os.rename(self.path(old), self.path(new))
        self.paths.remove(old)
        if new not in self.paths:
            self.paths.append(new)

    def link(self):
        old, new = self.any_path(), self.new_path()
        if old is None or new in self.paths:
            return
        os.makedirs(os.path.dirname(self.path(new)), exist_ok=True)
        os.link(self.path(old), self.path(new))
        self.paths.append(new)

    def unlink(self):
        old = self.any_path()
        if old is not None:
            os.unlink(self.path(old))
            self.paths.remove(old)

    def swap(self):
        if len(self.paths) < 2:
            return
        first, second = self.rng.sample(self.paths, 2)
        aside = self.path("aside")
        os.rename(self.path(first), aside)
        os.rename(self.path(second), self.path(first))
        os.rename(aside, self.path(second))

    def move_directory(self):
        """Away from the layout's names, or to another of them."""
        at = self.rng.randrange(len(self.directories))
        old = self.directories[at]
        if not os.path.isdir(self.path(old)):
            return
        ending = self.rng.choice(["_0123456789ab_r0", "_no_layout"])
        new = f"moved-{self.rng.randrange(1 << 30)}{ending}"
        os.rename(self.path(old), self.path(new))
        self.directories[at] = new
        self.paths = [new + p[len(old):] if p.startswith(old + "/") else p for p in self.paths]

    def run(self, operations):
        choices = [(self.publish, 50), (self.move, 10), (self.link, 5), (self.unlink, 20),
                   (self.swap, 5), (self.move_directory, 0.5)]
        moved = False
        for _ in range(operations):
            operation = self.rng.choices([c[0] for c in choices], [c[1] for c in choices])[0]
            operation()
            self.counts[operation.__name__] = self.counts.get(operation.__name__, 0) + 1
            moved = moved or operation == self.move_directory  # pylint: disable=comparison-with-callable
        return moved


def check(root, moved):
    expected = scan(root)
    if moved:  # Names below a renamed directory are read anew by a thread of their own.
        kvmount.wait_until(lambda: ask(root) == expected, 20, "by-prefix agrees with the tree")
    answers = ask(root)
    assert answers == expected
    return len(expected)


@pytest.mark.short
@pytest.mark.limit(600)
def test_agrees_with_a_scan(seed):
    with kvmount.Mount("by-prefix") as mount:
        load = Load(mount.mnt, seed)
        hashes = 0
        for number in range(CHECKS):
            moved = load.run(OPERATIONS // CHECKS)
            if number == CHECKS // 2:
                mount.crash()
                # What was to be read anew still is.
                moved = True
            hashes = check(mount.mnt, moved)
        assert hashes > HASHES // 4, "too little was left to compare"
        assert all(load.counts.get(name) for name in ("publish", "move", "link", "unlink", "swap",
                                                      "move_directory")), load.counts
        mount.stop()
        code, text = mount.fsck()
        assert code == 0, text
    print(f"{OPERATIONS} operations: {load.counts}; {hashes} hashes at the end")


def make(root, path, content=b"x"):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


HASH = "00" * 30 + "abcd"


@pytest.fixture(name="root", scope="module")
def mounted():
    with kvmount.Mount("by-prefix") as mount:
        yield mount.mnt


@pytest.mark.gate
def test_one_file_is_a_link_and_several_are_a_directory(root):
    by_prefix = os.path.join(root, ".kvcachefs/by-prefix")
    with pytest.raises(FileNotFoundError):
        os.lstat(f"{by_prefix}/{HASH}")
    make(root, f"{HASH}_model.bin", b"one")
    assert os.readlink(f"{by_prefix}/{HASH}") == f"../../{HASH}_model.bin"
    with open(f"{by_prefix}/{HASH}", "rb") as file:
        assert file.read() == b"one"
    make(root, f"{HASH}_other.bin", b"two")
    assert sorted(os.listdir(f"{by_prefix}/{HASH}")) == ["sglang_file,model", "sglang_file,other"]
    with open(f"{by_prefix}/{HASH}/sglang_file,other", "rb") as file:
        assert file.read() == b"two"
    make(root, f"copy/{HASH}_other.bin", b"three")
    assert sorted(os.listdir(f"{by_prefix}/{HASH}")) == [
        "sglang_file,model", "sglang_file,other", "sglang_file,other~2"]
    os.unlink(f"{root}/{HASH}_model.bin")
    os.unlink(f"{root}/{HASH}_other.bin")
    with open(f"{by_prefix}/{HASH}", "rb") as file:
        assert file.read() == b"three"
    os.unlink(f"{root}/copy/{HASH}_other.bin")
    assert os.listdir(by_prefix) == []


def test_is_read_only_and_not_listed(root):
    entrance = f"{root}/.kvcachefs"
    os.makedirs(f"{root}/copy", exist_ok=True)
    assert ".kvcachefs" not in os.listdir(root)
    assert os.listdir(entrance) == ["by-prefix"]
    assert os.path.samefile(f"{entrance}/by-prefix/..", entrance)
    assert os.path.samefile(f"{entrance}/..", root)
    make(root, f"{HASH}_model.bin")
    link = f"{entrance}/by-prefix/{HASH}"

    def refused(*codes):
        return pytest.raises(OSError, match="|".join(f"Errno {code}" for code in codes))

    with refused(errno.EEXIST):
        os.mkdir(entrance)
    for place in (entrance, f"{entrance}/by-prefix"):
        with refused(errno.EROFS):
            os.mkdir(f"{place}/new")
        with refused(errno.EROFS):
            os.open(f"{place}/new", os.O_CREAT | os.O_WRONLY)
        with refused(errno.EROFS):
            os.chmod(place, 0o700)
        with refused(errno.EROFS):
            os.symlink("x", f"{place}/new")
    with refused(errno.EROFS):
        os.unlink(link)
    with refused(errno.EROFS, errno.EXDEV):
        os.rename(link, f"{root}/elsewhere")
    with refused(errno.EROFS, errno.ENOTEMPTY):
        os.rename(f"{root}/copy", entrance)
    with refused(errno.EROFS):
        os.rename(entrance, f"{root}/elsewhere")
    with refused(errno.EROFS):
        os.rmdir(entrance)
    assert os.listxattr(entrance) == []
    assert os.path.samefile(link, f"{root}/{HASH}_model.bin")
    for name in ("xyz", "ABCD", "0" * 130, "no hash", HASH + "0"):
        with pytest.raises(FileNotFoundError):
            os.lstat(f"{entrance}/by-prefix/{name}")
    os.unlink(f"{root}/{HASH}_model.bin")
    with pytest.raises(FileNotFoundError):
        os.lstat(link)


def test_a_listing_of_many(root):
    hashes = {f"{number * 0x9e3779b97f4a7c15 % 2**64:016x}" + "7" * 48 for number in range(3000)}
    # Alike in more than a position has room for: it counts them, up to this number.
    most = 4095
    alike = ["c" * 40 + f"{number:024x}" for number in range(most + 100)]
    for text in hashes | set(alike):
        make(root, f"many/{text}_model.bin")
    hashes |= set(alike[:most])
    listed = os.listdir(f"{root}/.kvcachefs/by-prefix")
    assert len(listed) == len(hashes) and set(listed) == hashes
    fd = os.open(f"{root}/.kvcachefs/by-prefix", os.O_RDONLY | os.O_DIRECTORY)
    try:
        entries = getdents.whole(fd, 700)  # some six at a time
        assert [entry.name for entry in entries[2:]] == listed
        begin = listed.index(alike[0]) + 2
        for at in (1, 2, 500, begin - 1, begin, begin + 1, begin + 2000, begin + most - 1, len(entries) - 1):
            os.lseek(fd, entries[at].after, os.SEEK_SET)
            assert [entry.name for entry in getdents.rest_of(fd)] == listed[at - 1:]
    finally:
        os.close(fd)
    kvmount.remove_tree(f"{root}/many")
    assert os.listdir(f"{root}/.kvcachefs/by-prefix") == []
