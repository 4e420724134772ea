"""Measures what a pool on an NFS server gives through a mount, beside libnfs alone on the same server.

Started by pool.sh. One node stores the files and publishes them; another, which has none of them, loads. Every round
measures both sides, the order alternates, and a ratio is the median of the rounds' ratios. A file is loaded cold once
only: each round has its own, and those of libnfs are the mount's of another round. With --link the server is in a network
namespace of its own, behind a link of that rate.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import bench
import kvmount
import rclone

sys.path.insert(0, kvmount.TESTS)
import link as links  # noqa: E402  pylint: disable=wrong-import-position
import pools  # noqa: E402  pylint: disable=wrong-import-position

RAW = os.path.join(bench.ROOT, "build", "bench", "bin", "kvcachefs_raw_nfs")
MIB = 1 << 20
SIZES = (MIB, 4 * MIB, 16 * MIB, 64 * MIB)
CHAIN, CHAIN_SIZE = 64, 2 * MIB
WRITTEN = {MIB: 256, 4 * MIB: 96, 64 * MIB: 8}  # Files of a round of write-back.
STORES, STORE_SIZE = 100, 2 * MIB
# What goes on in the background, and what is loaded meanwhile.
FLOOD_SIZE, FLOOD_S, SETTLE_S = 16 * MIB, 8, 3
PROBE_SIZE, PROBES, PROBE_PAUSE_S = 64 << 10, 40, 0.05
# The governor looks at its limit after as many bytes as that, and halves it: it is more than ever is under way until
# 1.9 GiB have gone one way.
UNGOVERNED, SLOW_LINK = "1GiB", "200mbit"
# Requests under way and connections are those of the mount (backend/pool/nfs_session.cc, fs/pool/publisher.h).
DEPTH = 8
LOAD_CONNECTIONS, STAGE_CONNECTIONS, WRITE_CONNECTIONS = 1, 2, 7


class Raw:
    """libnfs alone; paths are as on the pool."""

    def __init__(self, pool, connections):
        self.process = subprocess.Popen([RAW, pool.uri, str(connections), str(DEPTH)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)

    def seconds(self, verb, size, names):
        warm_memory(size * len(names))
        words = " ".join("/" + name for name in names)
        self.process.stdin.write(f"{verb} {size} {words}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit("bench: libnfs alone failed")
        return int(answer) / 1e9


def plain_name(kind, number):
    """Nothing recognises a block in an upper case hash: nothing is staged in when it is looked up."""
    head, tail = pools.block_name(kind, number).rsplit("/", 1)
    return f"{head}/{tail[:-4].upper()}.bin"


def store(root, name, size):
    """Seconds, of what a runtime does."""
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    parts = [os.urandom(min(MIB, size))] * max(1, size // MIB)
    begin = time.perf_counter()
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    for part in parts:
        os.write(fd, part)
    os.close(fd)
    os.rename(path + ".tmp", path)
    return time.perf_counter() - begin


def load(path, size, buffer):
    fd = os.open(path, os.O_RDONLY)
    got = 0
    while count := os.readv(fd, [buffer]):
        got += count
    os.close(fd)
    assert got == size, f"{path}: {got} bytes instead of {size}"


def warm_memory(size):
    """A virtual machine's host takes free memory back: a file's pages are then made at .4 GB/s here, which is not what is
    to be measured. Those of a file that was removed just now are there still, and are the next to be taken."""
    part = b"\1" * MIB
    with tempfile.TemporaryFile(dir="/var/tmp", buffering=0) as file:
        for _ in range(2 * size // MIB + 16):
            file.write(part)


def load_seconds(paths, size, looks_up, out):
    """In a process of its own: nothing is staged in for one that lists directories."""
    buffer = bytearray(MIB)
    begin = time.perf_counter()
    if looks_up:
        for path in paths:
            os.stat(path)
    for path in paths:
        load(path, size, buffer)
    out.put(time.perf_counter() - begin)


def load_apart(mount, names, size, looks_up=False):
    warm_memory(size * len(names))
    out = multiprocessing.Queue()
    paths = [os.path.join(mount.mnt, name) for name in names]
    child = multiprocessing.Process(target=load_seconds, args=(paths, size, looks_up, out))
    child.start()
    seconds = out.get()
    child.join()
    return seconds


def flush(mount):
    done = mount.cli("flush", mount.mnt)
    if done.returncode != 0:
        raise SystemExit(f"bench: flush: {done.stderr}")


class Table:
    def __init__(self):
        self.rows = []
        print(f"\n{'':32} {'beside':>14} {'kvcachefs':>14} {'ratio':>6}  target")

    def add(self, label, beside, own, amount, unit, target):
        """`beside` and `own`: seconds of each round; more is faster."""
        self.put(label, amount / statistics.median(beside), amount / statistics.median(own),
                 statistics.median(b / o for b, o in zip(beside, own)), unit, target)

    def put(self, label, beside, own, ratio, unit, target):
        row = {"case": label, "unit": unit, "beside": beside, "kvcachefs": own, "ratio": ratio,
               "target": target, "reached": ratio >= target}
        self.rows.append(row)
        scale, text = (1e9, "GB/s") if unit == "bytes/s" else (1, unit)
        print(f"{label:32} {row['beside'] / scale:9.2f} {text:4} {row['kvcachefs'] / scale:9.2f} "
              f"{text:4} {ratio:6.2f}  >= {target:.2f} {'ok' if row['reached'] else 'below'}",
              flush=True)


def turns(rounds, first, second):
    """What both give in each round, in alternating order."""
    results = ([], [])
    for number in range(rounds):
        both = [(0, first), (1, second)]
        for which, measured in both if number % 2 == 0 else reversed(both):
            results[which].append(measured(number))
    return results


def cold_loads(table, pool, writer, reader, rounds):
    with Raw(pool, LOAD_CONNECTIONS) as raw:
        for size in SIZES:
            label = bench.size_text(size)
            names = [pools.block_name(f"cold{size}", n) for n in range(rounds)]
            for name in names:
                store(writer.mnt, name, size)
            flush(writer)
            beside, own = turns(
                rounds, lambda n: raw.seconds("read", size, [names[(n + 1) % rounds]]),
                lambda n: load_apart(reader, [names[n]], size))
            table.add(f"cold load {label}", beside, own, size, "bytes/s",
                      0.90 if size >= 4 * MIB else 0)


def second_loads(table, reader, local, rounds):
    """What was loaded from the pool, beside the same on a mount without one."""
    for size in SIZES:
        names = [pools.block_name(f"cold{size}", n) for n in range(rounds)]
        for name in names:
            store(local.mnt, name, size)
        for mount in (reader, local):
            kvmount.wait_until(lambda mount=mount: mount.status()["counts"]["unsealed"] == 0, 120,
                               "seals")
            load_apart(mount, names, size)
        beside, own = turns(rounds, lambda n: load_apart(local, [names[n]] * 10, size),
                            lambda n: load_apart(reader, [names[n]] * 10, size))
        table.add(f"second load {bench.size_text(size)}", beside, own, 10 * size, "bytes/s", 0.95)


def chains(table, pool, writer, reader, rounds):
    staged = [[pools.block_name(f"chain{n}", i) for i in range(CHAIN)] for n in range(rounds)]
    plain = [[plain_name(f"plain{n}", i) for i in range(CHAIN)] for n in range(rounds)]
    for name in sum(staged + plain, []):
        store(writer.mnt, name, CHAIN_SIZE)
    flush(writer)
    beside, own = turns(rounds, lambda n: load_apart(reader, plain[n], CHAIN_SIZE, looks_up=True),
                        lambda n: load_apart(reader, staged[n], CHAIN_SIZE, looks_up=True))
    table.add("chain, staged beside not staged", beside, own, CHAIN * CHAIN_SIZE, "bytes/s", 1.30)
    with Raw(pool, STAGE_CONNECTIONS) as raw:
        limit = [raw.seconds("read", CHAIN_SIZE, names) for names in staged]
    table.add("chain, beside libnfs alone", limit, own, CHAIN * CHAIN_SIZE, "bytes/s", 0)


@contextlib.contextmanager
def on_idle_cpus(pool):
    """The server runs where nobody else wants to: a real one has CPUs of its own."""
    def schedule(policy):
        for task in os.listdir(f"/proc/{pool.pid()}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(int(task), policy, os.sched_param(0))
    schedule(os.SCHED_IDLE)
    try:
        yield
    finally:
        schedule(os.SCHED_OTHER)


def stores(table, pool, writer, local, rounds):
    def measured(mount, kind):
        def once(number):
            names = [pools.block_name(f"{kind}{number}", i) for i in range(STORES)]
            warm_memory(STORES * STORE_SIZE)
            for name in names:  # Runtimes ask before they compute.
                os.path.exists(os.path.join(mount.mnt, name))
            seconds = statistics.median(store(mount.mnt, name, STORE_SIZE) for name in names)
            flush(writer)  # The other side has nothing of it.
            return seconds
        return once
    with on_idle_cpus(pool):
        beside, own = turns(rounds, measured(local, "store"), measured(writer, "store"))
    table.add("store 2 MiB, with a pool", beside, own, 1, "1/s", 0.95)


def write_back(table, pool, writer, rounds):
    """Files wait in the queue while the server is away; then the time from the first that is on its way until the last has
    its name: before that, the mount has to notice that the server is back."""
    with Raw(pool, WRITE_CONNECTIONS) as raw:
        os.mkdir(pool.path("raw"))
        store(writer.mnt, pools.block_name("first", 0), MIB)
        flush(writer)
        for size, count in WRITTEN.items():
            def through_mount(number):
                flush(writer)
                pool.stop()
                kvmount.wait_until(lambda: not pools.state(writer)["up"], 60, "the pool to be down")
                names = [pools.block_name(f"back{size}x{number}", i) for i in range(count)]
                for name in names:
                    store(writer.mnt, name, size)
                kvmount.wait_until(lambda: writer.status()["counts"]["unsealed"] == 0, 300, "seals")
                warm_memory(count * size)
                paths = [pool.path(name) for name in names]
                temporaries = pool.path(".kvcachefs", "tmp")
                pool.resume()
                while not any(os.listdir(os.path.join(temporaries, node))
                              for node in os.listdir(temporaries)):
                    time.sleep(0.001)
                begin = time.perf_counter()
                # They come in about this order: one look at a time, which costs nothing.
                while paths:
                    while paths and os.path.exists(paths[-1]):
                        paths.pop()
                    time.sleep(0.002)
                return time.perf_counter() - begin

            def alone(number):
                names = [f"raw/{size}-{number}-{i}" for i in range(count)]
                seconds = raw.seconds("write", size, names)
                for name in names:
                    os.unlink(pool.path(name))
                return seconds

            beside, own = turns(rounds, alone, through_mount)
            table.add(f"write-back {bench.size_text(size)}", beside, own, count * size, "bytes/s",
                      0.85)


def cache(table, pool, link, writer, reader, rounds):
    """Beside a cache for files of any kind, in front of the same directory."""
    names = {size: [pools.block_name(f"cache{size}", n) for n in range(rounds)] for size in SIZES}
    for size in SIZES:
        for name in names[size]:
            store(writer.mnt, name, size)
    flush(writer)
    with rclone.Mount(pool.root, link) as theirs:
        for size, own in names.items():
            table.add(f"cold load {bench.size_text(size)}, rclone", *turns(
                rounds, lambda n: load_apart(theirs, [own[(n + 1) % rounds]], size),
                lambda n: load_apart(reader, [own[n]], size)), size, "bytes/s", 0)
        for size, own in names.items():
            for mount in (theirs, reader):
                load_apart(mount, own, size)
            table.add(f"second load {bench.size_text(size)}, rclone", *turns(
                rounds, lambda n: load_apart(theirs, [own[n]] * 10, size),
                lambda n: load_apart(reader, [own[n]] * 10, size)), 10 * size, "bytes/s", 0)


def fetch_seconds(paths, size, out):
    """All are looked up, then loaded; what was not found, or not loaded, in the time that a lookup or an open may take is
    asked for again."""
    buffer = bytearray(MIB)

    def is_loaded(path):
        try:
            load(path, size, buffer)
        except FileNotFoundError:
            return False
        return True

    begin = time.perf_counter()
    for path in paths:
        os.path.exists(path)
    for path in paths:
        kvmount.wait_until(lambda path=path: is_loaded(path), 60, path)
    out.put(time.perf_counter() - begin)


def store_seconds(mount, names, size, out):
    """Until all of it is on the pool."""
    begin = time.perf_counter()
    for name in names:
        store(mount.mnt, name, size)
    flush(mount)
    out.put(time.perf_counter() - begin)


def probe(mount, names, goes_on=lambda: True):
    """Seconds of each load of a small file that is on the pool alone, as long as the rest goes on; None: it was not found,
    or could not be read, in the time that a lookup or an open may take."""
    buffer, took = bytearray(PROBE_SIZE), []
    for name in names:
        begin = time.perf_counter()
        try:
            load(os.path.join(mount.mnt, name), PROBE_SIZE, buffer)
            seconds = time.perf_counter() - begin
        except OSError:
            seconds = None
        if not goes_on():
            break
        took.append(seconds)
        time.sleep(PROBE_PAUSE_S)  # Small loads are rare beside what goes on.
    return took


def probe_in_flood(mount, names, flood, *arguments):
    """Seconds of the flood, and those of each load meanwhile."""
    out = multiprocessing.Queue()
    child = multiprocessing.Process(target=flood, args=(*arguments, out), daemon=True)
    child.start()
    time.sleep(SETTLE_S)  # What is asked is how it goes on, not how it begins.
    took = probe(mount, names, child.is_alive)
    child.join()
    if child.exitcode != 0:
        raise SystemExit("bench: what was to go on in the background failed")
    return out.get(), took


def add_probes(table, label, beside, own):
    """What the loads of all rounds took, of those that came to something, and how many did."""
    found = [[seconds for took in side for seconds in took if seconds is not None] for side in (beside, own)]
    if min(map(len, found)) < 2:
        raise SystemExit(f"bench: {label}: next to nothing was loaded")
    for part, cut in (("p50", 4), ("p90", 8)):
        shown = [1e3 * statistics.quantiles(side, n=10)[cut] for side in found]
        table.put(f"load 64 KiB, {label}, {part}", *shown, shown[0] / shown[1], "ms", 0)
    shares = [100 * len(some) / sum(map(len, side)) for some, side in zip(found, (beside, own))]
    table.put(f"load 64 KiB, {label}, found", *shares, shares[1] / shares[0], "%", 0)


def governor(table, pool, link, rounds):
    """A small load while all else goes on, with as many requests under way as the mount likes and as the governor lets."""
    count = int(link.bytes_a_second * FLOOD_S) // FLOOD_SIZE
    with contextlib.ExitStack() as stack:
        # Puts files there past the link.
        near = stack.enter_context(kvmount.Mount("near", options=["--pool", f"dir://{pool.root}", "--scrub", "off"]))
        free, own = (stack.enter_context(pools.node(pool, name, beat=None, options=["--scrub", "off", *options]))
                     for name, options in (("free", ["--pool-in-flight", UNGOVERNED]), ("own", [])))
        pools.wait_until_joined(near, free, own)

        def stored(mount, label, number):
            """Names of small files on the pool: a round's."""
            names = [f"{label}-{mount.name}-{number}/{i}.bin" for i in range(PROBES)]
            for name in names:
                store(near.mnt, name, PROBE_SIZE)
            return names

        def blocks(mount, label, number):
            return [pools.block_name(f"{label}-{mount.name}-{number}", i) for i in range(count)]

        def idle(mount, number):
            names = stored(mount, "idle", number)
            flush(near)
            return 1, probe(mount, names)

        def staged(mount, number):
            names, large = stored(mount, "in", number), blocks(mount, "staged", number)
            for name in large:
                store(near.mnt, name, FLOOD_SIZE)
            flush(near)
            paths = [os.path.join(mount.mnt, name) for name in large]
            return probe_in_flood(mount, names, fetch_seconds, paths, FLOOD_SIZE)

        def written(mount, number):
            names = stored(mount, "out", number)
            flush(near)
            return probe_in_flood(mount, names, store_seconds, mount,
                                  blocks(mount, "written", number), FLOOD_SIZE)

        os.mkdir(pool.path("raw"))
        for label, measured, verb, connections in (
                ("idle", idle, None, 0), ("staged in", staged, "read", STAGE_CONNECTIONS),
                ("written back", written, "write", WRITE_CONNECTIONS)):
            both = turns(rounds, lambda n: measured(free, n), lambda n: measured(own, n))
            add_probes(table, label, *([took for _, took in side] for side in both))
            if verb is None:
                continue
            seconds = [[flood for flood, _ in side] for side in both]
            table.add(f"{label} meanwhile", *seconds, count * FLOOD_SIZE, "bytes/s", 0)
            with Raw(pool, connections) as raw:
                names = [f"raw/{i}" for i in range(count)]
                alone = [raw.seconds(verb, FLOOD_SIZE, blocks(own, "staged", n) if verb == "read" else names)
                         for n in range(rounds)]
            table.add(f"{label}, beside libnfs alone", alone, seconds[1], count * FLOOD_SIZE, "bytes/s", 0)


def measure(table, pool, link, rounds, only):
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(pools.node(pool, "writer", beat=None, options=["--scrub", "off"]))
        reader = stack.enter_context(pools.node(
            pool, "reader", beat=None, options=["--pool-writes", "off", "--scrub", "off"]))
        local = stack.enter_context(kvmount.Mount("local", options=["--scrub", "off"]))
        pools.wait_until_joined(writer, reader)
        if only in "cold second":
            cold_loads(table, pool, writer, reader, rounds)
        if only in "second":
            second_loads(table, reader, local, rounds)
        if only in "chain":
            chains(table, pool, writer, reader, rounds)
        if only in "store":
            stores(table, pool, writer, local, rounds)
        if only in "write":
            write_back(table, pool, writer, rounds)
        if only == "cache":
            cache(table, pool, link, writer, reader, rounds)


def main():
    parser = argparse.ArgumentParser(prog="pool.sh")
    parser.add_argument("--json", metavar="FILE", help="writes every figure there, too")
    parser.add_argument("--rounds", type=int, default=7, help="default 7")
    parser.add_argument("--only", default="", metavar="WORD",
                        help="cold, second, chain, store or write; and what is not measured unless named: cache, governor")
    parser.add_argument("--link", metavar="RATE", help="of a link to the server, such as 2500mbit; default: loopback; of "
                        f"governor: {SLOW_LINK}")
    parser.add_argument("--queue", metavar="MS", type=int, default=50,
                        help="of the link: what would wait there for longer is dropped; default 50")
    arguments = parser.parse_args()
    # What is left at the end is taken away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if arguments.only == "cache":
        subprocess.run([os.path.join(bench.ROOT, "packaging", "install-deps.sh"), "cache"], check=True)
    rate = arguments.link or (SLOW_LINK if arguments.only == "governor" else None)
    way = f"link of {rate}, queue of {arguments.queue} ms" if rate else "loopback"
    told = bench.machine()
    print(f"{told['cpus']} CPUs ({told['cpu']}), {told['memory_bytes'] >> 30} GiB, kernel "
          f"{told['kernel']}, load {os.getloadavg()[0]:.1f}; {way}; "
          f"median of {arguments.rounds} rounds")
    rounds = arguments.rounds
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(links.Link(rate, arguments.queue)) if rate else None
        pool = stack.enter_context(pools.Pool("nfs", own=True, link=link))
        table = Table()
        if arguments.only == "governor":
            governor(table, pool, link, rounds)
        else:
            measure(table, pool, link, rounds, arguments.only)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"machine": told, "link": way, "rounds": rounds, "rows": table.rows}, out, indent=1)


if __name__ == "__main__":
    main()
