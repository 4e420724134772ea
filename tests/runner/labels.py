"""The labels: what can be run by name, and of which the gate, the slices and the full run are made. Each is a function of the
run that returns True when it has passed; its output goes to the label's log."""

import glob
import os
import platform
import re

import gtests
import pytests
from build import PROGRAMS, build
from context import CPUS, LOGS, ROOT, output_of
from suites import CACHE  # tests/conformance

# libfuse 3.14 has no passthrough, no io_uring, no O_TMPFILE, and does not hand on what clears set-id bits: the comparisons
# with ext4 would show these four again and again.
OF_NEW_LIBFUSE = "not passthrough and not uring and not same_as_ext4 and not random and not nameless"
# What a plain directory on ext4 can show of the tests themselves.
ORACLE_FOLDERS = ("mount/posix", "mount/replay", "crash")
# What a filesystem other than ext4 below the mount may change.
XFS_FOLDERS = ("mount/posix", "mount/budget", "crash")
# These folders mount, and have tests in the gate.
SUITES = ("mount", "crash", "runtimes", "neighbours")
# The seed draws one data path and one transport for each test that takes them.
BY_SEED = {"KVCACHEFS_BY_SEED": "1"}
CONFORMANCE_PROGRAMS = os.path.join(CACHE, "bin")


def style(context):
    return (build(context, "release", "kvcachefs") and pytests.environment_of_python(context) is not None and
            all([context.command(["python3", "tests/style/source_test.py", "--bin", "build/release/bin"]) == 0,
                 context.command([context.python, "tests/style/runner_test.py"]) == 0]))


def unit(context):
    return build(context, "release", "unit_tests") and gtests.run(context, "release", "unit_tests")


def unit_of_the_gate(context):
    return build(context, "release", "unit_tests") and gtests.run(
        context, "release", "unit_tests", leave_out=gtests.SIMULATIONS)


def simulations(context):
    return build(context, "release", "unit_tests") and gtests.run(
        context, "release", "unit_tests", only=gtests.SIMULATIONS)


def contract(context):
    return build(context, "release", "contract_tests") and gtests.run(context, "release", "contract_tests", shards=8)


# --- Suites in Python --------------------------------------------------------------------------

def suites(*folders, marks="", environment=None, some=True):
    """A label that runs those folders on the release build."""
    def label(context):
        return pytests.can_mount(context) and build(
            context, "release", *PROGRAMS, "order_mount", "policy_mount") and pytests.run(
                context, folders, marks=marks, environment=environment, some=some)
    return label


mount = suites("mount")
crash = suites("crash")
neighbours = suites("neighbours")
runtimes = suites("runtimes")
soak = suites("soak")
conformance = suites("conformance")
oracle = suites(*ORACLE_FOLDERS, environment={"KVCACHEFS_TARGET": "ext4"})
xfs = suites(*XFS_FOLDERS, environment={**BY_SEED, "KVCACHEFS_BELOW": "xfs"})


def dev(context):
    """Runs the tests that leave the transport to the machine over /dev/fuse: half of them,
    drawn by the seed, because all would take as long again as the labels of their folders."""
    return suites(*SUITES, environment={
        **BY_SEED, "KVCACHEFS_SLICE": f"{context.seed // 8 % 2}/2", "KVCACHEFS_TRANSPORT": "dev",
        "KVCACHEFS_WITHOUT": "transport"})(context)


def why_not_conformance():
    """Why the outside suites, which are Rust programs of recent date, cannot be built on this machine; or None."""
    found = re.match(r"cargo (\d+)\.(\d+)", output_of(["cargo", "--version"]))
    if found and (int(found[1]), int(found[2])) >= (1, 85):
        return None
    return f"no cargo >= 1.85 (found: {found[0] if found else 'none'})"


def libfuse314(context, environment=None):
    return pytests.can_mount(context) and build(context, "libfuse314", *PROGRAMS) and pytests.run(
        context, ["mount"], marks="short", keywords=OF_NEW_LIBFUSE,
        environment={"KVCACHEFS_BIN": os.path.join(ROOT, "build", "libfuse314", "bin"), **(environment or {})})


# --- Sanitizers --------------------------------------------------------------------------------

class Sanitizer:
    """The parts of a label with sanitizers. A report in any process, daemons included, fails the part that it came in; no test is
    tried again."""

    def __init__(self, preset):
        self.preset = preset
        self.reports = os.path.join(LOGS, f"{preset}-reports")
        suppressions = os.path.join(ROOT, "tests", "sanitizer")
        self.environment = {
            "KVCACHEFS_BIN": os.path.join(ROOT, "build", preset, "bin"),
            "KVCACHEFS_SANITIZER": "1",
            "ASAN_OPTIONS": f"log_path={self.reports}/asan:detect_leaks=1:detect_stack_use_after_return=1",
            "LSAN_OPTIONS": f"suppressions={suppressions}/lsan.supp:print_suppressions=0",
            "UBSAN_OPTIONS": f"log_path={self.reports}/ubsan:print_stacktrace=1",
            "TSAN_OPTIONS": f"log_path={self.reports}/tsan:suppressions={suppressions}/tsan.supp:second_deadlock_stack=1:"
                            "die_after_fork=0",
        }
        # The runtimes of gcc 12 cannot cope with the address randomisation of newer kernels.
        self.wrap = ["setarch", platform.machine(), "--addr-no-randomize"]

    def _gtest(self, context, program, shards):
        leave_out = [*gtests.SIMULATIONS, *gtests.SIZES] + (list(gtests.FORKING) if self.preset == "tsan" else [])
        return build(context, self.preset, program) and gtests.run(
            context, self.preset, program, leave_out=leave_out, shards=shards, wrap=self.wrap,
            environment=self.environment)

    def unit(self, context):
        return self._checked(context, lambda: self._gtest(context, "unit_tests", pytests.WORKERS))

    def contract(self, context):
        return self._checked(context, lambda: self._gtest(context, "contract_tests", 8))

    def mounts(self, context, marks="short", environment=None, some=True):
        """The tests of mounts and crashes that these marks select; the programs alone are built for them, without the helper of
        mount(8), which only calls the program."""
        return self._checked(context, lambda: pytests.can_mount(context) and build(context, self.preset, *PROGRAMS) and
                             pytests.run(context, ["mount", "crash", "neighbours"], marks=marks, wrap=self.wrap, again=False, some=some,
                                         environment={**self.environment, **(environment or {})}))

    def _checked(self, context, part):
        os.makedirs(self.reports, exist_ok=True)
        os.chmod(self.reports, 0o1777)
        for path in glob.glob(f"{self.reports}/*"):
            os.unlink(path)
        good = part()
        for path in sorted(glob.glob(f"{self.reports}/*")):
            with open(path, errors="replace") as file:
                text = file.read()
            if text:
                context.note(f"report {path}:\n" + "\n".join(text.splitlines()[:60]))
                good = False
        return good

    def whole(self, context):
        """A label by name: everything, one of the data paths unless full counts are asked for."""
        environment = {} if context.full else BY_SEED
        return all([self.unit(context), self.contract(context), self.mounts(context, environment=environment)])


ASAN, TSAN = Sanitizer("asan"), Sanitizer("tsan")


# --- Fuzzing -----------------------------------------------------------------------------------

def fuzz_targets():
    """The programs: each has a corpus."""
    return sorted(os.path.basename(path) for path in glob.glob(os.path.join(ROOT, "tests", "fuzz", "corpus", "*_fuzz")))


def fuzz(context, targets=None, seconds=None):
    """libFuzzer on these targets, one for each CPU at a time."""
    targets = targets or fuzz_targets()
    seconds = seconds or int(os.environ.get("KVCACHEFS_FUZZ_S", "20"))
    if not build(context, "fuzz", *targets):
        return False
    good = True
    for first in range(0, len(targets), CPUS):
        running = [(name, *_fuzzer(context, name, seconds)) for name in targets[first:first + CPUS]]
        for name, log, process in running:
            code = context.wait(process, seconds + 120)
            with open(log) as file:
                text = file.read()
            runs = re.search(r"^stat::number_of_executed_units: *(\d+)", text, re.M)
            if code != 0 or not runs:
                context.note(f"{name} failed ({code}):\n" + "\n".join(text.splitlines()[-40:]))
                good = False
            else:
                context.note(f"{name}: {runs[1]} runs")
    return good


def _fuzzer(context, name, seconds):
    found, corpus = os.path.join(ROOT, "build/fuzz/found"), os.path.join(ROOT, "build/fuzz/corpus", name)
    for directory in (found, corpus):
        os.makedirs(directory, exist_ok=True)
    kept = os.path.join(ROOT, "tests/fuzz/corpus", name)
    log = os.path.join(LOGS, f"fuzz-{name}.log")
    with open(log, "w") as out:
        process = context.start(
            [f"build/fuzz/bin/{name}", f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048",
             f"-seed={context.seed % 2147483647}", "-verbosity=0", "-print_final_stats=1",
             f"-artifact_prefix={found}/{name}-", corpus, *([kept] if os.path.isdir(kept) else [])], stdout=out)
    return log, process


# --- By name -----------------------------------------------------------------------------------

def vm(context):
    """One machine for all of its tests, one after the other."""
    context.label_limit_s = 3600
    return (pytests.can_mount(context) and context.command(["packaging/install-deps.sh", "vm"]) == 0 and
            build(context, "release", *PROGRAMS) and context.command(["tests/vm/image.sh", "build/vm"]) == 0 and
            pytests.run_alone(context, "tests/vm"))


def bench(context):
    return pytests.can_mount(context) and build(context, "release", *PROGRAMS) and context.command(
        ["bench/bench.sh"]) == 0


def bench_quick(context):
    """Measures the rows that have a target; the summary of the run says which have fallen."""
    if not (pytests.can_mount(context) and build(context, "release", *PROGRAMS)):
        return False
    with open(os.path.join(LOGS, "bench-quick.out"), "w+") as out:
        code = context.command(["bench/bench.sh", "--quick"], stdout=out)
        out.seek(0)
        text = out.read()
    context.note(text)
    context.measured += [line.strip() for line in text.splitlines()
                         if line.endswith(" FALLEN") or re.match(r"\d+ (have fallen|below their target)", line)]
    return code == 0


def size(context):
    context.label_limit_s = 36000
    names = os.environ.get("NAMES", "10000000")
    return pytests.can_mount(context) and build(context, "release", *PROGRAMS) and context.command(
        ["bench/size.sh"], environment={"NAMES": names}) == 0


# In the order of a full run.
DEFAULT = {"style": style, "unit": unit, "contract": contract, "fuzz": fuzz, "mount": mount, "runtimes": runtimes,
           "crash": crash, "neighbours": neighbours, "soak": soak, "conformance": conformance, "asan": ASAN.whole,
           "tsan": TSAN.whole, "libfuse314": libfuse314}
NAMED = {"xfs": xfs, "dev": dev, "oracle": oracle, "bench": bench, "vm": vm, "size": size}
