"""Names that merely look like blocks of KV cache are plain files: no error, and no more memory or
database than names of the same length that look like nothing."""

import os

import pytest

import kvmount

NAMES = 1_000_000 if kvmount.FULL else 5_000
WIDTH = 1000
MIB = 1 << 20


def look_alike(number):
    digest = f"{number * 0x9E3779B97F4A7C15 % (1 << 256):064x}"
    return (f"org-SEP-model@1@0@{digest.upper()[:-1]}F@bfloat16.data",
            f"org-SEP-model@1@0@{digest}0@bfloat16.data",
            f"{digest[:-1]}_org-model_0_1.bin",
            f"{digest}_org-model_0_1.bim")[number % 4]


def plain(number):
    return f"{number:0{len(look_alike(number))}}"


def used(mounts, name_of):
    """Stores and looks up all names; the daemon's resident bytes and those of its database."""
    with kvmount.LoopFs("ext4", (2 << 30) + NAMES * 8192, mkfs=["-i", "4096"]) as disk:
        mount = mounts(nvme=f"{disk.path}/nvme")
        for number in range(NAMES):
            directory = f"{mount.mnt}/{number // WIDTH}"
            if number % WIDTH == 0:
                os.mkdir(directory)
            path = f"{directory}/{name_of(number)}"
            assert not os.path.exists(path)
            with open(path + ".tmp", "wb") as file:
                file.write(b"x")
            os.rename(path + ".tmp", path)
        kvmount.drop_caches(2)
        for number in range(NAMES):
            assert os.stat(f"{mount.mnt}/{number // WIDTH}/{name_of(number)}").st_size == 1
        resident = kvmount.rss_bytes(mount.pid())
        mount.stop()
        code, text = mount.fsck()
        assert code == 0, text
        size = sum(os.path.getsize(os.path.join(root, name))
                   for root, _, names in os.walk(mount.state) for name in names)
        mount.close()
    return resident, size


@pytest.mark.limit(3600 if kvmount.FULL else 150)
@pytest.mark.skipif(kvmount.PLAIN, reason="ext4 knows no blocks")
def test_look_alikes_cost_what_plain_names_cost(mounts):
    resident, size = used(mounts, look_alike)
    plain_resident, plain_size = used(mounts, plain)
    print(f"{NAMES} names: {resident / MIB:.1f} MiB resident, {size / MIB:.1f} MiB of database; "
          f"plain {plain_resident / MIB:.1f} and {plain_size / MIB:.1f}")
    # What is written when, and what an allocator keeps, is a matter of chance.
    assert resident <= plain_resident * 1.1 + 8 * MIB
    # Digits compress better than hashes do.
    assert size <= plain_size + NAMES * 160 + 8 * MIB
