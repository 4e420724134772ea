#!/bin/bash
# Builds a static libfuse (passthrough and io_uring) from Debian's source package.
#
#   packaging/build-libfuse.sh [--prefix DIR] [--force] [--print-prefix]
#
# Debian 12 ships 3.14, which can do neither; newer suites' binaries need a newer libc, but their
# source builds here in some 20 s. This machine's package sources stay as they are: the script keeps
# an apt configuration of its own beside the build. Result in DIR: lib/libfuse3.a, include/fuse3, `libs` (what
# to link besides) and `stamp` (what was built). The default DIR is libfuse-RECIPE in the cache directory of the
# project (packaging/cache-dir.sh), where RECIPE is a hash of this script and its patches: all clones on this machine
# share it. --print-prefix prints it and builds nothing. A second run with the same recipe ends at once. DIR is
# replaced as a whole: one with other things in it is refused.
# Exit codes: 0 it is there; 1 what was downloaded is not what Debian signed; 2 wrong usage; 3 no newer
# source to be had, or it does not build: build kvcachefs with what is installed.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
prefix=
force=no
print=no
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) prefix=${2:?--prefix needs a directory}; shift 2 ;;
    --force) force=yes; shift ;;
    --print-prefix) print=yes; shift ;;
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "build-libfuse: unknown argument $1" >&2; exit 2 ;;
  esac
done
# The first is needed for io_uring; the others each bring one thing, which is left out where they do not fit.
patches=("$root"/packaging/patches/libfuse-{ring-lock,idmap}.patch)
recipe=$(cat "$0" "${patches[@]}" | sha256sum | cut -c1-16)
[ -n "$prefix" ] || prefix=$("$root/packaging/cache-dir.sh")/libfuse-$recipe
prefix=$(realpath -m -- "$prefix")
if [ $print = yes ]; then printf '%s\n' "$prefix"; exit 0; fi
if [ -e "$prefix" ] && [ -n "$(ls -A "$prefix")" ] && ! grep -qs '^recipe ' "$prefix/stamp"; then
  echo "build-libfuse: --prefix $prefix: holds other things: name a directory that is empty or not there" >&2
  exit 2
fi
# 3.18.0 to 3.18.2 have known holes in their io_uring code.
least=3.18.3
suites="trixie trixie-backports forky sid"

done_already() {
  [ "$force" = no ] && [ -f "$prefix/lib/libfuse3.a" ] && [ -f "$prefix/stamp" ] &&
    grep -qx "recipe $recipe" "$prefix/stamp" && touch "$prefix"  # in use, for cache-dir.sh --prune
}
if done_already; then exit 0; fi

mkdir -p "$(dirname "$prefix")"
# Two builds at once would share the work directory.
exec 9>"$prefix.lock"
flock 9
if done_already; then exit 0; fi

work=$prefix.work
log=$prefix.log
: >"$log"

give_up() {
  cat >&2 <<TEXT
build-libfuse: $1
build-libfuse: without it the build uses the installed libfuse. What is lost on 3.14: passthrough
build-libfuse: (reads and writes then go through the daemon, 2-4x slower) and io_uring (2x slower
build-libfuse: metadata operations). Details: $log
TEXT
  exit 3
}

# That is no reason to go on without it.
refuse() {
  echo "build-libfuse: $1: nothing of it is used. Details: $log" >&2
  exit 1
}

unpack() {
  # Compares sizes and checksums with the .dsc, whose own are in the list that apt has verified.
  dpkg-source -x "fuse3_${version#*:}.dsc" src >>"$log" 2>&1 ||
    refuse "the source of fuse3 $version is not what its description says"
}

for tool in meson ninja apt-get dpkg-source patch cc; do
  command -v $tool >/dev/null || give_up "$tool is missing (packaging/install-deps.sh build installs it)"
done

rm -rf "$work"
mkdir -p "$work"/apt/{lists,cache/archives,state}/partial "$work"/apt/{lists,cache/archives}/partial
# Owned by root and readable by apt's own user, which does the downloads.
chmod 755 "$work" "$work"/apt

mirror=$(sed -n 's/^URIs: *\(http[^ ]*\/debian\)\/*$/\1/p; s/^deb[^h]*\(http[^ ]*\/debian\)\/* .*/\1/p' \
  /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 || true)
mirror=${mirror:-http://deb.debian.org/debian}

apt_here=(-q -o "Dir::Etc::sourcelist=$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
          -o "Dir::State::lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache"
          -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3
          -o Acquire::AllowInsecureRepositories=false -o APT::Get::AllowUnauthenticated=false)

# The first suite, oldest first, whose source is new enough.
version=
for suite in $suites; do
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" \
    >"$work/apt/sources.list"
  apt-get "${apt_here[@]}" -o APT::Update::Error-Mode=any update >>"$log" 2>&1 || continue
  found=$(apt-cache "${apt_here[@]}" showsrc fuse3 2>>"$log" | sed -n 's/^Version: //p' |
    sort -V | tail -n 1)
  if [ -n "$found" ] && dpkg --compare-versions "$found" ge "$least"; then
    version=$found
    break
  fi
done
[ -n "$version" ] || give_up "no Debian suite of $mirror ($suites) offers fuse3 >= $least as source"
echo "build-libfuse: building libfuse $version from Debian $suite"

cd "$work"
fetched=0
apt-get "${apt_here[@]}" source --download-only "fuse3=$version" >fetch.log 2>&1 || fetched=$?
cat fetch.log >>"$log"
if grep -qi 'hash sum mismatch\|cannot be authenticated\|unauthenticated' fetch.log; then
  refuse "the source of fuse3 $version has another checksum than the signed list says"
fi
[ $fetched = 0 ] || give_up "the source of fuse3 $version cannot be downloaded"
unpack
cd src

# Whole or not at all: a half-patched tree is nobody's version.
apply() {
  patch -p1 --batch --forward --fuzz=2 --dry-run <"$1" >>"$log" 2>&1 &&
    patch -p1 --batch --forward --fuzz=2 <"$1" >>"$log" 2>&1
}
uring=true
if ! apply "${patches[0]}"; then
  uring=false
  echo "build-libfuse: $(basename "${patches[0]}") does not fit libfuse $version: io_uring is left out," >&2
  echo "build-libfuse: for without the fix a ring can hang (metadata operations are 2x slower)" >&2
fi
for fix in "${patches[@]:1}"; do
  apply "$fix" || echo "build-libfuse: $(basename "$fix") does not fit libfuse $version: it is left out" >&2
done

# The fast path needs both; Debian's own build lacks them.
if [ $uring = true ] && ! { printf '#include <liburing.h>\n#include <numa.h>\n' |
    cc -E - >/dev/null 2>>"$log"; }; then
  uring=false
  echo "build-libfuse: liburing-dev or libnuma-dev is missing: io_uring is left out" >&2
fi

# custom-io: taking over the file descriptor of a live mount.
meson setup out --prefix "$prefix" --libdir lib --bindir /usr/bin --sysconfdir /etc --buildtype plain \
  -Dc_args="-O2 -g -fPIC -fno-omit-frame-pointer" -Ddefault_library=static \
  -Denable-io-uring=$uring -Denable-custom-io=true \
  -Dutils=false -Dexamples=false -Dtests=false >>"$log" 2>&1 || give_up "meson setup failed"
ninja -C out >>"$log" 2>&1 || { tail -n 20 "$log" >&2; give_up "the build of libfuse failed"; }

# The prefix is changed in one step: one without a stamp would be taken for somebody else's.
made=$PWD/root$prefix
DESTDIR=$PWD/root meson install -C out --no-rebuild >>"$log" 2>&1 || give_up "the installation into $prefix failed"

libs="dl rt"
[ $uring = true ] && libs="uring numa $libs"
printf '%s\n' $libs >"$made/libs"
# The headers announce io_uring whether or not it is built in; this is what tells the truth.
if [ $uring = true ]; then touch "$made/has_io_uring"; fi
printf 'libfuse %s (Debian %s)\nio_uring %s\nrecipe %s\n' "$version" "$suite" "$uring" "$recipe" \
  >"$made/stamp"
rm -rf "$prefix.new"
mv "$made" "$prefix.new"
rm -rf "$prefix"
mv "$prefix.new" "$prefix"
cd /
rm -rf "$work"
echo "build-libfuse: libfuse $version is in $prefix (passthrough: yes, io_uring: $uring)"
