#!/bin/sh
# Loads of files that are not in memory, verified on the way, beside ext4's, one command:
#
#   bench/cold_load.sh [--rounds N] [--json FILE] [--directory DIR] [--self-test]
#
# Builds the release, loads by turns, prints a table. See bench/README.md.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${KVCACHEFS_BIN:-}" ]; then
  # Without a preset's build directory there is nothing to measure: configure and build it.
  [ -f "$root/build/release/build.ninja" ] || cmake --preset release -S "$root" >/dev/null
  cmake --build "$root/build/release" --target kvcachefs >/dev/null
fi
exec python3 "$root/bench/cold_load.py" "$@"
