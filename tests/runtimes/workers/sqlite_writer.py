"""sqlite_writer.py DATABASE WRITER ROWS: a transaction per row, printed when committed."""

import sqlite3
import sys


def main():
    database, writer, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    connection = sqlite3.connect(database, timeout=60, isolation_level=None)
    connection.execute("PRAGMA synchronous=FULL")
    for number in range(rows):
        payload = bytes([writer, number % 256]) * 1500
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO rows VALUES (?, ?, ?)", (writer, number, payload))
        connection.execute("UPDATE total SET count = count + 1")
        connection.execute("COMMIT")
        print(number, flush=True)
    connection.close()


if __name__ == "__main__":
    main()
