#!/bin/bash
# Runs a command in a clone of this checkout's HEAD on a bare Debian 12: only what the project's own scripts install is there.
#
#   tests/bare/debian.sh [--keep] [COMMAND...]        default: tests/run.sh
#
# Makes a Debian 12 of the smallest kind in a directory below /var/tmp (mmdebstrap; a minute), with git and the certificates and package
# sources of this machine, and runs the command there as root, in namespaces of its own for mounts, processes and
# System V IPC; the kernel and the network are this machine's. Prints how long it took; its exit code is the command's.
# --keep leaves the directory, and says where it is. As root; installs mmdebstrap where it is missing.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
keep=no
case ${1:-} in
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
  --keep) keep=yes; shift ;;
esac
[ $# -gt 0 ] || set -- tests/run.sh
[ "$(id -u)" = 0 ] || { echo "bare: root is needed, to mount" >&2; exit 1; }
command -v mmdebstrap >/dev/null || "$root/packaging/install-deps.sh" vm

home=$(mktemp -d /var/tmp/kvcachefs-bare.XXXXXX)
debian=$home/debian
# Whatever was mounted went with the namespace.
remove() {
  if [ $keep = yes ]; then echo "bare: kept in $home"; else rm -rf --one-file-system "$home"; fi
}
trap remove EXIT
trap 'exit 130' INT TERM HUP

# Sources other than Debian's own are of other software.
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian*; do
  if grep -qs 'debian.org\|/debian' "$file"; then sources+=("$file"); fi
done
mmdebstrap --quiet --mode=root --variant=minbase --aptopt='Acquire::Retries "3"' \
  --include=ca-certificates,git,bash bookworm "$debian" "${sources[@]}"
cp /etc/resolv.conf /etc/hosts "$debian/etc/" 2>/dev/null || true
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
  cp -L /etc/ssl/certs/ca-certificates.crt "$debian/etc/ssl/certs/ca-certificates.crt"
fi
[ -f /etc/pip.conf ] && cp /etc/pip.conf "$debian/etc/pip.conf"
git clone -q --no-hardlinks "$root" "$debian/src"

begin=$SECONDS
code=0
# A clean environment, but for the words that say how the run is to be and where certificates are.
# shellcheck disable=SC2016  # for the shell inside
unshare --mount --pid --ipc --fork --propagation private env -i \
  HOME=/root TERM="${TERM:-dumb}" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
  ${KVCACHEFS_SEED:+KVCACHEFS_SEED="$KVCACHEFS_SEED"} ${CI:+CI="$CI"} ${KVCACHEFS_BUDGET_S:+KVCACHEFS_BUDGET_S="$KVCACHEFS_BUDGET_S"} \
  ${PIP_CERT:+PIP_CERT="$PIP_CERT"} ${SSL_CERT_FILE:+SSL_CERT_FILE="$SSL_CERT_FILE"} \
  bash -c 'debian=$1; shift
    mount --bind "$debian" "$debian" && cd "$debian" &&
    mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev &&
    mount -t tmpfs tmpfs run && mkdir -p run/lock &&
    exec chroot . bash -c "cd /src && exec \"\$@\"" bash "$@"' bash "$debian" "$@" </dev/null || code=$?
echo "bare: $* ended with $code after $((SECONDS - begin)) s on a bare Debian $(cat "$debian/etc/debian_version")"
exit $code
