#!/bin/bash
# Builds and runs the tests. As root (it mounts); safe to run again.
#
#   tests/run.sh [LABEL...] [-- PYTEST-ARGUMENTS...]
#
# Labels, in the order of a run without arguments:
#   style        formatting, layering, man page = --help, scripts
#   unit         C++ tests of single parts
#   contract     one suite for each seam, over every implementation
#   fuzz         libFuzzer on the parsers, 20 s each
#   mount        real mounts: POSIX behaviour, replays of runtimes, command line
#   runtimes     real programs on a mount
#   crash        kill -9, killed at the Nth system call, power cut
#   soak         everything at once on a small budget, for two minutes; what must not grow does not
#   conformance  pjdfstest and fsx (needs cargo >= 1.85)
#   asan tsan    unit, contract and the short mount and crash tests with sanitizers, each half of these on one of the data paths
#   libfuse314   the build against the installed libfuse, short mount tests
# and, only when named:
#   bench        measurements against raw ext4
#   vm           in a virtual machine with Debian's kernel: its NFS server and client, at both ends of a mount, and a
#                runtime there on an export of a mount here; without KVM
#   size         ten million names (NAMES: another number): memory, lookups, how soon a mount answers; hours
#
# Tests run beside each other, more of them than there are CPUs. A few that fail so are run once more, alone; those that pass
# then are named in the output, and do not fail the label. What a sanitizer reports does.
#
# The log of a label is build/test-logs/LABEL.log. Environment: KVCACHEFS_SEED (repeats a run),
# KVCACHEFS_FULL=1 (full counts, hours), CI (warnings are errors).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
root=$PWD

default_labels=(style unit contract fuzz mount runtimes crash soak conformance asan tsan libfuse314)
named_labels=(bench vm size)
labels=()
pytest_arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; pytest_arguments=("$@"); break ;;
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    --list) printf '%s\n' "${default_labels[@]}" "${named_labels[@]}"; exit 0 ;;
    *)
      if ! printf '%s\n' "${default_labels[@]}" "${named_labels[@]}" | grep -qxF -- "$1"; then
        echo "run.sh: unknown label $1 (${default_labels[*]} ${named_labels[*]})" >&2
        exit 2
      fi
      labels+=("$1"); shift ;;
  esac
done
[ ${#labels[@]} -gt 0 ] || labels=("${default_labels[@]}")

logs=$root/build/test-logs
venv=$root/build/venv
mkdir -p "$logs"
export KVCACHEFS_SEED=${KVCACHEFS_SEED:-$(( (RANDOM << 15) + RANDOM ))}
# Marks every process of this run, so that a daemon that a test left behind can be told from others'.
export KVCACHEFS_TEST_RUN=$$.$(date +%s)
export PYTHONDONTWRITEBYTECODE=1
jobs=$(nproc)
# Tests at a time. Most of a test that mounts is waiting; those with sanitizers compute.
workers=$((jobs * 2 < 8 ? jobs * 2 : 8))
# A whole label; the tests' own limits are much shorter.
label_limit_s=1500
[ "${KVCACHEFS_FULL:-}" = 1 ] && label_limit_s=36000

# Tests of a suite that are run once more; when more fail, it is not the load.
most_again=4

say() { printf '%s\n' "$*"; }

# In the foreground of a terminal Ctrl-C reaches what runs.
foreground=()
[ -t 2 ] && foreground=(--foreground)
limited() { timeout -k 30 ${foreground[@]+"${foreground[@]}"} "$label_limit_s" "$@"; }

# --- What a failed test may leave behind -------------------------------------------------------

# [all]: processes of this run that have outlived their label: daemons of mounts nobody ended; or whatever still runs.
end_leftover_processes() {
  local pid name
  for pid in $(grep -lzsxF "KVCACHEFS_TEST_RUN=$KVCACHEFS_TEST_RUN" /proc/[0-9]*/environ 2>/dev/null |
               cut -d/ -f3); do
    name=$(cat "/proc/$pid/comm" 2>/dev/null) || continue
    [ "${1:-}" = all ] && kill -KILL "$pid" 2>/dev/null && continue
    case $name in
      kvcachefs|mount.kvcachefs|ganesha.nfsd|rpcbind|qemu-system-x86)
        say "left behind: $name, pid $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
        kill -KILL "$pid" 2>/dev/null ;;
    esac
  done
}

# Dead or hanging mounts of tests. A mount that answers belongs to someone else's run.
unmount_leftovers() {
  local line path type
  while read -r line; do
    path=$(printf '%b' "$(cut -d' ' -f5 <<<"$line" | sed 's/\\\([0-7]\{3\}\)/\\0\1/g')")
    type=$(sed 's/.* - //' <<<"$line" | cut -d' ' -f1)
    case $path:$type in
      /var/tmp/kvcachefs-*:fuse*) ;;
      *) continue ;;
    esac
    if ! timeout -k 1 5 stat -c %i "$path" >/dev/null 2>&1; then
      say "left behind: a dead mount on $path"
      umount --lazy "$path" 2>&1
    fi
  done </proc/self/mountinfo
}

clean_up() {
  end_leftover_processes
  unmount_leftovers
}

# --- Building ----------------------------------------------------------------------------------

# build PRESET TARGET...: configures the preset and builds the targets, each once per run. What was
# built is remembered in files, for labels run in subshells.
memory=$(mktemp -d)
programs=(kvcachefs mount_helper)
build() {
  local preset=$1 target log=$logs/build-$1.log start=$SECONDS todo=() verdict=done
  shift
  for target in "$@"; do [ -e "$memory/$preset-$target" ] || todo+=("$target"); done
  if [ ${#todo[@]} -gt 0 ]; then
    if { cmake --preset "$preset" -DKVCACHEFS_WERROR="${CI:+ON}" &&
         cmake --build --preset "$preset" -j "$jobs" --target "${todo[@]}"; } >"$log" 2>&1; then
      for target in "${todo[@]}"; do echo done >"$memory/$preset-$target"; done
    else
      verdict=failed
      for target in "${todo[@]}"; do echo failed >"$memory/$preset-$target"; done
      grep -E 'error|FAILED|Error' "$log" | head -n 20
      tail -n 20 "$log"
    fi
    printf '  %-18s %-7s %4d s   %s\n' "build $preset" $verdict $((SECONDS - start)) "${todo[*]}" >&3
  fi
  for target in "$@"; do
    [ "$(cat "$memory/$preset-$target")" = done ] ||
      { say "the $preset build of $target failed: $log"; return 1; }
  done
}

# A Python environment with pytest and what the suites ask for.
python_for() {
  local want=(pytest==8.3.5 pytest-timeout==2.3.1 pytest-xdist==3.6.1) file stamp
  local files=()
  for file in "$@"; do
    [ -f "tests/$file/requirements.txt" ] && files+=("tests/$file/requirements.txt")
  done
  for file in "${files[@]+"${files[@]}"}"; do want+=(-r "$file"); done
  stamp=$venv/.installed-$( { echo "${want[@]}"; cat /dev/null "${files[@]+"${files[@]}"}"; } |
    sha256sum | cut -c1-16)
  [ -f "$stamp" ] && return 0
  { [ -x "$venv/bin/python" ] || python3 -m venv "$venv"; } &&
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --retries 5 "${want[@]}" &&
    touch "$stamp"
}

run_pytest() {
  limited ${wrap[@]+"${wrap[@]}"} "$venv/bin/python" -m pytest -q -c tests/pytest.ini --timeout=900 "$@"
}

# NAME...: of tests that have failed.
may_run_again() {
  [ $# -gt 0 ] && [ $# -le $most_again ] || return 1
  say "---- once more, alone: $*"
}
passed_alone() { printf '%s\n' "$@" >>"$logs/passed-alone"; }

# suite FOLDER ARGUMENTS...: pytest over tests/FOLDER, several tests at a time.
suite() {
  local folder=$1 status
  shift
  if ! find "tests/$folder" -name 'test_*.py' 2>/dev/null | grep -q .; then
    say "no tests in tests/$folder"
    return 1
  fi
  run_pytest -n "$workers" --dist worksteal --durations=10 "tests/$folder" "$@" \
    ${pytest_arguments[@]+"${pytest_arguments[@]}"} | tee "$logs/suite.out"
  status=${PIPESTATUS[0]}
  if [ "$status" = 1 ]; then
    local names
    mapfile -t names < <(sed -nE 's/^(FAILED|ERROR) (tests\/[^:]+::.*)$/\2/p' "$logs/suite.out" | sed 's/ - .*//' | sort -u)
    may_run_again "${names[@]+"${names[@]}"}" && run_pytest "${names[@]}" &&
      passed_alone "${names[@]}" && status=0
  fi
  # 5: nothing selected, which a narrowing argument may well ask for.
  [ $status = 5 ] && [ ${#pytest_arguments[@]} -gt 0 ] && return 0
  return $status
}

can_mount() {
  [ "$(id -u)" = 0 ] || { say "mounting needs root"; return 1; }
  [ -c /dev/fuse ] || modprobe fuse 2>/dev/null
  [ -c /dev/fuse ] || { say "/dev/fuse is missing: modprobe fuse, or give the container --device /dev/fuse"; return 1; }
}

# gtest PRESET PROGRAM: several processes, each with its share of the tests, which wait more than they compute.
gtest() {
  local program=build/$1/bin/$2 shard failed=0 pids=() shards=$workers
  [ -x "$program" ] || { say "$program was not built"; return 1; }
  for ((shard = 0; shard < shards; shard++)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard limited ${wrap[@]+"${wrap[@]}"} "$program" \
      --gtest_brief=1 --gtest_random_seed=$((KVCACHEFS_SEED % 99999)) >"$logs/$1-$2-$shard.log" 2>&1 &
    pids+=($!)
  done
  # 1: tests have failed; else it did not come to its end.
  local status names=() crashed=0
  for shard in "${!pids[@]}"; do
    wait "${pids[$shard]}"; status=$?
    [ $status = 0 ] || failed=1
    [ $status -le 1 ] || crashed=1
    cat "$logs/$1-$2-$shard.log"
  done
  [ $failed = 1 ] && [ $crashed = 0 ] || return $failed
  mapfile -t names < <(cat "$logs/$1-$2"-*.log | sed -nE 's/^\[  FAILED  \] ([^ ,]+\/?[^ ,]*).*/\1/p' | sort -u)
  may_run_again "${names[@]+"${names[@]}"}" || return 1
  GTEST_FILTER=$(IFS=:; echo "${names[*]}") limited ${wrap[@]+"${wrap[@]}"} "$program" --gtest_brief=1 \
    --gtest_random_seed=$((KVCACHEFS_SEED % 99999)) && passed_alone "${names[@]}"
}

# --- Labels ------------------------------------------------------------------------------------

wrap=()

label_style() { build release kvcachefs && python3 tests/style/source_test.py --bin build/release/bin; }
label_unit() { build release unit_tests && gtest release unit_tests; }
label_contract() { build release contract_tests && gtest release contract_tests; }

label_fuzz() {
  build fuzz all || return 1
  local target name failed=0 pids=() pid
  for target in build/fuzz/bin/*_fuzz; do
    [ -x "$target" ] || { say "no fuzz targets were built"; return 1; }
    name=$(basename "$target")
    mkdir -p "build/fuzz/corpus/$name" "build/fuzz/found"
    local corpora=("build/fuzz/corpus/$name")
    [ -d "tests/fuzz/corpus/$name" ] && corpora+=("tests/fuzz/corpus/$name")
    limited "$target" -max_total_time="${KVCACHEFS_FUZZ_S:-20}" -timeout=10 -rss_limit_mb=2048 \
      -seed=$((KVCACHEFS_SEED % 2147483647)) -verbosity=0 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/found/$name-" "${corpora[@]}" \
      >"$logs/fuzz-$name.log" 2>&1 &
    pids+=("$!:$name")
    if [ ${#pids[@]} -ge "$jobs" ]; then
      wait_fuzz "${pids[0]}" || failed=1
      pids=("${pids[@]:1}")
    fi
  done
  for pid in "${pids[@]}"; do wait_fuzz "$pid" || failed=1; done
  return $failed
}
wait_fuzz() {
  local name=${1#*:}
  if wait "${1%%:*}"; then
    say "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$logs/fuzz-$name.log") runs"
  else
    say "$name failed:"
    tail -n 40 "$logs/fuzz-$name.log"
    return 1
  fi
}

label_mount() { can_mount && build release "${programs[@]}" order_mount policy_mount && python_for mount && suite mount; }
label_runtimes() { can_mount && build release "${programs[@]}" && python_for runtimes && suite runtimes; }
label_crash() { can_mount && build release "${programs[@]}" && python_for crash && suite crash; }

label_soak() { can_mount && build release "${programs[@]}" && python_for soak && suite soak; }

label_conformance() {
  can_mount && build release "${programs[@]}" && python_for conformance && suite conformance
}
# The suites are Rust programs of recent date.
why_not_conformance() {
  local version
  version=$(cargo --version 2>/dev/null | cut -d' ' -f2)
  if ! printf '1.85\n%s\n' "${version:-0}" | sort -V -C; then
    say "no cargo >= 1.85 (found: ${version:-none})"
  fi
}

# sanitized PRESET: its unit and contract tests, and the short tests that mount. A report in any
# process, daemons included, fails the label.
sanitized() {
  local preset=$1 reports=$logs/$1-reports failed=0 report
  can_mount && build "$preset" "${programs[@]}" unit_tests contract_tests && python_for mount crash ||
    return 1
  rm -rf "$reports" && mkdir -p "$reports" && chmod 1777 "$reports"
  export KVCACHEFS_BIN=$root/build/$preset/bin KVCACHEFS_SANITIZER=1
  local suppress=$root/tests/sanitizer
  export ASAN_OPTIONS="log_path=$reports/asan:detect_leaks=1:detect_stack_use_after_return=1"
  export LSAN_OPTIONS="suppressions=$suppress/lsan.supp:print_suppressions=0"
  export UBSAN_OPTIONS="log_path=$reports/ubsan:print_stacktrace=1"
  export TSAN_OPTIONS="log_path=$reports/tsan:suppressions=$suppress/tsan.supp:second_deadlock_stack=1:die_after_fork=0"
  # Sizes and links of single-threaded code, which take minutes there.
  export GTEST_FILTER=-LearnerCost.*:ChainPolicy.*:Runtimes/*
  # ThreadSanitizer does not follow a fork of a process that has threads.
  [ "$preset" = tsan ] &&
    GTEST_FILTER+=:RocksdbStoreTest.KeepsEveryWriteOfAKilledProcess:States.AChildThat*
  # One sanitizer has one data path and one half of the tests that mount, the other one the others; the next seed may
  # exchange them.
  if [ "${KVCACHEFS_FULL:-}" != 1 ]; then
    local paths=(passthrough daemon) turn=$((KVCACHEFS_SEED % 2)) half=$((KVCACHEFS_SEED / 2 % 2))
    [ "$preset" = tsan ] && turn=$((1 - turn)) half=$((1 - half))
    export KVCACHEFS_DATA_PATHS=${KVCACHEFS_DATA_PATHS:-${paths[turn]}}
    # Who asks for some of them gets these.
    [ ${#pytest_arguments[@]} -gt 0 ] || export KVCACHEFS_HALF=${KVCACHEFS_HALF:-$half}
    say "data path: $KVCACHEFS_DATA_PATHS, half ${KVCACHEFS_HALF:-0 and 1} of the tests that mount"
  fi
  # The runtimes of gcc 12 cannot cope with the address randomisation of newer kernels.
  wrap=(setarch "$(uname -m)" --addr-no-randomize)
  gtest "$preset" unit_tests || failed=1
  gtest "$preset" contract_tests || failed=1
  suite mount -m short || failed=1
  suite crash -m short || failed=1
  for report in "$reports"/*; do
    if [ -s "$report" ]; then
      say "report $report:"
      head -n 60 "$report"
      failed=1
    fi
  done
  return $failed
}
label_asan() { sanitized asan; }
label_tsan() { sanitized tsan; }

label_libfuse314() {
  can_mount && build libfuse314 "${programs[@]}" && python_for mount || return 1
  # It has no passthrough, no io_uring, no O_TMPFILE, and does not hand on what clears set-id bits: the
  # comparisons with ext4 would show these four again and again.
  KVCACHEFS_BIN=$root/build/libfuse314/bin suite mount -m short \
    -k "not passthrough and not uring and not same_as_ext4 and not random"
}

# One machine for all of its tests, one after the other.
label_vm() {
  label_limit_s=3600
  can_mount && packaging/install-deps.sh vm && build release "${programs[@]}" && tests/vm/image.sh build/vm &&
    python_for vm && run_pytest --durations=10 tests/vm ${pytest_arguments[@]+"${pytest_arguments[@]}"}
}

label_bench() { can_mount && build release "${programs[@]}" && limited bench/bench.sh; }
label_size() {
  label_limit_s=36000
  can_mount && build release "${programs[@]}" && NAMES=${NAMES:-10000000} limited bench/size.sh
}

# --- The run -----------------------------------------------------------------------------------

exec 3>&1 </dev/null
if ! packaging/install-deps.sh test; then
  say "the packages could not be installed: going on with what is there"
fi
say "kvcachefs tests: ${labels[*]} (KVCACHEFS_SEED=$KVCACHEFS_SEED)"

trap 'rm -rf "$memory"' EXIT
trap 'end_leftover_processes all; clean_up; exit 130' HUP INT TERM
passed=0
failed=0
clean_up
for label in "${labels[@]}"; do
  log=$logs/$label.log
  if [ "$label" = conformance ] && why=$(why_not_conformance) && [ -n "$why" ]; then
    printf '%-14s left out: %s\n' "$label" "$why"
    continue
  fi
  start=$SECONDS
  rm -f "$logs/passed-alone"
  if ( "label_$label" ) >"$log" 2>&1; then verdict=passed; else verdict=failed; fi
  clean_up >"$log.left" 2>&1
  cat "$log.left" >>"$log"
  printf '%-14s %-7s %4d s   %s\n' "$label" "$verdict" $((SECONDS - start)) \
    "$(grep -aE '^[0-9]+ (passed|failed).* in |\[  PASSED  \]' "$log" | tail -n 1 | tr -s ' =')"
  [ -s "$log.left" ] && sed 's/^/    /' "$log.left"
  [ -s "$logs/passed-alone" ] && sed 's/^/    failed beside others, passed alone: /' "$logs/passed-alone"
  rm -f "$log.left"
  if [ $verdict = passed ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    say "---- what failed in $log"
    grep -aE -B 8 '^\[  FAILED  \]|^(FAILED|ERROR) ' "$log" | grep -v '^KVCACHEFS_SEED=' | tail -n 60
    say "---- its end"
    tail -n 60 "$log" | grep -v '^KVCACHEFS_SEED='
    say "----"
  fi
done
say "$passed passed, $failed failed"
[ $failed = 0 ]
