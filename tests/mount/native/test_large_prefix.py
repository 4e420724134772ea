"""prefix/ with very many names: memory stays bounded, and a listing begins at once and ends."""

import os
import time

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no native map")

NAMES = 10_000_000 if kvmount.FULL else 100_000
PROCESSES = 4
LINKS = 60_000  # Of one file; a name is what counts here, and a link is the fastest way to one.
MIB = 1 << 20
MOST_ORDER_BYTES = 64  # Of each name, for the order of blocks.
# However many names there are: the program, and what a start leaves behind (25 MiB without
# names).
MOST_AT_START = 48 * MIB
# A listing knows no inode and needs a batch of names: 4 MiB, and what the allocator loses.
MOST_GROWTH = 8 * MIB


def name_of(index):
    return f"{index * 0x9e3779b97f4a7c15 % (1 << 64):016x}{index:016x}"


def make_names(top, first, last):
    for index in range(first, last):
        os.link(f"{top}/base/{index // LINKS}", f"{top}/prefix/{name_of(index)}")


@pytest.mark.limit(7200 if kvmount.FULL else 150)
def test_memory_is_bounded_and_a_listing_streams(mounts):
    mount = mounts()
    for name in ("prefix", "base"):
        os.mkdir(f"{mount.mnt}/{name}")
    for index in range((NAMES - 1) // LINKS + 1):
        with open(f"{mount.mnt}/base/{index}", "wb") as file:
            file.write(b"%d" % index)
    part = NAMES // PROCESSES
    children = [kvmount.Child(make_names, mount.mnt, n * part, (n + 1) * part)
                for n in range(PROCESSES)]
    begin = time.monotonic()
    try:
        for child in children:
            child.result(7200 if kvmount.FULL else 150)
    finally:
        for child in children:
            child.end()
    made_s = time.monotonic() - begin
    begin = time.monotonic()
    mount.remount()
    started_s = time.monotonic() - begin
    # The order is read beside the first requests.
    kvmount.wait_until(lambda: mount.status()["counts"]["blocks"] >= NAMES, 600, "the order")
    restored_s = time.monotonic() - begin
    pid = mount.pid()
    before = mount.memory()
    begin = time.monotonic()
    count, mixed, first_s = 0, 0, None
    with os.scandir(f"{mount.mnt}/prefix") as entries:
        for entry in entries:
            if first_s is None:
                first_s = time.monotonic() - begin
            count += 1
            mixed ^= int(entry.name, 16)
    listed_s = time.monotonic() - begin
    after = mount.memory()
    order = mount.status()["counts"]["order_bytes"]
    print(f"{NAMES} names: made in {made_s:.1f} s, remounted in {started_s:.1f} s, their order known after "
          f"{restored_s:.1f} s, first listed after {first_s * 1e3:.1f} ms, all after {listed_s:.1f} s, "
          f"memory without order and database {before.bytes / MIB:.1f} MiB, after the listing "
          f"{after.bytes / MIB:.1f} MiB; the order {order / MIB:.0f} MiB")
    assert count == NAMES
    for index in range(NAMES):
        mixed ^= int(name_of(index), 16)
    assert mixed == 0, "a name was listed twice, or one that nobody made"
    assert first_s < 1 * kvmount.SLOWNESS
    assert order <= MOST_ORDER_BYTES * NAMES + 2 * MIB
    assert before.bytes < MOST_AT_START
    assert after.bytes - before.bytes < MOST_GROWTH
    with open(f"{mount.mnt}/prefix/{name_of(NAMES - 1)}", "rb") as file:
        assert file.read() == b"%d" % ((NAMES - 1) // LINKS)
