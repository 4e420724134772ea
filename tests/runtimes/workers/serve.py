"""A runtime's storage class as a process that does what it is told.

Each line of standard input is a request, {"do": METHOD, and its arguments}; each gets one line on
standard output, {"answer": …, "began": …, "ended": …}, times of the clock that all processes share. The
first line, before any request, is {"ready": …}. The process ends when its input does.

Blocks are numbers: key() and content() say what a number stands for, in every process alike.
"""

import hashlib
import json
import os
import sys
import time

import numpy as np

MODEL = "meta-llama/Llama-3.1-8B"


def keys(count):
    """Hashes of the blocks 0 to count: each one is of its block and of all blocks before it."""
    chain, digest = [], b""
    for number in range(count):
        digest = hashlib.sha256(digest + number.to_bytes(8, "little")).digest()
        chain.append(digest)
    return chain


def content(number, size):
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


def verdict(loaded, number):
    """What there is to say about the bytes that a runtime has loaded; None: it says it has none."""
    if loaded is None:
        return "absent"
    return "right" if np.array_equal(loaded, content(number, loaded.size)) else "wrong"


def serve(make):
    """make(settings) gives the object whose methods are called; settings are the first argument."""
    # What libraries print goes to standard error: the pipe is ours.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**what):
        pipe.write(json.dumps(what) + "\n")
        pipe.flush()

    tier = make(json.loads(sys.argv[1]))
    say(ready=tier.about())
    for line in sys.stdin:
        request = json.loads(line)
        method = getattr(tier, request.pop("do"))
        began = time.monotonic()
        answer = method(**request)
        say(answer=answer, began=began, ended=time.monotonic())
    tier.close()
