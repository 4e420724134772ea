"""Runs the suites in Python: those of the folders that are named in one session, several tests at a time; then those that need
the machine for themselves. What was late alone is tried again beside a load; nothing else is (ledger.py)."""

import os
import subprocess

from context import LOGS, ROOT, WORKERS, say
from ledger import RUNS, TIMES, Load
from results import Results, all_skipped, tally


def environment_of_python(context):
    """The interpreter that has what the tests need; None, and a note, when it cannot be had."""
    if "python" not in context.__dict__:
        done = subprocess.run([os.path.join(ROOT, "packaging", "python-env.sh"), "tests/requirements.txt"], cwd=ROOT,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        context.python = os.path.join(done.stdout.strip(), "bin", "python") if done.returncode == 0 else None
        if context.python is None:
            context.broke(f"the environment of Python could not be made: {done.stderr}")
    return context.python


def can_mount(context):
    if os.getuid() != 0:
        return context.broke("mounting needs root")
    if not os.path.exists("/dev/fuse"):
        context.command(["modprobe", "fuse"])
    if not os.path.exists("/dev/fuse"):
        return context.broke("/dev/fuse is missing: modprobe fuse, or give the container --device /dev/fuse")
    return True


def run(context, folders, marks="", keywords="", environment=None, wrap=(), again=True, some=True):
    """True when all selected tests of these folders of tests/ have passed. `marks`: an expression of markers; `again`: what was
    late may be tried again; `some`: selecting no test at all is a failure."""
    python = environment_of_python(context)
    if python is None:
        return False
    paths = [f"tests/{folder}" for folder in folders]
    base = [*wrap, python, "-m", "pytest", "-q", "-c", "tests/pytest.ini", "--timeout=900"]
    words = (["-k", keywords] if keywords else []) + context.pytest_arguments
    environment = {"KVCACHEFS_DURATIONS": context.durations.path, **(environment or {})}
    lines, explained = [], True
    # An expression of markers among the arguments replaces ours: one session runs what it selects.
    sessions = [("not alone", ["-n", str(WORKERS), "--dist", "loadgroup"]), ("alone", ["-n", "0"])]
    if "-m" in context.pytest_arguments:
        sessions = sessions[:1]
    for mark, how in sessions:
        expression = f"({marks}) and {mark}" if marks else mark
        more, good = session(context, [*base, *how, "-m", expression, *paths, *words], environment)
        lines += more
        explained = explained and good
    failed = [line for line in lines if line["outcome"] == "failed"]
    context.note(f"{'+'.join(folders)}: {tally(lines)}")
    if again:
        context.ledger.ran({line["test"] for line in lines if line["outcome"] != "skipped"})
    if not explained:
        return False
    if all_skipped(lines):
        return context.broke("every test was skipped")
    if not failed:
        # A narrowing argument may well ask for nothing here.
        return len(lines) > 0 or not some or bool(context.pytest_arguments)
    late = [line["test"] for line in failed if line["late"]]
    if not again or len(late) < len(failed):
        return False
    return all([_again(context, [*base, "-n", "0"], test, environment) for test in late])


def run_alone(context, path):
    """Runs the tests below this path one after the other. Returns true when all have passed,
    and there was one."""
    python = environment_of_python(context)
    if python is None:
        return False
    lines, explained = session(context, [python, "-m", "pytest", "-q", "-c", "tests/pytest.ini", "--timeout=900", path,
                                         *context.pytest_arguments])
    if all_skipped(lines):
        return context.broke("every test was skipped")
    failed = any(line["outcome"] == "failed" for line in lines)
    return explained and not failed and (bool(lines) or bool(context.pytest_arguments))


def session(context, argv, environment=None):
    """Runs pytest once. Returns (the lines of its tests, whether these explain its exit
    code)."""
    results = Results(context.reports)
    since = results.position()
    code = context.command(argv, environment=environment or {})
    lines, ends = results.lines(since), results.sessions(since)
    failed = any(line["outcome"] == "failed" for line in lines)
    broke = [line for line in lines if line.get("broke")]
    for line in broke:
        context.broke(f"{line['test']} came to no end")
    # 0: all have passed. 1: tests have failed. 5: nothing was selected.
    explained = ends == [code] and code in (0, 1, 5) and failed == (code == 1)
    if not explained:
        context.broke(f"pytest ended with {code}, which its tests do not explain")
    return lines, explained and not broke


def _again(context, base, test, environment):
    """A test that was late: three times beside a load, and it must pass each time."""
    known = context.ledger.was_late(test)
    context.ledger.add(test)
    context.note(f"---- late, {TIMES} times beside a load: {test}")
    good = True
    with Load():
        for _ in range(TIMES):
            if good:
                lines, explained = session(context, [*base, test], environment)
                good = explained and [line["outcome"] for line in lines] == ["passed"]
    verdict = (f"late once more within {RUNS} of its runs" if known else
               f"passed {TIMES} times beside a load" if good else "late again beside a load")
    context.tried_again.append((test, verdict))
    say(f"    late: {test}: {verdict}")
    return good and not known
