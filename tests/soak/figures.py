"""The figures that must not grow, taken once a second, and what "flat" means of each.

After the warm-up, the first quarter, the median of the last quarter must be no more than that of
the second one and an allowance. Medians, because each figure goes up and down with the load: a leak
moves all of it.
"""

import collections
import os
import statistics
import time

import kvmount
import watch

MIB = 1 << 20
BUDGET = 192 * MIB

# `part` and `more`: it may have grown by the larger of that share of what it was, and of that much.
# `most`: what no sample may exceed, also during the warm-up.
Figure = collections.namedtuple("Figure", "name unit part more most why")

FIGURES = [
    Figure("rss", MIB, 0.10, (16 if kvmount.FULL else 32) * MIB, 160 * MIB,
           "fragments of the allocator, and bounded memories that fill up slowly: the history of "
           "drops (8 MiB), verified files (6); in the short run also catalog and order. At most: "
           "the catalog's 32, the rings' 16, the order's 18, these, and 80 of the program's own"),
    Figure("descriptors", 1, 0, 520, 704,
           "the sealer has up to 512 files open at a time, all through the quarter or never; and "
           "what is being opened"),
    Figure("tables", 1, 0, 32, 256, "table files of the database come and go; 256 are kept open"),
    Figure("threads", 1, 0, 2 if kvmount.FULL else 8, 128,
           "io_uring may have workers of its own for a while; and a pool keeps as many, up to 8 for "
           "one user, as were needed at a time: in the short run that may come late"),
    Figure("catalog", MIB, 0.10, (4 if kvmount.FULL else 12) * MIB, 32 * MIB,
           "tables in memory fill up and are written out: a sawtooth; and its cache fills up, for "
           "longer than the short run. At most --metadata-memory"),
    Figure("order", MIB, 0, 2 * MIB if kvmount.FULL else 16 * MIB, 18 * MIB,
           "what is gone is remembered for ten minutes, up to 16 MiB: that is longer than the "
           "short run, and shorter than a quarter and a half of the long one"),
    Figure("inodes", 1, 0, 512, 2048,
           "as many as there are files and directories, some 900, but for those that the kernel "
           "has forgotten: that is up to everybody on the machine"),
    Figure("open", 1, 0.5, 32, None, "files that are open just now"),
    Figure("leases", 1, 0.5, 128, None, "by chance: what was just looked up"),
    Figure("unsealed", 1, 0.5, 256 if kvmount.FULL else 512, None,
           "what was just stored; more while the disk is busy. In the short run nearly all files "
           "are, as many as there are by chance. After the load there are none"),
    Figure("database", MIB, 0, 24 * MIB, 64 * MIB,
           "logs up to 16 MiB, the one that is being written out, and tables before their "
           "compaction: a sawtooth"),
    Figure("used", MIB, 0.05, 16 * MIB, BUDGET + 48 * MIB,
           "what is under way; writers are ahead of the evictor for moments"),
    Figure("kept", MIB, 0, 4 * MIB, None, "the application's files are of random sizes"),
    Figure("disk", MIB, 0.05, 32 * MIB, BUDGET + 48 * MIB + 64 * MIB + 48 * MIB,
           "the budget's and the database's together, and some for the filesystem itself"),
    Figure("no_objects", 1, 0, 128, None,
           "inodes of the disk beside the objects that are counted: 64 in quarantine, and removed "
           "ones that somebody holds. How many objects there are is up to the files' sizes; after "
           "the load as many are counted as there are files"),
]


def database_bytes(state):
    """What it occupies, but for the file that only keeps room for it."""
    total = 0
    with os.scandir(os.path.join(state, "db")) as entries:
        for entry in entries:
            if entry.name != "reserve":
                try:
                    total += entry.stat().st_blocks * 512
                except FileNotFoundError:
                    pass  # Compacted away.
    return total


def descriptors_of(mount):
    """How many the daemon has: (of the database, others)."""
    database = others = 0
    folder = f"/proc/{mount.pid()}/fd"
    for number in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{number}")
        except FileNotFoundError:
            continue  # Closed by now.
        if target.startswith(f"{mount.state}/db"):
            database += 1
        else:
            others += 1
    return database, others


def used_inodes(path):
    space = os.statvfs(path)
    return space.f_files - space.f_ffree


def proc_status(pid, field):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field + ":"))


def look(mount, disk, board):
    """One sample: what FIGURES names, and sums for the table."""
    pid, status = mount.pid(), mount.status()
    counts, tier = status["counts"], status["tiers"][0]
    slowest, _ = board.slowest_s()
    tables, descriptors = descriptors_of(mount)
    return {
        "rss": kvmount.rss_bytes(pid),
        "descriptors": descriptors,
        "tables": tables,
        "threads": proc_status(pid, "Threads"),
        "catalog": counts["catalog_memory_bytes"],
        "order": counts["order_bytes"],
        "inodes": counts["inodes_cached"],
        "open": counts["open_files"],
        "leases": counts["leases"],
        "unsealed": counts["unsealed"],
        "database": database_bytes(mount.state),
        "used": tier["budget"]["used"],
        "kept": tier["budget"]["kept"],
        "disk": watch.used_bytes(disk.path),
        "no_objects": used_inodes(disk.path) - tier["objects"],
        "objects": tier["objects"],
        "stored": board.total("bytes"),
        "evicted": status["dropped"]["room"]["files"],
        "hits": board.total("hits"),
        "misses": board.total("misses"),
        "calls": board.total("calls"),
        "damaged": counts["damaged"],
        "scrubbed": counts["scrubbed_bytes"],
        "slowest": slowest,
    }


class Record:
    """All samples of a run of so many seconds, and the table of them."""

    SUMS = ("objects", "stored", "evicted", "hits", "misses", "calls", "damaged", "scrubbed",
            "slowest")

    def __init__(self, seconds):
        self._seconds = seconds
        self._begin = time.monotonic()
        self._every = 60 if seconds > 600 else 15
        self._samples = []  # (seconds since the begin, sample)
        self._printed = 0

    def age(self):
        return time.monotonic() - self._begin

    def add(self, sample):
        self._samples.append((self.age(), sample))
        if self.age() >= (self._printed + 1) * self._every:
            self.print_line()

    def print_line(self):
        """The medians of what was sampled since the last line, and the sums up to now."""
        if self._printed == 0:
            print("seconds", *(f"{figure.name:>{width(figure.name)}}" for figure in FIGURES),
                  *(f"{name:>8}" for name in self.SUMS), flush=True)
        begin = self._printed * self._every
        end = begin + self._every
        levels = [in_column(figure, self.median(figure.name, begin, end)) for figure in FIGURES]
        last = dict(self._samples[-1][1])
        last.update(stored=f"{last['stored'] / BUDGET:.1f}x", slowest=f"{last['slowest']:.2f}",
                    scrubbed=f"{last['scrubbed'] / MIB:.0f}")
        print(f"{end:7}", *levels, *(f"{last[name]:>8}" for name in self.SUMS), flush=True)
        self._printed += 1

    def finish(self):
        """The line of what is left."""
        if self._samples[-1][0] > self._printed * self._every:
            self.print_line()

    def values(self, name, begin, end):
        return [sample[name] for age, sample in self._samples if begin <= age < end]

    def median(self, name, begin, end):
        return statistics.median(self.values(name, begin, end) or [0])

    def quarter(self, number):
        """From when to when, of 1 to 4."""
        return (number - 1) * self._seconds / 4, number * self._seconds / 4

    def judge(self):
        """Prints what each figure was and may be; those that are not flat."""
        wrong = []
        print(f"\n{'figure':12} {'2nd quarter':>12} {'last':>12} {'may be':>12} {'highest':>12}")
        for figure in FIGURES:
            before = self.median(figure.name, *self.quarter(2))
            after = self.median(figure.name, *self.quarter(4))
            most = before + max(before * figure.part, figure.more)
            highest = max(self.values(figure.name, 0, self._seconds))
            bad = after > most or (figure.most is not None and highest > figure.most)
            print(f"{figure.name:12} {before / figure.unit:12.1f} {after / figure.unit:12.1f} "
                  f"{most / figure.unit:12.1f} {highest / figure.unit:12.1f}"
                  f"{'  MiB' if figure.unit == MIB else ''}{'  NOT FLAT' if bad else ''}",
                  flush=True)
            if bad:
                wrong.append((figure.name, before, after, most, highest))
        return wrong

    def grew(self, name, number):
        """By how much a sum grew in a quarter."""
        values = self.values(name, *self.quarter(number))
        return values[-1] - values[0]


def width(name):
    return max(len(name), 7)


def in_column(figure, value):
    digits = 1 if figure.unit > 1 else 0
    return f"{value / figure.unit:{width(figure.name)}.{digits}f}"
