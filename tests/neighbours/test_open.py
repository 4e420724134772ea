"""Who only reads holds bytes as well: what is open, mapped, or was found just now cannot be evicted."""

import contextlib
import ctypes
import errno
import json
import os
import tempfile

import pytest

import kvmount
import onlooker
import watch

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="what kvcachefs counts, and against whom")

MIB = 1 << 20
SIZE = 256 * MIB
FILE = 4 * MIB
LEASE_S = 1


@pytest.fixture(name="place")
def made_place(request):
    """A mount of 256 MiB on a disk of four times that: (mount, its device directory, a directory of nobody)."""
    with kvmount.LoopFs("ext4", size=4 * SIZE) as disk, kvmount.Mount(
            request.node.name, nvme=os.path.join(disk.path, "nvme"), size=SIZE,
            options=["--lease", f"{LEASE_S}s"]) as mount:
        theirs = f"{mount.mnt}/theirs"
        os.mkdir(theirs)
        os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
        yield mount, mount.nvme, theirs


def put(path, size=FILE):
    with open(path, "wb") as file:
        file.write(os.urandom(MIB) * (size // MIB))


def put_all(where, count, size=FILE):
    for number in range(count):
        put(f"{where}/f{number}", size)


def there(where):
    return sorted(os.path.join(where, name) for name in os.listdir(where))


def promise(mount, share="50%"):
    """A directory with a share, of which nothing is used."""
    promised = f"{mount.mnt}/promised"
    os.mkdir(promised)
    assert mount.cli("set", promised, f"share={share}").returncode == 0
    return promised


def open_all(paths, flags=os.O_RDONLY):
    """(descriptors, the errnos of those that were refused)"""
    fds, refused = [], []
    for path in paths:
        try:
            fds.append(os.open(path, flags))
        except OSError as error:
            refused.append(error.errno)
    return fds, refused


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PROT_READ, MAP_SHARED = 1, 1
PAGE = 4096


def map_and_close(fd):
    """The address of a mapping that nothing but itself holds: mmap.mmap() keeps a descriptor."""
    address = LIBC.mmap(None, PAGE, PROT_READ, MAP_SHARED, fd, 0)
    assert address not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    os.close(fd)
    return address


def open_and_hold(paths):
    return open_all(paths)


def map_and_hold(paths):
    """Opened, mapped and closed one by one."""
    held, refused = [], []
    for path in paths:
        fds, failed = open_all([path])
        held += [map_and_close(fd) for fd in fds]
        refused += failed
    return held, refused


def _hold(goes_on, _, hold, where, told):
    held, refused = hold(there(where))
    with open(told + ".new", "w", encoding="utf-8") as file:
        json.dump([len(held), refused], file)
    os.rename(told + ".new", told)
    kvmount.wait_until(lambda: not goes_on(), 300, "the end")


@contextlib.contextmanager
def holding(hold, where, uid=kvmount.NOBODY):
    """Somebody holds all files of a directory: (how many he got, the errnos of the others)."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        os.chmod(shared, 0o777)
        told = os.path.join(shared, "told")
        with onlooker.hogs(_hold, hold, where, told, uid=uid) as (child,):
            kvmount.wait_until(lambda: os.path.exists(told) or child.has_ended(), 60, "what is held")
            with open(told, encoding="utf-8") as file:
                yield json.load(file)


def lay_up(mount, theirs, count):
    """Files of nobody's, sealed, that nobody has found just now."""
    kvmount.run_as(put_all, theirs, count, uid=kvmount.NOBODY)
    watch.wait_at_rest(mount)
    mount.wait_for_the_ends_of_leases(LEASE_S + 30)


def counted(mount, what):
    return watch.budget(mount)[what]


def occupied(nvme):
    """By all that is there, with a name or without."""
    below = os.statvfs(nvme)
    return (below.f_blocks - below.f_bfree) * below.f_frsize


@pytest.mark.gate
@pytest.mark.parametrize("hold", [open_and_hold, map_and_hold])
@pytest.mark.parametrize("share", [None, "50%", "75%"])
def test_who_only_reads_takes_nobodys_room(place, hold, share):
    """All that is stored is one user's, and he opens or maps it: others store on."""
    mount, nvme, theirs = place
    promised = mount.mnt if share is None else promise(mount, share)
    lay_up(mount, theirs, SIZE // FILE - 8)
    before = occupied(nvme)
    with holding(hold, theirs) as (count, refused):
        assert set(refused) <= {errno.ENOENT}
        most = {None: 3 / 4, "50%": 1 / 2, "75%": 1 / 4}[share] * SIZE // FILE
        assert most - 3 <= count <= most and refused, (count, refused)
        kvmount.wait_until(lambda: counted(mount, "open") == count * FILE, 30, "what is open to be counted")
        room = (SIZE // 4 if share is None else int(share[:-1]) * SIZE // 100) - 8 * FILE
        stored = [f"{promised}/mine-{number}" for number in range(room // FILE)]
        for path in stored:
            put(path)
        mount.flush(check=False)
        assert all(os.path.exists(path) for path in stored)
        # Nothing of it is left that nobody counts.
        assert occupied(nvme) <= before + SIZE // 8
    kvmount.wait_until(lambda: counted(mount, "open") == 0, 30, "what is no longer held")


def store_map_and_remove(path, how):
    """A mapping of what has no name any more, or is not what the name leads to."""
    put(path)
    fd = os.open(path, os.O_RDONLY)
    map_and_close(fd)
    if how == "unlinked":
        os.unlink(path)
    else:
        put(path, 0)


@pytest.mark.gate
@pytest.mark.parametrize("how", ["unlinked", "rewritten"])
def test_what_is_mapped_without_a_name_is_its_tenants(place, how):
    """No loop of storing, mapping, closing and removing fills the disk unseen."""
    mount, nvme, theirs = place
    assert mount.cli("set", theirs, "quota=64MiB").returncode == 0
    before = occupied(nvme)

    def fill(_):
        stored, code = 0, 0
        for number in range(2 * SIZE // FILE):
            try:
                store_map_and_remove(f"{theirs}/g{number}", how)
                stored += 1
            except OSError as error:
                code = error.errno
                break
            # What is mapped is looked for once a second.
            kvmount.wait_until(lambda: tenant_use() >= min(stored, 16) * FILE, 10, "what is mapped to be counted")
        return [None] * stored, [code]

    def tenant_use():
        quota = os.statvfs(theirs)
        return (quota.f_blocks - quota.f_bavail) * quota.f_frsize

    with holding(fill, theirs) as (count, codes):
        assert codes == [errno.EDQUOT] and 14 <= count <= 24, (count, codes)
        assert occupied(nvme) - before <= 96 * MIB
        put(f"{mount.mnt}/mine")
    kvmount.wait_until(lambda: mount.status()["tenants"][0]["used"] == 0, 120, "what nobody has mapped to go")


@pytest.mark.gate
@pytest.mark.parametrize("how", ["stat", "read"])
def test_what_others_find_costs_a_quota_nothing(place, how):
    """Leases on a tenant's files are on half of its quota at most, whoever has asked."""
    mount, _, theirs = place
    assert mount.cli("set", theirs, "quota=64MiB").returncode == 0
    lay_up(mount, theirs, 15)

    def ask(goes_on, _):
        """By name: who lists a directory has no leases."""
        while goes_on():
            for name in [f"f{number}" for number in range(15)] + [f"new{number}" for number in range(40)]:
                with contextlib.suppress(FileNotFoundError):
                    if how == "stat":
                        os.stat(f"{theirs}/{name}")
                    else:
                        with open(f"{theirs}/{name}", "rb") as file:
                            file.read(1)

    with onlooker.hogs(ask, uid=12345):
        kvmount.wait_until(lambda: mount.status()["counts"]["leases"] > 4, 30, "leases")
        for number in range(40):
            kvmount.run_as(put, f"{theirs}/new{number}", uid=kvmount.NOBODY)
