"""RocksDB on the mount: the real library through db_bench and through its C API."""

import os
import subprocess
import sys

import pytest

import kvmount
from programs import HERE, need_program, run

KEYS = 200000 if kvmount.FULL else 20000
ACKNOWLEDGED_BEFORE_KILL = 1000 if kvmount.FULL else 100  # each one is synced

FLAVOURS = {
    "buffered": [],
    "direct": ["--use_direct_reads=true", "--use_direct_io_for_flush_and_compaction=true"],
    "mmap": ["--mmap_read=true", "--mmap_write=true"],
}


def db_bench(directory, benchmarks, *more):
    return run([need_program("db_bench", "rocksdb-tools"), f"--db={directory}",
                f"--wal_dir={directory}", f"--benchmarks={benchmarks}", f"--num={KEYS}",
                "--value_size=512", "--seed=1", "--threads=1", "--compression_type=none",
                "--write_buffer_size=2097152", "--target_file_size_base=2097152",
                "--verify_checksum=1", *more])


def content(directory):
    """All keys and values in order, as text."""
    return run([need_program("ldb", "rocksdb-tools"), f"--db={directory}", "scan", "--hex"])


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_db_bench(place, oracle, shared_mount, flavour):
    database = os.path.join(place, "db")
    for directory in (database, os.path.join(oracle, "db")):
        db_bench(directory, "fillrandom,overwrite,compact", *FLAVOURS[flavour])
    db_bench(database, "readrandom,readseq,verifychecksum", "--use_existing_db=1",
             *FLAVOURS[flavour])
    assert content(database) == content(os.path.join(oracle, "db"))
    shared_mount.remount()
    db_bench(database, "verifychecksum,readrandom", "--use_existing_db=1", *FLAVOURS[flavour])
    assert content(database) == content(os.path.join(oracle, "db"))
    run([need_program("ldb", "rocksdb-tools"), f"--db={database}", "checkconsistency"])


def kvdb(*words):
    return [sys.executable, os.path.join(HERE, "workers", "rocksdb_writer.py"), *words]


@pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no daemon to kill")
def test_kill_of_the_daemon_loses_no_synced_write(place, shared_mount):
    need_program("db_bench", "rocksdb-tools")  # Brings the library.
    database = os.path.join(place, "db")
    process = subprocess.Popen(kvdb("write", database), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    try:
        for _ in range(ACKNOWLEDGED_BEFORE_KILL):
            assert process.stdout.readline(), "the writer ended early"
        shared_mount.kill()
    finally:
        process.kill()
    late = [int(line) for line in process.communicate()[0].split("\n")[:-1]]
    acknowledged = max([ACKNOWLEDGED_BEFORE_KILL - 1, *late])
    shared_mount.start()
    run(kvdb("check", database, str(acknowledged)))
    run([need_program("ldb", "rocksdb-tools"), f"--db={database}", "checkconsistency"])
