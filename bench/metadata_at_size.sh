#!/bin/sh
# Create, lookup, readdir and rm -rf with many names, kvcachefs against raw ext4, each on a fresh
# filesystem of its own on a loop device:
#
#   NAMES=1000000 bench/metadata_at_size.sh [--json FILE]        (default 200000 names)
#
# Needs root and a built kvcachefs (KVCACHEFS_BIN or build/release/bin).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root/bench" -B "$root/build/bench" -G Ninja >/dev/null
cmake --build "$root/build/bench" >/dev/null
exec python3 "$root/bench/metadata_at_size.py" "$@"
