"""What the tests have the guest do: functions that run there, in a worker's process (agent.py)."""

import contextlib
import errno
import importlib
import os
import subprocess
import tempfile
import time

import kvmount


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


# ---- runtimes ---------------------------------------------------------------------------------


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
