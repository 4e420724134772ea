"""Measures a mount whose pool has very many files that were there before it: how soon it answers and has joined, how many
calls of the server a lookup costs of what is there and of what is not, and how long it takes.

Started by pool_names.sh. The files are empty, in directories of 1,000, as somebody else has left them there.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

TESTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests")
sys.path.insert(0, TESTS)
sys.path.insert(0, os.path.join(TESTS, "servers"))
import kvmount  # noqa: E402  pylint: disable=wrong-import-position
import nfs_proxy  # noqa: E402  pylint: disable=wrong-import-position
import pools  # noqa: E402  pylint: disable=wrong-import-position

PER_DIRECTORY = 1000
ASKED = 300


class CountingProxy(nfs_proxy.Proxy):
    """Counts the calls that are made of the server, but those of the node's own service files."""

    def __init__(self, server_port):
        super().__init__(server_port)
        self.calls = 0

    def on_call(self, connection, call):
        self.calls += 1
        return super().on_call(connection, call)


def block(number):
    return f"meta-llama-Llama-3.1-8B-Instruct@1@0@{number:016x}@bfloat16.data"


def name(number):
    return f"d{number // PER_DIRECTORY:05}/{block(number)}"


def fill(root, names):
    for directory in range((names + PER_DIRECTORY - 1) // PER_DIRECTORY):
        os.mkdir(os.path.join(root, f"d{directory:05}"))
        for number in range(directory * PER_DIRECTORY, min(names, (directory + 1) * PER_DIRECTORY)):
            os.close(os.open(os.path.join(root, name(number)), os.O_CREAT | os.O_WRONLY, 0o644))


def idle_calls(proxy, seconds=5):
    """Calls a second of a mount that nobody uses: heartbeats and what others told."""
    before = proxy.calls
    time.sleep(seconds)  # What is measured is what happens by itself.
    return (proxy.calls - before) / seconds


def ask(proxy, root, names, expected):
    """Median milliseconds of a lookup, and calls for each."""
    idle = idle_calls(proxy)
    before, began, took = proxy.calls, time.perf_counter(), []
    for one in names:
        start = time.perf_counter()
        assert os.path.exists(os.path.join(root, one)) == expected, one
        took.append(time.perf_counter() - start)
    calls = proxy.calls - before - idle * (time.perf_counter() - began)
    return {"ms": statistics.median(took) * 1e3, "calls": max(calls, 0) / len(names)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--json")
    options = parser.parse_args()
    chance = random.Random(1)
    with pools.Pool("nfs", own=True) as pool, CountingProxy(pool.port) as proxy:
        began = time.perf_counter()
        fill(pool.root, options.names)
        print(f"{options.names:,} files made in {time.perf_counter() - began:.0f} s", flush=True)
        uri = pool.uri_through(proxy.port)
        began = time.perf_counter()
        with kvmount.Mount("bench", options=["--pool", uri]) as mount:
            answers = time.perf_counter() - began
            pools.wait_until_joined(mount)
            joined = time.perf_counter() - began
            # The first name of a directory makes the directory here, too.
            directories = [f"d{chance.randrange(options.names // PER_DIRECTORY):05}" for _ in range(50)]
            for directory in directories:
                os.stat(os.path.join(mount.mnt, directory))
            inside = [f"{chance.choice(directories)}/{block(options.names + i)}" for i in range(ASKED)]
            hits = [name(int(one[1:6]) * PER_DIRECTORY + chance.randrange(PER_DIRECTORY))
                    for one in chance.choices(directories, k=ASKED)]
            figures = {
                "names": options.names,
                "mount_answers_s": answers,
                "joined_s": joined,
                "miss": ask(proxy, mount.mnt, inside, False),
                "miss_again": ask(proxy, mount.mnt, inside, False),
                "hit": ask(proxy, mount.mnt, sorted(set(hits)), True),
                "resident_mib": int(subprocess.run(
                    ["ps", "-o", "rss=", "-p", str(mount.pid())], check=True, capture_output=True,
                    text=True).stdout) / 1024,
            }
    print(f"mount answers after        {figures['mount_answers_s']:.2f} s")
    print(f"has joined after           {figures['joined_s']:.2f} s")
    for what in ("miss", "miss_again", "hit"):
        print(f"{what:<26} {figures[what]['ms']:.2f} ms, {figures[what]['calls']:.2f} calls of the server")
    print(f"resident                   {figures['resident_mib']:.0f} MiB")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
