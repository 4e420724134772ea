"""Rates of names by slice as a tree grows, kvcachefs against raw ext4 on fresh loop filesystems.

Started by metadata_at_size.sh. The question is whether a rate falls as the tree grows, and more
than ext4's own does: targets are a curve within 2x of ext4's, rm -rf at least a quarter of ext4's
rate, and a daemon whose memory has a bound.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import kvmount  # noqa: E402  pylint: disable=wrong-import-position

CLIENT = os.path.join(ROOT, "build", "bench", "bin", "kvcachefs_bench")
SLICES = 10
CURVE_TARGET = 2.0  # How much more than ext4's the rate may fall from the first slice to the last.
RM_TARGET = 0.25
BLOCK = 4096


def client(operation, directory, first, names, layout):
    done = subprocess.run([CLIENT, operation, directory, f"first={first}", f"names={names}",
                           f"layout={layout}"], capture_output=True, text=True, timeout=3600,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"metadata_at_size: {operation}: {done.stderr.strip()}")
    return json.loads(done.stdout)["per_second"]


def count_entries(directory):
    total, pending = 0, [directory]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                total += 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return total


def measure(root, names, layout):
    """Slices of creation and lookup, then a walk and rm -rf."""
    tree = os.path.join(root, "tree")
    os.mkdir(tree)
    step = names // SLICES
    figures = {"create": [], "lookup": []}
    for first in range(0, step * SLICES, step):
        figures["create"].append(client("create_slice", tree, first, step, layout))
        kvmount.drop_caches(2)  # Every name is asked of the filesystem, not of the dentry cache.
        figures["lookup"].append(client("lookup_slice", tree, first, step, layout))
    kvmount.drop_caches(2)
    begin = time.monotonic()
    entries = count_entries(tree)
    figures["walk"] = entries / (time.monotonic() - begin)
    expected = step * SLICES * (2 if layout == "one_each" else 1)
    if entries != expected:
        raise SystemExit(f"metadata_at_size: the walk found {entries} of {expected} entries")
    begin = time.monotonic()
    subprocess.run(["rm", "-rf", tree], check=True, timeout=3600)
    figures["rm -rf"] = entries / (time.monotonic() - begin)
    return figures


def on_ext4(names, layout):
    with loop(names) as disk:
        return measure(disk.path, names, layout)


def on_kvcachefs(names, layout):
    with loop(names) as disk:
        nvme = os.path.join(disk.path, "nvme")
        with kvmount.Mount("at-size", nvme=nvme, nofile=1024) as mount:
            figures = measure(mount.mnt, names, layout)
            figures["resident_bytes"] = kvmount.rss_bytes(mount.pid())
    return figures


def loop(names):
    # An inode and a block for each name and each directory, and room for the database.
    size = (4 << 30) + names * 4 * BLOCK
    return kvmount.LoopFs("ext4", size, mkfs=["-N", str(names * 3 + 100_000)])


def decay(rates):
    """How much slower the last three tenths are than the first three."""
    return statistics.median(rates[:3]) / statistics.median(rates[-3:])


def report(layout, ext4, ours):
    print(f"\n{layout}: names per second by tenth of the tree")
    for kind in ("create", "lookup"):
        for side, figures in (("ext4", ext4), ("kvcachefs", ours)):
            rates = " ".join(f"{rate / 1e3:6.1f}" for rate in figures[kind])
            print(f"  {kind:7} {side:10} {rates} k/s")
        curve = decay(ours[kind]) / decay(ext4[kind])
        print(f"  {kind:7} falls {decay(ours[kind]):.2f}x, ext4 {decay(ext4[kind]):.2f}x: "
              f"{verdict(curve <= CURVE_TARGET)}")
    for kind in ("walk", "rm -rf"):
        ratio = ours[kind] / ext4[kind]
        said = verdict(ratio >= RM_TARGET) if kind == "rm -rf" else ""
        print(f"  {kind:7} {ours[kind] / 1e3:.1f} k/s, ext4 {ext4[kind] / 1e3:.1f} k/s: "
              f"{ratio:.2f} {said}")
    if "resident_bytes" in ours:
        print(f"  the daemon has {ours['resident_bytes'] >> 20} MiB resident at the end")


def verdict(good):
    return "ok" if good else "missed"


def main():
    parser = argparse.ArgumentParser(prog="metadata_at_size.sh")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--self-test", action="store_true", help="ext4 against ext4")
    arguments = parser.parse_args()
    names = int(os.environ.get("NAMES", "200000"))
    if names < SLICES:
        raise SystemExit(f"metadata_at_size: NAMES={names}: at least {SLICES}")
    print(f"{names} names, kernel {os.uname().release}, load {os.getloadavg()[0]:.1f}")
    rows = {}
    for layout in ("flat", "one_each"):
        ext4 = on_ext4(names, layout)
        ours = on_ext4(names, layout) if arguments.self_test else on_kvcachefs(names, layout)
        report(layout, ext4, ours)
        rows[layout] = {"ext4": ext4, "kvcachefs": ours}
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"names": names, "rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()
