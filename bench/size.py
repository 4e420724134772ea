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
AT_REST = 0.05  # Of a CPU.
MOST_REST_S = 600
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


def cold_lookups(root, end, seed):
    """Those of look_up(), of names that the kernel does not know."""
    kvmount.drop_caches(2)
    return kvmount.Child(look_up, root, end, seed).result(3600)


def store_slice(root, first, end):
    """Seconds that WRITERS processes took."""
    step = -(-(end - first) // WRITERS)
    begin = time.monotonic()
    children = [kvmount.Child(store, root, low, min(low + step, end))
                for low in range(first, end, step)]
    for child in children:
        child.result(24 * 3600)
    return time.monotonic() - begin


def wait_at_rest(mount):
    """Until the database has put what was stored in its place: seconds."""
    begin = time.monotonic()
    pid = mount.pid()
    used = kvmount.cpu_seconds(pid)
    looked = begin
    calm = 0
    while calm < 3 and time.monotonic() < begin + MOST_REST_S:
        time.sleep(1)
        now, then = time.monotonic(), looked
        before, used, looked = used, kvmount.cpu_seconds(pid), now
        calm = calm + 1 if used - before < (now - then) * AT_REST else 0
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
        row.update(names=first + step, stored_per_second=step / seconds)
        lookups = {}
        for when in ("at once", "at rest"):
            if when == "at rest":
                row["rest_s"] = wait_at_rest(mount)
            took = cold_lookups(mount.mnt, first + step, f"{first} {when}")
            lookups[when] = {"p50_us": statistics.median(took), "p99_us": took[len(took) * 99 // 100]}
        row["lookups"] = lookups
        words = ", ".join(f"{when} p50 {took['p50_us']:6.1f} us, p99 {took['p99_us']:7.1f} us"
                          for when, took in lookups.items())
        print(f"  {row['names']:>9} names: {row['stored_per_second'] / 1e3:5.1f} k stores/s, lookups {words} "
              f"(after {row['rest_s']:.0f} s); resident {row['resident'] >> 20:5} MiB, order "
              f"{row['order'] >> 20:4} MiB, database {row['database'] >> 20:5} MiB", flush=True)
    return rows


def grow_ext4(root, names):
    """The control: the same names and lookups on ext4 alone."""
    step = names // SLICES
    p50 = []
    for first in range(0, step * SLICES, step):
        store_slice(root, first, first + step)
        os.sync()
        p50.append(statistics.median(cold_lookups(root, first + step, f"{first} ext4")))
    print("  ext4 alone, lookups p50: " + ", ".join(f"{took:.1f}" for took in p50) + " us", flush=True)
    return p50


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


def make_directories(root):
    for rank in range(DIRECTORIES):
        os.mkdir(f"{root}/rank{rank}")


def measure(names, options):
    def disk():
        return kvmount.LoopFs("ext4", (8 << 30) + names * 2048, direct=True,
                              mkfs=["-N", str(names * 5 // 4 + 100_000), "-I", "512", "-O", "inline_data"])
    with disk() as ext4:
        make_directories(ext4.path)
        control = grow_ext4(ext4.path, names)
    with disk() as ours, kvmount.Mount("size", nvme=os.path.join(ours.path, "nvme"),
                                       options=options) as mount:
        make_directories(mount.mnt)
        rows = grow(mount, names)
        again = [mount_again(mount, how) for how in ("stop", "kill")]
    return {"names": names, "rows": rows, "ext4_lookup_us": control, "again": again}


def fall(p50):
    return statistics.median(p50[-3:]) / statistics.median(p50[:3])


def verdict(good):
    return "ok" if good else "missed"


def main():
    parser = argparse.ArgumentParser(prog="size.sh")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--metadata-memory", metavar="SIZE", default="256MiB",
                        help="less shows sooner what more names do")
    arguments = parser.parse_args()
    names = int(os.environ.get("NAMES", "1000000"))
    if names < SLICES:
        raise SystemExit(f"size: NAMES={names}: at least {SLICES}")
    print(f"{names} names, kernel {os.uname().release}, load {os.getloadavg()[0]:.1f}", flush=True)
    figures = measure(names, ["--metadata-memory", arguments.metadata_memory])
    rows = figures["rows"]
    falls = {when: fall([row["lookups"][when]["p50_us"] for row in rows]) for when in rows[0]["lookups"]}
    longest = max(one["answered_s"] for one in figures["again"])
    print("lookups of the last three tenths, of the first three's: " +
          ", ".join(f"{when} {ratio:.2f}" for when, ratio in falls.items()) +
          f", ext4 {fall(figures['ext4_lookup_us']):.2f}: {verdict(falls['at rest'] <= FALL_TARGET)} at rest")
    print(f"a mount answers within {longest:.2f} s: {verdict(longest <= MOUNT_TARGET_S)}")
    print(f"order {rows[-1]['order'] / rows[-1]['names']:.0f} bytes a name")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump(figures, out, indent=1)


if __name__ == "__main__":
    main()
