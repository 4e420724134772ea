"""Fixtures shared by every suite that mounts: seeds, the watchdog, logs on failure. Which tests run is the matter of
selection.py, what the runner is told that of report.py."""

import faulthandler
import os
import signal
import sys
import threading

import pytest

import kvmount

pytest_plugins = ["selection", "report"]

# Where these are set pytest shows the whole difference of two files' contents, and computes it for minutes.
for variable in ("CI", "BUILD_NUMBER"):
    os.environ.pop(variable, None)

# A test that is stuck in a system call on the mount cannot be interrupted: the watchdog prints
# where everything stands and kills the daemons, which turns the wait into an error.
TEST_LIMIT_S = 90 * kvmount.SLOWNESS * (10 if kvmount.FULL else 1)


def pytest_sessionstart(session):
    def interrupted(number, frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)  # So that fixtures unmount before we go.


@pytest.fixture(autouse=True)
def watchdog(request):
    """Ends a hung test after TEST_LIMIT_S; `@pytest.mark.limit(seconds)` sets another limit."""
    marker = request.node.get_closest_marker("limit")
    limit = marker.args[0] * kvmount.SLOWNESS if marker else TEST_LIMIT_S

    def bark():
        sys.__stderr__.write(f"\n=== {request.node.nodeid}: {limit} s are over; stacks, then "
                             "the daemons are killed\n")
        faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
        for mount in list(kvmount.live_mounts):
            sys.__stderr__.write(mount.logs())
            mount.abort()

    timer = threading.Timer(limit, bark)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for mount in kvmount.live_mounts:
            text = mount.logs()
            if text:
                report.sections.append((f"kvcachefs {mount.name}", text))


@pytest.fixture
def seed():
    """A seed for this test, printed (shown when the test fails)."""
    value = kvmount.seed()
    print(f"KVCACHEFS_SEED={value}")
    return value


@pytest.fixture
def page_cache(watchdog):  # pylint: disable=unused-argument
    """For a test of what the kernel remembers: no other test drops the machine's caches meanwhile. Tests that use it run on one
    worker, one after the other (selection.py)."""
    with kvmount.page_cache():
        yield


@pytest.fixture
def mounts(request):
    """A factory of Mounts that are started at once and closed after the test."""
    opened = []

    def start(**arguments):
        arguments.setdefault("name", request.node.name)
        mount = kvmount.Mount(**arguments)
        opened.append(mount)
        mount.__enter__()
        return mount

    yield start
    errors = []
    for mount in reversed(opened):
        try:
            if mount.work is not None and mount.is_mounted() and mount.process is not None:
                mount.stop()
        except Exception as error:  # pylint: disable=broad-except
            errors.append(error)
        finally:
            mount.close()
    if errors:
        raise errors[0]


@pytest.fixture(scope="module")
def shared_mount(request, data_path):
    """One mount per module and data path, with `dev` and `suid` so that ext4 is comparable."""
    name = request.module.__name__.rpartition(".")[2]
    with kvmount.Mount(f"{name}-{data_path}", data_path=data_path,
                       options=["-o", "dev,suid"]) as mount:
        os.chmod(mount.mnt, 0o755)
        yield mount
