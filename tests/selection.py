"""Which tests a session runs, with what parameters, in what order. A plugin of every session (tests/conftest.py).

    gate               belongs to the gate: run at every change
    promise(n, ...)    proves promise n of the design; is in the gate, too
    alone              runs after the others, with nothing beside it
    by_seed            one data path, drawn by the seed, where the other has nothing to add
    both_paths         both data paths, in the gate, too

KVCACHEFS_SLICE=k/n      the k-th of n parts, drawn anew by each seed
KVCACHEFS_BY_SEED=1      every test that takes a data path or a transport gets one of them, drawn by the seed
KVCACHEFS_DATA_PATHS, KVCACHEFS_TRANSPORTS   narrow both
KVCACHEFS_WITHOUT=FIXTURE leaves out the tests that take this fixture
KVCACHEFS_DURATIONS=FILE what tests took in earlier runs: the longest begin first
"""

import json
import os
import zlib

import pytest

import kvmount


def _seed():
    return os.environ.get("KVCACHEFS_SEED", "0")


def drawn(choices, what):
    """One of the choices, by the seed and by what it is for."""
    return choices[zlib.crc32(f"{_seed()} {what}".encode()) % len(choices)]


def _chosen(variable, default):
    return [word for word in os.environ.get(variable, default).split(",") if word]


def pytest_generate_tests(metafunc):
    node = metafunc.definition
    module = os.path.relpath(str(node.path), kvmount.TESTS)
    by_seed = os.environ.get("KVCACHEFS_BY_SEED") == "1" or node.get_closest_marker("by_seed")
    if node.get_closest_marker("both_paths"):
        by_seed = False
    for name, variable, default in (("data_path", "KVCACHEFS_DATA_PATHS", "passthrough,daemon"),
                                    ("transport", "KVCACHEFS_TRANSPORTS", "uring,dev")):
        if name not in metafunc.fixturenames:
            continue
        choices = _chosen(variable, default)
        if kvmount.PLAIN:
            choices = choices[:1]
        elif by_seed and not kvmount.FULL:
            choices = [drawn(choices, f"{name} {module}")]  # One mount for a module that shares one.
        metafunc.parametrize(name, choices, scope="module")


def pytest_configure(config):
    for line in ("short: the subset that also runs under sanitizers",
                 "full: only with KVCACHEFS_FULL=1",
                 "limit(seconds): the watchdog's limit for this test on an idle machine",
                 "gate: belongs to the gate, which every change has to pass",
                 "promise(n, ...): proves promise n of the design, in the gate",
                 "alone: runs after the others, with nothing beside it",
                 "by_seed: on one data path and transport, drawn by the seed",
                 "both_paths: on both data paths wherever it runs"):
        config.addinivalue_line("markers", line)


def _durations():
    try:
        with open(os.environ.get("KVCACHEFS_DURATIONS", "")) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def _wanted(item):
    return _in_slice(item.nodeid) and os.environ.get("KVCACHEFS_WITHOUT") not in getattr(item, "fixturenames", ())


def _in_slice(nodeid):
    part, _, parts = os.environ.get("KVCACHEFS_SLICE", "0/1").partition("/")
    return zlib.crc32(f"{_seed()} {nodeid}".encode()) % int(parts) == int(part)


def _group(item):
    """Of tests that have to run on one worker, one after the other: by their mark, or because what the kernel remembers is theirs
    alone meanwhile. None: of the others."""
    marked = item.get_closest_marker("xdist_group")
    if marked:
        return marked.kwargs.get("name") or marked.args[0]
    if "page_cache" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.xdist_group("page_cache"))
        return "page_cache"
    return None


# A shared mount for about so many seconds of tests: another worker may have one of its own.
_SHARE_S = 20


# Before the marks are looked at, and before xdist gives ids the names of groups.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        item.id_for_runner = f"tests/{item.nodeid}"  # from the root of the project
        if item.get_closest_marker("promise") and not item.get_closest_marker("gate"):
            item.add_marker(pytest.mark.gate)
    left_out = [item for item in items if not _wanted(item)]
    if left_out:
        items[:] = [item for item in items if _wanted(item)]
        config.hook.pytest_deselected(items=left_out)
    _longest_first(items)


def _longest_first(items):
    took = _durations()
    groups = {}
    for item in items:
        name = _group(item)
        if name is None:
            name = _share(item, groups, took)
        groups.setdefault(name, []).append(item)

    def total(group):
        return sum(took.get(item.id_for_runner, 1) for item in group)

    items[:] = [item for group in sorted(groups.values(), key=total, reverse=True) for item in group]


def _share(item, groups, took):
    """The group of a test without a mark: its own, or one of those that share a mount of the module and its data path."""
    if "shared_mount" not in getattr(item, "fixturenames", ()):
        return item.nodeid
    call = getattr(item, "callspec", None)
    base = f"{item.nodeid.partition('::')[0]} {call.params.get('data_path') if call else ''}"
    number = 0
    while sum(took.get(i.id_for_runner, .3) for i in groups.get(f"{base} {number}", [])) > _SHARE_S:
        number += 1
    item.add_marker(pytest.mark.xdist_group(f"{base} {number}"))
    return f"{base} {number}"
