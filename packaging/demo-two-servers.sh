#!/bin/bash
# Two servers that share one KV cache, on one machine, with a real LLM runtime and a real NFS server.
#
#   packaging/demo-two-servers.sh
#
# For root on Debian 12. Installs what is missing and builds, as quickstart.sh does. Three network
# namespaces are connected by a bridge: in one an NFS server (NFS-Ganesha) exports a directory, the
# other two are the servers, each with a kvcachefs mount, a disk directory and a state of its own,
# and --pool nfs://... . On server 1 llama.cpp evaluates a long prompt and saves its KV state to the
# mount; `kvcachefs flush` waits until that is on the pool. On server 2 llama.cpp loads it and goes
# on with the same tokens. A table says what each step took. The network between them is this
# machine's memory; the disks of all three are one.
# Mounts, networks, processes and data are gone at the end, after a failure or after ^C, too; what was
# installed and built stays, and the logs of a failure are in
# build/quickstart/two-servers.
# KVCACHEFS_BIN names a directory of executables to use instead of building; KVCACHEFS_DATA one on
# ext4 or xfs for the data of all three meanwhile (default /var/tmp).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
case ${1:-} in
  '') ;;
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
  *) echo "demo-two-servers: unknown argument $1 (see --help)" >&2; exit 2 ;;
esac

data=$(realpath -ms -- "${KVCACHEFS_DATA:-/var/tmp}")
bin=$(realpath -ms -- "${KVCACHEFS_BIN:-$root/build/release/bin}")
work=$root/build/quickstart
me=demo-two-servers
steps=10
scene=
. "$root/packaging/quickstart/common.sh"

nfs_server=$root/tests/servers/nfs_server.sh
port=2049
address=10.77.0.1
pool="nfs://$address/export?nfsport=$port&mountport=$((port + 1))"

# in_net NAME COMMAND...: with the network of filer, 1 or 2. The mounts stay those of everybody:
# `ip netns exec` would make FUSE mounts that nobody else sees and that end with the command.
in_net() { local net=$scene/$1.net; shift; nsenter --net="$net" "$@"; }

# A namespace is kept by a mount of it on a file below the scene: no names that others might use.
make_networks() {
  local name
  for name in filer 1 2; do
    touch "$scene/$name.net" && unshare --net="$scene/$name.net" true &&
      in_net "$name" ip link set lo up || return 1
  done
  in_net filer ip link add bridge0 type bridge && in_net filer ip link set bridge0 up &&
    in_net filer ip address add "$address/24" dev bridge0 || return 1
  for name in 1 2; do
    in_net filer ip link add "port$name" type veth peer name eth0 netns "$scene/$name.net" &&
      in_net filer ip link set "port$name" master bridge0 up &&
      in_net "$name" ip address add "10.77.0.10$name/24" dev eth0 &&
      in_net "$name" ip link set eth0 up || return 1
  done
}

mount_on() {
  mkdir -p "$scene/$1/nvme" "$scene/$1/mnt"
  echo "  server $1: kvcachefs mount --nvme $scene/$1/nvme --pool '$pool' $scene/$1/mnt"
  in_net "$1" "$bin/kvcachefs" mount --nvme "$scene/$1/nvme" --pool "$pool" \
    --log "$scene/kvcachefs-$1.log" "$scene/$1/mnt"
}

# runtime_on SERVER PART [OPTION...]
runtime_on() {
  local server=$1 part=$2
  shift 2
  in_net "$server" "$venv/bin/python" "$root/packaging/quickstart/two_servers.py" "$part" \
    --python "$venv/bin/python" --model "$scene/model.gguf" --notes "$scene/notes.json" \
    --dir "$scene/$server/mnt/llama-slots" --log "$scene/runtime-$server.log" \
    --tokens "${KVCACHEFS_QUICKSTART_TOKENS:-1000}" "$@"
}

# How many files server 2 has loaded from the pool.
loaded() {
  in_net 2 "$bin/kvcachefs" status --json "$scene/2/mnt" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["pool"]["loaded"])'
}

mounted() { grep -qF " $1 " /proc/self/mountinfo; }

# What runs in the demo's networks, which is nobody else's.
processes() {
  local name
  for name in filer 1 2; do
    # Without its mount it is any empty file.
    ! mounted "$scene/$name.net" || find -L /proc/[0-9]*/ns/net -maxdepth 0 \
      -samefile "$scene/$name.net" 2>/dev/null | cut -d/ -f3
  done
}

end_processes() {
  local signal left
  for signal in TERM KILL; do
    left=$(processes)
    [ -n "$left" ] || return 0
    # shellcheck disable=SC2086
    kill -$signal $left 2>/dev/null || true
    for _ in $(seq 50); do [ -n "$(processes)" ] || return 0; sleep 0.1; done
  done
}

clean_up() {
  local code=$? name
  trap '' INT TERM HUP PIPE
  set +e
  [ -n "$scene" ] || exit "$code"
  if [ "$code" != 0 ] && [ "$code" -lt 128 ]; then
    rm -rf "$work/two-servers"
    mkdir "$work/two-servers" && cp "$scene"/*.log "$work/two-servers" 2>/dev/null
    cp "$scene/filer/log" "$work/two-servers/ganesha.log" 2>/dev/null
  fi
  for name in 1 2; do
    mounted "$scene/$name/mnt" &&
      in_net "$name" timeout 60 "$bin/kvcachefs" umount "$scene/$name/mnt" >/dev/null 2>&1
  done
  end_processes
  "$nfs_server" down "$scene/filer" 2>/dev/null
  for name in 1/mnt 2/mnt filer.net 1.net 2.net; do
    mounted "$scene/$name" && umount -l "$scene/$name" 2>/dev/null
  done
  rm -rf --one-file-system "$scene"
  exit "$code"
}

lacks=
[ "$(id -u)" -ne 0 ] || may 12 ||
  lacks="CAP_NET_ADMIN: no networks can be made (in a container: --cap-add NET_ADMIN)"
check "$lacks"
mkdir -p "$work"

say "Installing what is missing (apt; logs: build/quickstart/deps.log, deps-demo.log)"
if [ -z "${KVCACHEFS_BIN:-}" ]; then
  quietly deps "$root/packaging/install-deps.sh" build || exit 1
fi
quietly deps-demo "$root/packaging/install-deps.sh" demo || exit 1

say "Building libfuse and kvcachefs (minutes the first time; log: build/quickstart/build.log)"
build
echo "  $("$bin/kvcachefs" --version 2>/dev/null | head -n 1)"

say "Installing the runtime: llama.cpp, PyPI package xllamacpp"
make_venv

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
trap 'exit 141' PIPE
scene=$(mktemp -d "$data/kvcachefs-two-servers.XXXXXX")

say "Generating a tiny model with the KV cache geometry of Llama 3 8B"
"$venv/bin/python" "$root/packaging/quickstart/make_model.py" "$scene/model.gguf" | sed 's/^/  /'

say "A network with an NFS server and two servers, each with a mount of its own"
make_networks || fail "the networks could not be made"
mkdir -p "$scene/export" "$scene/filer"
in_net filer "$nfs_server" up "$scene/export" "$scene/filer" $port $address ||
  fail "the NFS server did not start"
echo "  filer:    $(ganesha.nfsd -v 2>/dev/null | head -n 1 | grep . || echo NFS-Ganesha)," \
  "NFS version 3 on $address:$port"
for server in 1 2; do
  mount_on $server || fail "server $server could not mount"
done

say "Server 1: the runtime evaluates a long prompt and saves its KV state to the mount"
mkdir "$scene/1/mnt/llama-slots"
runtime_on 1 save

say "Server 1: kvcachefs flush $scene/1/mnt"
start=$(date +%s%N)
in_net 1 "$bin/kvcachefs" flush "$scene/1/mnt" | sed 's/^/  /' ||
  fail "what server 1 has saved did not get to the pool"
flush_ms=$((($(date +%s%N) - start) / 1000000))

say "Server 2: a runtime that has never seen the prompt loads the state, and goes on"
echo "  ls -l $scene/2/mnt/llama-slots"
ls -l "$scene/2/mnt/llama-slots" | sed 's/^/  /'
[ "$(loaded)" = 0 ] || fail "server 2 has loaded from the pool before it was asked"
echo "  the first time, from the pool:"
runtime_on 2 load
[ "$(loaded)" = 1 ] || fail "server 2 has not loaded the state from the pool"
echo "  again, in a new process; it is local now:"
runtime_on 2 again
[ "$(loaded)" = 1 ] || fail "server 2 has loaded the state from the pool twice"

say "Server 2: what it would take without: a new runtime evaluates the prompt"
runtime_on 2 anew

say "What each step took"
runtime_on 2 table --flush-ms $flush_ms
for server in 2 1; do
  in_net $server "$bin/kvcachefs" umount "$scene/$server/mnt" ||
    fail "server $server could not unmount"
done
echo
echo "Done. Mounts, networks and data are gone. How to set it up: \"Sharing a pool\" in the README."
