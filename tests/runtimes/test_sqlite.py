"""SQLite on the mount: rollback journal and WAL, several processes, restarts and kill -9."""

import os
import sqlite3
import subprocess
import sys

import pytest

import kvmount
from programs import HERE

WRITERS = 4
# Each row is a transaction of several syncs, which a busy disk answers in 0.1 s each.
ROWS_PER_WRITER = 200 if kvmount.FULL else 20
ROWS_BEFORE_KILL = 40 if kvmount.FULL else 12
JOURNALS = ["delete", "wal"] + (["truncate", "persist"] if kvmount.FULL else [])


def writers(database, count, rows):
    """Starts processes that insert rows one by one and print each row once it is committed."""
    script = os.path.join(HERE, "workers", "sqlite_writer.py")
    return [subprocess.Popen([sys.executable, script, database, str(number), str(rows)],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for number in range(count)]


def create(database, journal):
    connection = sqlite3.connect(database)
    assert connection.execute(f"PRAGMA journal_mode={journal}").fetchone()[0] == journal
    connection.execute("CREATE TABLE rows (writer INTEGER, number INTEGER, payload BLOB, "
                       "PRIMARY KEY (writer, number))")
    connection.execute("CREATE TABLE total (count INTEGER)")
    connection.execute("INSERT INTO total VALUES (0)")
    connection.commit()
    connection.close()


def assert_sound(database, committed):
    """The database is whole and holds every row of `committed` with its payload."""
    connection = sqlite3.connect(database)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = {(writer, number): payload for writer, number, payload in
                connection.execute("SELECT writer, number, payload FROM rows")}
        missing = committed - rows.keys()
        assert not missing, f"{len(missing)} committed rows are gone: {sorted(missing)[:5]}"
        for (writer, number), payload in rows.items():
            assert payload == bytes([writer, number % 256]) * 1500
        # Both tables change in one transaction: they agree or it was torn.
        assert connection.execute("SELECT count FROM total").fetchone()[0] == len(rows)
    finally:
        connection.close()


@pytest.mark.parametrize("journal", JOURNALS)
def test_several_processes_and_a_remount(place, shared_mount, journal):
    database = os.path.join(place, f"{journal}.db")
    create(database, journal)
    processes = writers(database, WRITERS, ROWS_PER_WRITER)
    committed = set()
    for number, process in enumerate(processes):
        output = process.communicate(timeout=60 * kvmount.SLOWNESS)[0]
        assert process.returncode == 0
        committed |= {(number, int(line)) for line in output.split()}
    assert len(committed) == WRITERS * ROWS_PER_WRITER
    assert_sound(database, committed)
    shared_mount.remount()
    assert_sound(database, committed)
    connection = sqlite3.connect(database)
    connection.execute("DELETE FROM rows WHERE number % 2")
    connection.execute("UPDATE total SET count = (SELECT count(*) FROM rows)")
    connection.commit()
    connection.execute("VACUUM")
    connection.close()
    assert_sound(database, {row for row in committed if row[1] % 2 == 0})


@pytest.mark.parametrize("journal", JOURNALS)
@pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no daemon to kill")
def test_kill_of_the_daemon_loses_no_commit(place, shared_mount, journal):
    database = os.path.join(place, f"{journal}.db")
    create(database, journal)
    processes = writers(database, 2, 100000)
    committed = set()
    try:
        for _ in range(ROWS_BEFORE_KILL):
            for number, process in enumerate(processes):
                committed.add((number, int(process.stdout.readline())))
        shared_mount.kill()
    finally:
        for process in processes:
            process.kill()
    for number, process in enumerate(processes):
        committed |= {(number, int(line)) for line in process.communicate()[0].split("\n")[:-1]}
    shared_mount.start()
    assert len(committed) >= 2 * ROWS_BEFORE_KILL
    assert_sound(database, committed)
