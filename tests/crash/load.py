"""A seeded mixed file load with an acknowledgement log outside the mount.

Every worker is a process of its own with a directory of its own, so the order of what happened to a
path is the order of its worker's log. A log line is written before an operation ("I"), between its
steps ("P") and when it returned ("D"); lines are plain write(2)s to a disk that is not under test.
What a crash may leave of such a log is decided in model.py.
"""

import ctypes
import errno
import json
import mmap
import multiprocessing
import os
import random
import sys
import time

import kvmount

WAYS = ("plain", "append", "mmap", "fallocate", "direct")
# What a caller may see from a daemon that was killed or a disk that was shut down.
CRASH_ERRNOS = {
    errno.ENOTCONN, errno.ECONNABORTED, errno.ECONNREFUSED, errno.EIO, errno.ESTALE,
    errno.EROFS, errno.ESHUTDOWN, errno.ENODEV, errno.ECANCELED, errno.EINTR,
}
RENAME_EXCHANGE = 2
AT_FDCWD = -100
_libc = ctypes.CDLL(None, use_errno=True)


def content(tag, size):
    """The bytes that belong to a tag: any slice of any other tag's bytes differs."""
    return random.Random(tag).randbytes(size)


def record_size(log_id, index):
    return random.Random(f"{log_id}/{index}").randrange(64, 6000)


def exchange(a, b):
    if _libc.renameat2(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), a)


def write_all(fd, data, rng):
    """As an application writes: in pieces of any size."""
    view = memoryview(data)
    while view:
        step = min(len(view), rng.choice((1 << 12, 1 << 16, 1 << 20, 4 << 20)))
        view = view[os.write(fd, view[:step]):]


def write_direct(fd, data):
    buffer = mmap.mmap(-1, len(data))
    buffer[:] = data
    view = memoryview(buffer)
    offset = 0
    while offset < len(data):
        offset += os.pwrite(fd, view[offset:], offset)
    view.release()
    buffer.close()


def store_bytes(path, data, way, rng, flags, sync):
    """Creates `path` with the bytes by one of the ways in which runtimes write; closes it."""
    flags |= {"append": os.O_APPEND, "direct": os.O_DIRECT}.get(way, 0)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o640)
    try:
        if way == "mmap" and data:
            os.ftruncate(fd, len(data))
            with mmap.mmap(fd, len(data)) as window:
                window[:] = data
        elif way == "direct":
            write_direct(fd, data)
        else:
            if way == "fallocate" and data:
                os.posix_fallocate(fd, 0, len(data))
            write_all(fd, data, rng)
        if sync:
            os.fsync(fd)
            sync()
    finally:
        os.close(fd)


class AckLog:
    """The log of one worker in one round."""

    def __init__(self, path):
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def line(self, kind, value):
        os.write(self._fd, f"{time.monotonic_ns()} {kind} {json.dumps(value)}\n".encode())


class Worker:
    """Draws operations from the seed, and keeps what it was told is there."""

    DRAWS = (("store", 40), ("create", 5), ("rewrite", 10), ("patch", 3), ("append", 12),
             ("unlink", 10), ("link", 4), ("symlink", 2), ("mkdir", 3), ("rmdir", 2),
             ("rename", 6), ("rename_dir", 2), ("exchange", 3), ("chmod", 3),
             ("setxattr", 3), ("read", 15))
    MAX_FILES = 32  # The check after each crash reads all of them.

    def __init__(self, root, log, seed, state, round_id, profile):
        self.root = root
        self.log = log
        self.rng = random.Random(seed)
        self.state = state
        self.round_id = round_id
        self.profile = profile  # "kill" or "cut"
        self.serial = 0
        self.fresh = set()  # tags written in this round: their seal may not be there yet
        self.fsynced_log = None  # (fd, path, records)

    def full(self, path):
        return os.path.join(self.root, path)

    def tag(self):
        self.serial += 1
        return f"{os.path.basename(self.root)}.{self.round_id}.{self.serial}"

    def files(self):
        return [p for p, e in sorted(self.state.items()) if e["kind"] == "file"]

    def dirs(self):
        return [""] + [p for p, e in sorted(self.state.items()) if e["kind"] == "dir"]

    def new_path(self, stem):
        directory = self.rng.choice(self.dirs())
        self.serial += 1
        return os.path.join(directory, f"{stem}-{self.round_id}-{self.serial}")

    def size(self, way):
        if way == "direct":
            return 4096 * self.rng.randrange(1, 65)
        if self.rng.random() < 0.03:
            return self.rng.randrange(1 << 20, 4 << 20)
        return int(2 ** self.rng.uniform(0, 19))

    def perform(self, op):
        """Runs one operation between its intent and its acknowledgement."""
        from model import apply
        self.log.line("I", op)
        getattr(self, "do_" + op["op"])(op)
        self.log.line("D", None)
        self.state = apply(self.state, op)
        if "tag" in op:
            self.fresh.add(op["tag"])

    # --- the operations -------------------------------------------------------------------

    def do_store(self, op):
        data = content(op["tag"], op["size"])
        synced = (lambda: self.log.line("P", "synced")) if op["sync"] != "none" else None
        store_bytes(self.full(op["tmp"]), data, op["way"], self.rng, os.O_EXCL, synced)
        self.log.line("P", "closed")
        os.rename(self.full(op["tmp"]), self.full(op["path"]))
        if op["sync"] == "dir":
            kvmount.fsync_dir(os.path.dirname(self.full(op["path"])))

    def do_create(self, op):
        """Written under its final name and fsynced, as a database writes."""
        store_bytes(self.full(op["path"]), content(op["tag"], op["size"]), op["way"], self.rng,
                    os.O_EXCL, lambda: self.log.line("P", "synced"))
        kvmount.fsync_dir(os.path.dirname(self.full(op["path"])))

    def do_rewrite(self, op):
        reader = os.open(self.full(op["path"]), os.O_RDONLY) if op["reader"] else -1
        try:
            store_bytes(self.full(op["path"]), content(op["tag"], op["size"]), op["way"],
                        self.rng, os.O_TRUNC, None)
        finally:
            if reader >= 0:
                os.close(reader)

    def do_patch(self, op):
        """Overwritten where it stands, without O_TRUNC."""
        data = content(op["tag"], op["size"])
        fd = os.open(self.full(op["path"]), os.O_RDWR)
        try:
            write_all(fd, data, self.rng)
        finally:
            os.close(fd)

    def do_append(self, op):
        if self.fsynced_log is None:
            fd = os.open(self.full(op["path"]), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            self.fsynced_log = fd
        data = content(f"{op['log']}#{op['index']}", record_size(op["log"], op["index"]))
        write_all(self.fsynced_log, data, self.rng)
        os.fsync(self.fsynced_log)
        if op["index"] == 0:
            kvmount.fsync_dir(os.path.dirname(self.full(op["path"])))

    def do_unlink(self, op):
        os.unlink(self.full(op["path"]))

    def do_link(self, op):
        os.link(self.full(op["source"]), self.full(op["path"]))

    def do_symlink(self, op):
        os.symlink(op["target"], self.full(op["path"]))

    def do_mkdir(self, op):
        os.mkdir(self.full(op["path"]))

    def do_rmdir(self, op):
        os.rmdir(self.full(op["path"]))

    def do_rename(self, op):
        os.rename(self.full(op["source"]), self.full(op["path"]))

    def do_exchange(self, op):
        exchange(self.full(op["source"]), self.full(op["path"]))

    def do_chmod(self, op):
        os.chmod(self.full(op["path"]), op["mode"])

    def do_setxattr(self, op):
        os.setxattr(self.full(op["path"]), "user.mark", op["value"].encode())

    # --- what to do next ------------------------------------------------------------------

    def draw_store(self):
        way = self.rng.choice(WAYS)
        files = self.files()
        replace = files and self.rng.random() < 0.2
        path = self.rng.choice(files) if replace else self.new_path("f")
        sync = self.rng.choice(("none", "none", "none", "file", "dir"))
        tmp = os.path.join(os.path.dirname(path), f".tmp-{self.round_id}-{self.serial}-x")
        tag = self.tag()
        return {"op": "store", "tmp": tmp, "path": path, "tag": tag, "size": self.size(way),
                "way": way, "sync": sync}

    def draw_create(self):
        way = self.rng.choice(WAYS)
        return {"op": "create", "path": self.new_path("s"), "tag": self.tag(),
                "size": self.size(way), "way": way}

    def draw_rewrite(self):
        # A file that was ever fsynced is, after a crash, what the backing filesystem left of
        # it: nothing exact can be said about one that was being rewritten.
        usable = [p for p in self.files() if not self.state[p]["synced"]]
        if not usable:
            return None
        path = self.rng.choice(usable)
        reader = self.rng.random() < 0.3
        settled = not reader and self.state[path]["tag"] not in self.fresh
        way = self.rng.choice(WAYS)
        return {"op": "rewrite", "path": path, "tag": self.tag(), "size": self.size(way),
                "way": way, "reader": reader, "settled": settled}

    def draw_patch(self):
        usable = [p for p in self.files() if not self.state[p]["synced"]]
        if not usable:
            return None
        path = self.rng.choice(usable)
        return {"op": "patch", "path": path, "tag": self.tag(), "size": self.state[path]["size"]}

    def draw_append(self):
        path = f"log-{self.round_id}"
        log_id = f"{os.path.basename(self.root)}/{path}"
        index = self.state[path]["records"] if path in self.state else 0
        return {"op": "append", "path": path, "log": log_id, "index": index}

    def draw_unlink(self):
        old = [p for p, e in sorted(self.state.items())
               if e["kind"] in ("file", "symlink") or
               (e["kind"] == "log" and not p.endswith(f"-{self.round_id}"))]
        return {"op": "unlink", "path": self.rng.choice(old)} if old else None

    def draw_link(self):
        files = self.files()
        if not files:
            return None
        return {"op": "link", "source": self.rng.choice(files), "path": self.new_path("h")}

    def draw_symlink(self):
        return {"op": "symlink", "target": self.tag(), "path": self.new_path("y")}

    def draw_mkdir(self):
        if len(self.dirs()) > 5:
            return None
        return {"op": "mkdir", "path": self.new_path("d")}

    def draw_rmdir(self):
        empty = [d for d in self.dirs()[1:]
                 if not any(p.startswith(d + "/") for p in self.state)]
        return {"op": "rmdir", "path": self.rng.choice(empty)} if empty else None

    def draw_rename(self):
        files = self.files()
        if not files:
            return None
        source = self.rng.choice(files)
        if self.rng.random() < 0.3 and len(files) > 1:
            target = self.rng.choice(files)
            # rename(2) between two links of one inode does nothing.
            if self.state[target]["tag"] == self.state[source]["tag"]:
                return None
        else:
            target = self.new_path("r")
        return {"op": "rename", "source": source, "path": target}

    def draw_rename_dir(self):
        dirs = self.dirs()[1:]
        if not dirs or self.profile == "cut":
            return None
        source = self.rng.choice(dirs)
        target = self.new_path("d")
        if target.startswith(source + "/"):
            return None
        return {"op": "rename", "source": source, "path": target}

    def draw_exchange(self):
        files = self.files()
        if len(files) < 2:
            return None
        a, b = self.rng.sample(files, 2)
        if self.state[a]["tag"] == self.state[b]["tag"]:
            return None
        return {"op": "exchange", "source": a, "path": b}

    def draw_chmod(self):
        files = self.files()
        mode = self.rng.choice((0o600, 0o640, 0o644, 0o400))
        return {"op": "chmod", "path": self.rng.choice(files), "mode": mode} if files else None

    def draw_setxattr(self):
        files = self.files()
        value = self.tag()
        if not files:
            return None
        return {"op": "setxattr", "path": self.rng.choice(files), "value": value}

    def read_back(self):
        files = self.files()
        if not files:
            return
        path = self.rng.choice(files)
        entry = self.state[path]
        with open(self.full(path), "rb") as f:
            if f.read() != content(entry["tag"], entry["size"]):
                self.log.line("W", {"path": path, "tag": entry["tag"]})
                raise AssertionError(f"read back wrong bytes from {self.full(path)}")

    def step(self):
        name = self.rng.choices(*zip(*self.DRAWS))[0]
        if len(self.files()) > self.MAX_FILES and name in ("store", "create", "link"):
            name = "unlink"
        if name == "read":
            self.read_back()
            return
        op = getattr(self, "draw_" + name)()
        if op is not None:
            self.perform(op)


def _worker_main(root, log_path, seed, state, round_id, profile, stop, operations):
    log = AckLog(log_path)
    worker = Worker(root, log, seed, state, round_id, profile)
    try:
        done = 0
        while not stop.is_set() and (operations is None or done < operations):
            worker.step()
            done += 1
    except OSError as e:
        log.line("E", {"errno": e.errno, "text": str(e)})
        os._exit(0 if e.errno in CRASH_ERRNOS else 3)
    except AssertionError as e:
        print(f"worker {root}: {e}", file=sys.stderr, flush=True)
        os._exit(4)
    os._exit(0)


class Load:
    """The workers of one round. `states` is what is there at the start, one per worker."""

    def __init__(self, root, log_dir, seed, round_id, states, profile, operations=None):
        self.root = root
        self.log_dir = log_dir
        self.round_id = round_id
        self.states = states
        context = multiprocessing.get_context("fork")
        self._stop = context.Event()
        self.processes = []
        for index, state in enumerate(states):
            args = (self.worker_root(index), self.log_path(index),
                    f"{seed}/{round_id}/{index}", state, round_id, profile, self._stop, operations)
            self.processes.append(context.Process(target=_worker_main, args=args, daemon=True))

    def worker_root(self, index):
        return os.path.join(self.root, f"w{index}")

    def log_path(self, index):
        return os.path.join(self.log_dir, f"ack-{self.round_id}-{index}")

    def start(self):
        for index, process in enumerate(self.processes):
            os.makedirs(self.worker_root(index), exist_ok=True)
            process.start()

    def wait_busy(self, acknowledged, deadline_s=60):
        """Until every worker got so many acknowledgements: from here on there is a load."""
        end = time.monotonic() + deadline_s
        while True:
            counts = [self._acknowledged(i) for i in range(len(self.processes))]
            if min(counts) >= acknowledged:
                return
            if time.monotonic() > end:
                raise AssertionError(f"the load does not get going: {counts} acknowledged")
            if any(not p.is_alive() for p in self.processes):
                raise AssertionError(f"a worker ended early: {self.errors()}")
            time.sleep(0.005)

    def _acknowledged(self, index):
        try:
            with open(self.log_path(index), "rb") as f:
                return f.read().count(b" D ")
        except FileNotFoundError:
            return 0

    def errors(self):
        found = []
        for index in range(len(self.processes)):
            try:
                with open(self.log_path(index), encoding="utf-8") as f:
                    found += [line.strip() for line in f if line.split(" ", 2)[1] in "EW"]
            except FileNotFoundError:
                pass
        return found

    def stop(self):
        self._stop.set()

    def join(self, deadline_s=30):
        """Returns the exit codes; a worker that does not come back is a failure."""
        end = time.monotonic() + deadline_s
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        stuck = [p.pid for p in self.processes if p.is_alive()]
        for process in self.processes:
            if process.is_alive():
                process.kill()
        if stuck:
            raise AssertionError(f"workers {stuck} still hang {deadline_s} s after the crash")
        return [p.exitcode for p in self.processes]
