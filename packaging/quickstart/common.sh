# What quickstart.sh and demo-two-servers.sh share; both source it. They set:
#
#   me     the script's name, for its messages     root  the checkout
#   work   a directory for logs                    bin   where the executables are
#   steps  how many times say is called
# shellcheck shell=bash
step=0

say() { step=$((step + 1)); printf '\n[%d/%d] %s\n' "$step" "$steps" "$*"; }
fail() { printf '%s: %s\n' "$me" "$*" >&2; exit 1; }

# Runs a noisy command; its output goes to a log that is shown only when it fails.
quietly() {
  local log=$work/$1.log code=0
  shift
  "$@" >"$log" 2>&1 || code=$?
  if [ "$code" = 0 ]; then return 0; fi
  tail -n 40 "$log" >&2
  printf '%s: failed (exit %d): %s\n%s: whole log: %s\n' "$me" "$code" "$*" "$me" "$log" >&2
  return "$code"
}

# Whether this process has the capability of that bit; a container's root may lack it.
may() {
  local caps
  caps=$(awk '/^CapEff:/ {print $2}' /proc/self/status)
  [ $(((0x$caps >> $1) & 1)) -eq 1 ]
}

# What this machine lacks, one line each.
missing() {
  if [ "$(id -u)" -ne 0 ]; then
    echo "root: run it as root, for example with sudo (it installs packages and mounts)"
  else
    may 21 ||
      echo "CAP_SYS_ADMIN: this root may not mount (in a container: --cap-add SYS_ADMIN)"
    [ -c /dev/fuse ] || modprobe fuse 2>/dev/null || true
  fi
  if [ ! -c /dev/fuse ]; then
    echo "/dev/fuse: load the kernel module (modprobe fuse; in a container: --device /dev/fuse)"
  fi
  command -v apt-get >/dev/null ||
    echo "apt-get: this script sets up Debian 12; the README says how to build by hand"
}

# check [LINE]: ends with what is missing, and LINE where the script lacks more.
check() {
  local lacks
  lacks=$(missing; printf '%s' "${1:-}")
  [ -z "$lacks" ] && return 0
  echo "$me: cannot start, this is missing:" >&2
  sed 's/^/  /' <<<"$lacks" >&2
  exit 1
}

build() {
  if [ -n "${KVCACHEFS_BIN:-}" ]; then
    [ -x "$bin/kvcachefs" ] || fail "KVCACHEFS_BIN: there is no kvcachefs in $bin"
    echo "  using the executables in $bin (KVCACHEFS_BIN)"
    return
  fi
  local code=0
  quietly libfuse "$root/packaging/build-libfuse.sh" || code=$?
  case $code in
    0) ;;
    3) echo "  going on with the installed libfuse" ;;
    *) exit 1 ;;
  esac
  cd "$root"
  quietly configure cmake --preset release || exit 1
  # The programs alone: the tests take longer to compile than all else.
  quietly build cmake --build --preset release --target kvcachefs mount_helper || exit 1
}

# Sets venv: the Python environment of the runtime, which all clones on this machine share.
make_venv() {
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    quietly apt "$root/packaging/install-deps.sh" quickstart || exit 1
  fi
  quietly pip "$root/packaging/python-env.sh" "$root/packaging/quickstart/requirements.txt" || exit 1
  venv=$(tail -n 1 "$work/pip.log")
}
