#!/bin/sh
# Memory, mount time and lookups of a mount that holds many blocks:
#
#   NAMES=10000000 bench/size.sh [--metadata-memory SIZE] [--json FILE]        (default 1000000 names)
#
# Needs root, a built kvcachefs (KVCACHEFS_BIN or build/release/bin) and 2 KiB of /var/tmp a name.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
exec python3 "$root/bench/size.py" "$@"
