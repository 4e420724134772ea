"""Measures what a load costs that finds nothing in memory: kvcachefs verifies it, ext4 does not.

Started by cold_load.sh. A load is open, reads of 1 MiB to the end, close. Before each the file's pages
are taken out of the page cache (POSIX_FADV_DONTNEED on the file that holds the bytes). A round loads one
file on each side, in alternating order; the ratio is the median of the rounds' ratios.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import time

import bench
import kvmount

MIB = 1 << 20
SIZES = (MIB, 4 * MIB, 16 * MIB, 64 * MIB)
TARGET = 0.80
FILES = 4  # Of each size: the same bytes in a row would flatter a disk's own cache.


def write(path, size):
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())


def forget(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def load(path, size, buffer):
    """Seconds."""
    begin = time.perf_counter()
    fd = os.open(path, os.O_RDONLY)
    got = 0
    while count := os.readv(fd, [buffer]):
        got += count
    os.close(fd)
    seconds = time.perf_counter() - begin
    assert got == size, f"{path}: {got} bytes instead of {size}"
    return seconds


class Side:
    """Files to load, and the files that hold their bytes."""

    def __init__(self, directory, nvme=None):
        self.directory, self.nvme = directory, nvme
        self.pairs = {}

    def objects(self):
        found = [os.path.join(folder, name)
                 for folder, _, names in os.walk(os.path.join(self.nvme, "objects"))
                 for name in names]
        return sorted(found, key=os.path.basename)

    def prepare(self):
        for size in SIZES:
            paths = [os.path.join(self.directory, f"{size}-{n}") for n in range(FILES)]
            for path in paths:
                write(path, size)
            # Ids of objects increase: the last ones are these.
            held = self.objects()[-FILES:] if self.nvme else paths
            self.pairs[size] = list(zip(paths, held))


def measure(sides, rounds):
    buffer = bytearray(MIB)
    rows = []
    print(f"\n{'':10} {'ext4':>12} {'kvcachefs':>12} {'ratio':>7}  target")
    for size in SIZES:
        times = {name: [] for name in sides}
        for number in range(rounds):
            order = list(sides.items())
            for name, side in order if number % 2 == 0 else reversed(order):
                path, held = side.pairs[size][number % FILES]
                forget(held)
                times[name].append(load(path, size, buffer))
        ratio = statistics.median(e / k for e, k in zip(times["ext4"], times["kvcachefs"]))
        rates = {name: size / statistics.median(values) for name, values in times.items()}
        row = {"case": f"cold load {bench.size_text(size)}", "unit": "bytes/s", **rates,
               "ratio": ratio, "target": TARGET, "reached": ratio >= TARGET}
        rows.append(row)
        print(f"{bench.size_text(size):10} {rates['ext4'] / 1e9:7.2f} GB/s "
              f"{rates['kvcachefs'] / 1e9:7.2f} GB/s {ratio:7.2f}  >= {TARGET:.2f} "
              f"{'ok' if row['reached'] else 'below'}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(prog="cold_load.sh")
    parser.add_argument("--json", metavar="FILE", help="writes every figure there, too")
    parser.add_argument("--directory", default="/var/tmp", help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=21, help="default 21")
    parser.add_argument("--self-test", action="store_true", help="ext4 against ext4: ratios of 1")
    arguments = parser.parse_args()
    told = bench.machine()
    print(f"{told['cpus']} CPUs ({told['cpu']}), {told['memory_bytes'] >> 30} GiB, kernel "
          f"{told['kernel']}, load {os.getloadavg()[0]:.1f}; median of {arguments.rounds} rounds")
    work = os.path.join(arguments.directory, f"kvcachefs-bench-{os.getpid()}")
    nvme = os.path.join(work, "nvme")
    for name in ("ext4", "other", "nvme"):
        os.makedirs(os.path.join(work, name), mode=0o700)
    try:
        with contextlib.ExitStack() as stack:
            sides = {"ext4": Side(os.path.join(work, "ext4"))}
            if arguments.self_test:
                sides["kvcachefs"] = Side(os.path.join(work, "other"))
            else:
                mount = kvmount.Mount("bench", nvme=nvme, options=["--scrub", "off"]).create()
                stack.enter_context(contextlib.closing(mount))
                mount.start()
                status = mount.status()
                print(f"data path {status['data_path']}, transport {status['transport']}")
                sides["kvcachefs"] = Side(mount.mnt, nvme)
            for side in sides.values():
                side.prepare()
            if not arguments.self_test:
                kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] == 0, 120, "seals")
            rows = measure(sides, arguments.rounds)
            if not arguments.self_test:
                verified = mount.status()["counts"]["verified_opens"]
                assert verified >= len(SIZES) * arguments.rounds, f"{verified} opens verified"
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"machine": told, "rounds": arguments.rounds, "rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()
