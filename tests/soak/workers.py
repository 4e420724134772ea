"""Who uses the mount during the soak: each function here is a process of its own, until the board
says that it is over. It raises what should not have been; a miss is none of that.

Bytes follow from the name (stores.Content), and names from the seed, the writer and a number, so
that every process knows what another's files must hold.
"""

import collections
import http.client
import json
import os
import random
import subprocess
import time

import damage
import kvmount
import stores
from stores import KIB, MIB

PROMPT = 16  # Blocks that belong together: stored, looked up and loaded one after the other.
RECENT = 6  # Prompts that are asked for again and again.
SIZES = (64 * KIB,) * 459 + (2 * MIB,) * 40 + (16 * MIB,)  # 255 KiB on average
WAYS = tuple(stores.WAYS)


class Wrong(AssertionError):
    """Bytes that nobody stored, or a file that was to stay and is gone."""


def job_of(seed, writer, number):
    """Always the same. All names share 64 directories of the hashed layout: nobody ever removes
    those, and a hash's whole range would be a million of them, rows of the database for ever."""
    chance = random.Random(f"{seed}/{writer}/{number}")
    key = f"{chance.randrange(16):03x}{chance.randrange(4):02x}{chance.getrandbits(236):059x}"
    return stores.Job(key, chance.choice(SIZES), chance.choice(WAYS))


def path_of(root, layout, job):
    return os.path.join(root, stores.LAYOUTS[layout](job.key)[0])


def store_in_place(root, layout, job, content):
    """Under the final name from the start."""
    stores.WAYS[job.way](path_of(root, layout, job), content.of(job.key, job.size))


def or_miss(function, *arguments):
    """What it returns, None for ENOENT; any other error is one."""
    try:
        return function(*arguments)
    except FileNotFoundError:
        return None


def compare(path, found, wanted):
    # bytes: a comparison with a memoryview goes byte by byte.
    if found is not None and found != bytes(wanted):
        same = next((at for at, (a, b) in enumerate(zip(found, wanted)) if a != b), "the shorter")
        raise Wrong(f"{path}: {len(found)} bytes for {len(wanted)}, they differ from {same} on")


# ---- writers and readers -------------------------------------------------------------------------

def write(board, me, root, layout, store, seed, rate):
    """A prompt as fast as it goes, then a pause: `rate` bytes a second on average."""
    content = stores.Content(seed)
    begin, number = time.monotonic(), 0
    while not board.is_over:
        for _ in range(PROMPT):
            job = job_of(seed, me.name, number)
            me.call(store, root, layout, job, content)
            me["bytes"] += job.size
            number += 1
            me["published"] = number
        board.rest(begin + me["bytes"] / rate)


def pick_prompt(chance, published):
    """The numbers of one that is stored as a whole: mostly of the last ones."""
    prompts = published // PROMPT
    first = max(prompts - RECENT, 0) if chance.random() < 0.8 else 0
    begin = chance.randrange(first, prompts) * PROMPT
    return range(begin, begin + PROMPT)


def read(board, me, writer, root, layout, seed, recompute):
    """As its runtime does: vLLM with O_DIRECT, SGLang through memory (whose model's blocks are read
    ahead therefore). Looks the blocks of a prompt up, then loads those that are there. What is
    missing is computed and stored anew now and then, if `recompute`: that is another process than
    the one that stored it first.
    """
    content = stores.Content(seed)
    chance = random.Random(f"{seed}/{me.name}")
    loads = [load for way, load in damage.LOADS.items() if way != "direct" or layout == "vllm"]
    while not board.is_over:
        if writer["published"] >= PROMPT:
            jobs = [job_of(seed, writer.name, n) for n in pick_prompt(chance, writer["published"])]
            paths = {job: path_of(root, layout, job) for job in jobs}
            found = [me.call(or_miss, os.stat, paths[job]) for job in jobs]
            missing = [job for job, status in zip(jobs, found) if status is None]
            for job in (job for job, status in zip(jobs, found) if status is not None):
                loaded = me.call(or_miss, chance.choice(loads), paths[job])
                compare(paths[job], loaded, content.of(job.key, job.size))
                me["misses" if loaded is None else "hits"] += 1
            me["misses"] += len(missing)
            if recompute and missing and chance.random() < 0.1:
                for job in missing:
                    me.call(stores.store, root, layout, job, content)
                    me["bytes"] += job.size
        board.rest(time.monotonic() + chance.uniform(0.2, 0.6))


def look_up(board, me, writers, roots, seed):
    """Names that are not there, in all layouts, and some that may be."""
    chance = random.Random(f"{seed}/{me.name}")
    ways = (os.stat, lambda path: os.close(os.open(path, os.O_RDONLY)), os.listxattr)
    while not board.is_over:
        for _ in range(PROMPT):
            root, layout = chance.choice(roots)
            absent = stores.Job(f"{chance.getrandbits(256):064x}", 0, None)
            path = path_of(root, layout, absent)
            if me.call(or_miss, chance.choice(ways), path) is not None:
                raise Wrong(f"{path} is there, and nobody stored it")
            me["misses"] += 1
        at = chance.randrange(len(writers))
        if writers[at]["published"]:
            job = job_of(seed, writers[at].name, chance.randrange(writers[at]["published"]))
            me.call(or_miss, chance.choice(ways), path_of(*roots[at], job))
        board.rest(time.monotonic() + 0.1)


def read_pinned(board, me, root, jobs, seed):
    """They are always there, and whole."""
    content = stores.Content(seed)
    chance = random.Random(f"{seed}/{me.name}")
    while not board.is_over:
        job = chance.choice(jobs)
        path = path_of(root, "plain", job)
        loaded = me.call(or_miss, chance.choice(list(damage.LOADS.values())), path)
        if loaded is None:
            raise Wrong(f"{path} is pinned and gone")
        compare(path, loaded, content.of(job.key, job.size))
        me["hits"] += 1
        board.rest(time.monotonic() + 0.3)


def expire(board, me, root, seed):
    """Small files that nobody asks for again."""
    content = stores.Content(seed)
    number = 0
    while not board.is_over:
        name = f"{me.name}-{number}"
        me.call(stores.put_buffered, f"{root}/{name}", content.of(name, 64 * KIB))
        me["bytes"] += 64 * KIB
        number += 1
        board.rest(time.monotonic() + 0.3)


# ---- names and sizes that change -----------------------------------------------------------------

class Rearranger:
    """A directory at a time: made, filled, renamed about in, renamed itself, and removed."""

    def __init__(self, me, root, seed):
        self._me, self._root = me, root
        self._content = stores.Content(seed)
        self._chance = random.Random(f"{seed}/{me.name}")

    def _check(self, path, key, size):
        loaded = self._me.call(or_miss, damage.load_read, path)
        compare(path, loaded, self._content.of(key, size))
        self._me["misses" if loaded is None else "hits"] += 1

    def _fill(self, folder):
        """{path below the folder: (key, size)}"""
        files = {}
        for _ in range(6):
            layout = self._chance.choice(["plain", "vllm"])
            job = stores.Job(f"{self._chance.getrandbits(256):064x}",
                             self._chance.choice([4, 64, 256]) * KIB, self._chance.choice(WAYS))
            self._me.call(stores.store, folder, layout, job, self._content)
            self._me["bytes"] += job.size
            files[stores.LAYOUTS[layout](job.key)[0]] = (job.key, job.size)
        return files

    def _move(self, folder, files):
        """Renames, one over another's name, a hard link, a symlink. A file may have gone before."""
        names = list(files)
        for number, name in enumerate(names[:4]):
            target = names[4] if number == 3 else f"sub/moved-{number}"
            if self._me.call(or_miss_or_true, os.rename, f"{folder}/{name}", f"{folder}/{target}"):
                files[target] = files[name]
            del files[name]
        if self._me.call(or_miss_or_true, os.link, f"{folder}/{names[5]}", f"{folder}/sub/link"):
            files["sub/link"] = files[names[5]]
        self._me.call(os.symlink, "sub", f"{folder}/symlink")

    def step(self, number):
        folder = f"{self._root}/{number}"
        self._me.call(os.makedirs, f"{folder}/sub")
        files = self._fill(folder)
        self._move(folder, files)
        for name, (key, size) in files.items():
            self._check(f"{folder}/{name}", key, size)
        moved = f"{self._root}/moved-{number}"
        self._me.call(os.rename, folder, moved)
        for name, (key, size) in files.items():
            self._check(f"{moved}/{name}", key, size)
        self._remove(moved, *list(files.items())[-1])

    def _remove(self, folder, name, key_and_size):
        """All of it, while one of its files is open: that one keeps its bytes."""
        held = self._me.call(or_miss, os.open, f"{folder}/{name}", os.O_RDONLY)
        for parent, folders, names in os.walk(folder, topdown=False, onerror=raise_it):
            for name_there in names + [f for f in folders if os.path.islink(f"{parent}/{f}")]:
                self._me.call(or_miss, os.unlink, f"{parent}/{name_there}")
            self._me.call(os.rmdir, parent)
        if held is not None:
            with os.fdopen(held, "rb", buffering=0) as file:
                compare(f"{folder}/{name}, open", self._me.call(file.read),
                        self._content.of(*key_and_size))


def raise_it(error):
    raise error


def or_miss_or_true(function, *arguments):
    """True when it went through, None for ENOENT."""
    return or_miss(lambda: (function(*arguments), True)[1])


def rearrange(board, me, root, seed):
    rearranger = Rearranger(me, root, seed)
    number = 0
    while not board.is_over:
        rearranger.step(number)
        number += 1
        board.rest(time.monotonic() + 0.3)


class Rewriter:
    """A few files that change over and over, by the only process that writes to them; what each
    must hold is kept in memory. Plain ones are an application's once they have changed, and stay.
    """

    FILES = 12
    LARGEST = 256 * KIB

    def __init__(self, me, root, seed):
        self._me = me
        self._chance = random.Random(f"{seed}/{me.name}")
        self._files = {}  # path: bytes
        for number in range(self.FILES):
            key = f"{self._chance.getrandbits(256):064x}"
            name = f"application-{number}" if number % 2 else stores.sglang(key)[0]
            self._files[f"{root}/{name}"] = None

    def _some_bytes(self):
        return self._chance.randbytes(self._chance.randint(1, self.LARGEST))

    def _write_whole(self, path):
        data = self._some_bytes()
        stores.put_buffered(path, data)
        return data

    def _truncate(self, path):
        size = self._chance.randint(0, self.LARGEST)
        os.truncate(path, size)
        return (self._files[path] + bytes(self.LARGEST))[:size]

    def _append(self, path):
        data = self._some_bytes()[:self.LARGEST - len(self._files[path])]
        with open(path, "r+b", buffering=0) as file:  # Not "a": that would make it anew.
            file.seek(0, os.SEEK_END)
            if file.write(data) != len(data):
                raise Wrong(f"{path}: a short write")
        return self._files[path] + data

    def _overwrite(self, path):
        data, old = self._some_bytes(), self._files[path]
        at = self._chance.randint(0, len(old))
        data = data[:self.LARGEST - at]
        with open(path, "r+b", buffering=0) as file:
            if os.pwrite(file.fileno(), data, at) != len(data):
                raise Wrong(f"{path}: a short write")
            if self._chance.random() < 0.2:
                os.fsync(file.fileno())
        return old[:at] + data + old[at + len(data):]

    def step(self):
        path = self._chance.choice(list(self._files))
        if self._chance.random() < 0.05:
            self._me.call(or_miss, os.unlink, path)
            self._files[path] = None
        change = self._write_whole
        if self._files[path] is not None:
            change = self._chance.choice([self._write_whole, self._truncate, self._append,
                                          self._overwrite])
        self._files[path] = self._me.call(or_miss, change, path)
        if self._files[path] is None:
            self._me["misses"] += 1
            return
        loaded = self._me.call(or_miss, damage.load_read, path)
        compare(path, loaded, self._files[path])
        self._me["misses" if loaded is None else "hits"] += 1
        if loaded is None:
            self._files[path] = None


def rewrite(board, me, root, seed):
    rewriter = Rewriter(me, root, seed)
    while not board.is_over:
        rewriter.step()
        board.rest(time.monotonic() + 0.05)


# ---- who looks on --------------------------------------------------------------------------------

def crawl(board, me, root):
    """What vanishes in the meantime is all it may complain about."""
    commands = (["find", root, "-ls"], ["du", "-a", root])
    number = 0
    while not board.is_over:
        done = me.call(run, commands[number % 2])
        strange = [line for line in done.stderr.splitlines()
                   if not line.endswith("No such file or directory")]
        if strange or (done.returncode != 0 and not done.stderr):
            raise Wrong(f"{commands[number % 2]}: exit {done.returncode}: {strange[:5]}")
        me["done"] += len(done.stdout.splitlines())
        number += 1
        board.rest(time.monotonic() + 5)


def run(command):
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          errors="replace", env=environment)


class Asker:
    """The questions of people and of their monitoring."""

    def __init__(self, me, mount, writers, roots, port, seed):
        self._me, self._mount, self._port, self._seed = me, mount, port, seed
        self._chance = random.Random(f"{seed}/{me.name}")
        self._writers, self._roots = writers, roots
        self.answered = collections.Counter()

    def _some_block(self):
        """(path, job); it may have gone."""
        at = self._chance.randrange(len(self._writers))
        published = self._writers[at]["published"]
        if not published:
            return None
        number = max(published - 1 - int(self._chance.expovariate(1 / 100)), 0)
        job = job_of(self._seed, self._writers[at].name, number)
        return path_of(*self._roots[at], job), job

    def _cli(self, *words, codes=(0,)):
        done = self._me.call(self._mount.cli, *words)
        if done.returncode not in codes:
            raise Wrong(f"{words}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    # Each says whether it has learned something of the block.

    def ask_status(self, block):
        return self._mount.mnt in self._cli("status", self._mount.mnt)

    def ask_metrics(self, block):
        def get():
            client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            try:
                client.request("GET", "/metrics")
                answer = client.getresponse()
                return answer.status, answer.read().decode()
            finally:
                client.close()

        code, text = self._me.call(get)
        if code != 200 or "kvcachefs_" not in text or not text.endswith("\n"):
            raise Wrong(f"metrics: {code} {text[-200:]}")
        return True

    def ask_explain(self, block):
        path, job = block
        told = json.loads(self._cli("explain", "--json", path))
        if told["found"] and (told["block"]["hash"], told["size"]) != (job.key, job.size):
            raise Wrong(f"explain {path}: {told}")
        never = json.loads(self._cli("explain", "--json", f"{path}-never"))
        if never["found"] or never["dropped"] is not None:
            raise Wrong(f"explain {path}-never: {never}")
        return told["found"]

    def ask_find(self, block):
        path, job = block
        found = self._cli("find", "--json", job.key, self._mount.mnt, codes=(0, 1))
        for line in found.splitlines():
            told = json.loads(line)
            if told["hash"] != job.key or os.path.join(self._mount.mnt, told["path"]) != path:
                raise Wrong(f"find {job.key}: {line}")
        return bool(found)

    def ask_tree(self, block):
        return block[1].key in self._cli("tree", "--json", block[1].key, self._mount.mnt,
                                         codes=(0, 1))

    def ask_list(self, block):
        return bool(self._cli("ls", "--by", "model", self._mount.mnt))

    def ask_by_prefix(self, block):
        path, job = block
        prefix = self._me.call(or_miss, os.getxattr, path, "user.kvcachefs.prefix")
        if prefix is not None and prefix.decode() != job.key:
            raise Wrong(f"{path} has the prefix {prefix}")
        folder = f"{self._mount.mnt}/.kvcachefs/by-prefix"
        target = self._me.call(or_miss, os.readlink, f"{folder}/{job.key}")
        if target is not None and os.path.normpath(f"{folder}/{target}") != path:
            raise Wrong(f"{folder}/{job.key} leads to {target}")
        return target is not None

    QUESTIONS = (ask_status, ask_metrics, ask_explain, ask_find, ask_tree, ask_list, ask_by_prefix)

    def step(self):
        block = self._some_block()
        if block is not None:
            question = self._chance.choice(self.QUESTIONS)
            if question(self, block):
                self.answered[question.__name__] += 1
                self._me["done"] += 1


def ask(board, me, mount, writers, roots, port, seed):
    asker = Asker(me, mount, writers, roots, port, seed)
    while not board.is_over:
        asker.step()
        board.rest(time.monotonic() + 0.4)
    return dict(asker.answered)


# ---- a machine that is short of memory, a disk that flips bits -----------------------------------

def cool(board, me, objects, seed):
    """Takes backing files out of memory, as the kernel does when it is short of it: then loads read
    from the disk, which verifies, and lookups read ahead."""
    chance = random.Random(f"{seed}/{me.name}")
    while not board.is_over:
        for folder in os.listdir(objects):
            for name in os.listdir(f"{objects}/{folder}"):
                if chance.random() < 0.2:
                    fd = or_miss(os.open, f"{objects}/{folder}/{name}", os.O_RDONLY)
                    if fd is not None:
                        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                        os.close(fd)
                        me["done"] += 1
        board.rest(time.monotonic() + 1)


class Damager:
    """Stores a block, waits for its seal, flips a bit of it on the disk, and wants a miss.

    Nobody else opens these files: of what is open during the damage nothing is promised. Who has
    the backing file open keeps its blocks from being given to another, whatever becomes of its
    name.
    """

    def __init__(self, me, mount, image, root, seed):
        self._me, self._mount, self._image, self._root = me, mount, image, root
        self._content = stores.Content(seed)
        self._chance = random.Random(f"{seed}/{me.name}")

    def _told(self, path):
        done = self._me.call(self._mount.cli, "explain", "--json", path)
        if done.returncode != 0:
            raise Wrong(f"explain {path}: exit {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def _open_sealed(self, path):
        """The backing file's descriptor, when it is sealed; None if it has gone before."""

        def gone_or_sealed():
            or_miss(os.stat, path)  # Its lease: others store the budget in the time of a seal.
            one = self._told(path)
            return one if not one["found"] or one["state"] == "sealed" else None

        told = kvmount.wait_until(gone_or_sealed, 60, f"the seal of {path}")
        if not told["found"]:
            return None
        folder = f"{int(told['object'], 16) >> 12 & 255:02x}"
        return or_miss(os.open, f"{told['device']}/objects/{folder}/{told['object']}", os.O_RDONLY)

    def step(self):
        """Whether a damaged file was taken out."""
        key = f"{self._chance.getrandbits(256):064x}"
        job = stores.Job(key, self._chance.choice([64 * KIB, 256 * KIB, MIB]), "buffered")
        wanted = self._content.of(key, job.size)
        path = self._me.call(stores.store, self._root, "sglang", job, self._content)
        backing = self._open_sealed(path)
        if backing is None:
            return False
        try:
            damage.flip(damage.Patch(self._image, f"/proc/self/fd/{backing}"), self._chance)

            def is_miss():
                # What is in memory is good, and may be given; the disk's bytes are not.
                os.posix_fadvise(backing, 0, 0, os.POSIX_FADV_DONTNEED)
                loaded = self._me.call(or_miss, damage.load_read, path)
                compare(path, loaded, wanted)
                return loaded is None

            kvmount.wait_until(is_miss, 10, f"the miss of {path}, which is damaged")
        finally:
            os.close(backing)
        dropped = self._told(path)["dropped"]
        self._me.call(stores.store, self._root, "sglang", job, self._content)
        compare(path, self._me.call(or_miss, damage.load_read, path), wanted)
        return dropped is not None and dropped["reason"] == "damaged"


def spoil(board, me, mount, image, root, seed):
    damager = Damager(me, mount, image, root, seed)
    while not board.is_over:
        me["done"] += damager.step()
        board.rest(time.monotonic() + 2)
