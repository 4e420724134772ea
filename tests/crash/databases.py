"""SQLite and RocksDB in the middle of transactions, each in a process of its own.

Every committed transaction is acknowledged in a log outside the mount. After a crash the database
must open, be consistent, hold every acknowledged transaction, and none by half.
"""

import faulthandler
import multiprocessing
import os
import random
import sqlite3
import time

import rocks

ROWS = 8  # Rows of one transaction: all or none of them may be there.
_MAX_TRANSACTIONS = 100_000  # A bound on a writer that nobody stops.


def row_value(seed, transaction, row):
    return random.Random(f"{seed}/{transaction}/{row}").randbytes(20 + (row * 37) % 500)


class _Acknowledged:
    def __init__(self, path):
        self.path = path

    def writer(self):
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return lambda number: os.write(fd, f"{time.monotonic_ns()} {number}\n".encode())

    def forget_after(self, number):
        """Drops the lines of transactions that a crash took: their numbers are used again."""
        if os.path.exists(self.path):
            with open(self.path, "rb") as f:
                kept = [line for line in f if int(line.split()[1]) <= number]
            with open(self.path, "wb") as f:
                f.writelines(kept)

    def last(self, before_ns=None):
        """The highest number that was acknowledged, or was before that time."""
        highest = 0
        try:
            with open(self.path, "rb") as f:
                for line in f:
                    when, number = map(int, line.split())
                    if before_ns is None or when < before_ns:
                        highest = max(highest, number)
        except FileNotFoundError:
            pass
        return highest


class SqliteWriter:
    def __init__(self, directory, logs, seed, journal):
        self.name = f"sqlite-{journal}"
        self.path = os.path.join(directory, self.name)
        self.seed = seed
        self.journal = journal
        self.acknowledged = _Acknowledged(os.path.join(logs, self.name))

    def _open(self):
        db = sqlite3.connect(self.path, isolation_level=None, timeout=5)
        db.execute(f"PRAGMA journal_mode={self.journal}")
        # FULL leaves the removal of a rollback journal unsynced: the last commit may roll back
        # on any filesystem. EXTRA syncs that too.
        db.execute("PRAGMA synchronous=" + ("FULL" if self.journal == "WAL" else "EXTRA"))
        db.execute("PRAGMA wal_autocheckpoint=40")
        return db

    def run(self):
        acknowledge = self.acknowledged.writer()
        try:
            db = self._open()
            db.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER, r INTEGER, v BLOB, "
                       "PRIMARY KEY (n, r))")
            first = (db.execute("SELECT max(n) FROM t").fetchone()[0] or 0) + 1
            for number in range(first, first + _MAX_TRANSACTIONS):
                db.execute("BEGIN")
                for row in range(ROWS):
                    db.execute("INSERT INTO t VALUES (?, ?, ?)",
                               (number, row, row_value(self.seed, number, row)))
                db.execute("COMMIT")
                acknowledge(number)
        except sqlite3.Error:
            os._exit(0)

    def check(self, cut_ns):
        last = self.acknowledged.last(cut_ns)
        db = self._open()
        try:
            verdict = db.execute("PRAGMA integrity_check").fetchall()
            assert verdict == [("ok",)], f"{self.name}: {verdict[:5]}"
            highest, rows = db.execute("SELECT max(n), count(*) FROM t").fetchone()
            highest = highest or 0
            assert highest >= last, f"{self.name}: {last} was committed, {highest} is the last"
            assert rows == highest * ROWS, f"{self.name}: {rows} rows of {highest} transactions"
            for number, row, value in db.execute("SELECT n, r, v FROM t"):
                assert value == row_value(self.seed, number, row), f"{self.name}: {number}/{row}"
        finally:
            db.close()
        return highest


class RocksDbWriter:
    def __init__(self, directory, logs, seed):
        self.name = "rocksdb"
        self.path = os.path.join(directory, self.name)
        self.seed = seed
        self.acknowledged = _Acknowledged(os.path.join(logs, self.name))
        self.first = 1  # The next batch; known from the check, which says what is there.

    def _key(self, number, row):
        return f"{number:08d}/{row}".encode()

    def run(self):
        acknowledge = self.acknowledged.writer()
        try:
            db = rocks.RocksDb(self.path, create=True, small_buffers=True)
            for number in range(self.first, self.first + _MAX_TRANSACTIONS):
                db.write([(self._key(number, row), row_value(self.seed, number, row))
                          for row in range(ROWS)])
                acknowledge(number)
        except OSError:
            os._exit(0)

    def check(self, cut_ns):
        last = self.acknowledged.last(cut_ns)
        db = rocks.RocksDb(self.path, create=True)
        try:
            for number in range(1, last + 1):
                for row in range(ROWS):
                    found = db.get(self._key(number, row))
                    assert found == row_value(self.seed, number, row), (
                        f"rocksdb: {number}/{row} of {last} was synced and is {found!r:.60}")
            # A batch that was in flight is there as a whole or not at all.
            while True:
                extra = {db.get(self._key(last + 1, row)) is not None for row in range(ROWS)}
                assert len(extra) == 1, f"rocksdb: half of batch {last + 1} is there"
                if extra == {False}:
                    return last
                last += 1
        finally:
            db.close()


def _run(writer):
    # After an I/O error RocksDB may abort by an assertion: no more than the end of this process.
    faulthandler.disable()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    writer.run()
    os._exit(0)


def _check(writer, cut_ns, answer):
    try:
        answer.send((True, writer.check(cut_ns)))
    except BaseException as error:  # pylint: disable=broad-except
        answer.send((False, f"{writer.name}: {type(error).__name__}: {error}"))
    answer.close()
    os._exit(0)


class Databases:
    """All writers over one directory; they go on from crash to crash."""

    def __init__(self, directory, logs, seed):
        self.directory = directory
        self.writers = [SqliteWriter(directory, logs, seed, "WAL"),
                        SqliteWriter(directory, logs, seed, "DELETE"),
                        RocksDbWriter(directory, logs, seed)]
        self._processes = []
        self._context = multiprocessing.get_context("fork")

    def start(self):
        self._before = [w.acknowledged.last() for w in self.writers]
        self._processes = [self._context.Process(target=_run, args=(w,), daemon=True)
                           for w in self.writers]
        for process in self._processes:
            process.start()

    def wait_busy(self, transactions, deadline_s=60):
        end = time.monotonic() + deadline_s
        while True:
            done = [w.acknowledged.last() - b for w, b in zip(self.writers, self._before)]
            if min(done) >= transactions:
                return
            dead = [w.name for w, p in zip(self.writers, self._processes) if not p.is_alive()]
            assert not dead, f"{dead} ended early, {done} transactions"
            assert time.monotonic() < end, f"the databases do not get going: {done}"
            time.sleep(0.005)

    def join(self, deadline_s=20):
        """Waits until the writers met the crash; one that did not is ended (it only waits)."""
        end = time.monotonic() + deadline_s
        for process in self._processes:
            process.join(max(0.05, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def check(self, cut_ns=None, deadline_s=120):
        """Every database opens, is consistent, and has what was committed before `cut_ns`.

        Returns the transactions in each.
        """
        counts = []
        for writer in self.writers:
            ours, theirs = self._context.Pipe(duplex=False)
            process = self._context.Process(target=_check, args=(writer, cut_ns, theirs),
                                            daemon=True)
            process.start()
            theirs.close()
            assert ours.poll(deadline_s), f"{writer.name}: the check takes over {deadline_s} s"
            good, value = ours.recv()
            process.join()
            assert good, value
            writer.first = value + 1
            writer.acknowledged.forget_after(value)
            counts.append(value)
        return counts
