"""Rates of names that are recognised as blocks of KV cache against names that are not.

Started by knowing.sh. A round is one run of kvcachefs_knowing in a directory of its own, in which both
sides go by turns; the ratio is the median of the rounds' ratios of median latencies. 1.00: knowing
costs nothing; the target is .95.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import kvmount  # noqa: E402  pylint: disable=wrong-import-position

CLIENT = os.path.join(ROOT, "build", "bench", "bin", "kvcachefs_knowing")
KINDS = ("lmcache", "vllm")
TARGET = 0.95


def one_round(mount, kind, number, names, same):
    directory = os.path.join(mount.mnt, f"{kind}-{number}")
    os.mkdir(directory)
    done = subprocess.run([CLIENT, directory, kind, str(names)] + (["same"] if same else []),
                          capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode != 0:
        raise SystemExit(f"knowing: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def row(kind, operation, rounds):
    """Of one operation over the rounds."""
    known, plain = ([figures[side] for figures in rounds] for side in ("known", "plain"))
    ratio = statistics.median(p["p50_us"] / k["p50_us"] for k, p in zip(known, plain))
    rates = statistics.median(k["per_second"] / p["per_second"] for k, p in zip(known, plain))
    return {"layout": kind, "operation": operation, "rounds": len(rounds),
            "known_p50_us": statistics.median(k["p50_us"] for k in known),
            "plain_p50_us": statistics.median(p["p50_us"] for p in plain),
            "ratio": ratio, "ratio_of_rates": rates, "target": TARGET,
            "reached": ratio >= TARGET}


def main():
    parser = argparse.ArgumentParser(prog="knowing.sh")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--names", type=int, default=2000, help="of each side, a round")
    parser.add_argument("--self-test", action="store_true", help="plain names against plain names")
    arguments = parser.parse_args()
    print(f"{arguments.names} names, {arguments.rounds} rounds, kernel {os.uname().release}, "
          f"load {os.getloadavg()[0]:.1f}")
    rows = []
    with kvmount.Mount("knowing") as mount:
        for kind in KINDS:
            rounds = [one_round(mount, kind, number, arguments.names, arguments.self_test)
                      for number in range(arguments.rounds)]
            for figures in zip(*rounds):
                rows.append(row(kind, figures[0]["operation"], figures))
    print("layout   operation       known us  plain us  ratio  of rates")
    for each in rows:
        print(f"{each['layout']:8} {each['operation']:15} {each['known_p50_us']:8.1f}  "
              f"{each['plain_p50_us']:8.1f}  {each['ratio']:5.3f}  {each['ratio_of_rates']:7.3f}  "
              f"{'ok' if each['reached'] else 'missed'}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as out:
            json.dump({"load": os.getloadavg(), "rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()
