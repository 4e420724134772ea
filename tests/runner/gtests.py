"""Runs unit_tests and contract_tests: several processes, each with its share of the tests, which wait more than they compute.
No test here is ever tried again."""

import json
import os

from context import LOGS, ROOT, WORKERS

# Whole traces in simulation: single-threaded, minutes of computing.
SIMULATIONS = ("ChainPolicy.*", "Runtimes/*")
# What a million names cost in memory, which a sanitizer multiplies: minutes there, and no figure.
SIZES = ("LearnerCost.*", "LookAlikeRows.*")
# ThreadSanitizer does not follow a fork of a process that has threads.
FORKING = ("RocksdbStoreTest.KeepsEveryWriteOfAKilledProcess", "States.AChildThat*")


def run(context, preset, program, leave_out=(), only=(), shards=WORKERS, wrap=(), environment=None):
    """True when every test of the program that the filter selects has passed, and there was one. `leave_out` and `only` are
    patterns of gtest; `wrap` a command to run it with."""
    path = os.path.join("build", preset, "bin", program)
    if not os.access(os.path.join(ROOT, path), os.X_OK):
        context.note(f"{path} was not built")
        return False
    selected = ":".join(only) or "*"
    if leave_out:
        selected += "-" + ":".join(leave_out)
    started = []
    for shard in range(shards):
        said = os.path.join(LOGS, f"{preset}-{program}-{shard}")
        if os.path.exists(said + ".json"):
            os.unlink(said + ".json")
        out = open(said + ".log", "w+")
        started.append((said, out, context.start(
            [*wrap, path, "--gtest_brief=1", f"--gtest_filter={selected}", f"--gtest_output=json:{said}.json",
             f"--gtest_random_seed={context.seed % 99999}"],
            stdout=out, environment={**(environment or {}), "GTEST_TOTAL_SHARDS": str(shards),
                                     "GTEST_SHARD_INDEX": str(shard)})))
    good, ran, failed = True, 0, 0
    for said, out, process in started:
        code = context.wait(process)
        out.seek(0)
        context.note(out.read())
        out.close()
        results = _results(said + ".json", f"{preset}:{program}")
        if code != 0 or results is None:
            good = False
            context.note(f"{process.args[len(wrap)]} ended with {code}"
                         + ("" if results is not None else ": it did not come to its end"))
        for result in results or []:
            ran += 1
            failed += result["outcome"] == "failed"
            _report(context, result)
    context.note(f"{preset} {program}: {ran - failed} passed, {failed} failed")
    if ran == 0:
        context.note(f"no test was run: {selected}")
    return good and failed == 0 and ran > 0


def _results(path, prefix):
    """What the tests of one process came to, or None when it died before its end."""
    try:
        with open(path) as file:
            suites = json.load(file)["testsuites"]
    except (OSError, ValueError, KeyError):
        return None
    return [{"test": f"{prefix}:{suite['name']}.{test['name']}",
             "outcome": "failed" if test.get("failures") else
                        "skipped" if test.get("result") == "SKIPPED" else "passed",
             "seconds": float(test["time"].rstrip("s")),
             "promises": [int(p) for p in str(test.get("promise", "")).split(",") if p], "gate": True,
             "why": "\n".join(failure["failure"] for failure in test.get("failures", []))}
            for suite in suites for test in suite["testsuite"] if test["status"] == "RUN"]


def _report(context, result):
    with open(context.reports, "a") as out:
        out.write(json.dumps(result) + "\n")
