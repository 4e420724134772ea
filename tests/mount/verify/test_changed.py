"""A file that its user changed on purpose is never taken for a damaged one."""

import os
import random
import threading
import time

import pytest

import damage
import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 verifies nothing")

SIZE = 2 * damage.CHUNK + 100
SECONDS = 60 if kvmount.FULL else 6


def uncache(mount):
    """The backing files' clean pages leave the page cache."""
    for path in mount.backing_files():
        fd = os.open(path, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


@pytest.mark.short
@pytest.mark.parametrize("kind", damage.LOADS)
def test_a_store_through_an_old_mapping(mounts, data_path, kind):
    mount = mounts(data_path=data_path, options=["--scrub", "1GiB"])
    path = os.path.join(mount.mnt, "f")
    content = bytearray(os.urandom(SIZE))
    mapped = damage.Mapping(path, content)
    # Without passthrough the mapping keeps the file open for writing.
    sealed = mount.data_path == "passthrough"
    if sealed:
        damage.wait_sealed(mount)
    for at in (0, SIZE - 1, damage.CHUNK):
        content[at] ^= 1
        mapped.bytes[at] ^= 1
        uncache(mount)
        assert damage.LOADS[kind](path) == content
        if sealed:
            damage.wait_sealed(mount)
    mapped.close()
    uncache(mount)
    assert damage.LOADS[kind](path) == content
    counts = mount.status()["counts"]
    assert counts["damaged"] == 0
    assert counts["changed_on_purpose"] >= (3 if sealed else 0)


@pytest.mark.limit(240)
def test_stores_while_it_is_sealed_opened_and_scrubbed(mounts, data_path, seed):
    """Whatever comes between a store and its file's seal, scrub, open or new times."""
    chance = random.Random(seed)
    mount = mounts(data_path=data_path, options=["--scrub", "4GiB"])
    mapped = {}
    for number in range(4):
        path = os.path.join(mount.mnt, f"f{number}")
        mapped[path] = damage.Mapping(path, chance.randbytes(SIZE))
    done = threading.Event()
    failures = []

    def keep_storing(own):
        while not done.is_set():
            memory = mapped[own.choice(list(mapped))].bytes
            memory[own.randrange(SIZE)] = own.randrange(256)
            # Long enough, sometimes, for a seal.
            done.wait(own.choice([0, 0, 0.01, 0.1, 1.5]))

    def keep_opening(own):
        try:
            while not done.is_set():
                path = own.choice(list(mapped))
                if own.random() < 0.3:
                    uncache(mount)
                if own.random() < 0.1:
                    os.utime(path)
                assert len(own.choice(list(damage.LOADS.values()))(path)) == SIZE
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=work, args=(random.Random(chance.random()),))
               for work in (keep_storing, keep_opening, keep_opening)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS)  # How long it is tried, not for something to happen.
    done.set()
    for thread in threads:
        thread.join()
    counts = mount.status()["counts"]
    assert not failures, failures
    assert (counts["damaged"], counts["lost"]) == (0, 0)
    for path, memory in mapped.items():
        assert damage.load_read(path) == bytes(memory.bytes)
        memory.close()


def test_other_times_and_modes_of_backing_files_are_no_damage(mounts, data_path):
    """A device directory that was copied with its times, or whose modes were set."""
    mount = mounts(data_path=data_path, options=["--scrub", "off"])
    path = os.path.join(mount.mnt, "f")
    content = os.urandom(SIZE)
    with open(path, "wb") as file:
        file.write(content)
    damage.wait_sealed(mount)
    mount.stop()
    (backing,) = mount.backing_files()
    os.chmod(backing, 0o640)
    mount.start()
    for _ in range(2):
        assert damage.load_read(path) == content
    counts = mount.status()["counts"]
    assert (counts["damaged"], counts["changed_on_purpose"]) == (0, 0)
    assert counts["verified_opens"] == 1, "once: then its seal has the new ctime"
