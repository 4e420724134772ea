#!/bin/sh
# What it costs that names are recognised: blocks' names against the same in upper case, on one mount:
#
#   bench/knowing.sh [--json FILE] [--rounds N] [--names N] [--self-test]
#
# Needs root and a built kvcachefs (KVCACHEFS_BIN or build/release/bin).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root/bench" -B "$root/build/bench" -G Ninja >/dev/null
cmake --build "$root/build/bench" >/dev/null
exec python3 "$root/bench/knowing.py" "$@"
