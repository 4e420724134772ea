#!/bin/bash
# Prints the directory in which this project keeps on this machine what every clone would make alike: the built
# libfuse, Python environments, downloaded wheels. Each entry is named by the hash of its recipe, so that a clone with
# another recipe makes its own, and `rm -rf` of the whole directory costs time alone.
#
#   packaging/cache-dir.sh [--prune]
#
# KVCACHEFS_CACHE names another directory; the default is kvcachefs in $XDG_CACHE_HOME (~/.cache).
# --prune removes the entries that no build or test has used for 30 days.
set -euo pipefail

cache=${KVCACHEFS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kvcachefs}
mkdir -p "$cache"
if [ "${1:-}" = --prune ]; then
  find "$cache" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
fi
realpath -- "$cache"
