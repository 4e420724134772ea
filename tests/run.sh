#!/bin/bash
# Builds and runs the tests. As root (it mounts); safe to run again.
#
#   tests/run.sh [LABEL...|gate|full] [-- PYTEST-ARGUMENTS...]
#
# Without a label: the gate, which proves every promise of the design in some ten minutes, then parts of all the rest,
# drawn anew by each run's seed, until 28 minutes after the start (KVCACHEFS_BUDGET_S: so many seconds). What was not
# begun is listed.
#
#   gate         the gate alone
#   full         every label up to oracle, the machine of vm, and bench/bench.sh --quick; its record is
#                bench/results/full-run.txt
#
# Labels:
#   style        formatting, layering, man page = --help, scripts, a test for each promise, the
#                tests' runner
#   unit         C++ tests of single parts
#   contract     one suite for each seam, over every implementation
#   fuzz         libFuzzer on the parsers, 20 s each
#   mount        real mounts: POSIX behaviour, replays of runtimes, command line
#   runtimes     real programs on a mount
#   crash        kill -9, killed at the Nth system call, power cut
#   neighbours   what users of a shared mount, nodes of a pool and disks may do to each other
#   soak         everything at once on a small budget, for two minutes; what must not grow does not
#   conformance  pjdfstest and fsx (needs cargo >= 1.85)
#   asan tsan    unit, contract and the short mount and crash tests with sanitizers
#   libfuse314   the build against the installed libfuse, short mount tests
#   xfs          the tests of POSIX, budgets and crashes with xfs below, one data path by the seed
#   dev          half of the tests that ask for no transport, drawn by the seed, over /dev/fuse
#   oracle       the tests of mounts on a plain directory of ext4: proves the tests, not kvcachefs
#   bench        measurements against raw ext4
#   vm           in a virtual machine with Debian's kernel: its NFS server and client, at both ends of a mount, and a
#                runtime there on an export of a mount on this machine; without KVM
#   size         ten million names (NAMES: another number): memory, lookups, how soon a mount answers; hours
#
# Tests run beside each other, more of them than there are CPUs; those marked `alone` after the others. No test is tried
# again but one that was late and nothing else (kvmount.Late): three times beside a load, never under a sanitizer. The
# end of the output names it. It fails when it is late twice within twenty of its runs on this
# machine.
#
# The log of a part is build/test-logs/NAME.log. What every clone would make alike lies in the cache directory of the
# project (packaging/cache-dir.sh). Environment: KVCACHEFS_SEED (repeats a run), KVCACHEFS_FULL=1 (full counts, hours),
# CI (a warning of the compiler is a failure).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

case ${1:-} in
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
esac
exec </dev/null
if ! packaging/install-deps.sh test; then
  echo "the packages could not be installed: going on with what is there"
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
exec /usr/bin/python3 tests/runner/run.py "$@"
