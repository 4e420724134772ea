#!/bin/bash
# Prints the directory of a Python environment that has what the files of requirements list.
#
#   packaging/python-env.sh REQUIREMENTS.txt...
#
# Environments lie in the cache directory of the project (packaging/cache-dir.sh), named by the hash of what they have,
# and are never changed: all clones on this machine share them. One that has more than is asked for will do.
# Each requirement is pinned (name==version); `-r FILE` includes another file. Exit code 1: it cannot be made, and
# standard error says why.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || { echo "python-env: names no file of requirements" >&2; exit 2; }

# The requirements of the files and of those that they include, one a line.
lines_of() {
  local line
  while read -r line || [ -n "$line" ]; do
    case $line in
      ''|'#'*) ;;
      '-r '*) lines_of "$(dirname "$1")/${line#-r }" ;;
      *) printf '%s\n' "$line" ;;
    esac
  done <"$1"
}

python=/usr/bin/python3
[ -x $python ] || python=$(command -v python3)
wanted=$(for file in "$@"; do lines_of "$file"; done | sort -u)
version=$("$python" -c 'import sys; print("python", *sys.version_info[:3])')
cache=$("$here/cache-dir.sh")

for made in "$cache"/venv-*/complete; do
  [ -f "$made" ] && grep -qxF -- "$version" "$made" || continue
  if [ -z "$(comm -23 <(printf '%s\n' "$wanted") <(sort -u "$made"))" ]; then
    touch "$(dirname "$made")"  # in use, for cache-dir.sh --prune
    dirname "$made"
    exit 0
  fi
done

env=$cache/venv-$(printf '%s\n%s\n' "$version" "$wanted" | sha256sum | cut -c1-16)
# Two runs that begin at once make it once.
exec 9>"$env.lock"
flock 9
if [ ! -f "$env/complete" ]; then
  rm -rf "$env"
  "$python" -m venv "$env" >&2 ||
    { echo "python-env: $python cannot make an environment (packaging/install-deps.sh quickstart installs python3-venv)" >&2; exit 1; }
  mapfile -t packages <<<"$wanted"
  if ! "$env/bin/python" -m pip install -q --disable-pip-version-check --retries 5 "${packages[@]}" >&2; then
    echo "python-env: pip could not install: ${packages[*]}" >&2
    rm -rf "$env"
    exit 1
  fi
  printf '%s\n' "$version" "$wanted" >"$env/complete"
fi
printf '%s\n' "$env"
