"""Crawlers over very many names: no lease, and no change of what goes next but by what was read."""

import collections
import contextlib
import json
import os
import random
import subprocess
import tempfile
import time

import pytest

import kvmount
import stores
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 grants no leases and evicts nothing")

NAMES = 1_000_000 if kvmount.FULL else 20_000
# What is stored in one go, by one process: of one the order is the learner's, of two the time's.
GENERATIONS = 50
LOADED = (1, 6, 3)  # These are loaded afterwards, in this order: they become the youngest.
A_GENERATION = NAMES // GENERATIONS
# Directories: of vLLM's two levels the lower ones hold about a hundred files each.
UPPER, LOWER = (64, 128) if kvmount.FULL else (8, 16)
# Each file occupies a block of 4 KiB; an eighth of the budget is headroom, the rest is just enough.
BUDGET = NAMES * 4 * KIB * 5 // 4
DISK = (8192 if kvmount.FULL else 512) * MIB
LEASE_S = 10
STORING_USER = 12345
PRESS_SIZE = 64 * KIB
SECONDS = 1800 if kvmount.FULL else 60
MOST_LISTING = 4 * MIB  # Listings are answered in pieces; with what the allocator loses.


# ---- the tree ----------------------------------------------------------------------------------

File = collections.namedtuple("File", "path generation layout job")


def make_files(chance, count):
    """[File] in the order in which they are stored: three of four are blocks, which go by the
    learned order; the others go by their last use alone, and are told of it in another way."""
    files = []
    for number in range(count):
        upper, lower = chance.randrange(UPPER), chance.randrange(LOWER)
        key = f"{upper:03x}{lower:02x}{chance.getrandbits(236):059x}"
        layout = "plain" if number % 4 == 3 else "vllm"
        if layout == "plain":
            key = f"plain/{upper:02x}/{lower:02x}/{key}.kv"
        path = stores.LAYOUTS[layout](key)[0]
        job = stores.Job(key, chance.randint(1, 4 * KIB), "buffered")
        files.append(File(path, number // A_GENERATION, layout, job))
    return files


def store(root, files, seed):
    content = stores.Content(seed)
    for file in files:
        stores.store(root, file.layout, file.job, content)


def load(root, files, seed):
    """How many were there with their bytes."""
    content = stores.Content(seed)
    return sum(stores.load(f"{root}/{file.path}") == content.of(file.job.key, file.job.size)
               for file in files)


def halves(files):
    middle = len(files) // 2
    return files[:middle], files[middle:]


def store_all(mount, generations, seed):
    begin = time.monotonic()
    for files in generations:
        parts = [kvmount.Child(store, mount.mnt, part, seed) for part in halves(files)]
        try:
            for part in parts:
                part.result(SECONDS)
        finally:
            for part in parts:
                part.end()
    stored_s = time.monotonic() - begin
    mount.wait_sealed(SECONDS)
    print(f"{NAMES} files in {UPPER * LOWER * 2} directories: stored in {stored_s:.0f} s, "
          f"sealed after {time.monotonic() - begin:.0f} s")


def walk(root):
    """Paths of all files, from what the directories list: no file is looked up."""
    return [f"{folder}/{name}"[len(root) + 1:] for folder, _, names in os.walk(root)
            for name in names]


def names_there(mount):
    """The paths of the tree, and how many files there are of what pressed on it."""
    paths = set(kvmount.run_as(walk, mount.mnt, seconds=SECONDS))
    pressing = {path for path in paths if path.startswith("press/")}
    return paths - pressing, len(pressing)


# ---- what the mount says -----------------------------------------------------------------------

def counts(mount):
    return mount.status()["counts"]


def last_uses(mount):
    """{path: the time that decides when it goes} of all blocks, asked without touching any."""
    words = [os.path.join(kvmount.BIN, "kvcachefs"), "ls", "--json", mount.mnt]
    with tempfile.TemporaryFile(dir=mount.work) as listing:
        subprocess.run(words, stdout=listing, timeout=SECONDS, check=True)
        listing.seek(0)
        blocks = (json.loads(line) for line in listing)
        return {block["path"]: block["last_use"] for block in blocks}


def assert_same_uses(before, after):
    """Of those that are still there."""
    moved = [path for path, used in after.items() if used != before[path]]
    assert moved == [], f"{len(moved)} of {len(after)} count as used"


# ---- crawling ----------------------------------------------------------------------------------

CRAWLERS = {
    "find": ["find", "{mnt}", "-ls"],
    "du": ["du", "-a", "{mnt}"],
    # Without the settings of this machine, which may leave such mounts out.
    "updatedb": ["updatedb", "-U", "{mnt}", "-o", "{work}/names.db", "--prunefs", "",
                 "--prunepaths", "", "--prunenames", "", "--prune-bind-mounts", "no",
                 "--require-visibility", "no", "--verbose"],
    "rsync": ["rsync", "-n", "-a", "-v", "{mnt}/", "{work}/no-such-directory/"],
}

def words_for(mount, words):
    return [word.format(mnt=mount.mnt, work=mount.work) for word in words]


def wait_until_the_kernel_asks():
    """Names that a listing has shown it keeps for a second."""
    over = time.monotonic() + 1.1
    kvmount.wait_until(lambda: time.monotonic() > over, 2, "a second")


Crawl = collections.namedtuple("Crawl", "lines leases")


def crawl(mount, name, words):
    """Runs it to its end: what it printed, and the most leases that were held meanwhile."""
    memory = [mount.memory()]
    leases = []
    begin = time.monotonic()
    with tempfile.TemporaryFile(dir=mount.work) as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        try:
            while not leases or process.poll() is None:
                assert time.monotonic() < begin + SECONDS * kvmount.SLOWNESS, f"{name} hangs"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)  # How often is looked: many times within a lease.
                memory.append(mount.memory())
                leases.append(counts(mount)["leases"])
        finally:
            process.kill()
            process.wait()
        seconds = time.monotonic() - begin
        errors.seek(0)
        assert process.returncode == 0, (name, process.returncode, errors.read(2000))
        output.seek(0)
        lines = sum(line.endswith((b".bin\n", b".kv\n")) for line in output)
    status = counts(mount)
    print(f"{name}: {lines} files listed in {seconds:.1f} s, at most {max(leases)} leases; the "
          f"order takes {status['order_bytes'] / MIB:.0f} MiB, the database "
          f"{status['catalog_memory_bytes'] / MIB:.0f}")
    kvmount.check_memory(memory[0], max(memory), lines, name, slack=MOST_LISTING)
    return Crawl(lines, max(leases))


# ---- pressing ----------------------------------------------------------------------------------

class Press:
    """Stores other files until enough has been evicted, as a user of its own: whoever is slow looks
    his own files up again."""

    def __init__(self, mount):
        self._mount = mount
        self.stored = 0

    def evict(self, files):
        """At least so many files more."""
        status = self._mount.status
        wanted = status()["dropped"]["room"]["files"] + files
        batch = max(A_GENERATION * 4 * KIB // PRESS_SIZE, 1)
        for _ in range(GENERATIONS):
            jobs = [stores.Job(f"press/{self.stored + n}", PRESS_SIZE, "buffered")
                    for n in range(batch)]
            done = kvmount.run_as(stores.flood, self._mount.mnt, "plain", jobs, 1, 2,
                                  uid=STORING_USER, seconds=SECONDS)
            assert done["errors"] == []
            self.stored += batch
            watch.wait_at_rest(self._mount)
            if status()["dropped"]["room"]["files"] >= wanted:
                return
        raise AssertionError("nothing is evicted")


def missing_by_generation(generations, there, wanted=lambda path: True):
    """[(missing, all)] in the order given."""
    found = []
    for files in generations:
        paths = [file.path for file in files if wanted(file.path)]
        found.append((sum(path not in there for path in paths), len(paths)))
    return found


def assert_the_oldest_went(found):
    """All of the oldest generations, some of the next, none of the others; how many of each."""
    whole = 0
    while whole < len(found) and found[whole][0] == found[whole][1]:
        whole += 1
    younger = sum(missing for missing, _ in found[whole + 1:])
    assert younger == 0, f"missing, of all, from the oldest on: {found}"
    return f"{whole} generations and {found[whole][0]} of the next"


def is_even(path):
    """Whether copy_half() takes it."""
    return int(path.split("/")[1], 16) % 2 == 0


def copy_half(mount, files, seed):
    """`cp -a` of half of the directories: the paths that were copied, which may have leases."""
    half = [f"{mount.mnt}/{directory}" for upper in range(0, UPPER, 2)
            for directory in (f"model_1a2b3c4d5e6f_r0/{upper:03x}", f"plain/{upper:02x}")]
    there, _ = names_there(mount)
    copied = [file for file in files if file.path in there and is_even(file.path)]
    # In memory: what is copied there costs the disk nothing.
    with tempfile.TemporaryDirectory(prefix="kvcachefs-crawl-", dir="/dev/shm") as elsewhere:
        done = crawl(mount, "cp", ["cp", "-a", *half, elsewhere])
        copies = [file._replace(path=file.path.partition("/")[2]) for file in copied]
        found = kvmount.run_as(walk, elsewhere, seconds=SECONDS)
        assert sorted(found) == sorted(file.path for file in copies)
        assert kvmount.run_as(load, elsewhere, copies, seed, seconds=SECONDS) == len(copies)
    print(f"  {len(copied)} of {len(there)} files were copied")
    assert 0 < len(copied) < len(there) and done.leases <= len(copied)
    return {file.path for file in copied}


@pytest.fixture
def unflushed():
    """A disk that is never told to flush: each of so many seals would wait for it, and no power cut
    comes."""
    with kvmount.LoopFs("ext4", size=DISK, options="barrier=0", mkfs=["-i", "4096"]) as disk:
        yield disk.path


# ---- tests -------------------------------------------------------------------------------------

@pytest.mark.gate
@pytest.mark.short
@pytest.mark.parametrize("crawler", CRAWLERS)
def test_a_second_crawl_is_one_as_well(limited, seed, crawler):
    """The kernel may not answer listings itself: the names alone do not tell who crawls."""
    mount = limited()
    files = make_files(random.Random(seed), 400)
    kvmount.run_as(store, mount.mnt, files, seed)
    watch.wait_calm(mount)
    # A store that took a second has one (stores.SLOW_S).
    mount.wait_for_the_ends_of_leases(65)
    uses = last_uses(mount)
    for _ in range(2):
        wait_until_the_kernel_asks()
        done = crawl(mount, crawler, words_for(mount, CRAWLERS[crawler]))
        assert done == (len(files), 0)
        assert_same_uses(uses, last_uses(mount))


@pytest.mark.limit(5400 if kvmount.FULL else 200)
def test_crawlers_of_a_whole_tree(unflushed, mounts, seed, tmp_path_factory):
    """One after the other on one tree, which loses its oldest files in between: those that were
    stored or loaded first, whatever was listed and looked at since. Then `cp -a` of half of it,
    which reads: what it has read may stay longer, what was listed alone may not."""
    # The database is elsewhere: it would be a part of the budget.
    mount = mounts(nvme=f"{unflushed}/nvme", size=BUDGET, options=["--lease", f"{LEASE_S}s"],
                   state=str(tmp_path_factory.mktemp("state")))
    os.chmod(mount.mnt, 0o777)
    files = make_files(random.Random(seed), GENERATIONS * A_GENERATION)
    generations = [files[n:n + A_GENERATION] for n in range(0, len(files), A_GENERATION)]
    store_all(mount, generations, seed)
    for number in LOADED:
        loaded = kvmount.run_as(load, mount.mnt, generations[number], seed, seconds=SECONDS)
        assert loaded == A_GENERATION
    assert counts(mount)["leases"] > 0, "leases are not counted: this would prove nothing"
    mount.wait_for_the_ends_of_leases(LEASE_S + 30)
    assert mount.status()["dropped"]["room"]["files"] == 0
    order = [one for number, one in enumerate(generations) if number not in LOADED]
    order += [generations[number] for number in LOADED]

    press = Press(mount)
    uses = last_uses(mount)
    there, _ = names_there(mount)
    assert there == {file.path for file in files}
    staged = counts(mount)["staged"]["files"]
    for name, words in CRAWLERS.items():
        wait_until_the_kernel_asks()
        # Of who pressed: one that is slow looks his own files up again.
        mount.wait_for_the_ends_of_leases(LEASE_S + 30)
        done = crawl(mount, name, words_for(mount, words))
        assert done == (len(there), 0)
        now = last_uses(mount)
        assert len(now) == sum(path.endswith(".bin") for path in there)
        assert_same_uses(uses, now)
        uses = now
        press.evict(A_GENERATION * 5 // 2)
        there, pressing = names_there(mount)
        assert pressing == press.stored
        gone = assert_the_oldest_went(missing_by_generation(order, there))
        print(f"  then evicted: {gone}")
    assert counts(mount)["staged"]["files"] == staged, "it was read ahead for a crawler"

    copied = copy_half(mount, files, seed)
    now = last_uses(mount)
    # The order of what was loaded is learned: who reads one of these uses those before it.
    learned = {file.path for number in LOADED for file in generations[number]}
    listed = now.keys() - copied - learned
    assert_same_uses(uses, {path: now[path] for path in listed})
    later = sum(used > uses[path] for path, used in now.items())
    print(f"  of {sum(path in copied for path in now)} blocks that were read {later} count as used")
    mount.wait_for_the_ends_of_leases(LEASE_S + 30)
    press.evict(A_GENERATION * 8)
    there, pressing = names_there(mount)
    assert pressing == press.stored
    listed = missing_by_generation(order, there, lambda path: not is_even(path))
    read = missing_by_generation(order, there, is_even)
    print(f"  then evicted, of what was listed: {assert_the_oldest_went(listed)}")
    youngest = max(n for n, (missing, _) in enumerate(listed) if missing > 0)
    assert all(missing == 0 for missing, _ in read[youngest + 1:]), (listed, read)
