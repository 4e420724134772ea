#!/bin/sh
# A pool with a million files on it: how soon a mount answers, and what a miss asks the server, one command, as root:
#
#   bench/pool_names.sh [--names N] [--json FILE]
#
# Starts the server (NFS-Ganesha on loopback) and counts what is asked of it. See bench/README.md.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${KVCACHEFS_BIN:-}" ]; then
  # Without a preset's build directory there is nothing to measure: configure and build it.
  [ -f "$root/build/release/build.ninja" ] || cmake --preset release -S "$root" >/dev/null
  cmake --build "$root/build/release" --target kvcachefs >/dev/null
fi
exec python3 "$root/bench/pool_names.py" "$@"
