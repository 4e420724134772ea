"""`kvcachefs flush` without a pool: what was closed before it is there after a power cut."""

import os
import random

import pytest

import crashes
import kvmount
import power

MIB = 1 << 20
DISK_BYTES = 1 << 30
FLUSHED = "all that was closed is on the disk\n"

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="a command of kvcachefs")


def cut_and_start_again(disk, mount):
    daemon = crashes.Victim(mount)
    power.cut(disk, "nologflush")
    daemon.kill()
    kvmount.lazy_unmount(mount.mnt)
    power.power_up(disk)
    mount.start()
    assert mount.status()["recovery"]["kind"] == "machine"


def store(path, data):
    with open(path, "wb") as file:
        file.write(data)


def found_below(root):
    """{path: bytes} of the files."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(os.path.join(folder, name), root)] = file.read()
    return found


@pytest.mark.short
def test_what_was_closed_is_there_after_a_power_cut(data_path, seed):
    chance = random.Random(seed)
    with kvmount.LoopFs("ext4", DISK_BYTES) as disk, \
            kvmount.Mount(f"flush-{data_path}", nvme=os.path.join(disk.path, "nvme"), foreground=False,
                          data_path=data_path) as mount:
        flushed, later = os.path.join(mount.mnt, "flushed"), os.path.join(mount.mnt, "later")
        os.mkdir(flushed)
        os.mkdir(later)
        should = {}
        for number in range(60):
            directory = os.path.join("d", f"d{number % 7}")
            os.makedirs(os.path.join(flushed, directory), exist_ok=True)
            should[f"{directory}/f{number}"] = chance.randbytes(chance.randrange(1, 300_000))
            store(os.path.join(flushed, directory, "temporary"), should[f"{directory}/f{number}"])
            os.rename(os.path.join(flushed, directory, "temporary"),
                      os.path.join(flushed, directory, f"f{number}"))
        done = mount.cli("flush", mount.mnt)
        assert (done.returncode, done.stdout, done.stderr) == (0, FLUSHED, "")
        # A name that is given after the seal is a matter of the database alone.
        for path in sorted(should)[:20]:
            os.rename(os.path.join(flushed, path), os.path.join(flushed, path + "-renamed"))
            should[path + "-renamed"] = should.pop(path)
        assert mount.cli("flush", flushed).stdout == FLUSHED
        for number in range(32):
            store(os.path.join(later, str(number)), bytes(100_000))
        cut_and_start_again(disk, mount)
        assert found_below(flushed) == should
        # The cut takes what no flush has waited for: else the above shows nothing.
        assert len(os.listdir(later)) < 32
        mount.stop()
        crashes.check_fsck(mount)


def test_a_full_disk_is_said_and_the_flush_succeeds_when_there_is_room(seed):
    """The files are open for reading all the time: the evictor, which makes room on a full disk, leaves them alone."""
    chance = random.Random(seed)
    with kvmount.LoopFs("ext4", 256 * MIB) as disk, \
            kvmount.Mount("flush-full", nvme=os.path.join(disk.path, "nvme"), foreground=False) as mount:
        filler = os.path.join(disk.path, "filler")
        should = {f"f{number}": chance.randbytes(50_000) for number in range(16)}
        readers = []
        try:
            for name, data in should.items():
                store(os.path.join(mount.mnt, name), data)
                readers.append(os.open(os.path.join(mount.mnt, name), os.O_RDONLY))
            fill(filler)
            done = mount.cli("flush", "--timeout", "1s", mount.mnt)
            if done.returncode != 0:
                assert (done.returncode, done.stdout) == (1, ""), done
                assert " not on the disk after 1.0 s without progress: see the log" in done.stderr, done
            os.unlink(filler)
            done = mount.cli("flush", mount.mnt, seconds=120)
            assert (done.returncode, done.stdout) == (0, FLUSHED), done
        finally:
            for reader in readers:
                os.close(reader)
        cut_and_start_again(disk, mount)
        assert found_below(mount.mnt) == should
        mount.stop()
        crashes.check_fsck(mount)


def fill(path):
    """Writes until nothing more fits, then the last blocks singly."""
    with open(path, "wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
