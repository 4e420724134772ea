"""Many names looked up: no descriptor per name, bounded memory, memory given back."""

import os

import pytest

import kvmount

NAMES = 1_000_000 if kvmount.FULL else 100_000
WIDTH = 1000
KEPT = 60  # Directories whose names the daemon has in memory, all of them.


@pytest.mark.limit(3600 if kvmount.FULL else 150)
def test_lookups_hold_no_descriptors(mounts):
    count = 80_000 if kvmount.SANITIZER else NAMES
    # A disk of its own, so that the files need not be removed one by one.
    with kvmount.LoopFs("ext4", 8 << 30, mkfs=["-i", "4096"]) as disk:
        look_up(mounts(nofile=1024, nvme=f"{disk.path}/nvme"), count)


def look_up_some(mount, groups):
    """Of the names in these directories; the memory afterwards."""
    for group in groups:
        for index in range(WIDTH):
            os.stat(f"{mount.mnt}/d{group}/{index}")
    if kvmount.PLAIN:
        return None
    # Right after a start it may have more to do than to answer at once.
    kvmount.wait_until(lambda: mount.cli("status", mount.mnt).returncode == 0, 30, "the status")
    return mount.memory()


def look_up(mount, count):
    groups = range(count // WIDTH)
    for group in groups:
        directory = f"{mount.mnt}/d{group}"
        os.mkdir(directory)
        for index in range(WIDTH):
            os.mknod(f"{directory}/{index}")
    # The lookups below reach a daemon that knows nothing: what the creation left is no measure.
    mount.remount()
    few, some, rest = groups[:KEPT // 3], groups[KEPT // 3:KEPT], groups[KEPT:]
    begin, middle, end = (look_up_some(mount, part) for part in (few, some, rest))
    if kvmount.PLAIN:
        return
    pid = mount.pid()
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    print(f"{count} names: {descriptors} descriptors")
    assert descriptors < 600
    assert middle.inodes > begin.inodes, "no inode is kept in memory: this proves nothing"
    kvmount.check_memory(begin, middle, len(some) * WIDTH, "lookups")
    kvmount.check_memory(middle, end, len(rest) * WIDTH, "lookups beyond what stays in memory")
    with open(f"/proc/{pid}/limits") as limits:
        assert any(line.startswith("Max open files") and line.split()[3] == "1024"
                   for line in limits), "the daemon raised its limit: this proved nothing"
    kvmount.drop_caches(2)
    kvmount.wait_until(lambda: mount.status()["counts"]["inodes_cached"] < count // 2, 60,
                       "forgotten inodes")
    mount.stop()


@pytest.mark.short
def test_many_open_files_with_few_descriptors(mounts, data_path):
    """Passthrough needs none for an open file; the daemon keeps a part of those it has, and opens for
    each call what is beyond."""
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
    finally:
        for fd in held:
            os.close(fd)
    with open(f"{mount.mnt}/0", "rb") as file:
        assert file.read() == b"0"
