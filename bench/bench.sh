#!/bin/sh
# kvcachefs against raw ext4 on the same disk, one command:
#
#   bench/bench.sh [--quick [--record]] [--json FILE] [--directory DIR] [--only WORD]
#
# Builds the programs and the load generator, measures by turns, prints a table. See bench/README.md.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${KVCACHEFS_BIN:-}" ]; then
  # Without a preset's build directory there is nothing to measure: configure and build it.
  [ -f "$root/build/release/build.ninja" ] || cmake --preset release -S "$root" >/dev/null
  cmake --build "$root/build/release" --target kvcachefs mount_helper >/dev/null
fi
cmake -S "$root/bench" -B "$root/build/bench" -G Ninja >/dev/null
cmake --build "$root/build/bench" >/dev/null
exec python3 "$root/bench/bench.py" "$@"
