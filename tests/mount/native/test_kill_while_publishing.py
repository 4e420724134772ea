"""kill -9 of the daemon while two processes publish the same hashes: afterwards each published hash has
one of the copies, whole, and the one that was seen before."""

import os
import random
import time

import pytest

import kvmount
import publishers

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no daemon to kill")

ROUNDS = 1 if kvmount.SANITIZER else 20 if kvmount.FULL else 3
THREADS = 8
HASHES = 2000  # More than are done when it ends.


def one_round(mount, seed, rng):
    """Returns the writer of each hash that is there after the kill."""
    mine = {publishers.hash_of(seed, index) for index in range(HASHES)}
    go, going = os.pipe()
    children = [kvmount.Child(publishers.publish_all, mount.mnt, seed, HASHES,
                              range(n * THREADS, (n + 1) * THREADS), go, True) for n in range(2)]
    try:
        os.write(going, b"gg")
        # Until there are some; then at a random moment.
        kvmount.wait_until(lambda: len(mine.intersection(os.listdir(f"{mount.mnt}/prefix"))) > 30, 30,
                           "publications")
        time.sleep(rng.uniform(0, 0.2))
        mount.kill(unmount=False)
        outcomes = [child.result(60) for child in children]
    finally:
        for child in children:
            child.end()
        os.close(go)
        os.close(going)
    kvmount.lazy_unmount(mount.mnt)
    mount.start()
    published = outcomes[0][0] | outcomes[1][0]
    assert 20 < len(published) < HASHES, f"{len(published)} published: the kill proves nothing"
    there = {}
    for index in range(HASHES):
        try:
            there[index] = publishers.writer_of(index, publishers.read_copy(
                f"{mount.mnt}/prefix/{publishers.hash_of(seed, index)}")[1])
        except FileNotFoundError:
            assert index not in published, f"hash {index} was published, and is gone"
    for _, _, seen in outcomes:
        for index, writer in seen.items():
            assert there[index] == writer, f"hash {index}: was writer {writer}'s"
    return there


@pytest.mark.short
def test_each_published_hash_has_one_whole_copy(mounts, data_path, seed):
    rng = random.Random(seed)
    mount = mounts(data_path=data_path, foreground=False)
    for name in ("prefix", "elsewhere"):
        os.mkdir(f"{mount.mnt}/{name}")
    rounds = []
    for number in range(ROUNDS):
        rounds.append(one_round(mount, seed + number, rng))
        mount.stop()
        code, text = mount.fsck()
        assert code == 0, text
        mount.start()
        for name in os.listdir(f"{mount.mnt}/prefix"):
            if name.startswith("tmp."):
                os.unlink(f"{mount.mnt}/prefix/{name}")
        assert len(os.listdir(f"{mount.mnt}/prefix")) == sum(map(len, rounds))
    for number, there in enumerate(rounds):
        for index, writer in there.items():
            assert publishers.writer_of(index, publishers.read_copy(
                f"{mount.mnt}/prefix/{publishers.hash_of(seed + number, index)}")[1]) == writer
    print(f"{ROUNDS} kills: {[len(there) for there in rounds]} hashes kept")
