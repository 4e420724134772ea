"""When nothing can be evicted, the call that needs room gets ENOSPC, soon, and all goes on when
something was freed."""

import contextlib
import errno
import mmap
import os
import threading
import time

import pytest

import kvmount
import stores
import watch
from stores import MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 evicts nothing")

BUDGET = 64 * MIB
REFUSED = ("ENOSPC", "ENOENT")  # The rename of a failed store.
LONGEST_S = 5  # Of any call, with a CPU and a disk to itself: liveness, not speed.


class Calls:
    """Makes calls and remembers the longest, and which failed how."""

    def __init__(self):
        self.longest = ("", 0.0)
        self.failed = None

    def __call__(self, function, *arguments):
        begin = time.monotonic()
        try:
            return function(*arguments)
        except OSError as error:
            self.failed = self.failed or (function.__name__, errno.errorcode[error.errno])
            raise
        finally:
            seconds = time.monotonic() - begin
            if seconds > self.longest[1]:
                self.longest = (function.__name__, seconds)


def store(folder, name, size, sync=False):
    """As a runtime does: a temporary name, the rename. What came of it, as a dict:

    failed   None, or (call, errno) of the first failure; then the rename is tried all the same
    rename   errno of the rename, None: it was made or not tried (ENOENT: what failed is gone already)
    longest  (call, seconds)
    """
    calls = Calls()
    told = {"rename": None}
    path, temporary = f"{folder}/{name}", f"{folder}/{name}.new"
    fd = None
    try:
        fd = calls(os.open, temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        data = stores.Content(0).of(name, size)
        while data:
            data = data[calls(os.write, fd, data):]
        if sync:
            calls(os.fsync, fd)
    except OSError:
        pass
    if fd is not None:
        try:
            calls(os.close, fd)
        except OSError:
            pass
        try:
            calls(os.rename, temporary, path)
        except OSError as error:
            told["rename"] = errno.errorcode[error.errno]
    return {**told, "failed": calls.failed, "longest": calls.longest}


def fill(folder, most, size, sync):
    """Stores until one fails: (names of those that did not, what came of the one that did, with
    the longest call of all)."""
    names, longest = [], ("", 0.0)
    for number in range(most // size):
        told = store(folder, f"{number:05}", size, sync)
        longest = max(longest, told["longest"], key=lambda one: one[1])
        if told["failed"] or told["rename"]:
            return names, {**told, "longest": longest}
        names.append(f"{number:05}")
    raise AssertionError(f"{len(names)} files of {size}, and no error")


def works_soon(folder, name, size=MIB):
    """A store that goes through from some moment on."""
    def attempt():
        told = kvmount.run_as(store, folder, name, size)
        assert told["failed"] is None or told["failed"][1] == "ENOSPC", told
        return told["failed"] is None and told["rename"] is None

    kvmount.wait_until(attempt, 5, "a store that works again")


def check_alive(mount, folder, names, beside):
    """What needs no room goes on."""
    content = stores.Content(0)
    for name in names[:3]:
        begin = time.monotonic()
        with open(f"{folder}/{name}", "rb") as file:
            assert file.read() == content.of(name, MIB)
        assert not os.path.exists(f"{folder}/absent")
        beside.add(time.monotonic() - begin, LONGEST_S, "a load and a miss")
    begin = time.monotonic()
    os.mkdir(f"{folder}/directory")
    os.rmdir(f"{folder}/directory")
    assert mount.status()["phase"] == "serving"
    assert mount.cli("status", mount.mnt).returncode == 0
    beside.add(time.monotonic() - begin, 2 * LONGEST_S, "a directory and the status")


@pytest.mark.promise(4)
@pytest.mark.short
@pytest.mark.parametrize("how", ["fsynced", "pinned"])
def test_all_is_kept(limited, data_path, how):
    mount = limited(size=BUDGET, disk=256 * MIB, data_path=data_path)
    folder = f"{mount.mnt}/d"
    os.mkdir(folder)
    if how == "pinned":
        assert mount.cli("pin", folder).returncode == 0
    with kvmount.Beside(mount.work) as beside:
        names, told = kvmount.run_as(fill, folder, 2 * BUDGET, MIB, how == "fsynced")
        print(f"{len(names)} MiB of {BUDGET // MIB}, then {told}")
        beside.add(told["longest"][1], LONGEST_S, told["longest"][0])
        assert told["failed"] is not None and told["failed"][1] == "ENOSPC", told
        if told["failed"][0] != "open":
            assert told["rename"] in REFUSED, told
        assert len(names) * MIB >= BUDGET * 3 // 4
        kvmount.wait_until(lambda: not os.path.exists(f"{folder}/{len(names):05}"), 5, "the miss")
        check_alive(mount, folder, names, beside)
    with kvmount.LoopFs("ext4", size=64 * MIB) as control:
        _, theirs = kvmount.run_as(fill, control.path, 128 * MIB, MIB, how == "fsynced")
    print(f"ext4: {theirs}")
    assert theirs["failed"][1] == "ENOSPC"
    for name in names[:8]:
        os.unlink(f"{folder}/{name}")
    works_soon(folder, "again")
    content = stores.Content(0)
    for name in names[8:]:
        assert stores.load(f"{folder}/{name}") == content.of(name, MIB), name
    watch.wait_calm(mount)
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


def fill_by_threads(folder, seconds):
    """Eight writers that do not give up: the longest of their calls, and the errors other than
    ENOSPC."""
    end = time.monotonic() + seconds
    longest, wrong = [], []

    def work(own):
        number = 0
        while time.monotonic() < end:
            number += 1
            told = store(folder, f"{own}-{number}", MIB)
            longest.append(told["longest"])
            if told["failed"] is None:
                if told["rename"] is not None:
                    wrong.append(told)
            elif told["failed"][1] != "ENOSPC" or told["rename"] not in (None, *REFUSED):
                wrong.append(told)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(longest, key=lambda one: one[1]), wrong


def test_eight_writers_that_do_not_give_up(limited):
    """Nobody hangs, and no file that was refused stands under its name."""
    mount = limited(size=BUDGET, disk=256 * MIB)
    assert mount.cli("pin", mount.mnt).returncode == 0
    with kvmount.Beside(mount.work) as beside:
        longest, wrong = kvmount.run_as(fill_by_threads, mount.mnt, 60 if kvmount.FULL else 5)
        print(f"longest call {longest}")
        assert wrong == []
        beside.add(longest[1], LONGEST_S, longest[0])
    watch.wait_calm(mount)
    # What is refused is removed by and by: that makes no room for others again and again.
    assert watch.budget(mount)["used"] <= BUDGET + 4 * MIB
    content = stores.Content(0)
    for name, size in kvmount.run_as(stores.names, mount.mnt).items():
        if not name.endswith(".new"):
            assert size >= MIB
            assert stores.load(f"{mount.mnt}/{name}") == content.of(name, MIB), name


@pytest.mark.promise(1, 4)
@pytest.mark.short
def test_a_failed_store_under_its_final_name_is_a_miss(limited, data_path):
    """Runtimes that write onto the final name ignore what close says."""
    mount = limited(size=BUDGET, disk=256 * MIB, data_path=data_path)
    folder = f"{mount.mnt}/d"
    os.mkdir(folder)
    assert mount.cli("pin", folder).returncode == 0

    def store_in_place():
        kept = []
        for number in range(2 * BUDGET // MIB):
            path = f"{folder}/{number:05}"
            try:
                with open(path, "wb", buffering=0) as file:
                    data = stores.Content(0).of(path, MIB)
                    while data:
                        data = data[file.write(data):]
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
                return kept, path
            kept.append(path)
        raise AssertionError("no error")

    kept, failed = kvmount.run_as(store_in_place)
    kvmount.wait_until(lambda: not os.path.exists(failed), 5, "the miss")
    for path in kept:
        assert stores.load(path) == stores.Content(0).of(path, MIB), path


def write_without_end(path, rate):
    """In place, at so many bytes a second, to eight times the budget at most. As store()."""
    calls = Calls()
    begin, size = time.monotonic(), 0
    content = stores.Content(0).of(path, MIB)
    fd = calls(os.open, path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        while size < 8 * BUDGET:
            size += calls(os.write, fd, content)
            time.sleep(max(0, begin + size / rate - time.monotonic()))  # The rate.
    except OSError:
        pass
    try:
        calls(os.close, fd)
    except OSError:
        pass
    return {"failed": calls.failed, "longest": calls.longest, "size": size}


@pytest.mark.parametrize("served,room", [("daemon", "empty"), ("daemon", "full"),
                                         ("passthrough", "full")])
def test_a_file_without_end(limited, served, room):
    """One that began with room enough, and one when there was hardly any. (In passthrough the first
    is seen by nobody before its close.) A budget is many seconds of writing: hence the rate."""
    mount = limited(size=BUDGET, disk=768 * MIB, data_path=served)
    folder = f"{mount.mnt}/d"
    os.mkdir(folder)
    assert mount.cli("pin", folder).returncode == 0
    if room == "full":
        for number in range(BUDGET // MIB * 9 // 10):
            assert kvmount.run_as(store, folder, f"{number}", MIB)["failed"] is None
        watch.wait_calm(mount)
    path = f"{folder}/endless"
    with kvmount.Beside(mount.work) as beside:
        told = kvmount.run_as(write_without_end, path, BUDGET // 2)
        print(f"{told['size'] / MIB:.0f} MiB: {told}")
        assert told["failed"] == ("write", "ENOSPC"), told
        assert told["size"] <= 2 * BUDGET
        beside.add(told["longest"][1], LONGEST_S, told["longest"][0])
    kvmount.wait_until(lambda: not os.path.exists(path), 5, "the miss")
    works_soon(folder, "again")
    watch.wait_calm(mount)


def take(path, leave):
    """A foreign file grows by what is free now but `leave` bytes. (Not until so much is left: what is
    evicted meanwhile would be taken, too.)"""
    with open(path, "ab") as file:
        size = os.fstat(file.fileno()).st_size
        more = watch.available_bytes(os.path.dirname(path)) - leave
        while more >= 4096:
            try:
                os.posix_fallocate(file.fileno(), size, more)
                return
            except OSError as error:  # Its own extents need some, too.
                assert error.errno == errno.ENOSPC, error
            more //= 2


def test_a_foreign_file_makes_room_by_evictions(limited):
    mount = limited(size=1 << 40, disk=256 * MIB, options=["--min-free", "10%"])
    least = watch.budget(mount)["min_free"]
    names, folder = [f"{number:05}" for number in range(100)], mount.mnt
    for name in names:
        assert kvmount.run_as(store, folder, name, MIB)["failed"] is None
    watch.wait_calm(mount)
    take(f"{mount.disk.path}/foreign", least - 20 * MIB)
    kvmount.wait_until(lambda: watch.available_bytes(mount.disk.path) >= least, 10, "min-free")
    watch.wait_at_rest(mount)
    left = [name for name in names if stores.load(f"{folder}/{name}") is not None]
    print(f"{len(left)} of {len(names)} are left")
    assert 40 <= len(left) < 85
    assert left == names[-len(left):], "the oldest go first"
    assert kvmount.run_as(store, folder, "another", MIB)["failed"] is None


@pytest.mark.parametrize("leave", [4 * MIB, 0], ids=["nearly", "wholly"])
def test_a_foreign_file_fills_the_disk(limited, leave):
    """With nothing of ours left to give ENOSPC is all there is; then the foreign file goes."""
    mount = limited(size=1 << 40, disk=256 * MIB, options=["--min-free", "10%", "--lease", "1s"])
    names, folder = [f"{number:05}" for number in range(20)], mount.mnt
    for name in names:
        assert kvmount.run_as(store, folder, name, MIB)["failed"] is None
    watch.wait_calm(mount)
    foreign = f"{mount.disk.path}/foreign"
    take(foreign, leave)

    def all_given():
        # What is freed is taken again.
        take(foreign, leave)
        return mount.status()["tiers"][0]["budget"]["used"] == 0

    kvmount.wait_until(all_given, 20, "the eviction of everything")

    def refused(beside):
        # One that went through is evicted again, and XFS frees what was removed in the background.
        take(foreign, leave)
        told = kvmount.run_as(store, folder, "refused", MIB)
        beside.add(told["longest"][1], LONGEST_S, told["longest"][0])
        if told["failed"] is not None:
            assert told["failed"][1] == "ENOSPC", told
        return told["failed"] is not None

    with kvmount.Beside(mount.work) as beside:
        kvmount.wait_until(lambda: refused(beside), 10, "ENOSPC")
        kvmount.wait_until(lambda: not os.path.exists(f"{folder}/refused"), 15, "the miss")
        begin = time.monotonic()
        kvmount.run_as(os.listdir, folder)
        assert mount.status()["phase"] == "serving"
        beside.add(time.monotonic() - begin, LONGEST_S, "a listing and the status")
    os.unlink(foreign)
    works_soon(folder, "again")
    assert stores.load(f"{folder}/again") == stores.Content(0).of("again", MIB)
    watch.wait_calm(mount)
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


def test_a_mapping_beyond_the_budget_is_not_kept(limited):
    """Nobody sees its stores; its fsync must not make it a file that stays for good."""
    mount = limited(size=BUDGET, disk=512 * MIB, exact=True)

    def store_mapped():
        size = 3 * BUDGET
        fd = os.open(f"{mount.mnt}/mapped", os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(fd, size)
        with mmap.mmap(fd, size) as area:
            for at in range(0, size, MIB):
                area[at:at + MIB] = b"m" * MIB
            area.flush()
        try:
            os.fsync(fd)
            return None
        except OSError as error:
            return errno.errorcode[error.errno]

    assert kvmount.run_as(store_mapped) == "ENOSPC"
    # Not by a lookup, which would be a lease.
    kvmount.wait_until(lambda: '"found":false' in mount.cli(
        "explain", "--json", f"{mount.mnt}/mapped").stdout.replace(" ", ""), 20, "its eviction")
    watch.wait_calm(mount)
    told = store(mount.mnt, "after", MIB)
    assert told["failed"] is None and told["rename"] is None


def test_a_daemon_that_was_killed_on_a_full_disk_starts_again(seed):
    """With files that were being written, whose names have to go, on a disk that has no room for the database any more."""
    size = 32 << 10
    content = stores.Content(seed)
    with kvmount.LoopFs("ext4", 64 * MIB) as disk, kvmount.Mount(
            "full", nvme=os.path.join(disk.path, "nvme")) as mount:
        unfinished = [os.open(f"{mount.mnt}/unfinished{n}", os.O_WRONLY | os.O_CREAT) for n in range(64)]
        for fd in unfinished:
            os.write(fd, b"x" * 1000)
        with pytest.raises(OSError) as full:
            for number in range(10_000):
                path = f"{mount.mnt}/{number}"
                with open(path + ".new", "wb") as file:
                    file.write(content.of(str(number), size))
                os.rename(path + ".new", path)
        assert full.value.errno == errno.ENOSPC
        mount.kill()
        for fd in unfinished:
            with contextlib.suppress(OSError):
                os.close(fd)
        mount.start()
        names = os.listdir(mount.mnt)
        assert not [name for name in names if name.startswith("unfinished")]
        for name in names:
            if name.isdigit():
                assert stores.load(f"{mount.mnt}/{name}") in (content.of(name, size), None), name
            os.unlink(f"{mount.mnt}/{name}")
        kvmount.wait_until(lambda: store(mount.mnt, "again", size)["failed"] is None, 20, "there is room again")
