"""Who looks blocks up finds them in memory when he loads them; nobody else changes what is there."""

import ctypes
import errno
import os

import pytest

import damage
import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 verifies nothing")

MIB = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_CACHESTAT = 451  # Linux 6.5


def block_name(number):
    """As vLLM's file tier names them."""
    digest = f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}{number:048x}"
    return f"Llama-3.1-8B_1a2b3c4d5e6f_r0/{digest[:3]}/{digest[3:5]}_g0/{digest}.bin"


def cached_pages(path):
    with open(path, "rb") as file:
        span = (ctypes.c_uint64 * 2)(0, 0)
        found = (ctypes.c_uint64 * 5)()
        if _LIBC.syscall(_CACHESTAT, file.fileno(), span, found, 0) != 0:
            raise OSError(ctypes.get_errno(), "cachestat")
        return found[0]


def forget(paths):
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert cached_pages(path) == 0


def probe(paths):
    for path in paths:
        os.stat(path)


def load_all(paths):
    return [damage.load_read(path) for path in paths]


def open_directly(path, flags=os.O_RDONLY):
    try:
        os.close(os.open(path, flags | os.O_DIRECT, 0o644))
    except OSError as error:
        return error.errno
    return 0


class Blocks:
    """A mount with sealed blocks of which no page is in memory."""

    def __init__(self, mount, count, size=MIB, names=block_name):
        self.mount = mount
        self.paths = [os.path.join(mount.mnt, names(number)) for number in range(count)]
        self.contents = [os.urandom(size) for _ in range(count)]
        for path, content in zip(self.paths, self.contents):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path + ".tmp", "wb") as file:
                file.write(content)
            os.rename(path + ".tmp", path)
        damage.wait_sealed(mount)
        self.backing = mount.backing_files()
        forget(self.backing)
        # A lookup that the kernel still has asks us nothing.
        kvmount.drop_caches(2)

    def probe(self):
        """By a process of its own: this one lists directories."""
        kvmount.run_as(probe, self.paths)

    def staged(self):
        return self.mount.status()["counts"]["staged"]

    def wait_staged(self, **figures):
        try:
            kvmount.wait_until(lambda: all(self.staged()[key] == value
                                           for key, value in figures.items()), 30, figures)
        except kvmount.Late as error:
            cached = [cached_pages(path) for path in self.backing]
            raise kvmount.Late(f"{error}: {self.staged()}, cached pages {cached}") from error


@pytest.fixture(name="mounted")
def make_mounted(request, data_path):
    """A mount on a disk, with these options."""
    mounts = []

    def make(*options):
        mount = kvmount.Mount(request.node.name, data_path=data_path,
                              options=["--scrub", "off", *options])
        mounts.append(mount)
        return mount.create().start()

    yield make
    for mount in mounts:
        mount.close()


@pytest.mark.short
def test_what_was_looked_up_is_in_memory_when_it_is_loaded(mounted):
    blocks = Blocks(mounted(), 16)
    blocks.probe()
    blocks.wait_staged(files=16, held_bytes=16 * MIB)
    assert all(cached_pages(path) == MIB // 4096 for path in blocks.backing)
    assert kvmount.run_as(load_all, blocks.paths) == blocks.contents
    assert blocks.mount.status()["counts"]["verified_opens"] == 0, "each was verified before"
    staged = blocks.staged()
    assert (staged["loaded"], staged["held_bytes"], staged["bytes"]) == (16, 0, 16 * MIB)
    text = blocks.mount.cli("status", blocks.mount.mnt).stdout
    assert "16 blocks that were looked up (16 MiB), 16 loaded then, 0 not" in text


@pytest.mark.short
def test_what_nobody_loads_leaves_memory_again(mounted):
    blocks = Blocks(mounted("--lease", "5s"), 8)
    blocks.probe()
    blocks.wait_staged(files=8)
    kvmount.run_as(load_all, blocks.paths[:3])
    blocks.wait_staged(unused=5, loaded=3, held_bytes=0)
    kvmount.wait_until(lambda: [path for path in blocks.backing if cached_pages(path) == 0]
                       == blocks.backing[3:], 10, "the pages of the others to go")
    # And the next probe brings them back.
    kvmount.drop_caches(2)
    kvmount.wait_until(lambda: blocks.probe() or blocks.staged()["files"] > 8, 30, "another probe")


def test_no_more_is_read_ahead_than_may_be(mounted):
    blocks = Blocks(mounted("--stage", "4MiB"), 16)
    blocks.probe()
    blocks.wait_staged(files=4, held_bytes=4 * MIB)
    for done in range(12):  # Each load makes room for one more, in the order of the lookups.
        assert kvmount.run_as(load_all, blocks.paths[done:done + 1]) == [blocks.contents[done]]
        blocks.wait_staged(files=done + 5, held_bytes=4 * MIB)
    assert blocks.mount.status()["counts"]["verified_opens"] == 0


def list_and_probe(root, paths):
    for _ in os.walk(root):
        pass
    probe(paths)


def test_who_crawls_reads_no_block_and_who_reads_files_none_of_these(mounted):
    mount = mounted()
    files = Blocks(mount, 4, names=lambda number: f"photos/{number}.jpeg")
    files.probe()
    blocks = Blocks(mount, 4)
    kvmount.run_as(list_and_probe, mount.mnt, blocks.paths)
    # What comes last has been through the queue when these have.
    last = Blocks(mount, 2, names=lambda number: block_name(100 + number))
    last.probe()
    last.wait_staged(files=2)
    assert all(cached_pages(path) == 0 for path in blocks.backing[:8])


def test_off_reads_nothing_ahead(mounted):
    blocks = Blocks(mounted("--stage", "off"), 4)
    blocks.probe()
    assert kvmount.run_as(load_all, blocks.paths) == blocks.contents
    assert blocks.staged()["files"] == 0
    assert blocks.mount.status()["counts"]["verified_opens"] == 4


@pytest.mark.parametrize("mode", ["copy", "off"])
def test_without_verification_at_opens_it_is_read_ahead_all_the_same(mounted, mode):
    blocks = Blocks(mounted("--verify", mode), 4)
    blocks.probe()
    blocks.wait_staged(files=4)
    kvmount.wait_until(lambda: all(cached_pages(path) == MIB // 4096 for path in blocks.backing),
                       30, "all pages")
    assert kvmount.run_as(load_all, blocks.paths) == blocks.contents


def test_damage_found_ahead_is_a_miss(mounted):
    blocks = Blocks(mounted(), 3)
    with open(blocks.backing[1], "r+b") as file:  # Below the filesystem, with the times it had.
        status = os.fstat(file.fileno())
        file.seek(MIB - 1)
        file.write(bytes([blocks.contents[1][-1] ^ 1]))
        file.flush()
        os.fsync(file.fileno())
        os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    forget(blocks.backing)
    blocks.probe()
    kvmount.wait_until(lambda: blocks.mount.status()["counts"]["damaged"] == 1, 30, "the damage")
    blocks.wait_staged(files=2)
    assert kvmount.run_as(kvmount.load_or_miss, damage.load_read, blocks.paths[1]) is None
    assert kvmount.run_as(load_all, blocks.paths[::2]) == blocks.contents[::2]


def test_a_model_that_is_read_past_memory_is_not_read_ahead(mounted):
    blocks = Blocks(mounted(), 8)
    assert kvmount.run_as(open_directly, blocks.paths[0]) == 0
    other = Blocks(blocks.mount, 2, names=lambda n: block_name(50 + n).replace("Llama", "Qwen"))
    blocks.probe()
    other.probe()
    kvmount.wait_until(lambda: all(map(cached_pages, other.backing[8:])), 30, "the other model")
    assert not any(map(cached_pages, blocks.backing[1:]))


@pytest.mark.short
def test_direct_opens_are_refused_where_that_was_told(mounted):
    mount = mounted("--odirect", "refuse")
    blocks = Blocks(mount, 2)
    plain = os.path.join(mount.mnt, "plain")
    os.makedirs(os.path.join(plain, "below"))
    assert kvmount.run_as(open_directly, blocks.paths[0]) == errno.EINVAL
    probe_file = os.path.join(mount.mnt, "new")
    assert kvmount.run_as(open_directly, probe_file, os.O_CREAT | os.O_WRONLY) == errno.EINVAL
    assert not os.path.exists(probe_file), "nothing is left of it"
    # Debian's libfuse 3.14 has no O_TMPFILE.
    assert kvmount.run_as(open_directly, mount.mnt,
                          os.O_TMPFILE | os.O_RDWR) in (errno.EINVAL, errno.EOPNOTSUPP)
    assert kvmount.run_as(load_all, blocks.paths) == blocks.contents
    assert mount.cli("set", plain, "odirect=pass").returncode == 0
    below = os.path.join(plain, "below", "new")
    assert kvmount.run_as(open_directly, below, os.O_CREAT | os.O_WRONLY) == 0
    assert kvmount.run_as(open_directly, below) == 0
    assert os.getxattr(plain, "user.kvcachefs.odirect") == b"pass"
    assert mount.cli("set", os.path.dirname(below), "odirect=refuse").returncode == 0
    mount.stop()
    mount.start()
    assert kvmount.run_as(open_directly, below) == errno.EINVAL
    assert mount.cli("set", os.path.dirname(below), "odirect=").returncode == 0
    assert kvmount.run_as(open_directly, below) == 0
    refused = mount.cli("set", below, "odirect=refuse")
    assert refused.returncode != 0 and "directories" in refused.stderr
    assert mount.cli("set", plain, "odirect=perhaps").returncode != 0
    with pytest.raises(OSError) as refused:
        os.setxattr(plain, "user.kvcachefs.odirect", b"perhaps")
    assert refused.value.errno == errno.EINVAL
