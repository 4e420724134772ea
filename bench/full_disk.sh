#!/bin/sh
# Stores into a full mount, which evicts, beside stores into an ext4 whose writers unlink their oldest
# files, one command:
#
#   bench/full_disk.sh [--rounds N] [--seconds S] [--json FILE] [--self-test]
#
# Builds the release, stores by turns, prints a table. See bench/README.md.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${KVCACHEFS_BIN:-}" ]; then
  # Without a preset's build directory there is nothing to measure: configure and build it.
  [ -f "$root/build/release/build.ninja" ] || cmake --preset release -S "$root" >/dev/null
  cmake --build "$root/build/release" --target kvcachefs >/dev/null
fi
exec python3 "$root/bench/full_disk.py" "$@"
