"""Computes for 2 ms every 20 ms and, given a directory, also writes and fsyncs a block there,
until its standard input ends: kvmount.Beside measures with it what the machine gives to a
process.

Prints JSON: `computed` (CPU seconds), `waited` (seconds that this computing took, the waiting
for a CPU included) and `longest` (seconds of the slowest turn).
"""

import json
import os
import select
import sys
import time

PAUSE_S, COMPUTE_S = 0.020, 0.002
BLOCK = bytes(4096)


def turn(path):
    """(CPU seconds, seconds that they took, seconds of the turn); None at the end of the input."""
    begin = time.monotonic()
    if select.select([0], [], [], PAUSE_S)[0]:
        return None
    used = time.thread_time()
    while time.thread_time() - used < COMPUTE_S:
        pass
    computed = time.thread_time() - used
    waited = time.monotonic() - begin - PAUSE_S  # A late wake-up is a wait for a CPU, too.
    if path:
        with open(path, "wb", buffering=0) as file:
            file.write(BLOCK)
            os.fsync(file.fileno())
        os.unlink(path)
    return computed, waited, time.monotonic() - begin - PAUSE_S


def main(directory):
    path = os.path.join(directory, f"beside-{os.getpid()}") if directory else None
    turns = []
    print("ready", flush=True)
    while (told := turn(path)) is not None:
        turns.append(told)
    computed, waited, took = zip(*(turns or [(COMPUTE_S, COMPUTE_S, COMPUTE_S)]))
    print(json.dumps({"computed": sum(computed), "waited": sum(waited), "longest": max(took)}))


if __name__ == "__main__":
    main(sys.argv[1])
