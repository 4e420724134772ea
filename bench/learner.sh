#!/bin/sh
# What a call costs that tells the learner of prefix order something:
#
#   bench/learner.sh [NAMES]
#
# Needs no root and no build of kvcachefs.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root/bench" -B "$root/build/bench" -G Ninja >/dev/null
cmake --build "$root/build/bench" --target kvcachefs_learner >/dev/null
exec "$root/build/bench/bin/kvcachefs_learner" "$@"
