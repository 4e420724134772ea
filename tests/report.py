"""Writes the outcome of each test as a line of JSON into the file KVCACHEFS_REPORT, for the
runner: durations, which promise a test proves, and whether a failure is lateness alone. A
plugin of every session (tests/conftest.py).

A line with `broke` says that the test, its file or a worker of xdist came to no end. The last
line of a session has `session` instead of `test`: pytest's exit code. A session without this
line died."""

import json
import os

import pytest

import kvmount

_PATH = os.environ.get("KVCACHEFS_REPORT")
_CONTROLLER = bool(_PATH) and not os.environ.get("PYTEST_XDIST_WORKER")
_PARTS = {}  # test -> its phases so far
_DOWN = set()  # workers of xdist that died and whose test is not known yet


def _write(line):
    with open(_PATH, "a") as out:
        out.write(json.dumps(line) + "\n")


def _broke(test, why):
    _write({"test": test, "outcome": "failed", "seconds": 0, "promises": [], "gate": False, "late": False,
            "broke": True, "why": why})


def _for_runner(nodeid):
    """Returns the id of a test from the root of the project, without the group that xdist
    appends."""
    if nodeid.rfind("@") > nodeid.rfind("]"):
        nodeid = nodeid.rpartition("@")[0]
    return f"tests/{nodeid}"


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
        "late": call.excinfo is not None and call.excinfo.errisinstance(kvmount.Late) and not
                call.excinfo.errisinstance(kvmount.Never),
    }


def pytest_runtest_logreport(report):
    """In the controller: one line a test, after its last phase."""
    if not _CONTROLLER:
        return
    if report.when not in ("setup", "call", "teardown"):  # xdist: the worker died in this test.
        _PARTS.pop(report.nodeid, None)
        _DOWN.discard(report.node.gateway.id)
        _broke(_for_runner(report.nodeid), report.longreprtext)
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
    elif outcome == "skipped":
        line["why"] = _why_skipped(next(part for part in parts if part.skipped))
    _write(line)


def _why_skipped(report):
    """Returns the reason of a skip, or of a failure that was expected."""
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    return str(report.longrepr[2]).removeprefix("Skipped: ")


def pytest_collectreport(report):
    """In the controller: writes the line of a file that pytest could not collect, or that skips
    itself. Its tests have no lines."""
    if not _CONTROLLER:
        return
    if report.failed:
        _broke(_for_runner(report.nodeid), report.longreprtext)
    elif report.skipped:
        _write({"test": _for_runner(report.nodeid), "outcome": "skipped", "seconds": 0, "promises": [], "gate": False,
                "late": False, "why": _why_skipped(report)})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """In the controller: notices a worker of xdist that died. A worker that ended in order has
    no error."""
    if _CONTROLLER and error:
        _DOWN.add(node.gateway.id)


def pytest_sessionfinish(exitstatus):
    """In the controller: writes a line for each test and worker that came to no end, then the
    last one."""
    if not _CONTROLLER:
        return
    for nodeid in _PARTS:
        _broke(_for_runner(nodeid), "the session ended before this test")
    for worker in sorted(_DOWN):
        _broke(f"worker {worker}", "the worker died between two tests")
    _write({"session": int(exitstatus)})
