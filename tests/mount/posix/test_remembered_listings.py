"""Listings that the kernel answers by itself: they show what is there, and the daemon is not asked."""

import contextlib
import os
import stat
import threading

import pytest

import kvmount
from getdents import getdents, rest_of, whole

pytestmark = [pytest.mark.usefixtures("page_cache"),
              pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no daemon to ask")]

# More than the kernel asks for at a time.
NAMES = 2000


def make(directory, count=NAMES):
    os.makedirs(directory, exist_ok=True)
    names = {f"name-{number:05}" for number in range(count)}
    for name in names:
        os.mknod(f"{directory}/{name}")
    return names


def asked(mount):
    """How many READDIR and READDIRPLUS the daemon has answered."""
    operations = mount.status()["operations"]
    return sum(operations[name]["count"] for name in ("readdir", "readdirplus")
               if name in operations)


@contextlib.contextmanager
def nothing_asked(mount):
    before = asked(mount)
    yield
    assert asked(mount) == before, "the daemon was asked"


def remember(mount, directory):
    """Lists it, and again: from then on the kernel answers."""
    names = os.listdir(directory)
    with nothing_asked(mount):
        assert os.listdir(directory) == names
    return set(names)


def opened(directory):
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY)


@pytest.mark.short
def test_the_kernel_answers_the_second_listing(mounts, data_path, transport):
    mount = mounts(data_path=data_path, transport=transport)
    directory = f"{mount.mnt}/d"
    names = make(directory)
    os.mkdir(f"{directory}/below")
    os.symlink("below", f"{directory}/symlink")
    kinds = {name: stat.S_IFREG for name in names}
    kinds |= {"below": stat.S_IFDIR, "symlink": stat.S_IFLNK}
    assert remember(mount, directory) == set(kinds)
    fd = opened(directory)
    try:
        with nothing_asked(mount):
            entries = whole(fd)
        assert sorted(entry.name for entry in entries) == sorted(kinds | {".": 0, "..": 0})
        for entry in entries[2:]:
            status = os.lstat(f"{directory}/{entry.name}")
            assert entry.inode == status.st_ino
            assert entry.kind << 12 == stat.S_IFMT(status.st_mode) == kinds[entry.name]
        assert entries[0].inode == os.stat(directory).st_ino
        assert entries[1].inode == os.stat(mount.mnt).st_ino
    finally:
        os.close(fd)


def link_nameless(directory):
    fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY)
    # With a descriptor Python calls linkat, which can follow the symbolic link.
    os.link(f"/proc/self/fd/{fd}", f"{directory}/linked", src_dir_fd=fd, follow_symlinks=True)
    os.close(fd)


# What a process does to the directory d, which has a, b and a directory sub, beside a directory e; and
# the names that come and those that go.
CHANGES = {
    "create": (lambda root: os.close(os.open(f"{root}/d/new", os.O_CREAT | os.O_WRONLY)),
               {"new"}, set()),
    "mknod": (lambda root: os.mknod(f"{root}/d/new"), {"new"}, set()),
    "mkdir": (lambda root: os.mkdir(f"{root}/d/new"), {"new"}, set()),
    "symlink": (lambda root: os.symlink("a", f"{root}/d/new"), {"new"}, set()),
    "link": (lambda root: os.link(f"{root}/d/a", f"{root}/d/new"), {"new"}, set()),
    "link a nameless file": (lambda root: link_nameless(f"{root}/d"), {"linked"}, set()),
    "unlink": (lambda root: os.unlink(f"{root}/d/a"), set(), {"a"}),
    "rmdir": (lambda root: os.rmdir(f"{root}/d/sub"), set(), {"sub"}),
    "rename": (lambda root: os.rename(f"{root}/d/a", f"{root}/d/new"), {"new"}, {"a"}),
    "replace": (lambda root: os.rename(f"{root}/d/a", f"{root}/d/b"), set(), {"a"}),
    "rename away": (lambda root: os.rename(f"{root}/d/a", f"{root}/e/a"), set(), {"a"}),
    "rename here": (lambda root: os.rename(f"{root}/e/x", f"{root}/d/x"), {"x"}, set()),
}


@pytest.mark.short
@pytest.mark.parametrize("change", CHANGES)
def test_what_comes_and_goes_is_seen_at_once(shared_mount, seed, change):
    """By any process. Then the kernel remembers the new listing."""
    root = f"{shared_mount.mnt}/{change.replace(' ', '-')}-{seed}"
    names = make(f"{root}/d", 300) | {"a", "b", "sub"}
    os.makedirs(f"{root}/d/sub")
    os.makedirs(f"{root}/e")
    for name in ("d/a", "d/b", "e/x"):
        os.mknod(f"{root}/{name}")
    assert remember(shared_mount, f"{root}/d") == names
    elsewhere = remember(shared_mount, f"{root}/e")
    call, come, go = CHANGES[change]
    kvmount.run_as(call, root)
    assert sorted(os.listdir(f"{root}/d")) == sorted((names | come) - go)
    assert remember(shared_mount, f"{root}/d") == (names | come) - go
    expected = {"rename away": elsewhere | {"a"}, "rename here": elsewhere - {"x"}}
    assert set(os.listdir(f"{root}/e")) == expected.get(change, elsewhere)


def test_a_directory_that_moved_lists_its_new_parent(shared_mount, seed):
    """A rename is a change of both parents, and of ".." in what has moved."""
    root = f"{shared_mount.mnt}/moved-{seed}"
    make(f"{root}/from/d", 10)
    os.mkdir(f"{root}/to")
    remember(shared_mount, f"{root}/from/d")
    os.rename(f"{root}/from/d", f"{root}/to/d")
    fd = opened(f"{root}/to/d")
    try:
        assert whole(fd)[1].inode == os.stat(f"{root}/to").st_ino
    finally:
        os.close(fd)


@pytest.mark.short
def test_what_is_evicted_on_request_is_listed_no_more(mounts, data_path, transport):
    """By who opens the directory from then on, and by who goes back to its beginning a moment later."""
    mount = mounts(data_path=data_path, transport=transport)
    directory = f"{mount.mnt}/d"
    names = make(directory, 300)
    for name in ("one", "two"):
        with open(f"{directory}/{name}", "wb") as file:
            file.write(b"k" * 65536)
    os.link(f"{directory}/one", f"{mount.mnt}/other-name")
    kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] == 0, 30, "the seals")
    kvmount.drop_caches(2)  # Of a name that the kernel does not know it is told in vain.
    # What it forgets by that it says a moment later: a listing before that is not remembered.
    kvmount.wait_until(lambda: is_remembered(mount, directory), 10, "the kernel remembers the listing")
    assert remember(mount, directory) == names | {"one", "two"}
    assert remember(mount, mount.mnt) == {"d", "other-name"}
    fd = opened(directory)
    try:
        with nothing_asked(mount):
            assert len(whole(fd)) == len(names) + 4
        for gone, left in (("one", {"two"}), ("two", set())):
            done = mount.cli("evict", f"{directory}/{gone}")
            assert done.returncode == 0, done
            assert set(os.listdir(directory)) == names | left
            assert os.listdir(mount.mnt) == ["d"], "a file goes with all of its names"
            kvmount.wait_until(lambda: gone not in {entry.name for entry in whole(fd)}, 10,
                               "the open directory shows it")
            kvmount.wait_until(lambda: is_remembered(mount, directory), 10,
                               "the kernel remembers the new listing")
            assert set(os.listdir(directory)) == names | left
    finally:
        os.close(fd)


def is_remembered(mount, directory):
    before = asked(mount)
    os.listdir(directory)
    return asked(mount) == before


def test_an_eviction_during_a_listing(mounts):
    """The names that the kernel has taken already include the one that goes: they are not kept."""
    mount = mounts()
    directory = f"{mount.mnt}/d"
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
    with open(f"{directory}/goes", "wb") as file:
        file.write(b"k" * 65536)
    names = make(directory)
    kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] == 0, 30, "the seals")
    kvmount.drop_caches(2)  # Of a name that the kernel does not know it is told in vain.
    remember(mount, directory)
    names.add("another")
    os.mknod(f"{directory}/another")  # The kernel begins anew.
    os.stat(directory)
    fd = opened(directory)
    try:
        begun = getdents(fd, 4096)
        assert "goes" in {entry.name for entry in begun}
        assert mount.cli("evict", f"{directory}/goes").returncode == 0
        assert set(os.listdir(directory)) == names
        seen = begun + rest_of(fd)
        assert {entry.name for entry in seen} >= names
        for _ in range(3):
            assert set(os.listdir(directory)) == names
    finally:
        os.close(fd)
    kvmount.wait_until(lambda: is_remembered(mount, directory), 10, "the kernel remembers it")
    assert set(os.listdir(directory)) == names


def test_a_time_to_live_ends_the_name_in_listings(mounts):
    mount = mounts(options=["--lease", "1s"])
    directory = f"{mount.mnt}/d"
    os.mkdir(directory)
    os.setxattr(directory, "user.kvcachefs.ttl", b"3s")
    with open(f"{directory}/f", "wb") as file:
        file.write(b"k" * 65536)
    assert remember(mount, directory) == {"f"}
    kvmount.wait_until(lambda: mount.status()["dropped"]["expired"]["files"] == 1, 60, "its end")
    assert os.listdir(directory) == []


@pytest.mark.short
def test_a_listing_goes_on_from_any_position(shared_mount, seed):
    """Positions are the same whether the kernel answers or the daemon, and after a removal."""
    directory = f"{shared_mount.mnt}/positions-{seed}"
    make(directory)
    fd = opened(directory)
    try:
        asked_for = whole(fd, 4096)
        remember(shared_mount, directory)
        with nothing_asked(shared_mount):
            assert whole(fd) == asked_for
            for number in range(0, len(asked_for), 97):
                os.lseek(fd, asked_for[number].after, os.SEEK_SET)
                assert rest_of(fd) == asked_for[number + 1:]
        middle = len(asked_for) // 2
        os.lseek(fd, asked_for[middle].after, os.SEEK_SET)
        os.unlink(f"{directory}/{asked_for[middle].name}")
        assert len(os.listdir(directory)) == NAMES - 1  # Another reader: the kernel begins anew.
        assert rest_of(fd) == asked_for[middle + 1:]
        kvmount.drop_caches(1)
        os.lseek(fd, asked_for[middle].after, os.SEEK_SET)
        assert rest_of(fd) == asked_for[middle + 1:]
        assert whole(fd) == asked_for[:middle] + asked_for[middle + 1:]
    finally:
        os.close(fd)


class Line:
    """Names with numbers that are made at one end and unlinked at the other, until stopped."""

    def __init__(self, directory, length):
        self.directory, self.length, self.halt = directory, length, threading.Event()
        self.made = self.going = self.gone = 0
        self.error = None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.halt.is_set():
                os.mknod(f"{self.directory}/moves-{self.made}")
                self.made += 1
                if self.made > self.length:
                    self.going += 1
                    os.unlink(f"{self.directory}/moves-{self.gone}")
                    self.gone += 1
                # Listings in between are the kernel's own.
                self.halt.wait(0.01)
        except OSError as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.halt.set()
        self.thread.join()
        if self.error:
            raise self.error


def test_two_list_while_names_come_and_go(shared_mount, seed):
    """Each listing has all that was there before it began and after it ended, and nothing that had
    gone before it began."""
    directory = f"{shared_mount.mnt}/two-{seed}"
    names = make(directory)
    wrong, rounds = [], [0, 0]

    def list_it(me):
        for _ in range(150):
            gone, made = line.gone, line.made
            listed = os.listdir(directory)
            seen = set(listed)
            going = line.going
            missing = (names | {f"moves-{n}" for n in range(going, made)}) - seen
            extra = seen & {f"moves-{n}" for n in range(gone)}
            if missing or extra or len(seen) != len(listed):
                wrong.append((missing, extra, len(listed) - len(seen)))
            rounds[me] += 1

    with Line(directory, 50) as line:
        listers = [threading.Thread(target=list_it, args=(me,)) for me in range(2)]
        for lister in listers:
            lister.start()
        for lister in listers:
            lister.join()
    assert wrong == [] and rounds == [150, 150]
    assert remember(shared_mount, directory) == set(os.listdir(directory))


@pytest.mark.short
def test_synthetic_directories_are_not_remembered(mounts):
    mount = mounts()
    os.mkdir(f"{mount.mnt}/prefix")
    place = f"{mount.mnt}/.kvcachefs/by-prefix"
    hashes = [f"{number:064x}" for number in range(1, 4)]
    for number, text in enumerate(hashes):
        with open(f"{mount.mnt}/prefix/{text}.tmp", "wb") as file:
            file.write(b"k")
        os.rename(f"{mount.mnt}/prefix/{text}.tmp", f"{mount.mnt}/prefix/{text}")
        for _ in range(2):
            assert sorted(os.listdir(f"{mount.mnt}/prefix")) == hashes[:number + 1]
            assert sorted(os.listdir(place)) == hashes[:number + 1]
    with nothing_asked(mount):
        assert sorted(os.listdir(f"{mount.mnt}/prefix")) == hashes
    # What comes second to a published file goes, and the file stays.
    with open(f"{mount.mnt}/prefix/second.tmp", "wb") as file:
        file.write(b"2")
    assert "second.tmp" in os.listdir(f"{mount.mnt}/prefix")
    os.rename(f"{mount.mnt}/prefix/second.tmp", f"{mount.mnt}/prefix/{hashes[0]}")
    assert sorted(os.listdir(f"{mount.mnt}/prefix")) == hashes
