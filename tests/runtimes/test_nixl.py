"""NIXL's POSIX plugin, unmodified, over each of its queues: asynchronous O_DIRECT reads and writes
of a pool of files that stay open and are rewritten in place.

Its use with a file for each page is SGLang's backend in test_storage_classes.py.
"""

import os

import pytest

import kvmount
import tiers
import wheels

BLOCKS = 96 if kvmount.FULL else 12
SIZE = 1 << 20
QUEUES = ["use_aio", "use_uring", "use_posix_aio"]


@pytest.fixture(params=QUEUES)
def start(request, place, venv_python):
    running = []

    def new():
        tier = tiers.Tier(venv_python, "nixl_pool",
                          {"nixl": wheels.nixl(), "queue": request.param, "root": place,
                           "count": BLOCKS, "bytes": SIZE})
        running.append(tier)
        tier.ready()
        assert tier.about[request.param] == "true"
        return tier

    yield new
    for tier in running:
        tier.kill()


def load_all(start):
    with start() as tier:
        assert tier.ask("load", range(BLOCKS)) == ["right"] * BLOCKS


def test_a_pool_survives_restarts(start, place, shared_mount):
    with start() as tier:
        assert tier.ask("load", range(BLOCKS)) == ["absent"] * BLOCKS  # A short file is an error.
    with start() as tier:
        assert tier.ask("save", range(BLOCKS))
        assert tier.ask("save", range(BLOCKS))  # In place.
        assert tier.ask("load", range(BLOCKS)) == ["right"] * BLOCKS
    load_all(start)
    shared_mount.remount()
    load_all(start)
    if not kvmount.PLAIN:
        shared_mount.crash()
        load_all(start)
        assert {tiers.known(path, "runtime") for path in tiers.files(place)} == {"lmcache_nixl"}
        assert {tiers.known(path, "policy") for path in tiers.files(place)} == {"process"}
        assert tiers.by_prefix(place) == {}  # What is in a pool only its owner knows.


def test_a_file_removed_while_it_is_open_keeps_its_bytes(start, place):
    with start() as tier:
        assert tier.ask("save", range(BLOCKS))
        for path in tiers.files(place):
            os.unlink(path)
        assert tier.ask("load", range(BLOCKS)) == ["right"] * BLOCKS


def test_two_processes_on_one_pool(start):
    """One reads what the other writes; the bytes of a block are the same each time."""
    with start() as writer:
        assert writer.ask("save", range(BLOCKS))
        with start() as reader:
            overlaps = 0
            for _ in range(8):
                writer.tell("save", range(BLOCKS))
                reader.tell("load", range(BLOCKS))
                wrote, read = writer.answer(), reader.answer()
                assert wrote["answer"] and read["answer"] == ["right"] * BLOCKS
                overlaps += max(wrote["began"], read["began"]) < min(wrote["ended"],
                                                                     read["ended"])
            assert overlaps, "they never ran at the same time"
