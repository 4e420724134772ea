"""Measures what a load costs that finds nothing in memory: kvcachefs verifies it, ext4 does not.

Started by cold_load.sh. A load is open, reads of 1 MiB to the end, close. Before each the file's pages
are taken out of the page cache (POSIX_FADV_DONTNEED on the file that holds the bytes). A round loads one
file on each side, in alternating order; the ratio is the median of the rounds' ratios. Then as runtimes do
it: 64 blocks of 2 MiB are looked up, and loaded in that order; kvcachefs reads ahead what was looked up.
The names are those of blocks (vLLM's).
"""

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import shutil
import statistics
import time

import bench
import kvmount

MIB = 1 << 20
SIZES = (MIB, 4 * MIB, 16 * MIB, 64 * MIB)
TARGET = 0.80
CHAIN, CHAIN_SIZE, CHAIN_TARGET = 64, 2 * MIB, 1.10
FILES = 4  # Of each size: the same bytes in a row would flatter a disk's own cache.


def write(path, size):
    with open(path, "wb", buffering=0) as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())


def block_name(size, number):
    digest = hashlib.sha256(f"{size} {number}".encode()).hexdigest()
    return f"Llama-3.1-8B_1a2b3c4d5e6f_r0/{digest[:3]}/{digest[3:5]}_g0/{digest}.bin"


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


def load_chain(paths, out):
    """In a process of its own: one that lists directories has nothing read ahead."""
    buffer = bytearray(MIB)
    begin = time.perf_counter()
    for path in paths:
        os.stat(path)
    for path in paths:
        load(path, CHAIN_SIZE, buffer)
    out.put(time.perf_counter() - begin)


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
        for size, count in [(size, FILES) for size in SIZES] + [(CHAIN_SIZE, CHAIN)]:
            paths = [os.path.join(self.directory, block_name(size, n)) for n in range(count)]
            for path in paths:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                write(path, size)
            # Ids of objects increase: the last ones are these.
            held = self.objects()[-count:] if self.nvme else paths
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


def measure_chains(sides, rounds):
    times = {name: [] for name in sides}
    for number in range(rounds):
        order = list(sides.items())
        for name, side in order if number % 2 == 0 else reversed(order):
            for _, held in side.pairs[CHAIN_SIZE]:
                forget(held)
            # What the kernel knows of names asks nobody, for a second.
            time.sleep(1.5)
            out = multiprocessing.Queue()
            child = multiprocessing.Process(
                target=load_chain, args=([path for path, _ in side.pairs[CHAIN_SIZE]], out))
            child.start()
            times[name].append(out.get())
            child.join()
    ratio = statistics.median(e / k for e, k in zip(times["ext4"], times["kvcachefs"]))
    rates = {name: CHAIN * CHAIN_SIZE / statistics.median(values)
             for name, values in times.items()}
    print(f"64 x 2 MiB {rates['ext4'] / 1e9:7.2f} GB/s {rates['kvcachefs'] / 1e9:7.2f} GB/s "
          f"{ratio:7.2f}  >= {CHAIN_TARGET:.2f} {'ok' if ratio >= CHAIN_TARGET else 'below'}")
    return [{"case": "64 blocks of 2 MiB probed, then loaded", "unit": "bytes/s", **rates,
             "ratio": ratio, "target": CHAIN_TARGET, "reached": ratio >= CHAIN_TARGET}]


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
            rows += measure_chains(sides, arguments.rounds)
            if not arguments.self_test:
                counts = mount.status()["counts"]
                verified = counts["verified_opens"] + counts["staged"]["files"]
                assert verified >= (len(SIZES) + CHAIN) * arguments.rounds, f"{verified} verified"
                print(f"opens verified {counts['verified_opens']}, read ahead {counts['staged']}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"machine": told, "rounds": arguments.rounds, "rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()
