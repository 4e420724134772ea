#!/bin/sh
# Keeps updatedb(8) of plocate and mlocate out of mounts of kvcachefs: adds their type to PRUNEFS in
# /etc/updatedb.conf, or in the file that is named. A crawler does no harm, but reads every name each
# night for nothing. Safe to run again.
set -eu

conf=${1:-/etc/updatedb.conf}
type=fuse.kvcachefs

if [ ! -f "$conf" ]; then
  echo "updatedb-prune: $conf is not there: plocate is not installed, nothing to do" >&2
  exit 0
fi
if grep -Eq "^[[:space:]]*PRUNEFS[[:space:]]*=.*[\" ]$type[\" ]" "$conf"; then
  echo "updatedb-prune: $conf leaves $type out already"
elif grep -Eq "^[[:space:]]*PRUNEFS[[:space:]]*=[[:space:]]*\"" "$conf"; then
  sed -i -E "s/^([[:space:]]*PRUNEFS[[:space:]]*=[[:space:]]*\"[^\"]*)\"/\1 $type\"/" "$conf"
  echo "updatedb-prune: $conf leaves $type out from now on"
else
  printf 'PRUNEFS="%s"\n' "$type" >>"$conf"
  echo "updatedb-prune: $conf leaves $type out from now on"
fi
