"""Measures kvcachefs and raw ext4 by turns and prints a table of medians and ratios.

Started by bench.sh, which builds what this runs. Every figure is the median of the rounds; both
sides are measured in each round, in alternating order, so that a disturbance hits both.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import kvmount  # noqa: E402  pylint: disable=wrong-import-position
from standing import RESULTS, Standing  # noqa: E402  pylint: disable=wrong-import-position

CLIENT = os.path.join(ROOT, "build", "bench", "bin", "kvcachefs_bench")
KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
MODES = ("buffered", "direct", "mmap")
# The ratios to ext4 to reach, one thread, io_uring transport. What is not here is only shown.
LOAD_TARGETS = {MIB: 0.70, 4 * MIB: 0.85, 16 * MIB: 0.95, 64 * MIB: 0.95}
STORE_TARGET_FROM, STORE_TARGET = 4 * MIB, 0.80
DIRECT_LOAD_TARGET = 0.95
NAME_TARGETS = {"stat_hit": 0.75, "stat_miss": 0.75, "readdir": 1.0}
DAEMON_TARGETS = {"load": 0.5, "load_first_touch": 0.25}
OPEN_CLOSE_EXTRA_US = 2.0
STANDING = None  # With --quick, what the rows are compared with.


def size_text(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


class Case:
    """One line of the table."""

    def __init__(self, label, operation, target=None, **options):
        self.label, self.operation, self.target = label, operation, target
        self.options = options
        # The first touch of a file that kvcachefs' disk holds in memory is measured against a warm
        # read: a cold ext4 would be the speed of the disk.
        self.control = "load" if operation == "load_first_touch" else operation
        self.results = {"ext4": [], "kvcachefs": []}

    def run(self, side, directory, seconds):
        words = [f"{key}={value}" for key, value in self.options.items()]
        operation = self.control if side == "ext4" else self.operation
        done = subprocess.run([CLIENT, operation, directory, f"seconds={seconds}", *words],
                              capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench: {self.label} on {side}: {done.stderr.strip()}")
        self.results[side].append(json.loads(done.stdout))

    def median(self, side, key):
        return statistics.median(r[key] for r in self.results[side])

    def ratios(self):
        """The ratio of each round: what disturbs a round disturbs both of its sides.

        One thread is compared by the median latency of an operation: on a busy machine a rate
        tells how often the scheduler took the processor away.
        """
        alone = self.options.get("threads", 1) == 1
        return [e["p50_us"] / k["p50_us"] if alone else k["per_second"] / e["per_second"]
                for k, e in zip(self.results["kvcachefs"], self.results["ext4"])]

    def row(self):
        moves_bytes = self.operation.startswith(("load", "store"))
        key = "bytes_per_second" if moves_bytes else "per_second"
        row = {"case": self.label, "operation": self.operation, "options": self.options,
               "unit": "bytes/s" if moves_bytes else "operations/s", "target": self.target}
        for side in self.results:
            row[side] = self.median(side, key)
            row[side + "_p50_us"] = self.median(side, "p50_us")
            row[side + "_p99_us"] = self.median(side, "p99_us")
        row["ratios"] = [round(ratio, 4) for ratio in self.ratios()]
        row["ratio"] = statistics.median(self.ratios())
        row["reached"] = None if self.target is None else row["ratio"] >= self.target
        return row


def data_cases():
    cases = []
    for threads in (1, 4):
        for mode in MODES:
            for size in SIZES:
                options = {"size": size, "threads": threads, "mode": mode}
                label = f"{mode} {size_text(size)}, {threads} thr"
                target = None
                if threads == 1 and mode == "buffered":
                    target = LOAD_TARGETS.get(size)
                elif threads == 1 and mode == "direct" and size >= MIB:
                    target = DIRECT_LOAD_TARGET
                cases.append(Case("load " + label, "load", target, **options))
                target = None
                if threads == 1 and mode == "buffered" and size >= STORE_TARGET_FROM:
                    target = STORE_TARGET
                cases.append(Case("store " + label, "store", target, **options))
    return cases


def name_cases():
    cases = [Case(name, name, NAME_TARGETS.get(name), names=1000)
             for name in ("stat_hit", "stat_miss", "open_close", "create", "rename", "unlink",
                          "round_trip")]
    return cases + [Case("readdir 10 k", "readdir", NAME_TARGETS["readdir"], names=10_000)]


def daemon_cases():
    return [Case(f"daemon-served {'cached' if op == 'load' else 'first touch'} {size_text(size)}",
                 op, DAEMON_TARGETS[op] if size >= MIB else None, size=size, mode="buffered")
            for op in ("load", "load_first_touch") for size in SIZES]


def watched(cases):
    """Those that have a target, and the two that open+close is judged by."""
    return [case for case in cases
            if case.target is not None or case.operation in ("open_close", "round_trip")]


def measure(cases, directories, rounds, seconds, forget=lambda: None):
    """All cases, each by turns on both sides. `forget` empties kvcachefs' own page cache."""
    sizes = {c.options["size"] for c in cases if c.operation.startswith("load")}
    for directory in directories.values():
        for size in sorted(sizes):
            subprocess.run([CLIENT, "prepare_load", directory, f"size={size}"], check=True,
                           timeout=600)
    for case in cases:
        for number in range(rounds):
            order = list(directories.items())
            for side, directory in order if number % 2 == 0 else reversed(order):
                if side == "kvcachefs" and case.operation == "load_first_touch":
                    forget()
                case.run(side, directory, seconds)
        show(case.row())


def show(row):
    """A line of the table; with --quick also the ratio that stands."""
    if row["unit"] == "bytes/s":
        rates = [f"{row[s] / 1e9:7.2f} GB/s" for s in ("ext4", "kvcachefs")]
    else:
        rates = [f"{row[s] / 1e3:7.1f} k/s " for s in ("ext4", "kvcachefs")]
    target = "" if row["target"] is None else f">= {row['target']:.2f}"
    verdict = {None: "", True: "ok", False: "below"}[row["reached"]]
    before = STANDING.ratio(row["case"]) if STANDING else None
    stands = "" if before is None else f"stands {before:.2f}"
    fallen = "FALLEN" if STANDING and STANDING.has_fallen(row) else ""
    print(f"{row['case']:34} {rates[0]} {rates[1]} {row['ext4_p50_us']:8.1f} "
          f"{row['kvcachefs_p50_us']:8.1f} us {row['ratio']:6.2f}  {target:8} {verdict:5} {stands} "
          f"{fallen}".rstrip(), flush=True)


def head(title):
    print(f"\n{title}\n{'':34} {'ext4':>12} {'kvcachefs':>12} {'p50: ext4':>9} {'kvcachefs':>10} "
          f"{'ratio':>7}  target")


class ExtFour:
    """The second side when kvcachefs is compared with nothing: ext4 against ext4 must give 1."""

    def __init__(self, directory):
        self.mnt = directory

    def __enter__(self):
        os.makedirs(self.mnt)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.mnt, ignore_errors=True)


def operation_counts(mount):
    return {name: values["count"] for name, values in mount.status()["operations"].items()}


def publish_requests(mount):
    """Which requests one create + write + close + rename in one directory makes, each over 200."""
    directory = os.path.join(mount.mnt, "requests")
    os.mkdir(directory)
    before = operation_counts(mount)
    for number in range(200):
        path = os.path.join(directory, str(number))
        fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(fd, b"x" * 4096)
        os.close(fd)
        os.rename(path + ".tmp", path)
    after = operation_counts(mount)
    return {name: round((after[name] - before.get(name, 0)) / 200, 2)
            for name in sorted(after) if after[name] - before.get(name, 0) >= 20}


def idle_cpu_percent(mount, seconds):
    pid = mount.pid()
    before, begin = kvmount.cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (kvmount.cpu_seconds(pid) - before) / (time.monotonic() - begin)


def latency_figures(cases, rows):
    """open + close against two round trips, from the cases that measured them."""
    by_name = {case.operation: case for case in cases}
    if "round_trip" not in by_name or "open_close" not in by_name:
        return
    trip = by_name["round_trip"].median("kvcachefs", "p50_us")
    pair = by_name["open_close"].median("kvcachefs", "p50_us")
    limit = 2 * trip + OPEN_CLOSE_EXTRA_US
    rows.append({"case": "open+close", "us": pair, "limit_us": limit, "round_trip_us": trip,
                 "reached": pair <= limit})
    print(f"\nFUSE round trip {trip:.1f} us; open+close {pair:.1f} us, limit 2 round trips + "
          f"{OPEN_CLOSE_EXTRA_US:.0f} us = {limit:.1f} us: {'ok' if pair <= limit else 'above'}")


def wanted(cases, only):
    return [c for c in cases if not only or only in c.label or only in c.operation]


def bench_mount(arguments, title, cases, rows, data_path="auto"):
    """One mount (or, with --self-test, a plain directory) against a plain directory beside it."""
    if not cases:
        return
    side = os.path.join(arguments.directory, f"kvcachefs-bench-{os.getpid()}")
    nvme = os.path.join(side, "nvme")
    os.makedirs(os.path.join(side, "ext4"))
    os.makedirs(nvme, mode=0o700)
    try:
        head(title)
        directories = {"ext4": os.path.join(side, "ext4")}
        if arguments.self_test:
            with ExtFour(os.path.join(side, "other")) as other:
                measure(cases, {**directories, "kvcachefs": other.mnt}, arguments.rounds,
                        arguments.seconds)
        else:
            # Not stopped in order at the end: what was measured is thrown away.
            with contextlib.closing(kvmount.Mount("bench", data_path=data_path,
                                                  nvme=nvme).create()) as mount:
                mount.start()
                status = mount.status()
                print(f"data path {status['data_path']}, transport {status['transport']}")
                measure(cases, {**directories, "kvcachefs": mount.mnt}, arguments.rounds,
                        arguments.seconds, mount.remount)
                if data_path == "auto" and not arguments.only:
                    extras(mount, rows, arguments.quick)
        rows += [case.row() for case in cases]
        latency_figures(cases, rows)
    finally:
        shutil.rmtree(side, ignore_errors=True)


def extras(mount, rows, quick):
    requests = publish_requests(mount)
    rows.append({"case": "requests of create+write+close+rename", "requests": requests})
    print(f"\none create + write + close + rename asks the daemon: {requests}")
    kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] == 0, 120, "seals")
    idle = idle_cpu_percent(mount, 2 if quick else 10)
    rows.append({"case": "idle CPU", "percent": idle, "reached": idle < 0.5})
    resident = kvmount.rss_bytes(mount.pid())
    rows.append({"case": "resident", "bytes": resident})
    print(f"idle CPU {idle:.2f} %; resident {resident >> 20} MiB")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        models = [l.split(":", 1)[1].strip() for l in info if l.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpus": os.cpu_count(), "cpu": models[0] if models else platform.machine(),
            "memory_bytes": memory, "kernel": platform.release()}


def main():
    parser = argparse.ArgumentParser(prog="bench.sh")
    parser.add_argument("--quick", action="store_true",
                        help="the rows that have a target, within three minutes, beside the ratios that stand in "
                             "bench/results/; says which have fallen, and fails for none")
    parser.add_argument("--record", action="store_true",
                        help="with --quick: writes bench/results/quick.json, what stands from now on")
    parser.add_argument("--json", metavar="FILE", help="writes every figure there, too")
    parser.add_argument("--directory", default="/var/tmp", help="on the disk to measure")
    parser.add_argument("--only", help="cases whose name has this in it")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--self-test", action="store_true", help="ext4 against ext4: ratios of 1")
    arguments = parser.parse_args()
    if arguments.record and not arguments.quick:
        parser.error("--record goes with --quick")
    global STANDING  # pylint: disable=global-statement
    STANDING = Standing() if arguments.quick else None
    arguments.seconds = 0.1 if arguments.quick else 0.4
    told = machine()
    print(f"{told['cpus']} CPUs ({told['cpu']}), {told['memory_bytes'] >> 30} GiB, kernel "
          f"{told['kernel']}, load {os.getloadavg()[0]:.1f}; median of {arguments.rounds} rounds")
    rows = []
    names, data, daemon = name_cases(), data_cases(), daemon_cases()
    if arguments.quick:
        names, data, daemon = watched(names), watched(data), watched(daemon)
    bench_mount(arguments, "Names (one thread)", wanted(names, arguments.only), rows)
    bench_mount(arguments, "Data", wanted(data, arguments.only), rows)
    bench_mount(arguments, "Daemon-served", wanted(daemon, arguments.only), rows, "daemon")
    files = [arguments.json] if arguments.json else []
    if arguments.record:
        files.append(os.path.join(RESULTS, "quick.json"))
    for path in files:
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"machine": told, "rounds": arguments.rounds, "rows": rows}, out, indent=1)
            out.write("\n")
    if STANDING:
        fallen = [r["case"] for r in rows if STANDING.has_fallen(r)]
        print(f"\n{len(fallen)} have fallen by more than their spread" +
              (": " + "; ".join(fallen) if fallen else ""))
    missed = [r["case"] for r in rows if r.get("reached") is False]
    print(f"\n{len(missed)} below their target" + (": " + "; ".join(missed) if missed else ""))


if __name__ == "__main__":
    main()
