"""What the tests have the guest do: functions that run there, in a worker's process (agent.py)."""

import argparse
import contextlib
import errno
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import kvmount

RUNTIME = "xllamacpp"  # of the quickstart
RUNTIME_START_S = 300  # six seconds in the guest, while it has a CPU


def run(script):
    """The output of a bash script that ends at the first failure; daemons that it starts may keep its output open."""
    with tempfile.TemporaryFile("w+", errors="replace", dir="/dev/shm") as said:
        code = subprocess.call(["bash", "-euo", "pipefail", "-c", script], stdin=subprocess.DEVNULL, stdout=said,
                               stderr=said)
        said.seek(0)
        text = said.read()
    if code != 0:
        raise RuntimeError(f"exit {code} of: {script}\n{text}")
    return text


# ---- files ------------------------------------------------------------------------------------


def store(path, data):
    """As runtimes do: under another name, then by rename."""
    with open(path + ".tmp", "wb") as file:
        file.write(data)
    os.rename(path + ".tmp", path)


def store_all(directory, contents):
    """{name: bytes}"""
    for name, data in contents.items():
        store(os.path.join(directory, name), data)


def load(path):
    """The bytes; None: a miss."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def load_all(directory, names):
    return {name: load(os.path.join(directory, name)) for name in names}


def fails(function, *arguments):
    """The errno of the failure; None: there was none."""
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
    return None


def is_gone(path):
    """Whether it is a miss, by name or by the handle that the client remembers."""
    try:
        with open(path, "rb") as file:
            file.read()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        return True
    return False


def timed(function, *arguments):
    """(seconds, what it returned)"""
    began = time.monotonic()
    value = function(*arguments)
    return time.monotonic() - began, value


def listing(directory):
    """{name: size}, of the whole tree."""
    return {os.path.relpath(os.path.join(where, name), directory): os.lstat(os.path.join(where, name)).st_size
            for where, _, names in os.walk(directory) for name in names}


_held = {}


def hold(paths):
    """Opens them for this worker's life."""
    for path in paths:
        _held[path] = open(path, "rb")


def read_held():
    """{path: bytes, or the errno}, read anew: what the client's cache holds is forgotten first."""
    found = {}
    for path, file in _held.items():
        try:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.seek(0)
            found[path] = file.read()
        except OSError as error:
            found[path] = error.errno
    return found


def let_go():
    for file in _held.values():
        with contextlib.suppress(OSError):
            file.close()
    _held.clear()


# ---- mounts of kvcachefs ----------------------------------------------------------------------


class Node(kvmount.Mount):
    """A mount below /vm, where only ext4 stands above it: so that an NFS server can walk there."""

    def create(self):
        self.work = os.path.join("/vm", self.name)
        self.nvme = os.path.join(self.work, "nvme")
        self.state = os.path.join(self.work, "state")
        self.mnt = os.path.join(self.work, "mnt")
        self.log = os.path.join(self.work, "log")
        self.stderr = os.path.join(self.work, "daemon.err")
        for path in (self.work, self.nvme, self.mnt):
            os.makedirs(path, exist_ok=True)
        return self


_nodes = {}


def make_node(name, options):
    _nodes[name] = Node(name, options=options, foreground=False).create()
    _nodes[name].start()
    return _nodes[name].mnt


def on_node(name, method, arguments):
    """A method of kvmount.Mount, on the node that this worker has made."""
    value = getattr(_nodes[name], method)(*arguments)
    return None if value is _nodes[name] else value


# ---- runtimes (their folders are on sys.path: agent.py, conftest.py) --------------------------


def replay(kind, root, seed, keys, store):
    """A process that has the runtime's calls (tests/mount/replay): stores the keys, or finds and compares them."""
    module = importlib.import_module(kind[0])
    scenario = getattr(module, kind[1])(root, seed)
    scenario.prepare()
    try:
        for key in keys:
            if store:
                scenario.store(key)
            else:
                assert scenario.probe(key), f"key {key} is not found"
                assert scenario.load(key), f"key {key} is gone"
        if not store:
            scenario.check_directory(keys)
    finally:
        scenario.finish()


def make_model(path):
    """The quickstart's; the same bytes wherever it is made."""
    run(f"python3 {kvmount.ROOT}/packaging/quickstart/make_model.py {path}")


def converse(half, slots, work, model, tokens, notes=None):
    """A half of the quickstart (its demo.py) with a runtime process of its own, here or in the guest.

    `slots`: where the runtime saves and loads; `notes`: what the first half noted, for the second. Returns what it notes
    and says. The runtime's log is in `work`, and has no error.
    """
    demo, runtime = importlib.import_module("demo"), importlib.import_module("runtime")
    runtime.START_TIMEOUT_S = RUNTIME_START_S
    arguments = argparse.Namespace(python=sys.executable, model=model, dir=slots, notes=os.path.join(work, "notes.json"),
                                   log=os.path.join(work, f"runtime-{half}.log"), tokens=tokens)
    if notes is not None:
        with open(arguments.notes, "w") as file:
            json.dump(notes, file)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = {"save": demo.save, "continue": demo.go_on}[half](arguments)
    with open(arguments.log) as file:
        log = file.read()
    assert code == 0 and not re.search(r"^[0-9.]+ E ", log, re.MULTILINE), f"exit {code}\n{said.getvalue()}{log}"
    with open(arguments.notes) as file:
        return json.load(file), said.getvalue()


def bytes_from_server(path):
    """What the kernel's NFS client has read from the server of the mount at `path`, all in all."""
    with open("/proc/self/mountstats") as stats:
        of_mount = stats.read().split(f" mounted on {path} with ", 1)[1].split("\ndevice ", 1)[0]
    # Read and written by programs, past the cache, and (the fifth) read from the server.
    return int(re.search(r"^\s*bytes:\s+(.*)$", of_mount, re.MULTILINE)[1].split()[4])
