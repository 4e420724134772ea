"""A daemon that is short of memory, by its cgroup or by its address space: it serves or says an
error, never wrong bytes. At the worst it is killed; then a start with memory enough has all
that was published."""

import errno
import hashlib
import os
import resource
import signal
import tempfile

import pytest

import kvmount

pytestmark = [pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no daemon"),
              pytest.mark.skipif(kvmount.SANITIZER, reason="a sanitizer's own memory is most of it")]

MIB = 1 << 20
WORKERS = 4
FILES = 60  # of each worker
NAMES = 400  # empty files of each worker: memory for names rather than for bytes
# What a caller may be told by a daemon that has no memory, or has died.
REFUSALS = {errno.ENOMEM, errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED,
            errno.ENOENT, errno.EAGAIN}


class Cgroup:
    """A memory cgroup of our own, of version 1 or 2, for the processes that are started in
    it."""

    def __init__(self, limit):
        self._limit = limit
        self._v1 = os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes")

    @staticmethod
    def missing():
        """Why there can be none here, or None."""
        if os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            return None
        try:
            with open("/sys/fs/cgroup/cgroup.subtree_control", encoding="ascii") as controllers:
                return None if "memory" in controllers.read() else "no memory controller for children"
        except OSError as error:
            return f"no cgroups: {error}"

    def __enter__(self):
        base = "/sys/fs/cgroup/memory" if self._v1 else "/sys/fs/cgroup"
        self.path = tempfile.mkdtemp(prefix="kvcachefs-test-", dir=base)
        self._write("memory.limit_in_bytes" if self._v1 else "memory.max", self._limit)
        return self

    def __exit__(self, *_):
        def gone():
            try:
                os.rmdir(self.path)
            except OSError as busy:
                # A killed process is in it until its memory has been freed.
                if busy.errno != errno.EBUSY:
                    raise
                return False
            return True

        kvmount.wait_until(gone, 20, f"the end of {self.path}")

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as file:
            file.write(str(value))

    def wrapper(self):
        """The words before a command that is to run in it."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]

    def stalls(self):
        """How often memory had to be reclaimed for it to stay below its limit."""
        if self._v1:
            with open(os.path.join(self.path, "memory.failcnt"), encoding="ascii") as count:
                return int(count.read())
        with open(os.path.join(self.path, "memory.events"), encoding="ascii") as events:
            return int(dict(line.split() for line in events)["max"])


def content(name, size):
    word = hashlib.sha256(name.encode()).digest()
    return (word * (size // len(word) + 1))[:size]


def size_of(number):
    return (4096, 100_000, 300_000, MIB)[number % 4] + number


def load(path, name, number):
    """Whether the bytes are right; None: an error, which is one of REFUSALS."""
    try:
        with open(path, "rb") as file:
            return file.read() == content(name, size_of(number))
    except OSError as error:
        assert error.errno in REFUSALS, error
        return None


def work(root, worker):
    """Stores, names and loads for as long as the daemon answers: what was published, as [(name,
    number)], how many calls were refused, and which names had wrong bytes."""
    published, refused, wrong = [], 0, []
    for number in range(FILES):
        name = f"w{worker}-{number}"
        path = os.path.join(root, name)
        try:
            with open(path + ".tmp", "wb", buffering=0) as file:
                data = content(name, size_of(number))
                while data:
                    data = data[file.write(data):]
            os.rename(path + ".tmp", path)
            published.append((name, number))
            for spare in range(NAMES // FILES):
                os.close(os.open(f"{path}.{spare}", os.O_CREAT | os.O_WRONLY))
        except OSError as error:
            assert error.errno in REFUSALS, error
            refused += 1
            if error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED):
                break
        for name, stored in published[-1:] + published[number // 2:number // 2 + 2]:
            right = load(os.path.join(root, name), name, stored)
            refused += right is None
            wrong += [name] if right is False else []
    return published, refused, wrong


def squeeze(mount):
    """All workers at once: what was published, and whether the daemon lives."""
    children = [kvmount.Child(work, mount.mnt, worker) for worker in range(WORKERS)]
    published, refused, wrong = [], 0, []
    for child in children:
        result = child.result(120)
        published += result[0]
        refused += result[1]
        wrong += result[2]
    assert not wrong, f"wrong bytes: {wrong}"
    lives = mount.process.poll() is None
    print(f"{len(published)} published, {refused} refused, "
          f"{'it lives' if lives else f'ended by {-mount.process.returncode}'}")
    if lives:
        assert len(published) > 0, "it served nothing and lived"
    return published, lives


def check_published(mount, published):
    """A daemon without limits has them all."""
    for name, number in published:
        assert load(os.path.join(mount.mnt, name), name, number) is True, f"{name} is lost"
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


def start_anew(mount, lives):
    if lives:
        mount.kill()
    else:
        assert -mount.process.returncode in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV), mount.logs()
        mount._reap()  # pylint: disable=protected-access
        kvmount.lazy_unmount(mount.mnt)
    mount.start(wrapper=[])


@pytest.mark.skipif(Cgroup.missing() is not None, reason=str(Cgroup.missing()))
@pytest.mark.parametrize("limit", [6, 12, 16], ids="{}MiB".format)
def test_in_a_small_cgroup(data_path, limit):
    with Cgroup(limit * MIB) as group:
        mount = kvmount.Mount(f"memory-{limit}", data_path=data_path, wrapper=group.wrapper())
        try:
            mount.create()
            published, lives = [], False
            try:
                mount.start()
            except kvmount.MountError as refusal:
                print(f"it does not start: {str(refusal).splitlines()[0]}")
                assert mount.process.returncode != 0
                kvmount.lazy_unmount(mount.mnt)
                mount.start(wrapper=[])
            else:
                published, lives = squeeze(mount)
                assert group.stalls() > 0, "there was memory enough"
                start_anew(mount, lives)
            check_published(mount, published)
        finally:
            mount.close()


@pytest.mark.parametrize("spare", [0, 4, 32], ids="{}MiB".format)
def test_without_address_space(mounts, data_path, spare):
    """Every allocation may fail, and std::bad_alloc be thrown wherever it can be."""
    mount = mounts(data_path=data_path)
    with open(f"/proc/{mount.pid()}/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[0])
    bound = pages * resource.getpagesize() + spare * MIB
    resource.prlimit(mount.pid(), resource.RLIMIT_AS, (bound, bound))
    published, lives = squeeze(mount)
    start_anew(mount, lives)
    check_published(mount, published)
