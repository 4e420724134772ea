"""What a crash may leave of a load: computed from its acknowledgement log, compared with the tree.

A state maps a path to an entry: {"kind": "file", tag, size, mode, mark, synced}, {"kind":
"log", id, records}, {"kind": "symlink", target} or {"kind": "dir"}. Hard links are paths with one
tag. A file that was being rewritten in place has the kind "torn".

After a kill of the daemon the tree must equal one of a few states: everything acknowledged, and the
one operation that was in flight done or not. After a power cut every path is judged for itself.
"""

import json
import os
import stat

from load import content, record_size


def apply(state, op):
    """The state after an operation that succeeded."""
    new = dict(state)
    path, kind = op.get("path"), op["op"]
    if kind in ("store", "create"):
        new[path] = {"kind": "file", "tag": op["tag"], "size": op["size"], "mode": 0o640,
                     "mark": "", "synced": kind == "create" or op["sync"] != "none"}
    elif kind in ("rewrite", "patch"):
        _change_inode(new, path, tag=op["tag"], size=op["size"])
    elif kind == "append":
        new[path] = {"kind": "log", "id": op["log"], "records": op["index"] + 1}
    elif kind in ("unlink", "rmdir"):
        del new[path]
    elif kind == "link":
        new[path] = new[op["source"]]
    elif kind == "symlink":
        new[path] = {"kind": "symlink", "target": op["target"]}
    elif kind == "mkdir":
        new[path] = {"kind": "dir"}
    elif kind == "rename":
        _rename(new, op["source"], path)
    elif kind == "exchange":
        new[path], new[op["source"]] = new[op["source"]], new[path]
    elif kind == "chmod":
        _change_inode(new, path, mode=op["mode"])
    elif kind == "setxattr":
        _change_inode(new, path, mark=op["value"])
    else:
        raise ValueError(kind)
    return new


def _change_inode(state, path, **changes):
    tag = state[path]["tag"]
    for name, entry in list(state.items()):
        if entry.get("tag") == tag:
            state[name] = {**entry, **changes}


def _rename(state, source, target):
    moved = [p for p in state if p == source or p.startswith(source + "/")]
    entries = {target + p[len(source):]: state.pop(p) for p in moved}
    state.update(entries)


def alternatives(state, op, steps):
    """The states that are right when the daemon died inside `op`."""
    after = apply(state, op)
    if op["op"] == "store":
        complete = dict(state)
        complete[op["tmp"]] = after[op["path"]]
        if "closed" in steps:
            return [complete, after]
        return [complete] if "synced" in steps else [state, complete]
    if op["op"] == "create" and "synced" in steps:
        return [after]
    if op["op"] == "patch" or (op["op"] == "rewrite" and not op["settled"]):
        # Overwritten in place, or truncated under readers or before its seal: the old bytes are
        # gone by the caller's own wish. It is a mutable file then: what was written of it may
        # stay, as on ext4, or it is a miss.
        names = [n for n, e in state.items() if e.get("tag") == state[op["path"]]["tag"]]
        gone = {n: e for n, e in state.items() if n not in names}
        torn = {**state, **{n: {**after[n], "kind": "torn", "old": state[n]} for n in names}}
        return [state, after, gone, torn]
    return [state, after]


class Replay:
    """The log of one worker, read back.

    With `cut_ns` an acknowledgement from that moment on proves nothing: a filesystem that is being
    shut down answers an fsync that is in flight with success and drops its data.
    """

    def __init__(self, path, state, cut_ns=None):
        self.cut_ns = cut_ns
        self.before = state
        self.state = state  # With everything that was acknowledged.
        self.history = []  # (op, state before, acknowledged, steps)
        self.acknowledged = 0
        self.pending = None  # (op, steps)
        self.errors = []  # (time in ns, text)
        self.spans = []  # (start, end or None) in ns, of every operation
        if os.path.exists(path):
            with open(path, encoding="utf-8") as lines:
                for line in lines:
                    self._line(*line.split(" ", 2))
        if self.pending:
            op, steps = self.pending
            self.history.append((op, self.state, False, steps))

    def _line(self, when, kind, text):
        value = json.loads(text)
        real = self.cut_ns is None or int(when) < self.cut_ns
        if kind == "I":
            self.pending = (value, [])
            self.spans.append((int(when), None))
        elif kind == "P":
            if real:
                self.pending[1].append(value)
        elif kind == "D":
            op, steps = self.pending
            self.history.append((op, self.state, real, steps))
            self.state = apply(self.state, op)
            self.acknowledged += real
            self.pending = None
            self.spans[-1] = (self.spans[-1][0], int(when))
        else:
            self.errors.append((int(when), kind + " " + text.strip()))

    def states(self):
        if not self.pending:
            return [self.state]
        return alternatives(self.state, *self.pending)

    def in_flight_at(self, when_ns):
        return any(start < when_ns and (end is None or end > when_ns)
                   for start, end in self.spans)

    def errors_before(self, when_ns):
        return [text for when, text in self.errors if when < when_ns or text.startswith("W")]


# --- reading the tree -----------------------------------------------------------------------


def listing(root):
    """Every name under root: relative path -> lstat."""
    found = {}
    for directory, dirs, files in os.walk(root, onerror=_raise):
        for name in dirs + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, root)] = os.lstat(path)
    return found


def _raise(error):
    raise error


def log_bytes(log_id, records):
    return b"".join(content(f"{log_id}#{i}", record_size(log_id, i)) for i in range(records))


class Tree:
    """The files below a worker's root, each read at most once."""

    def __init__(self, root):
        self.root = root
        self.names = listing(root)
        self._bytes = {}

    def bytes(self, path):
        if path not in self._bytes:
            with open(os.path.join(self.root, path), "rb") as f:
                self._bytes[path] = f.read()
        return self._bytes[path]

    def differs(self, path, entry, torn_log_tail, attributes=True):
        """Why what is under `path` is not `entry`; None when it is."""
        st = self.names.get(path)
        if st is None:
            return "is absent"
        kind = entry["kind"]
        if kind == "dir":
            return None if stat.S_ISDIR(st.st_mode) else "is no directory"
        if kind == "symlink":
            if not stat.S_ISLNK(st.st_mode):
                return "is no symlink"
            target = os.readlink(os.path.join(self.root, path))
            return None if target == entry["target"] else f"points to {target}"
        if not stat.S_ISREG(st.st_mode):
            return "is no regular file"
        if kind == "log":
            return self._log_differs(path, entry, torn_log_tail)
        if kind == "torn":
            return self._torn_differs(path, entry)
        if st.st_size != entry["size"]:
            return f"has size {st.st_size}, not {entry['size']} of {entry['tag']}"
        if self.bytes(path) != content(entry["tag"], entry["size"]):
            return f"has other bytes than {entry['tag']} ({describe(self.bytes(path))})"
        if attributes and stat.S_IMODE(st.st_mode) != entry["mode"]:
            return f"has mode {stat.S_IMODE(st.st_mode):o}, not {entry['mode']:o}"
        if attributes and self._mark(path) != entry["mark"]:
            return f"has user.mark {self._mark(path)!r}, not {entry['mark']!r}"
        return None

    def _torn_differs(self, path, entry):
        data, wanted = self.bytes(path), content(entry["tag"], entry["size"])
        old = content(entry["old"]["tag"], entry["old"]["size"]).ljust(len(wanted), b"\0")
        if len(data) > len(wanted) or any(a and a not in (b, c)
                                          for a, b, c in zip(data, wanted, old)):
            return f"has bytes that are not of {entry['tag']} ({describe(data)})"
        return None

    def _mark(self, path):
        try:
            return os.getxattr(os.path.join(self.root, path), "user.mark").decode()
        except OSError:
            return ""

    def _log_differs(self, path, entry, torn_tail):
        data = self.bytes(path)
        synced = log_bytes(entry["id"], entry["records"])
        if data[:len(synced)] != synced:
            return (f"lost what was fsynced: {len(data)} bytes, record(s) below "
                    f"{entry['records']} damaged ({describe(data)})")
        tail = data[len(synced):]
        following = content(f"{entry['id']}#{entry['records']}",
                            record_size(entry["id"], entry["records"]))
        if len(tail) > len(following) or (not torn_tail and tail != following[:len(tail)]):
            return f"has {len(tail)} bytes after the last fsync that were never written"
        return None


def describe(data):
    zeros = data.count(0)
    return f"{len(data)} bytes, {zeros} of them zero"


def diff(tree, state):
    """The differences between the tree and one state, as lines."""
    lines = [f"{p} {why}" for p, e in sorted(state.items())
             if (why := tree.differs(p, e, torn_log_tail=False))]
    lines += [f"{p} should not exist" for p in sorted(tree.names) if p not in state]
    for path, st in tree.names.items():
        entry = state.get(path, {})
        if entry.get("kind") == "file":
            links = sum(1 for e in state.values() if e.get("tag") == entry["tag"])
            if st.st_nlink != links:
                lines.append(f"{path} has {st.st_nlink} links, not {links}")
    return lines


def check_after_kill(root, replay):
    """Returns (state that holds, differences); the differences are empty when all is right."""
    tree = Tree(root)
    best = None
    for state in replay.states():
        lines = diff(tree, state)
        if not lines:
            return _without_torn(root, state), []
        if best is None or len(lines) < len(best[1]):
            best = (state, lines)
    return best[0], [f"{root}: in flight {replay.pending}"] + [f"  {line}" for line in best[1]]


def _without_torn(root, state):
    """Half-written files are removed: the next round begins with files that can be compared."""
    for path in [p for p, e in state.items() if e["kind"] == "torn"]:
        os.unlink(os.path.join(root, path))
        del state[path]
    return state


class CutRules:
    """What a power cut may leave: names that were durable, and what each other name ever held."""

    def __init__(self, replay):
        self.required = {}  # path -> entry that must be there
        self.allowed = {}  # path -> entries that may be there; absence always may
        self.either = []  # (paths, entry): under one of them it must be there
        # tag -> the entry that it overwrote in place: an overwrite that was not synced may be
        # gone as a whole, under the name that the file has by then, as on ext4.
        self._overwritten = {}
        for path, entry in replay.before.items():
            self._allow(path, entry)
            if entry["kind"] in ("file", "log"):
                self.required[path] = entry
        for op, before, acknowledged, steps in replay.history:
            self._operation(op, before, acknowledged, steps)

    def _allow(self, path, entry):
        while entry is not None:
            self.allowed.setdefault(path, []).append(entry)
            entry = self._overwritten.get(entry.get("tag"))

    def _operation(self, op, before, acknowledged, steps):
        after = apply(before, op)
        if op["op"] == "patch":
            self._overwritten[op["tag"]] = before[op["path"]]
        moved = self.required.get(op["source"]) if op["op"] == "rename" else None
        synced = self.required.get(op["path"]) if op["op"] == "append" else None
        for path in set(before) | set(after):
            if before.get(path) != after.get(path):
                content_changed = not same_content(before.get(path), after.get(path))
                if content_changed:
                    self.required.pop(path, None)
                    self.either = [e for e in self.either if path not in e[0]]
                if path in after:
                    self._allow(path, after[path])
        if moved:
            self.either.append(((op["source"], op["path"]), moved))
        if op["op"] == "store":
            self._allow(op["tmp"], after[op["path"]])
            if "synced" in steps and op["sync"] == "dir" and acknowledged:
                self.required[op["path"]] = after[op["path"]]
            elif "synced" in steps:
                self.either.append(((op["tmp"], op["path"]), after[op["path"]]))
        elif op["op"] == "create" and acknowledged:
            self.required[op["path"]] = after[op["path"]]
        elif op["op"] == "append" and acknowledged:
            self.required[op["path"]] = after[op["path"]]
        elif synced:
            # Not `before`: of two appends in a row neither may have been acknowledged in time.
            self.required[op["path"]] = synced

    def same_or_longer(self, path, entry):
        """The entry, and of a log what later appends that nothing acknowledged made of it."""
        if entry["kind"] != "log":
            return [entry]
        return [entry] + [e for e in self.allowed[path] if e["kind"] == "log"
                          and e["id"] == entry["id"] and e["records"] > entry["records"]]


def same_content(a, b):
    keys = ("kind", "tag", "size", "target", "id", "records")
    return a is not None and b is not None and all(a.get(k) == b.get(k) for k in keys)


def check_after_cut(root, replay):
    """Returns (state found, differences, counts of what was exact, absent and required)."""
    tree = Tree(root) if os.path.isdir(root) else None
    rules = CutRules(replay)
    counts = {"required": len(rules.required), "exact": 0, "absent": 0}
    if tree is None:
        lost = [f"{root} is gone with {p}" for p in rules.required]
        return {}, lost, counts
    lines, found = [], {}
    for path in tree.names:
        reasons = []
        for entry in reversed(rules.allowed.get(path, [])):
            why = tree.differs(path, entry, torn_log_tail=True, attributes=False)
            if why is None:
                found[path] = _as_found(tree, path, entry)
                counts["exact"] += entry["kind"] in ("file", "log")
                break
            reasons.append(why)
        else:
            lines.append(f"{path} " + ("; ".join(reasons[:3]) or "should not exist"))
    for path, entry in rules.required.items():
        whys = [tree.differs(path, e, torn_log_tail=True, attributes=False)
                for e in rules.same_or_longer(path, entry)]
        if all(whys):
            lines.append(f"{path} was durable and {whys[0]}")
    for paths, entry in rules.either:
        whys = [tree.differs(p, entry, torn_log_tail=True, attributes=False) for p in paths]
        if all(whys):
            lines.append(f"{paths[1]} was fsynced as {paths[0]} before its rename: {whys}")
    counts["absent"] = sum(1 for p in rules.allowed if p not in tree.names)
    return found, [f"{root}:"] + [f"  {l}" for l in lines] if lines else [], counts


def _as_found(tree, path, entry):
    """The entry with the attributes that are there now, for the load that goes on from here."""
    if entry["kind"] != "file":
        return entry
    mode = stat.S_IMODE(tree.names[path].st_mode)
    return {**entry, "mode": mode, "mark": tree._mark(path)}
