#!/usr/bin/env python3
"""Starts llama.cpp's own HTTP server from the PyPI package `xllamacpp`, unmodified.

server.py MODEL SLOT_DIR CONTEXT_TOKENS prints `ready URL` and serves until it is killed. What
it writes to SLOT_DIR is up to llama.cpp; nothing here knows of kvcachefs.
"""

import signal
import sys

import xllamacpp


def main():
    model, slot_dir, context_tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.slot_save_path = slot_dir.rstrip("/") + "/"
    params.endpoint_slots = True
    params.n_ctx = context_tokens
    params.n_parallel = 1
    params.cache_ram_mib = 0  # no prompt cache in memory: what is loaded comes from the file
    params.warmup = False
    params.port = 0  # any free one
    # One thread: two spinning ones are slower on a small or busy machine.
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print("ready", server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
