#!/bin/bash
# clang-tidy over the production sources, with the flags of the release build. By hand, before a
# release; takes minutes.
#
#   tests/style/tidy.sh [FILE...]
set -euo pipefail
cd "$(dirname "$0")/../.."
database=build/release
[ -f $database/compile_commands.json ] || cmake --preset release >/dev/null
if [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(find backend metadata fs tools -name '*.cc' | sort)
fi
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 --quiet -p $database --extra-arg=-Wno-unknown-warning-option
