"""Runs unit_tests and contract_tests: several processes, each with its share of the tests, which wait more than they compute.
No test here is ever tried again."""

import itertools
import json
import os
import re

from context import LOGS, ROOT, WORKERS
from results import Results, all_skipped, tally

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
        return context.broke(f"{path} was not built")
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
    good, lines = True, []
    for said, out, process in started:
        code = context.wait(process)
        out.seek(0)
        text = out.read()
        context.note(text)
        out.close()
        results = _results(said + ".json", f"{preset}:{program}", text)
        if results is None:
            good = context.broke(f"{path} did not come to its end: exit code {code}")
        elif code != 0:
            good = False
            context.note(f"{path} ended with {code}")
        for result in results or []:
            lines.append(result)
            Results(context.reports).add(result)
    context.note(f"{preset} {program}: {tally(lines)}")
    if not lines:
        context.note(f"no test was run: {selected}")
    if all_skipped(lines):
        return context.broke("every test was skipped")
    return good and bool(lines) and not any(line["outcome"] == "failed" for line in lines)


def _results(path, prefix, text):
    """Returns the line of each test of one process, or None when the process died before its
    end. `text` is the output of the process, which has the reasons of the skipped tests in
    their order."""
    try:
        with open(path) as file:
            suites = json.load(file)["testsuites"]
    except (OSError, ValueError, KeyError):
        return None
    reasons = itertools.chain(re.findall(r": Skipped\n(.+)", text), itertools.repeat("GTEST_SKIP without a reason"))
    return [{"test": f"{prefix}:{suite['name']}.{test['name']}",
             "outcome": "failed" if test.get("failures") else
                        "skipped" if test.get("result") == "SKIPPED" else "passed",
             "seconds": float(test["time"].rstrip("s")),
             "promises": [int(p) for p in str(test.get("promise", "")).split(",") if p], "gate": True,
             "why": next(reasons) if test.get("result") == "SKIPPED" and not test.get("failures") else
                    "\n".join(failure["failure"] for failure in test.get("failures", []))}
            for suite in suites for test in suite["testsuite"] if test["status"] == "RUN"]
