"""Many names looked up: no descriptor per name, bounded memory, memory given back."""

import os

import pytest

import kvmount

NAMES = 1_000_000 if kvmount.FULL else 100_000
MIB = 1 << 20
# The daemon's base (RocksDB's bounded caches included) and what one live inode may cost.
BASE_RSS = (1024 if kvmount.SANITIZER else 600) * MIB
PER_NAME = 2048 if kvmount.SANITIZER else 600


@pytest.mark.limit(3600 if kvmount.FULL else 150)
def test_lookups_hold_no_descriptors(mounts):
    count = NAMES // 10 if kvmount.SANITIZER else NAMES
    # A disk of its own, so that the files need not be removed one by one.
    with kvmount.LoopFs("ext4", 8 << 30, mkfs=["-i", "4096"]) as disk:
        look_up(mounts(nofile=1024, nvme=f"{disk.path}/nvme"), count)


def look_up(mount, count):
    width = 1000
    for group in range(count // width):
        directory = f"{mount.mnt}/d{group}"
        os.mkdir(directory)
        for index in range(width):
            os.mknod(f"{directory}/{index}")
    kvmount.drop_caches(2)  # The lookups below must reach the daemon.
    for group in range(count // width):
        for index in range(width):
            os.stat(f"{mount.mnt}/d{group}/{index}")
    if kvmount.PLAIN:
        return
    pid = mount.pid()
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    rss = kvmount.rss_bytes(pid)
    cached = mount.status()["counts"]["inodes_cached"]
    print(f"{count} names: {descriptors} descriptors, RSS {rss / MIB:.0f} MiB, "
          f"{cached} inodes cached")
    assert descriptors < 600
    assert rss < BASE_RSS + PER_NAME * count
    with open(f"/proc/{pid}/limits") as limits:
        assert any(line.startswith("Max open files") and line.split()[3] == "1024"
                   for line in limits), "the daemon raised its limit: this proved nothing"
    kvmount.drop_caches(2)
    kvmount.wait_until(lambda: mount.status()["counts"]["inodes_cached"] < count // 2, 60,
                       "forgotten inodes")
    mount.stop()


@pytest.mark.short
def test_many_open_files_with_few_descriptors(mounts, data_path):
    """Passthrough needs no descriptor per open file; the daemon-served mode says ENFILE at most
    to the opener, and lives on."""
    mount = mounts(nofile=1024, data_path=data_path)
    count = 1500
    for index in range(count):
        with open(f"{mount.mnt}/{index}", "wb") as file:
            file.write(b"%d" % index)
    held = []
    try:
        for index in range(count):
            held.append(os.open(f"{mount.mnt}/{index}", os.O_RDONLY))
        for index, fd in enumerate(held):
            assert os.read(fd, 10) == b"%d" % index
    except OSError:
        assert data_path == "daemon" and len(held) > 500
    finally:
        for fd in held:
            os.close(fd)
    with open(f"{mount.mnt}/0", "rb") as file:
        assert file.read() == b"0"
