"""Many block names on one mount: memory, mount time and lookups, as their number grows.

Started by size.sh. Targets: a mount answers within 2 s however many names there are, the daemon stays
below what is stated for it (README, "Limits"), and a lookup does not become slower.
"""

import argparse
import hashlib
import json
import os
import random
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import kvmount  # noqa: E402  pylint: disable=wrong-import-position

SLICES = 10
WRITERS = 4
# As of ranks: the kernel makes one name after the other in a directory.
DIRECTORIES = 16
LOOKUPS = 20_000
MOUNT_TARGET_S = 2.0
FALL_TARGET = 1.5  # The lookups of the last slices against those of the first.
BYTES = b"kv" * 24  # Fits into an inode of ext4: a name costs no block.


def path_of(number):
    """As SGLang's file storage names a block."""
    key = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=32).hexdigest()
    return f"rank{number % DIRECTORIES}/{key}_model_0_1.bin"


def store(root, first, end):
    """Under the name at once, as many runtimes do: half the requests of a store by rename, and the same records."""
    for number in range(first, end):
        fd = os.open(f"{root}/{path_of(number)}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, BYTES)
        os.close(fd)


def look_up(root, end, seed):
    """Microseconds of lookups, sorted: of names that are there, each asked for once."""
    rng = random.Random(seed)
    took = []
    for _ in range(LOOKUPS):
        path = f"{root}/{path_of(rng.randrange(end))}"
        begin = time.monotonic_ns()
        os.stat(path)
        took.append((time.monotonic_ns() - begin) / 1e3)
    return sorted(took)


def store_slice(root, first, end):
    """Seconds that WRITERS processes took."""
    step = -(-(end - first) // WRITERS)
    begin = time.monotonic()
    children = [kvmount.Child(store, root, low, min(low + step, end))
                for low in range(first, end, step)]
    for child in children:
        child.result(24 * 3600)
    return time.monotonic() - begin


def seen(mount, rows):
    status = mount.status()
    counts = status["counts"]
    rows.append({"blocks": counts["blocks"], "resident": kvmount.rss_bytes(mount.pid()),
                 "database": status["tiers"][0]["budget"]["database"], "order": counts["order_bytes"]})
    return rows[-1]


def grow(mount, names):
    step = names // SLICES
    rows = []
    for first in range(0, step * SLICES, step):
        seconds = store_slice(mount.mnt, first, first + step)
        kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] == 0, 600, "seals")
        row = seen(mount, rows)
        kvmount.drop_caches(2)
        took = kvmount.Child(look_up, mount.mnt, first + step, first).result(3600)
        row.update(names=first + step, stored_per_second=step / seconds,
                   lookup_us=statistics.median(took), lookup_p99_us=took[len(took) * 99 // 100])
        print(f"  {row['names']:>9} names: {row['stored_per_second'] / 1e3:5.1f} k stores/s, lookup "
              f"p50 {row['lookup_us']:6.1f} us, p99 {row['lookup_p99_us']:7.1f} us; resident "
              f"{row['resident'] >> 20:5} MiB, order {row['order'] >> 20:4} MiB, database "
              f"{row['database'] >> 20:5} MiB", flush=True)
    return rows


def mount_again(mount, how):
    """Seconds from the start of the program to the first answer of the mount, and until all is known."""
    if how == "stop":
        mount.stop()
    else:
        mount.kill()
    kvmount.drop_caches(3)
    begin = time.monotonic()
    mount.start()
    os.stat(f"{mount.mnt}/{path_of(0)}")
    answered = time.monotonic() - begin
    if how == "stop":  # All is counted once more after the kill: a million names take a minute or two.
        print(f"  after a stop: answers after {answered:.2f} s", flush=True)
        return {"how": how, "answered_s": answered}
    kvmount.wait_until(lambda: mount.status()["tiers"][0]["budget"]["used"] is not None, 3600,
                       "the count of what the last run left")
    known = time.monotonic() - begin
    highest = kvmount.rss_bytes(mount.pid())
    print(f"  after a kill: answers after {answered:.2f} s, all is counted after {known:.0f} s, "
          f"{highest >> 20} MiB resident", flush=True)
    return {"how": how, "answered_s": answered, "counted_s": known, "resident": highest}


def measure(names):
    size = (8 << 30) + names * 2048
    with kvmount.LoopFs("ext4", size, mkfs=["-N", str(names * 5 // 4 + 100_000), "-I", "512",
                                            "-O", "inline_data"], direct=True) as disk:
        with kvmount.Mount("size", nvme=os.path.join(disk.path, "nvme")) as mount:
            for rank in range(DIRECTORIES):
                os.mkdir(f"{mount.mnt}/rank{rank}")
            rows = grow(mount, names)
            again = [mount_again(mount, how) for how in ("stop", "kill")]
    return {"names": names, "rows": rows, "again": again}


def verdict(good):
    return "ok" if good else "missed"


def main():
    parser = argparse.ArgumentParser(prog="size.sh")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    names = int(os.environ.get("NAMES", "1000000"))
    if names < SLICES:
        raise SystemExit(f"size: NAMES={names}: at least {SLICES}")
    print(f"{names} names, kernel {os.uname().release}, load {os.getloadavg()[0]:.1f}", flush=True)
    figures = measure(names)
    rows = figures["rows"]
    fall = (statistics.median(row["lookup_us"] for row in rows[-3:]) /
            statistics.median(row["lookup_us"] for row in rows[:3]))
    longest = max(one["answered_s"] for one in figures["again"])
    print(f"lookups of the last three tenths take {fall:.2f} of the first three's: "
          f"{verdict(fall <= FALL_TARGET)}")
    print(f"a mount answers within {longest:.2f} s: {verdict(longest <= MOUNT_TARGET_S)}")
    print(f"order {rows[-1]['order'] / rows[-1]['names']:.0f} bytes a name")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump(figures, out, indent=1)


if __name__ == "__main__":
    main()
