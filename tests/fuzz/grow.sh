#!/bin/bash
# grow.sh SECONDS TARGET... (after cmake --build --preset fuzz): grows corpora anew. A corpus
# becomes the target's seeds, and the fewest inputs that reach all else that the seeds, the
# corpus as it was and a run of SECONDS have reached.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:?usage: grow.sh SECONDS TARGET...}
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build/fuzz/bin/write_seeds "$work/seeds"
for target in "$@"; do
  program=build/fuzz/bin/${target}_fuzz
  corpus=tests/fuzz/corpus/${target}_fuzz
  mkdir -p "$corpus" "$work/grown/$target" build/fuzz/found
  nice "$program" -max_total_time="$seconds" -max_len=2048 -timeout=20 -rss_limit_mb=2048 \
    -verbosity=0 -artifact_prefix="build/fuzz/found/$target-" \
    "$work/grown/$target" "$corpus" "$work/seeds/${target}_fuzz"
  # By edges alone: counts of loops would keep ten times as many.
  nice "$program" -set_cover_merge=1 -use_counters=0 "$work/seeds/${target}_fuzz" "$corpus" \
    "$work/grown/$target" 2>&1 | sed -n "s/^MERGE-OUTER: \([0-9]* new files\)/$target: \1/p"
  rm -rf "$corpus"
  mv "$work/seeds/${target}_fuzz" "$corpus"
done
