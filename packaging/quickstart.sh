#!/bin/bash
# Builds kvcachefs, mounts it and shows its main job with a real LLM runtime.
#
#   packaging/quickstart.sh [MOUNTPOINT]        default /mnt/kvcachefs
#
# For root on Debian 12. Installs what is missing, builds into build/release, and mounts with
# the built-in defaults; data lives in KVCACHEFS_DATA (default /var/lib/kvcachefs). Then
# llama.cpp evaluates a long prompt and saves its KV state to the mount; runtime and mount are
# restarted; the state is loaded and the conversation goes on with the same tokens. The mount
# stays up. Safe to run again: a mount of an earlier run is restarted, one left dead by a crash
# is taken over.
# KVCACHEFS_BIN names a directory of executables to use instead of building.
#
# Exit codes: 0 all was shown; 1 this machine lacks something, or a step failed; 2 wrong usage; 129, 130
# and 143 it was interrupted (hangup, Ctrl-C, SIGTERM). The mount stays up with 0 alone.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
case ${1:-} in
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
  -*) echo "quickstart: unknown option $1 (see --help)" >&2; exit 2 ;;
esac
[ $# -le 1 ] || { echo "quickstart: one MOUNTPOINT at most (see --help)" >&2; exit 2; }

# As the mount table and `status` say them.
mount_point=$(realpath -m -- "${1:-/mnt/kvcachefs}")
data=$(realpath -m -- "${KVCACHEFS_DATA:-/var/lib/kvcachefs}")
bin=${KVCACHEFS_BIN:-$root/build/release/bin}
work=$root/build/quickstart
me=quickstart
steps=9
. "$root/packaging/quickstart/common.sh"

# Type of the topmost mount on the mount point; empty when nothing is mounted there.
# /proc is read because asking a dead mount itself gives errors.
mounted_type() {
  awk -v wanted="$mount_point" '
    { path = $5; gsub(/\\040/, " ", path)
      if (path == wanted) for (i = 7; i <= NF; i++) if ($i == "-") type = $(i + 1) }
    END { print type }' /proc/self/mountinfo
}

# Where the mount that is up keeps its data.
data_of_mount() {
  "$bin/kvcachefs" status --json "$mount_point" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["tiers"][0]["path"])'
}

# A mount that answers is stopped cleanly; a dead one is left to `kvcachefs mount`, which takes
# it over.
stop_earlier() {
  local type
  type=$(mounted_type)
  case $type in
    '') return ;;
    fuse.kvcachefs|fuse|kvcachefs) ;;
    *) fail "$mount_point: a $type is mounted there: name another MOUNTPOINT" ;;
  esac
  if timeout 10 stat -f "$mount_point" >/dev/null 2>&1; then
    local other
    other=$(data_of_mount)
    [ "$other" = "$data" ] ||
      fail "$mount_point is a kvcachefs of $other, not of $data: name another MOUNTPOINT," \
        "or set KVCACHEFS_DATA=$other"
    echo "  $mount_point is mounted already: unmounting it first"
    "$bin/kvcachefs" umount "$mount_point" ||
      fail "$mount_point is in use: end what uses it, or name another MOUNTPOINT"
  else
    echo "  $mount_point was left dead by a crash: the new mount takes it over"
  fi
}

# However it ends before its end: a mount that this run made does not stay.
ours=no
take_down() {
  local code=$?
  trap - EXIT
  trap '' HUP INT TERM
  if [ "$ours" = yes ] && [ -n "$(mounted_type)" ]; then
    echo "$me: unmounting $mount_point" >&2
    "$bin/kvcachefs" umount "$mount_point" >&2 || "$bin/kvcachefs" umount --lazy "$mount_point" >&2 || true
  fi
  exit "$code"
}
trap take_down EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

mount_it() {
  # Not a plain mkdir -p: on a dead mount that fails, and there is nothing to make.
  [ -n "$(mounted_type)" ] || mkdir -p "$mount_point"
  mkdir -p "$data"
  echo "  kvcachefs mount --nvme $data --log $work/kvcachefs.log $mount_point"
  ours=yes
  "$bin/kvcachefs" mount --nvme "$data" --log "$work/kvcachefs.log" "$mount_point"
}

demo() {
  "$venv/bin/python" "$root/packaging/quickstart/demo.py" "$1" --python "$venv/bin/python" \
    --model "$work/model.gguf" --dir "$mount_point/llama-slots" --notes "$work/notes.json" \
    --log "$work/runtime.log" --tokens "${KVCACHEFS_QUICKSTART_TOKENS:-1000}"
}

check
mkdir -p "$work"

say "Installing build dependencies (apt; log: build/quickstart/deps.log)"
if [ -z "${KVCACHEFS_BIN:-}" ]; then
  quietly deps "$root/packaging/install-deps.sh" build || exit 1
fi

say "Building libfuse and kvcachefs (minutes the first time; log: build/quickstart/build.log)"
build
echo "  $("$bin/kvcachefs" --version 2>/dev/null | head -n 1)"

say "Mounting $mount_point, data in $data"
stop_earlier
mount_it

say "Installing the runtime: llama.cpp, PyPI package xllamacpp"
make_venv

say "Generating a tiny model with the KV cache geometry of Llama 3 8B"
"$venv/bin/python" "$root/packaging/quickstart/make_model.py" "$work/model.gguf" | sed 's/^/  /'

say "The runtime evaluates a long prompt and saves its KV state to the mount"
mkdir -p "$mount_point/llama-slots"
demo save

say "The runtime has ended; restarting the mount as well"
"$bin/kvcachefs" umount "$mount_point"
echo "  unmounted, the daemon has ended"
mount_it
ls -l "$mount_point/llama-slots" | sed 's/^/  /'

say "A new runtime process loads the state and continues the conversation"
demo continue ||
  fail "the answer changed over the restart: this must not happen, please report it"

say "kvcachefs status $mount_point"
"$bin/kvcachefs" status "$mount_point" | sed 's/^/  /'
ours=no

cat <<TEXT

Done. The mount stays up. What to do next:

  point a runtime at it  llama-server --slot-save-path $mount_point/llama-slots/
                         vLLM, SGLang, LMCache and others: "Runtimes" in the README
  see what it does       $bin/kvcachefs status $mount_point
  stop it                $bin/kvcachefs umount $mount_point
  start it again         $bin/kvcachefs mount --nvme $data $mount_point
  install it             cmake --install $root/build/release
  mount it at boot       the fstab line or the systemd unit in the README
  run the tests          $root/tests/run.sh
TEXT
