"""Measures what a store costs when all room is used: kvcachefs evicts, ext4's writers unlink their oldest.

Started by full_disk.sh. Each side has an ext4 of its own on a loop device. A store is create, write of the
whole file, close, rename; eight processes store for some seconds, as fast as they can or at a given
rate. On the ext4 side each unlinks its oldest file after a store, so that as many bytes are there as
on the mount; that is not in the latency of a store, but in the rate. A round measures both sides, in
alternating order, each after a sync of both; the ratio is the median of the rounds' ratios.
"""

import argparse
import collections
import contextlib
import json
import os
import statistics
import subprocess
import time

import bench
import kvmount

KIB, MIB = 1 << 10, 1 << 20
# Bytes of a file, and stores a second of all writers together; None: as many as they can.
CASES = ((64 * KIB, None), (64 * KIB, 400), (2 * MIB, None), (2 * MIB, 100))
WRITERS = 8
# ext4 can use the room of unlinked files again after a commit of its journal only: it needs some to spare.
BUDGET, DISK_PER_BUDGET = 1024 * MIB, 4
FULL_FROM = 0.8  # Of the budget: what is there while it is measured.


CALLS = ("create", "write", "close", "rename")


def store(directory, name, data):
    """Its path, and the seconds of each of CALLS."""
    path = os.path.join(directory, f"{name}_model_0_1.bin")
    temporary = f"{path}.tmp"
    times = [time.perf_counter()]
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    times.append(time.perf_counter())
    done = os.write(fd, data)
    times.append(time.perf_counter())
    os.close(fd)
    times.append(time.perf_counter())
    assert done == len(data), f"{path}: {done} bytes written"
    os.rename(temporary, path)
    times.append(time.perf_counter())
    return path, [after - before for before, after in zip(times, times[1:])]


def write_for(directory, size, pace, writer, first, begin, seconds, most):
    """One process: (seconds of the calls of each store, number of the next name).

    `pace`: stores a second, None: as many as it can.
    `most`: how many files of its own it leaves, as the names tell; None: the mount sees to it.
    """
    own = collections.deque()
    if most is not None:
        mine = f"{size:08x}{writer:04x}"
        own.extend(sorted(entry.path for entry in os.scandir(directory)
                          if entry.name.startswith(mine)))
    data = bytearray(os.urandom(size))
    taken = []
    while time.monotonic() < begin:
        time.sleep(0.001)
    number = first
    while time.monotonic() < begin + seconds:
        if pace is not None:  # Not all writers at the same moment.
            due = begin + (number - first + writer / WRITERS) / pace
            time.sleep(max(0, due - time.monotonic()))
        name = f"{size:08x}{writer:04x}{number:052x}"
        path, seconds_of = store(directory, name, data)
        taken.append(seconds_of)
        number += 1
        if most is not None:
            own.append(path)
            while len(own) > most:
                os.unlink(own.popleft())
    return taken, number


class Side:
    """A directory to store into, and the device below it."""

    def __init__(self, directory, disk, evicts):
        self.directory, self.disk, self.evicts = directory, disk, evicts
        self.device = os.path.basename(kvmount.mount_entry(disk)[1])
        self.next = dict.fromkeys(range(WRITERS), 0)

    def device_bytes(self):
        """Bytes that were ever written to the device."""
        with open(f"/sys/block/{self.device}/stat", encoding="ascii") as stat:
            return int(stat.read().split()[6]) * 512

    def sync(self):
        subprocess.run(["sync", "--file-system", self.disk], check=True, timeout=120)

    def run(self, size, seconds, pace=None):
        """{"taken": sorted seconds of stores, "calls": those of each of CALLS, "rate": stores a second,
        "device": bytes a byte}"""
        before = self.device_bytes()
        begin = time.monotonic() + 0.5
        most = None if self.evicts else int(BUDGET * 0.9) // WRITERS // size
        children = [kvmount.Child(write_for, self.directory, size, pace and pace / WRITERS, writer,
                                  self.next[writer], begin, seconds, most)
                    for writer in range(WRITERS)]
        taken = []
        for writer, child in enumerate(children):
            own, self.next[writer] = child.result(seconds + 120)
            taken += own
        rate = len(taken) / (time.monotonic() - begin)
        self.sync()
        written = self.device_bytes() - before
        return {"taken": sorted(sum(calls) for calls in taken),
                "calls": {name: sorted(calls[i] for calls in taken) for i, name in enumerate(CALLS)},
                "rate": rate, "device": written / (len(taken) * size)}

    def used(self):
        space = os.statvfs(self.disk)
        return (space.f_blocks - space.f_bfree) * space.f_frsize

    def fill(self, size):
        """Until old files go to make room for new ones."""
        if not self.evicts:
            for entry in list(os.scandir(self.directory)):
                if entry.name.endswith(".bin"):
                    os.unlink(entry.path)
        for _ in range(100 * -(-BUDGET // (1024 * MIB))):
            full = self.used() >= FULL_FROM * BUDGET
            self.run(size, 1)
            if full:
                return
        raise SystemExit(f"bench: {self.directory} does not get full")


def percentile(ordered, share):
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def name_of(size, pace):
    return f"{bench.size_text(size)}{f', {pace}/s' if pace else ''}"


def measure(sides, rounds, seconds, only):
    rows = []
    print(f"\n{'':24} {'':6} {'ext4':>12} {'kvcachefs':>12} {'ratio':>7}")
    filled = None
    for size, pace in CASES:
        if only not in name_of(size, pace):
            continue
        if size != filled:
            for side in sides.values():
                side.fill(size)
        filled = size
        seen = {name: [] for name in sides}
        for number in range(rounds):
            order = list(sides.items())
            for name, side in order if number % 2 == 0 else reversed(order):
                for each in sides.values():
                    each.sync()
                seen[name].append(side.run(size, seconds, pace))
        case = name_of(size, pace)
        rows += [latency_row(case, seen, share) for share in (0.5, 0.99)]
        rows += [figure_row(case, seen, "rate", "stores/s"),
                 figure_row(case, seen, "device", "device bytes a stored byte")]
        # Which of the calls it is: a write goes past the mount, to the same kind of file as ext4's.
        rows += [latency_row(f"{case}, {name}",
                             {side: [{"taken": run["calls"][name]} for run in runs]
                              for side, runs in seen.items()}, 0.99)
                 for name in CALLS]
        for row in rows[-4 - len(CALLS):]:
            show(row)
    return rows


def latency_row(case, seen, share):
    """How many times as long a store takes on the mount."""
    us = {name: [percentile(run["taken"], share) * 1e6 for run in runs]
          for name, runs in seen.items()}
    return {"case": f"store {case}", "unit": "us",
            "figure": f"p{share * 100:.0f}", **{name: statistics.median(v) for name, v in us.items()},
            "longest_us": {name: max(run["taken"][-1] for run in runs) * 1e6
                           for name, runs in seen.items()},
            "ratio": statistics.median(k / e for e, k in zip(us["ext4"], us["kvcachefs"]))}


def figure_row(case, seen, key, unit):
    figures = {name: [run[key] for run in runs] for name, runs in seen.items()}
    return {"case": f"store {case}", "unit": unit, "figure": key,
            **{name: statistics.median(v) for name, v in figures.items()},
            "ratio": statistics.median(k / e for e, k in zip(figures["ext4"],
                                                             figures["kvcachefs"]))}


def show(row):
    texts = [f"{row[name]:9.0f} us" if row["unit"] == "us" else f"{row[name]:12.2f}"
             for name in ("ext4", "kvcachefs")]
    unit = "" if row["unit"] == "us" else row["unit"]
    print(f"{row['case']:24} {row['figure']:6} {texts[0]:>12} {texts[1]:>12} {row['ratio']:7.2f}  {unit}",
          flush=True)


def main():
    global BUDGET
    parser = argparse.ArgumentParser(prog="full_disk.sh")
    parser.add_argument("--json", metavar="FILE", help="writes every figure there, too")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement; default 4")
    parser.add_argument("--budget", type=int, default=BUDGET // MIB, metavar="MIB",
                        help="what is used on each side; default 1024")
    parser.add_argument("--only", default="", help="the cases in whose name this stands")
    parser.add_argument("--self-test", action="store_true", help="ext4 against ext4: ratios of 1")
    arguments = parser.parse_args()
    BUDGET = arguments.budget * MIB
    told = bench.machine()
    print(f"{told['cpus']} CPUs ({told['cpu']}), {told['memory_bytes'] >> 30} GiB, kernel "
          f"{told['kernel']}, load {os.getloadavg()[0]:.1f}; median of {arguments.rounds} rounds of "
          f"{arguments.seconds:g} s, {WRITERS} writers, {BUDGET >> 20} MiB")
    drops = None
    with contextlib.ExitStack() as stack:
        below = {name: stack.enter_context(kvmount.LoopFs("ext4", size=BUDGET * DISK_PER_BUDGET))
                 for name in ("ext4", "kvcachefs")}
        sides = {"ext4": Side(below["ext4"].path, below["ext4"].path, evicts=False)}
        if arguments.self_test:
            sides["kvcachefs"] = Side(below["kvcachefs"].path, below["kvcachefs"].path,
                                      evicts=False)
        else:
            mount = kvmount.Mount("bench", nvme=os.path.join(below["kvcachefs"].path, "nvme"),
                                  size=BUDGET, options=["--scrub", "off"]).create()
            stack.callback(mount.close)
            mount.start()
            status = mount.status()
            print(f"data path {status['data_path']}, transport {status['transport']}")
            sides["kvcachefs"] = Side(mount.mnt, below["kvcachefs"].path, evicts=True)
        rows = measure(sides, arguments.rounds, arguments.seconds, arguments.only)
        if not arguments.self_test:
            status = mount.status()
            drops = {"dropped": status["dropped"], "slowed": status["counts"]["slowed"]}
            print(f"\n{drops['dropped']['room']['files']} files evicted, {drops['slowed']} closes "
                  "slowed")
            assert drops["dropped"]["room"]["files"] > 0, "nothing was evicted"
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"machine": told, "rounds": arguments.rounds, "budget": BUDGET, "rows": rows,
                       "drops": drops}, out, indent=1)


if __name__ == "__main__":
    main()
