#!/bin/bash
# Installs the Debian packages that kvcachefs needs. As root; safe to run again.
#
#   packaging/install-deps.sh [--list] [build|run|demo|quickstart|test|vm|cache]...     (default: build)
#
#   run    what an installed kvcachefs needs
#   build  compiler, libraries, and what packaging/build-libfuse.sh needs
#   demo   what packaging/demo-two-servers.sh needs besides: an NFS server, namespaces
#   quickstart  what packaging/quickstart.sh needs besides: Python
#   test   build, demo, and everything that tests/run.sh uses
#   vm     what tests/run.sh vm uses besides: a virtual machine's emulation, and what makes its image
#   cache  what bench/pool.sh --only cache uses besides: a cache of Debian's to compare with
#
# --list only prints the packages' names.
#
# Does not touch the network when everything is there already.
set -euo pipefail

run_packages=(fuse3 kmod util-linux ca-certificates
  librocksdb7.8 libspdlog1.10 libfmt9 libisal2 liburing2 libnuma1 libcpp-httplib0.11 libnfs13)
build_packages=(build-essential cmake ninja-build ccache pkg-config meson patch dpkg-dev
  librocksdb-dev libspdlog-dev libfmt-dev libisal-dev liburing-dev libnuma-dev libfuse3-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libcpp-httplib-dev libnfs-dev libxxhash-dev fuse3)
test_packages=(libgtest-dev clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev
  python3 python3-venv python3-dev xfsprogs e2fsprogs strace rocksdb-tools fio attr acl sqlite3 libsqlite3-dev zlib1g-dev
  git rsync procps psmisc kmod util-linux mount man-db systemd bash logrotate plocate libibverbs1 librdmacm1 libnuma1)
demo_packages=(nfs-ganesha nfs-ganesha-vfs rpcbind iproute2 util-linux)
quickstart_packages=(python3 python3-venv)
vm_packages=(qemu-system-x86 mmdebstrap busybox-static cpio kmod e2fsprogs dpkg util-linux binutils)
cache_packages=(rclone fuse3)

list=no
if [ "${1:-}" = --list ]; then list=yes; shift; fi
[ $# -gt 0 ] || set -- build
wanted=()
for set in "$@"; do
  case $set in
    run) wanted+=("${run_packages[@]}") ;;
    build) wanted+=("${build_packages[@]}") ;;
    demo) wanted+=("${demo_packages[@]}") ;;
    quickstart) wanted+=("${quickstart_packages[@]}") ;;
    test) wanted+=("${build_packages[@]}" "${demo_packages[@]}" "${test_packages[@]}") ;;
    vm) wanted+=("${vm_packages[@]}") ;;
    cache) wanted+=("${cache_packages[@]}") ;;
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "install-deps: unknown set $set (build, run, demo, quickstart, test, vm or cache)" >&2; exit 2 ;;
  esac
done

if [ $list = yes ]; then printf '%s\n' "${wanted[@]}"; exit 0; fi

missing() {
  local package
  for package in "${wanted[@]}"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
      echo "$package"
  done
}

mapfile -t need < <(missing)
if [ ${#need[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null; then
  echo "install-deps: this is not Debian; install the equivalents of: ${need[*]}" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "install-deps: root is needed to install: ${need[*]}" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The lock is waited for: another installation may be under way.
install=(apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 install
         --no-install-recommends "${need[@]}")

# Those of packages that were not here before are stopped: what starts a server here brings it up itself.
services=(nfs-ganesha nfs-ganesha-lock rpcbind.socket rpcbind)
new_services=()
if [ -d /run/systemd/system ]; then
  for unit in "${services[@]}"; do
    systemctl cat "$unit" >/dev/null 2>&1 || new_services+=("$unit")
  done
fi

echo "install-deps: installing ${need[*]}"
if ! "${install[@]}" >"$log" 2>&1 </dev/null; then
  # Old or absent package lists.
  apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 update >>"$log" 2>&1 || true
  if ! "${install[@]}" >>"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    echo "install-deps: apt-get could not install: ${need[*]}" >&2
    exit 1
  fi
fi
for unit in "${new_services[@]+"${new_services[@]}"}"; do
  systemctl disable --now "$unit" >/dev/null 2>&1 || true  # not all are there
done
