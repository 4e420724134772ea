"""Runs the suites in Python: those of the folders that are named in one session, several tests at a time; then those that need
the machine for themselves. What was late alone is tried again beside a load; nothing else is (ledger.py)."""

import os
import subprocess

from context import LOGS, ROOT, WORKERS, say
from ledger import TIMES, Load
from results import Results


def environment_of_python(context):
    """The interpreter that has what the tests need; None, and a note, when it cannot be had."""
    if "python" not in context.__dict__:
        done = subprocess.run([os.path.join(ROOT, "packaging", "python-env.sh"), "tests/requirements.txt"], cwd=ROOT,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        context.python = os.path.join(done.stdout.strip(), "bin", "python") if done.returncode == 0 else None
        if context.python is None:
            context.note(done.stderr)
    return context.python


def can_mount(context):
    if os.getuid() != 0:
        context.note("mounting needs root")
        return False
    if not os.path.exists("/dev/fuse"):
        context.command(["modprobe", "fuse"])
    if not os.path.exists("/dev/fuse"):
        context.note("/dev/fuse is missing: modprobe fuse, or give the container --device /dev/fuse")
        return False
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
    results, since = Results(context.reports), Results(context.reports).position()
    codes = []
    # An expression of markers among the arguments replaces ours: one session runs what it selects.
    sessions = [("not alone", ["-n", str(WORKERS), "--dist", "loadgroup"]), ("alone", ["-n", "0"])]
    if "-m" in context.pytest_arguments:
        sessions = sessions[:1]
    for mark, how in sessions:
        expression = f"({marks}) and {mark}" if marks else mark
        codes.append(context.command([*base, *how, "-m", expression, *paths, *words], environment=environment))
    lines = results.lines(since)
    failed = [line for line in lines if line["outcome"] == "failed"]
    ran = len(lines)
    context.note(f"{'+'.join(folders)}: {ran - len(failed)} passed, {len(failed)} failed")
    # 5: nothing was selected. 1: tests have failed.
    if any(code not in (0, 1, 5) for code in codes) or (1 in codes and not failed):
        return False
    if not failed:
        # A narrowing argument may well ask for nothing here.
        return ran > 0 or not some or bool(context.pytest_arguments)
    late = [line["test"] for line in failed if line["late"]]
    if not again or len(late) < len(failed):
        return False
    return all([_again(context, [*base, "-n", "0"], test, environment) for test in late])


def _again(context, base, test, environment):
    """A test that was late: three times beside a load, and it must pass each time."""
    known = context.ledger.was_late(test)
    context.ledger.add(test)
    context.note(f"---- late, {TIMES} times beside a load: {test}")
    good = True
    with Load():
        for _ in range(TIMES):
            good = good and context.command([*base, test], environment=environment) == 0
    verdict = ("late once more within 20 runs" if known else
               f"passed {TIMES} times beside a load" if good else "late again beside a load")
    context.tried_again.append((test, verdict))
    say(f"    late: {test}: {verdict}")
    return good and not known
