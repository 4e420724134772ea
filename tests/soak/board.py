"""What the workers tell of themselves while they run: memory that they share with the test.

Made before the workers are forked. A row belongs to one worker, who alone writes to it; anybody
reads.
"""

import mmap
import time

_ROWS = 64
_FIELDS = ("calls", "bytes", "published", "hits", "misses", "done", "busy_since", "slowest")


class Row:
    """The figures of one worker, who says what `done` counts; times are nanoseconds of the
    monotonic clock."""

    def __init__(self, cells, name):
        self._cells = cells
        self.name = name

    def __getitem__(self, field):
        return self._cells[_FIELDS.index(field)]

    def __setitem__(self, field, value):
        self._cells[_FIELDS.index(field)] = value

    def call(self, function, *arguments):
        """function(*arguments), timed."""
        begin = time.monotonic_ns()
        self["busy_since"] = begin
        try:
            return function(*arguments)
        finally:
            self["busy_since"] = 0
            self["calls"] += 1
            self["slowest"] = max(self["slowest"], time.monotonic_ns() - begin)

    def waiting_s(self):
        """Since when its call is under way; 0: none is."""
        begin = self["busy_since"]
        return (time.monotonic_ns() - begin) / 1e9 if begin else 0.0


class Board:
    """The rows, and whether it is over."""

    def __init__(self):
        # One cell more: whether it is over.
        self._cells = memoryview(mmap.mmap(-1, (_ROWS * len(_FIELDS) + 1) * 8)).cast("q")
        self.rows = []

    def row(self, name):
        assert len(self.rows) < _ROWS
        begin = 1 + len(self.rows) * len(_FIELDS)
        self.rows.append(Row(self._cells[begin:begin + len(_FIELDS)], name))
        return self.rows[-1]

    def total(self, field):
        return sum(row[field] for row in self.rows)

    def slowest_s(self):
        """(seconds, name of the worker) of the longest call, one under way included."""
        return max((max(row["slowest"] / 1e9, row.waiting_s()), row.name) for row in self.rows)

    @property
    def is_over(self):
        return self._cells[0] != 0

    def end(self):
        self._cells[0] = 1

    def rest(self, until):
        """Waits for that moment of the monotonic clock, or the end: a pace, no synchronisation."""
        while not self.is_over:
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))
