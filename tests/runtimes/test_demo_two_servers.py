"""packaging/demo-two-servers.sh as a new user runs it, against executables that are built already."""

import os
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

import kvmount
from programs import QUICKSTART

SCRIPT = os.path.join(os.path.dirname(QUICKSTART), "demo-two-servers.sh")
PROMPT_TOKENS = "200"
LIMIT_S = 180 * kvmount.SLOWNESS

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="mounts by itself")


@pytest.fixture
def place():
    """A directory for the demo's data, which is empty again after each run."""
    path = tempfile.mkdtemp(prefix="kvcachefs-demo-", dir="/var/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def environment(place, **more):
    return {**os.environ, "KVCACHEFS_BIN": kvmount.BIN, "KVCACHEFS_DATA": place,
            "KVCACHEFS_QUICKSTART_TOKENS": PROMPT_TOKENS, **more}


def demo(place, *before, **more):
    return subprocess.run([*before, SCRIPT], env=environment(place, **more), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S,
                          check=False)


def processes_of(place):
    """Process ids whose environment names this directory: all that the script has started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"KVCACHEFS_DATA={place}".encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            continue  # It has ended.
    return found


def assert_nothing_left(place):
    assert os.listdir(place) == []
    with open("/proc/self/mountinfo") as table:
        assert place not in table.read()
    kvmount.wait_until(lambda: not processes_of(place), 5, "the demo's processes have ended")


@pytest.mark.limit(200)
def test_the_second_server_goes_on_with_what_the_first_has_computed(place):
    done = demo(place)
    output = done.stdout
    assert done.returncode == 0, output + done.stderr
    assert re.search(r"^  the same \d+ tokens: YES$", output, re.MULTILINE), output
    rows = re.findall(r"^  server ([12])  .+? (\d+\.\d\d) s$", output, re.MULTILINE)
    assert [server for server, _ in rows] == ["1", "1", "1", "2", "2", "2"], output
    steps = re.findall(r"^\[(\d+)/(\d+)\]", output, re.MULTILINE)
    assert steps == [(str(n + 1), str(len(steps))) for n in range(len(steps))]
    assert_nothing_left(place)


@pytest.mark.limit(200)
def test_an_interrupted_one_leaves_nothing(place):
    # ^C: the signal goes to all of them. It may be ignored here, which a script cannot undo.
    with subprocess.Popen(
            [SCRIPT], env=environment(place, KVCACHEFS_QUICKSTART_TOKENS="1000"), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as script:
        seen = ""
        for line in script.stdout:
            seen += line
            if "evaluating a prompt" in line:
                assert len(processes_of(place)) > 4
                os.killpg(script.pid, signal.SIGINT)
                break
        seen += script.stdout.read()
        assert script.wait(LIMIT_S) == 130, seen
    assert "Traceback" not in seen
    assert_nothing_left(place)


@pytest.mark.limit(200)
def test_a_failing_one_says_so_in_one_line_and_leaves_nothing(place):
    with tempfile.TemporaryDirectory(prefix="kvcachefs-demo-bin-", dir="/var/tmp") as bin_dir:
        stand_in = os.path.join(bin_dir, "kvcachefs")
        with open(stand_in, "w") as file:
            file.write("#!/bin/sh\n"
                       'case $1 in flush) exit 1 ;; esac\n'
                       f'exec "{kvmount.BIN}/kvcachefs" "$@"\n')
        os.chmod(stand_in, 0o755)
        done = demo(place, KVCACHEFS_BIN=bin_dir)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr == "demo-two-servers: what server 1 has saved did not get to the pool\n"
    assert_nothing_left(place)


def test_without_the_right_to_make_networks_it_says_what_is_missing(place):
    done = demo(place, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
    assert done.returncode == 1
    assert "CAP_NET_ADMIN:" in done.stderr and "CAP_SYS_ADMIN:" not in done.stderr
    assert_nothing_left(place)


def test_without_root_it_says_what_is_missing(place):
    done = demo(place, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    assert done.returncode == 1
    assert "root: run it as root" in done.stderr
