#!/bin/bash
# A real NFS server (NFS-Ganesha, version 3) for one directory, for tests. As root.
#
#   nfs_server.sh up DIRECTORY WORK PORT [ADDRESS]   returns when it serves; the mount protocol is on PORT+1
#   nfs_server.sh serve DIRECTORY WORK PORT [TREE]   serves until its standard input ends; WORK/ready says that it serves
#   nfs_server.sh down WORK                          ends it
#   nfs_server.sh pid WORK                           the server's process
#
# Its URI is nfs://ADDRESS/export?nfsport=PORT&mountport=PORT+1, the address 127.0.0.1 unless given. WORK is an
# absolute path and keeps configuration, log and process ids; `up` once more with the same WORK after the server was
# killed is its restart. Environment: NFS_SQUASH=Root_Squash, NFS_ACCESS=RO.
#
# `serve` is for a server that many tests use. The standard input is a pipe that only the tests' process writes to: the
# kernel closes the pipe when that process ends, also after SIGKILL, and the server goes down then. Last, TREE is removed.
#
# Facts of Ganesha 4.3: it does not serve version 3 unless it can register with an rpcbind, so that each has one of
# its own in a private namespace; relative paths make it die without a word; it is usable when its log says so.
set -euo pipefail

die() { echo "nfs_server: $*" >&2; exit 1; }
# A zombie has no command line.
alive() { grep -qs -- "$2" "/proc/$1/cmdline"; }
process() { cat "$1" 2>/dev/null || true; }

configure() {
  local directory=$1 work=$2 port=$3 address=$4 id
  # Handles hold the export's id: the same for a directory at each start.
  id=$(( $(printf %s "$directory" | cksum | cut -d' ' -f1) % 60000 + 1 ))
  cat >"$work/ganesha.conf" <<CONF
NFS_CORE_PARAM {
  Protocols = 3; NFS_Port = $port; MNT_Port = $((port + 1)); Bind_addr = $address;
  Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = true;
  MaxRPCSendBufferSize = 9437184; MaxRPCRecvBufferSize = 9437184;
}
NFS_KRB5 { Active_krb5 = false; }
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = $work/recovery; }
MDCACHE { Dir_Chunk = 0; }
EXPORT {
  Export_Id = $id; Path = $directory; Pseudo = /export; Protocols = 3; Transports = TCP; SecType = sys;
  Access_Type = ${NFS_ACCESS:-RW}; Squash = ${NFS_SQUASH:-No_Root_Squash};
  MaxRead = 1048576; MaxWrite = 1048576; PrefRead = 1048576; PrefWrite = 1048576;
  Attr_Expiration_Time = 0;
  FSAL { Name = VFS; }
}
LOG { Default_Log_Level = EVENT; }
CONF
}

# Its rpcbind hears on a socket in a /run of its own, and on no network. FUSE mounts, and other tests' disks, are not
# taken along: they would not end before the server.
start() {
  setsid unshare --mount sh -c '
    awk -v own="$1/" "\$3 ~ /^fuse/ || (\$1 ~ /^.dev.loop/ && index(own, \$2 \"/\") != 1) {print \$2}" \
      /proc/self/mounts | xargs -r -n1 umount -l
    mount -t tmpfs tmpfs /run && mkdir /run/rpcbind
    unshare --net rpcbind -f </dev/null >"$0/rpcbind.out" 2>&1 & echo $! >"$0/rpcbind.pid"
    tries=0
    while [ ! -S /run/rpcbind.sock ] && [ $tries -lt 100 ]; do tries=$((tries + 1)); sleep 0.05; done
    exec ganesha.nfsd -F -f "$0/ganesha.conf" -L "$0/log" -p "$0/pid" -N NIV_EVENT
  ' "$1" "$2" </dev/null >"$1/out" 2>&1 &
}

up() {
  local directory=$1 work=$2 port=$3 address=${4:-127.0.0.1} tries pid
  command -v ganesha.nfsd >/dev/null || die "nfs-ganesha is not installed: packaging/install-deps.sh test"
  [ -d "$directory" ] || die "$directory: no directory"
  mkdir -p "$work/recovery"
  # One that was killed just now takes a moment to go.
  for tries in $(seq 100); do alive "$(process "$work/pid")" ganesha.nfsd || break; sleep 0.05; done
  ! alive "$(process "$work/pid")" ganesha.nfsd || die "$work: a server runs already"
  down "$work"
  rm -f "$work/pid" "$work/log"
  configure "$directory" "$work" "$port" "$address"
  start "$work" "$directory"
  for tries in $(seq 300); do
    if grep -qs "NFS SERVER INITIALIZED" "$work/log"; then
      pid=$(process "$work/pid")
      ! grep -q "No export entries found" "$work/log" || break
      alive "$pid" ganesha.nfsd && return 0
    fi
    sleep 0.05
  done
  tail -n 5 "$work/log" "$work/out" >&2 || true
  down "$work"
  die "the server for $directory did not come up ($tries tries)"
}

down() {
  local file name pid
  for file in pid:ganesha.nfsd rpcbind.pid:rpcbind; do
    name=${file#*:}
    pid=$(process "$1/${file%%:*}")
    [ -n "$pid" ] && alive "$pid" "$name" || continue
    kill -TERM "$pid" 2>/dev/null || true
    for _ in $(seq 100); do alive "$pid" "$name" || break; sleep 0.05; done
    ! alive "$pid" "$name" || kill -KILL "$pid"
  done
}

serve() {
  local work=$2 tree=${4:-}
  # What ends this script ends the server: a signal alone must not.
  trap : HUP INT TERM
  # shellcheck disable=SC2064  # The values of now.
  trap "down ${work@Q}; ${tree:+rm -rf -- ${tree@Q}}" EXIT
  up "$1" "$work" "$3"
  touch "$work/ready"
  cat >/dev/null
}

case ${1:-} in
  up) [ $# -ge 4 ] && [ $# -le 5 ] || die "up DIRECTORY WORK PORT [ADDRESS]"; shift; up "$@" ;;
  serve) [ $# -ge 4 ] && [ $# -le 5 ] || die "serve DIRECTORY WORK PORT [TREE]"; shift; serve "$@" ;;
  down) [ $# = 2 ] || die "down WORK"; down "$2" ;;
  pid) [ $# = 2 ] || die "pid WORK"; process "$2/pid" ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2 ;;
esac
