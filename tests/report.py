"""Writes what each test came to as a line of JSON into the file KVCACHEFS_REPORT, for the runner: durations, which promise a
test proves, and whether a failure is lateness alone. A plugin of every session (tests/conftest.py)."""

import json
import os

import pytest

import kvmount

_PATH = os.environ.get("KVCACHEFS_REPORT")
_PARTS = {}  # test -> its phases so far


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """In the process of the test: what the runner has to know of it travels with the report."""
    outcome = yield
    report = outcome.get_result()
    marks = list(item.iter_markers("promise"))
    report.kvcachefs = {
        "test": item.id_for_runner,
        "promises": sorted({int(n) for mark in marks for n in mark.args}),
        "gate": item.get_closest_marker("gate") is not None,
        # The control and the bound tell lateness from a wrong answer; everything else is a wrong answer.
        "late": call.excinfo is not None and call.excinfo.errisinstance(kvmount.Late),
    }


def pytest_runtest_logreport(report):
    """In the controller: one line a test, after its last phase."""
    if not _PATH or os.environ.get("PYTEST_XDIST_WORKER"):
        return
    parts = _PARTS.setdefault(report.nodeid, [])
    parts.append(report)
    if report.when != "teardown":
        return
    del _PARTS[report.nodeid]
    bad = [part for part in parts if part.failed]
    outcome = "failed" if bad else "skipped" if any(part.skipped for part in parts) else "passed"
    told = getattr(report, "kvcachefs", {})
    line = {"test": told.get("test", report.nodeid), "outcome": outcome, "seconds": round(sum(p.duration for p in parts), 3),
            "promises": told.get("promises", []), "gate": told.get("gate", False),
            "late": bool(bad) and all(getattr(part, "kvcachefs", {}).get("late") for part in bad)}
    if bad:
        line["why"] = bad[0].longreprtext
    with open(_PATH, "a") as out:
        out.write(json.dumps(line) + "\n")
