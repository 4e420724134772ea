"""kill -9 of the daemon while it evicts and scrubs, and at each system call of an eviction: nothing
damaged is served, what is kept is all there, and no space is lost.

In the first test, below `pinned` runs the load of test_kill.py, whose every acknowledged operation
must be found again. Beside it writers store many times the budget: of these files each is right or
a miss, but for those that an application has fsynced.
"""

import collections
import contextlib
import faulthandler
import json
import multiprocessing
import os
import random
import re
import subprocess
import tempfile
import time

import pytest

import crashes
import kvmount
import load
import model
import strace
import test_kill_nth
import watch

MIB = 1 << 20
BUDGET = 96 * MIB
DISK = 512 * MIB  # Sparse; the budget is what is short, and the disk below never is.
PINNED, STORING = 2, 2  # Workers of either kind, each a process.
ROUNDS = crashes.count(full=200, normal=20, short=3)
FSCK_EVERY = 10
# What was found is evictable again soon; a scrub of all that is stored takes longer than a round.
OPTIONS = ["--lease", "1s", "--scrub", "4MiB"]
# So long a file that was just stored stays: until then its writer will have renamed it.
YOUNG_S = 0.9
SIZE = 512 << 10  # of a file where the size is of no interest
MAX_NAMES = 300  # that a storing worker believes to be there


@contextlib.contextmanager
def limited(name, budget=BUDGET, **arguments):
    """A mount in the background with a budget, on a disk of its own. The database is elsewhere: it
    would be a part of the budget, and files would go as it grows while they are checked."""
    with tempfile.TemporaryDirectory(prefix="kvcachefs-state-", dir="/var/tmp") as state, \
            kvmount.LoopFs(kvmount.BELOW, DISK) as disk:
        with kvmount.Mount(name, nvme=os.path.join(disk.path, "nvme"), size=budget, state=state,
                           options=OPTIONS, foreground=False, **arguments) as mount:
            yield mount


# ---- the writers ---------------------------------------------------------------------------------

def is_block(path):
    """As SGLang's file backend names a block, also while it writes it. Others are no runtime's."""
    return "_model_" in os.path.basename(path)


def block_name(number, rank):
    return f"{number:064x}_model_{rank}_8.bin"


def is_kept(path, entry):
    """Of a tree where nobody has told a policy. A file has names of one kind alone here."""
    if entry.get("doubtful"):
        return False
    return entry["kind"] != "file" or (entry["synced"] and not is_block(path))


class StoringWorker(load.Worker):
    """Most of what it has stored is evicted before it comes back to it: any operation may find its
    file gone, but the kept ones."""

    DRAWS = (("store", 60), ("create", 2), ("rewrite", 8), ("patch", 3), ("append", 4),
             ("unlink", 8), ("link", 4), ("rename", 6), ("read", 25))
    MAX_FILES = MAX_NAMES

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.missed = set()  # found gone

    def files(self):
        return [path for path in super().files() if path not in self.missed]

    def size(self, way):
        if way == "direct" or self.rng.random() < 0.8:
            return 4096 * self.rng.choice((16, 64, 64, 100, 256))
        return int(2 ** self.rng.uniform(0, 20))

    def perform(self, op):
        begin = time.monotonic()
        try:
            super().perform(op)
        except FileNotFoundError as error:
            self._missed(op, error, time.monotonic() - begin)
        else:
            self.missed.discard(op.get("path"))

    def _missed(self, op, error, seconds):
        gone = [p for p in (op.get("path"), op.get("source")) if p in self.state]
        kept = [p for p in gone if is_kept(p, self.state[p]) and not os.path.exists(self.full(p))]
        # Who stores renames at once, unless the machine has no time for him.
        if kept or (op["op"] == "store" and seconds < YOUNG_S) or op["op"] == "create":
            raise AssertionError(f"{op} after {seconds:.3f} s: {error}; kept and gone: {kept}")
        self.missed.update(gone)
        self.log.line("G", gone)

    def read_back(self):
        try:
            super().read_back()
        except FileNotFoundError as error:
            path = os.path.relpath(error.filename, self.root)
            assert not is_kept(path, self.state[path]), f"{path} is kept and gone"
            self.missed.add(path)

    # --- names of two kinds; a file keeps its kind ----------------------------------------

    def new_name(self, stem, block):
        if not block:
            return self.new_path(stem)
        blocks = [path for path in self.files() if is_block(path)]
        if blocks and self.rng.random() < 0.3:
            digest = self.rng.choice(blocks)[:64]  # Another rank's part of a block.
        else:
            digest = f"{self.rng.getrandbits(256):064x}"
        self.serial += 1
        return f"{digest}_model_{self.round_id}{self.serial:05}_99999999.bin"

    def of_kind(self, block):
        return [path for path in self.files() if is_block(path) == block]

    def draw_store(self):
        op = super().draw_store()
        block = self.rng.random() < 0.6
        known = self.of_kind(block)
        replaces = known and self.rng.random() < 0.25
        op["path"] = self.rng.choice(known) if replaces else self.new_name("f", block)
        unique = f"{self.rng.getrandbits(128):032x}"
        op["tmp"] = (f"{op['path']}.tmp.{os.getpid()}.{self.serial}.{unique}" if block else
                     f".tmp-{self.round_id}-{self.serial}-x")
        # Of the fsynced ones those are kept that are no blocks.
        if self.rng.random() < 0.6:
            op["sync"] = "none"
        return op

    def draw_rewrite(self):
        # It makes a file that is gone anew, and only under this name.
        tags = [entry.get("tag") for entry in self.state.values()]
        usable = [p for p in self.files()
                  if not self.state[p]["synced"] and tags.count(self.state[p]["tag"]) == 1]
        if not usable:
            return None
        path = self.rng.choice(usable)
        reader = self.rng.random() < 0.3
        way = self.rng.choice(load.WAYS)
        return {"op": "rewrite", "path": path, "tag": self.tag(), "size": self.size(way),
                "way": way, "reader": reader,
                "settled": not reader and self.state[path]["tag"] not in self.fresh}

    def draw_link(self):
        files = self.files()
        if not files:
            return None
        source = self.rng.choice(files)
        return {"op": "link", "source": source, "path": self.new_name("h", is_block(source))}

    def draw_rename(self):
        files = self.files()
        if not files:
            return None
        source = self.rng.choice(files)
        target = self.new_name("r", is_block(source))
        if self.rng.random() < 0.5:
            target = self.rng.choice(self.of_kind(is_block(source)))
            if self.state[target]["tag"] == self.state[source]["tag"]:
                return None
        return {"op": "rename", "source": source, "path": target}


def _store(*arguments):
    """In a process of its own: the loop of every load, with our worker."""
    # A store through a mapping may end it when the daemon has died: no more than that.
    faulthandler.disable()
    load.Worker = StoringWorker
    load._worker_main(*arguments)


class StoringLoad(load.Load):
    def __init__(self, root, log_dir, seed, round_id, states):
        super().__init__(root, log_dir, seed, round_id, states, "kill")
        context = multiprocessing.get_context("fork")
        self.processes = [
            context.Process(target=_store, daemon=True,
                            args=(self.worker_root(index), self.log_path(index),
                                  f"{seed}/{round_id}/{index}", state, round_id, "kill",
                                  self._stop, None))
            for index, state in enumerate(states)]

    def log_path(self, index):
        return os.path.join(self.log_dir, f"store-{self.round_id}-{index}")


# ---- what may be there afterwards ----------------------------------------------------------------

class StoringReplay(model.Replay):
    """Operations that found their file gone have changed nothing. What was found gone may be there
    again, whole: a miss is answered before it is written down."""

    gone = 0

    def _line(self, when, kind, text):
        if kind != "G":
            super()._line(when, kind, text)
            return
        self.gone += len(json.loads(text))
        self.pending = None
        self.spans[-1] = (self.spans[-1][0], int(when))


def differences(tree, state):
    """As model.diff(), of files that may be gone: (those of `state` that are there, lines)."""
    found, lines = {}, []
    for path in sorted(tree.names):
        if path not in state:
            lines.append(f"{path} should not exist")
            continue
        found[path] = state[path]
        why = tree.differs(path, state[path], torn_log_tail=False, attributes=False)
        if why:
            lines.append(f"{path} {why}")
    lines += [f"{path} is kept and gone" for path, entry in sorted(state.items())
              if path not in tree.names and is_kept(path, entry)]
    return found, lines


def without_doubt(found, replay):
    """Notes which file may be published, but not as fsynced: the daemon died in its fsync."""
    op, steps = replay.pending or ({"op": None}, [])
    if op["op"] in ("store", "create", "append") and "synced" not in steps:
        for path in {op["path"], op.get("tmp")} & set(found) - set(replay.state):
            found[path] = {**found[path], "doubtful": True}
    return found


def check_stored(root, replay):
    """(what is there, differences); the differences are empty when all is right."""
    tree = model.Tree(root)
    best = None
    for state in replay.states():
        found, lines = differences(tree, state)
        if not lines:
            return without_doubt(model._without_torn(root, found), replay), []
        if best is None or len(lines) < len(best[1]):
            best = (found, lines)
    return best[0], [f"{root}: in flight {replay.pending}"] + [f"  {line}" for line in best[1]]


def file_entry(tag, synced=False):
    return {"kind": "file", "tag": tag, "size": SIZE, "mode": 0o640, "mark": "", "synced": synced}


@pytest.mark.short
def test_the_check_accepts_misses_and_finds_each_fault(tmp_path):
    """On a plain directory, which evicts what we unlink."""
    state = {"whole": file_entry("whole"), "kept": file_entry("kept", synced=True),
             block_name(1, 0): file_entry("block", synced=True)}
    for path, told in state.items():
        (tmp_path / path).write_bytes(load.content(told["tag"], SIZE))

    def found():
        return differences(model.Tree(str(tmp_path)), state)

    assert found() == (state, [])
    (tmp_path / block_name(1, 0)).unlink()
    assert found() == ({path: state[path] for path in ("whole", "kept")}, [])
    (tmp_path / "kept").rename(tmp_path / "leftover")
    assert found()[1] == ["leftover should not exist", "kept is kept and gone"]
    (tmp_path / "leftover").rename(tmp_path / "kept")
    (tmp_path / "whole").write_bytes(load.content("version before", SIZE))
    assert len(found()[1]) == 1
    (tmp_path / "whole").write_bytes(load.content("whole", SIZE)[:-1])
    assert len(found()[1]) == 1


# ---- the rounds ----------------------------------------------------------------------------------

class Rounds:
    """One mount, both loads, and what each has left."""

    def __init__(self, mount, logs, seed):
        self.mount, self.logs = mount, logs
        self.rng = random.Random(seed)
        self.pinned = [{} for _ in range(PINNED)]
        self.stored = [{} for _ in range(STORING)]
        self.totals = {"acknowledged": 0, "evicted": 0, "evicted bytes": 0, "misses": 0,
                       "scrubbed bytes": 0, "killed while scrubbing": 0, "killed twice": 0,
                       "left to the start": 0, "most objects": 0}
        self.slowest = 0.0
        self.serial = 0

    def set_up(self):
        for name in ("pinned", "cache"):
            os.mkdir(os.path.join(self.mount.mnt, name))
        done = self.mount.cli("pin", os.path.join(self.mount.mnt, "pinned"))
        assert done.returncode == 0, done.stderr
        self.in_order()  # Fills the budget, so that there is something to evict and to scrub.

    def _loads(self, number):
        return (load.Load(os.path.join(self.mount.mnt, "pinned"), self.logs, self.rng.random(),
                          number, self.pinned, "kill"),
                StoringLoad(os.path.join(self.mount.mnt, "cache"), self.logs, self.rng.random(),
                            number, self.stored))

    def wait_evicted(self, least):
        """Until this run of the daemon has evicted so many files."""
        try:
            kvmount.wait_until(lambda: self._evicted() >= least, 60, "evictions")
        except kvmount.Late as late:
            raise type(late)(f"{late}: {self._evicted()} of {least}") from None

    def _evicted(self):
        return self.mount.status()["dropped"]["room"]["files"]

    def _count(self, status):
        """What this run of the daemon has done until it ends. Whether it was scrubbing."""
        counts = status["counts"]
        self.totals["evicted"] += status["dropped"]["room"]["files"]
        self.totals["evicted bytes"] += status["dropped"]["room"]["bytes"]
        self.totals["scrubbed bytes"] += counts["scrubbed_bytes"]
        return counts["scrubbed_bytes"] > 0 and counts["scrub_pass_end"] is None

    def one_round(self, number):
        loads = self._loads(number)
        for running in loads:
            running.start()
        for running in loads:
            running.wait_busy(3)
        self.wait_evicted(self.rng.randrange(1, 40))
        kvmount.wait_until(lambda: self.mount.status()["counts"]["scrubbed_bytes"] > 0, 60, "a scrub")
        time.sleep(self.rng.uniform(0, 0.5))  # The random moment of the kill.
        self.totals["killed while scrubbing"] += self._count(self.mount.status())
        ended = [p.pid for running in loads for p in running.processes if not p.is_alive()]
        kill_ns = time.monotonic_ns()
        self.mount.kill(unmount=False)
        killed_ns = time.monotonic_ns()
        codes = [code for running in loads for code in running.join(10)]
        # Every other time the dead mount is left where it is: the next start has to take it over.
        if number % 2 == 0:
            kvmount.lazy_unmount(self.mount.mnt)
        replays = self._replays(loads)
        everybody = replays[0] + replays[1]
        early = [e for replay in everybody for e in replay.errors_before(kill_ns)]
        assert not early and not ended, f"before the kill {ended} ended, errors {early}"
        texts = [text for running in loads for text in running.errors()]
        assert not set(codes) - {0, -7}, f"workers ended with {codes}: {texts}"
        assert any(replay.in_flight_at(killed_ns) for replay in everybody), (
            "nothing was in flight when the daemon died: the round proves nothing")
        left = len(self.mount.backing_files())
        self._start()
        if self.rng.random() < 0.25:  # Before what the last run has left was reaped and sealed.
            self.mount.kill(unmount=False)
            self._start()
            self.totals["killed twice"] += 1
        self.totals["left to the start"] += left - self.check(replays)

    def _replays(self, loads):
        return ([model.Replay(loads[0].log_path(i), self.pinned[i]) for i in range(PINNED)],
                [StoringReplay(loads[1].log_path(i), self.stored[i]) for i in range(STORING)])

    def _start(self):
        begin = time.monotonic()
        self.mount.start()
        seconds = time.monotonic() - begin
        self.slowest = max(self.slowest, seconds)
        crashes.check_remount_time(seconds)
        assert self.mount.status()["recovery"]["kind"] == "daemon"

    def check(self, replays):
        """What the loads say is there, and nothing else on the disk. Returns how many objects."""
        pinned, stored = replays
        for replay in pinned + stored:
            self.totals["acknowledged"] += replay.acknowledged
        self.totals["misses"] += sum(replay.gone for replay in stored)
        self.pinned = crashes.check_killed(os.path.join(self.mount.mnt, "pinned"), pinned)
        # Nothing goes any more from here on: there is room, and nobody writes.
        objects, occupied = crashes.check_space(self.mount)
        assert occupied <= BUDGET
        wrong = []
        for index, replay in enumerate(stored):
            root = os.path.join(self.mount.mnt, "cache", f"w{index}")
            self.stored[index], lines = kvmount.run_as(check_stored, root, replay)
            wrong += lines
        assert not wrong, "after the kill:\n" + "\n".join(wrong)
        status = self.mount.status()
        losses = {name: status["counts"][name] for name in ("poisoned", "lost", "damaged")}
        assert not any(losses.values()), losses
        self.totals["most objects"] = max(self.totals["most objects"], objects)
        return objects

    def fsck(self):
        self.mount.stop()
        crashes.check_fsck(self.mount)
        self.mount.start()

    def in_order(self):
        """Both loads without a kill: nobody meets an error, and a clean stop loses nothing."""
        self.serial += 1
        loads = self._loads(f"whole{self.serial}")
        for running in loads:
            running.start()
        for running in loads:
            running.wait_busy(3)
        self.wait_evicted(20)
        for running in loads:
            running.stop()
        codes = [code for running in loads for code in running.join(60)]
        texts = [text for running in loads for text in running.errors()]
        assert set(codes) == {0}, f"{codes}: {texts}"
        self.check(self._replays(loads))
        self._count(self.mount.status())
        self.fsck()
        self.check(([model.Replay("/nonexistent", state) for state in self.pinned],
                    [StoringReplay("/nonexistent", state) for state in self.stored]))


@pytest.mark.promise(7)
@pytest.mark.short
@pytest.mark.limit(1500 if kvmount.FULL else 150)
def test_kill_while_evicting(tmp_path, seed, data_path):
    begin = time.monotonic()
    # The daemon moves the bytes of some files in either case, when room is short.
    count = ROUNDS if data_path == "passthrough" else max(ROUNDS // 4, 1)
    with limited(f"kill-evicting-{data_path}", data_path=data_path) as mount:
        rounds = Rounds(mount, str(tmp_path), seed)
        rounds.set_up()
        for number in range(count):
            try:
                rounds.one_round(number)
                if number % FSCK_EVERY == FSCK_EVERY - 1:
                    rounds.fsck()
            except Exception as error:
                error.add_note(f"round {number} of seed {seed}")
                raise
        rounds.in_order()  # It stores and evicts as before.
    print(f"{count} kills, {data_path}: {rounds.totals}, slowest remount {rounds.slowest:.3f} s, "
          f"{time.monotonic() - begin:.0f} s in all")
    assert rounds.totals["killed while scrubbing"] > 0


# ---- at each call of an eviction -----------------------------------------------------------------

SMALL_BUDGET = 64 * MIB
SAMPLES = crashes.count(full=200, normal=5, short=2)  # Deaths, at most: there may be fewer calls.
# What waits, or reads, changes nothing: a death in it is one in the next call that does.
CHANGES_NOTHING = test_kill_nth.NOT_OF_THE_STEP | {
    "futex", "clock_nanosleep", "restart_syscall", "sched_yield", "newfstatat", "fstat", "statx",
    "lseek", "read", "getdents64", "pread64", "preadv2", "readahead", "fadvise64", "fcntl",
    "openat", "close"}
REQUESTS = ("fuse-ring", "kv-fuse")  # Threads that answer the kernel.
# Threads that have no part in a step.
OTHERS = ("rocksdb", "kv-devices", "kv-scrub")


def store(path, tag, sync="none"):
    """An operation of the load."""
    tmp = f"{path}.tmp.1.1.{0:032x}" if is_block(path) else f".tmp-{tag}"
    return {"op": "store", "tmp": tmp, "path": path, "tag": tag, "size": SIZE, "way": "plain",
            "sync": sync}


def on_one_processor(*arguments):
    """In a child. A ring serves the callers on one processor: one thread answers all these."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    test_kill_nth.perform(*arguments)


class Eviction:
    """Something that lets files go, again and again on one mount."""

    kept = [store("application", "application", sync="dir")]
    is_request = False  # The kernel's requests are a part of it.
    check_tree = staticmethod(check_stored)

    def __init__(self, mount, logs):
        self.mount, self.logs = mount, logs
        self.root = os.path.join(mount.mnt, "cache")
        os.mkdir(self.root)
        self.state, self.replay = {}, None
        self.serial = self.logged = 0
        self.perform(self.kept)
        self.check()

    def perform(self, operations):
        self.logged += 1
        log = os.path.join(self.logs, f"log-{self.logged}")
        kvmount.run_as(on_one_processor, self.root, log, self.state, operations)
        self.replay = StoringReplay(log, self.state)

    def dropped(self, reason):
        return self.mount.status()["dropped"][reason]["files"]

    def check(self):
        """What the last operations say is there; returns what has gone."""
        space = crashes.check_space(self.mount)
        found, lines = kvmount.run_as(self.check_tree, self.root, self.replay)
        assert not lines, "\n".join(lines)
        gone = set(self.replay.state) - set(found)
        self.state = found
        self.replay = StoringReplay("/nonexistent", found)
        assert space[1] <= SMALL_BUDGET
        return gone


class Asked(Eviction):
    """`kvcachefs evict` of the two files of a block, one of them with another name and an xattr."""

    def set_up(self):
        self.serial += 1
        self.names = [block_name(self.serial, 0), block_name(self.serial, 1)]
        self.link = f"link-{self.serial}"
        self.perform([store(name, name) for name in self.names] +
                     [{"op": "link", "source": self.names[0], "path": self.link},
                      {"op": "setxattr", "path": self.names[0], "value": "marked"}])
        assert not self.check()
        self.evicted = set()
        self.before = self.dropped("asked")

    def trigger(self):
        for name in self.names:
            done = self.mount.cli("evict", os.path.join(self.root, name))
            if done.returncode == 0:
                assert "evicted 1 file" in done.stdout, done.stdout
                self.evicted |= {name, self.link} if name == self.names[0] else {name}

    def is_done(self, status, files):
        return (status["dropped"]["asked"]["files"] > self.before and
                status["tiers"][0]["objects"] == files)

    def check_after(self):
        gone = self.check()
        assert gone >= self.evicted, f"evicted, and there again: {self.evicted - gone}"
        assert gone <= {*self.names, self.link}, f"nobody has asked: {gone}"


class Room(Eviction):
    """A store over the budget: the evictor takes the oldest blocks."""

    def _stores(self, count):
        self.serial += count
        names = [block_name(number, rank) for number in range(self.serial - count, self.serial)
                 for rank in (0, 1)]
        return [store(name, name) for name in names]

    def set_up(self):
        """To the brim."""
        while True:
            budget = self.mount.status()["tiers"][0]["budget"]
            missing = budget["room"] - budget["headroom"]
            if missing < 2 * SIZE:
                break
            self.perform(self._stores(missing // (2 * SIZE)))
            self.check()
        self.before = self.dropped("room")

    def trigger(self):
        self.perform(self._stores(1))

    def is_done(self, status, files):
        return (status["dropped"]["room"]["files"] > self.before and
                status["counts"]["unsealed"] == 0 and status["tiers"][0]["objects"] == files)

    def check_after(self):
        self.check()
        assert len(self.state) > SMALL_BUDGET // SIZE // 2, "most has gone: that is no cache"


class Removed(Eviction):
    """What users remove or replace: the reaper syncs before it unlinks."""

    check_tree = staticmethod(model.check_after_kill)  # Nothing else goes.

    def set_up(self):
        self.serial += 1
        self.names = [f"{kind}-{self.serial}" for kind in ("replaced", "unlinked", "renamed")]
        self.perform([store(name, name) for name in self.names])
        self.check()
        self.objects = len(self.mount.backing_files())

    def trigger(self):
        replaced, unlinked, renamed = self.names
        self.perform([store(replaced, f"new-{self.serial}"), {"op": "unlink", "path": unlinked},
                      {"op": "rename", "source": renamed, "path": replaced}])

    def is_done(self, status, files):
        return files == status["tiers"][0]["objects"] == self.objects - 2

    def check_after(self):
        self.check()


class Stored(Eviction):
    """No eviction: publication, under a new name and over another, and the seals."""

    is_request = True
    check_tree = staticmethod(model.check_after_kill)

    def set_up(self):
        self.serial += 1
        self.names = [block_name(self.serial, 0), f"plain-{self.serial}"]
        self.perform([store(self.names[1], f"old-{self.serial}")])
        self.check()
        self.objects = len(self.mount.backing_files())

    def trigger(self):
        self.perform([store(name, name) for name in self.names])

    def is_done(self, status, files):
        return (status["counts"]["unsealed"] == 0 and
                files == status["tiers"][0]["objects"] == self.objects + 1)

    def check_after(self):
        self.check()


class SomeThreads(strace.Attached):
    """strace attached to some threads, so that the Nth call is the Nth of one of these."""

    def __init__(self, pid, threads, command):
        command = [word for word in command if word != "-f"]
        for thread in threads:
            command += ["-p", str(thread)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                         text=True)
        kvmount.wait_until(lambda: self._process.poll() is not None or
                           all(strace._tracer(pid, thread) == self._process.pid
                               for thread in threads), 15, "strace to attach")


def calls_by_thread(trace):
    """{(thread, call): how often}, from a recording."""
    seen = collections.Counter()
    with open(trace, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            found = re.match(r"(\d+) +([a-z_0-9]+)\(", line)
            if found:
                seen[int(found[1]), found[2]] += 1
    return seen


def threads(pid):
    """[(thread, its name)], the oldest first. Numbers rise from the process's own, and wrap."""
    with open("/proc/sys/kernel/pid_max", encoding="utf-8") as limit:
        end = int(limit.read())
    found = []
    numbers = map(int, os.listdir(f"/proc/{pid}/task"))
    for thread in sorted(numbers, key=lambda number: (number - pid) % end):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), \
                open(f"/proc/{pid}/task/{thread}/comm", encoding="utf-8") as comm:
            found.append((thread, comm.read().strip()))
    return found


def by_name(pid):
    """{(name, place): threads}. Those of a pool have one name, and do the same work: which of them does it is chance.
    Those without a name of their own differ, by how many are older."""
    nameless = "kvcachefs"
    found = collections.defaultdict(list)
    for thread, name in threads(pid):
        place = sum(of == nameless for of, _ in found) if name == nameless else 0
        found[name, place].append(thread)
    return found


class Death:
    """Tries an eviction out, then has the daemon die in others like it."""

    def __init__(self, mount, eviction, trace):
        self.mount, self.eviction, self.trace = mount, eviction, trace

    def _until_done(self, victim):
        def done():
            if not victim.alive():
                return True
            try:
                status = self.mount.status()
            except (kvmount.MountError, ValueError):
                return not victim.alive()
            files = len(self.mount.backing_files())
            return (status["tiers"][0]["budget"]["leaving"] == 0 and
                    self.eviction.is_done(status, files))

        kvmount.wait_until(done, 30, "the step under strace")

    def _run(self, victim, tracer):
        """True when the daemon died."""
        try:
            self.eviction.trigger()
            self._until_done(victim)
        finally:
            if not victim.died():
                tracer.detach()
            tracer.wait()
        if not victim.died():
            return False
        victim.kill()
        kvmount.lazy_unmount(self.mount.mnt)
        return True

    def record(self):
        """{((name, place), call): how often one thread made it}."""
        self.eviction.set_up()
        victim = crashes.Victim(self.mount)
        known = by_name(victim.pid)
        tracer = strace.Attached(victim.pid, strace.record_command(self.trace))
        assert not self._run(victim, tracer), "the daemon died while recorded"
        self.eviction.check_after()
        calls = calls_by_thread(self.trace)
        counts = collections.Counter()
        left_out = OTHERS if self.eviction.is_request else OTHERS + REQUESTS
        for place, alike in known.items():
            if place[0].startswith(left_out):
                continue
            for (who, call), number in calls.items():
                if who in alike and call not in CHANGES_NOTHING:
                    counts[place, call] = max(number, counts[place, call])
        return counts

    def at(self, place, call, nth):
        """True when the daemon died there; it has been recovered then. None when this daemon has not
        made this thread yet."""
        self.eviction.set_up()
        victim = crashes.Victim(self.mount)
        alike = by_name(victim.pid).get(place)
        if alike is None:
            return None
        command = strace.kill_command(self.trace, call, nth)
        died = self._run(victim, SomeThreads(victim.pid, alike, command))
        if died:
            self.mount.start()
            assert self.mount.status()["recovery"]["kind"] == "daemon"
        self.eviction.check_after()
        self.mount.stop()
        crashes.check_fsck(self.mount)
        self.mount.start()
        return died


def die_at_each_call(kind, logs, seed):
    """Each with full counts, else until there were as many deaths as asked for."""
    begin = time.monotonic()
    killed = collections.Counter()
    with limited(f"nth-{kind.__name__}", SMALL_BUDGET) as mount:
        death = Death(mount, kind(mount, logs), os.path.join(logs, "trace"))
        counts = death.record()
        mount.remount()
        again = death.record()
        # Some calls come by chance, or the first time only: a small sample leaves them out.
        counts = counts | again if kvmount.FULL else counts & again
        calls = [(place, call, nth) for (place, call), number in sorted(counts.items())
                 for nth in range(1, number + 1)]
        order = random.Random(f"{seed}/{kind.__name__}").sample(calls, len(calls))
        tried = 0
        for place, call, nth in order:
            if sum(killed.values()) == SAMPLES:
                break
            try:
                died = death.at(place, call, nth)
            except Exception as error:
                error.add_note(f"killed at {call} number {nth} of thread {place}, seed {seed}")
                with contextlib.suppress(OSError):
                    error.add_note(mount.logs()[-4000:] + watch.stacks(mount.pid()))
                raise
            if died is not None:
                tried += 1
                killed[call] += died
    print(f"{kind.__name__}: {sum(killed.values())} deaths at {tried} of {len(calls)} calls, "
          f"{dict(killed)}; {time.monotonic() - begin:.0f} s; recorded {dict(counts)}")
    # A call that depends on the moment may not come again.
    assert killed and 3 * sum(killed.values()) >= tried, "the daemon came to few of these calls"


@pytest.mark.limit(2400 if kvmount.FULL else 150)
@pytest.mark.parametrize("kind", [Asked, pytest.param(Room, marks=[pytest.mark.short, pytest.mark.gate]), Removed])
def test_kill_at_nth_syscall_of_evict(kind, tmp_path, seed):
    die_at_each_call(kind, str(tmp_path), seed)


@pytest.mark.limit(2400 if kvmount.FULL else 150)
def test_kill_at_nth_syscall_of_publish_and_seal(tmp_path, seed):
    die_at_each_call(Stored, str(tmp_path), seed)
