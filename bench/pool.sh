#!/bin/sh
# A mount with a pool on an NFS server beside libnfs alone on the same server, one command, as root:
#
#   bench/pool.sh [--rounds N] [--json FILE] [--only WORD] [--link RATE [--queue MS]]
#
# Starts the server (NFS-Ganesha on loopback, or behind a link of that rate, such as 2500mbit), builds the release, measures
# by turns, prints a table. See bench/README.md.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${KVCACHEFS_BIN:-}" ]; then
  # Without a preset's build directory there is nothing to measure: configure and build it.
  [ -f "$root/build/release/build.ninja" ] || cmake --preset release -S "$root" >/dev/null
  cmake --build "$root/build/release" --target kvcachefs >/dev/null
fi
cmake -S "$root/bench" -B "$root/build/bench" -G Ninja >/dev/null
cmake --build "$root/build/bench" >/dev/null
exec python3 "$root/bench/pool.py" "$@"
