"""`kvcachefs find`, `ls` and `tree`: on a live mount, and offline on its state directory."""

import json
import os
import random
import subprocess
import threading

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the command line of kvcachefs")

PARENT = "user.kvcachefs.parent"


def hash_of(number):
    return f"{number:08x}{number:056x}"


def sglang(number, model="m", rank=0):
    return f"{hash_of(number)}_{model}_{rank}_2.bin"


def put(mount, path, size=1):
    whole = os.path.join(mount.mnt, path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with open(whole, "wb") as file:
        file.write(b"x" * size)
    return path


def lines(mount, *words, code=0, **more):
    """What a command with --json prints."""
    done = mount.cli(*words, "--json", **more)
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def said(mount, *words, code=1):
    """The one line of a command that fails."""
    done = mount.cli(*words)
    assert done.returncode == code and done.stdout == "", done
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("kvcachefs: ")
    return done.stderr


def ask_in_all_ways(mount, check):
    """check(*place) on the mount, on the state directory of the running daemon, and offline."""
    check(mount.mnt)
    check(f"{mount.mnt}/.")
    check("--state", mount.state)
    mount.stop()
    check("--state", mount.state)
    # Reading has changed nothing.
    assert mount.fsck()[0] == 0


@pytest.mark.gate
@pytest.mark.short
def test_find_shows_all_files_of_a_hash(mounts):
    mount = mounts()
    paths = {put(mount, f"prefix/{hash_of(7)}", 3), put(mount, f"sg/{sglang(7)}", 5),
             put(mount, f"sg/{sglang(7, rank=1)}", 5)}
    put(mount, f"sg/{sglang(8)}")
    inodes = {path: os.stat(f"{mount.mnt}/{path}").st_ino for path in paths}

    def check(*place):
        for word in (hash_of(7), hash_of(7)[:8], hash_of(7)[:20], hash_of(7).upper()):
            found = {one["path"]: one for one in lines(mount, "find", word, *place)}
            assert set(found) == paths, word
        one = found[f"sg/{sglang(7, rank=1)}"]
        assert (one["runtime"], one["model"], one["rank"], one["world"], one["size"]) == \
            ("sglang_file", "m", 1, 2, 5)
        assert {path: one["inode"] for path, one in found.items()} == inodes
        text = mount.cli("find", hash_of(7), *place).stdout
        for part in (f"sg/{sglang(7)}\n", "sglang_file, model m, rank 1 of 2", "5 B", hash_of(7)):
            assert part in text
        assert "no file holds" in said(mount, "find", hash_of(9), *place)
        assert "no file holds" in said(mount, "find", hash_of(7)[:7], *place)
        assert "no file holds" in said(mount, "find", "chat/../..", *place)

    ask_in_all_ways(mount, check)


def test_a_beginning_of_several_hashes_is_ambiguous(mounts):
    mount = mounts()
    put(mount, "prefix/0123456789abcdef00")
    put(mount, "prefix/0123456789abcdef11")
    put(mount, "prefix/0123456789abcdef")

    def check(*place):
        line = said(mount, "find", "01234567", *place)
        assert "0123456789abcdef00" in line and "0123456789abcdef11" in line
        assert "several" in said(mount, "tree", "01234567", *place)
        # A whole hash is that hash, though others begin with it.
        assert len(lines(mount, "find", "0123456789abcdef", *place)) == 1

    ask_in_all_ways(mount, check)


def test_a_session_is_found_in_order(mounts):
    mount = mounts()
    order = list(range(30))
    random.Random(kvmount.seed()).shuffle(order)
    for number in range(30):
        put(mount, f"prefix/{hash_of(number)}", number)
    os.makedirs(f"{mount.mnt}/session/chat-17")
    os.makedirs(f"{mount.mnt}/session/empty")
    for number in order:
        os.link(f"{mount.mnt}/prefix/{hash_of(number)}", f"{mount.mnt}/session/chat-17/{number}")

    def check(*place):
        entries = lines(mount, "find", "chat-17", *place)
        assert [entry["position"] for entry in entries] == list(range(30))
        assert [entry["object"]["hash"] for entry in entries] == [hash_of(n) for n in range(30)]
        assert [entry["path"] for entry in entries] == [f"session/chat-17/{n}" for n in range(30)]
        text = mount.cli("find", "chat-17", *place).stdout.splitlines()
        assert len(text) == 30 and all(hash_of(n) in text[n] for n in range(30))
        assert lines(mount, "find", "empty", *place) == []
        assert "no session" in said(mount, "find", "chat-18", *place)
        assert "no entry" in said(mount, "tree", "empty", *place)
        groups = lines(mount, "ls", "--by", "session", *place)
        assert groups == [{"session": "chat-17", "objects": 30, "bytes": sum(range(30))}]

    ask_in_all_ways(mount, check)


def test_ls_groups_and_filters(mounts):
    mount = mounts()
    for number in range(10):
        put(mount, f"sg/{sglang(number, model='a')}", 100)
    for number in range(4):
        put(mount, f"sg/{sglang(number, model='b')}", 1000)
    for number in range(3):
        put(mount, f"prefix/{hash_of(number)}", 10)
    put(mount, "notes.txt")
    put(mount, "line\nbreak/" + sglang(77, model="c"))

    def check(*place):
        assert lines(mount, "ls", "--by", "model", *place) == [
            {"model": "b", "objects": 4, "bytes": 4000}, {"model": "a", "objects": 10, "bytes": 1000},
            {"model": None, "objects": 3, "bytes": 30}, {"model": "c", "objects": 1, "bytes": 1}]
        assert lines(mount, "ls", "--by", "runtime", *place) == [
            {"runtime": "sglang_file", "objects": 15, "bytes": 5001},
            {"runtime": "native", "objects": 3, "bytes": 30}]
        assert len(lines(mount, "ls", *place)) == 18
        assert len(lines(mount, "ls", "--model", "b", *place)) == 4
        assert len(lines(mount, "ls", "--runtime", "native", *place)) == 3
        assert lines(mount, "ls", "--runtime", "native", "--model", "b", *place) == []
        text = mount.cli("ls", *place).stdout.splitlines()
        assert len(text) == 19 and text[0].split()[0] == "SIZE"
        assert any("line\\x0abreak/" in line for line in text)
        for one in lines(mount, "ls", *place):
            made = os.stat(f"{mount.mnt}/{one['path']}").st_mtime if mount.is_mounted() else None
            if made is not None:
                assert abs(one["created"] - made) < 60
            assert 0 <= one["last_use"] - one["created"] < 600

    def below(path, *words):
        return sorted(one["path"] for one in lines(mount, "ls", *words, f"{mount.mnt}/{path}"))

    assert len(below("sg")) == len(below("sg/")) == 14
    assert below("prefix") == [f"prefix/{hash_of(number)}" for number in range(3)]
    os.mkdir(f"{mount.mnt}/s")
    assert below("sg", "--runtime", "native") == below("s") == []
    said(mount, "ls", f"{mount.mnt}/nothing/there")
    assert below(below("sg")[0]) == below("sg")[:1]
    assert lines(mount, "ls", "--by", "model", f"{mount.mnt}/prefix") == [
        {"model": None, "objects": 3, "bytes": 30}]
    ask_in_all_ways(mount, check)


def test_tree_shows_what_was_told(mounts):
    mount = mounts()
    # 0 <- 1 <- 2 <- 3, and below 3 two branches: 4 <- 5 and 6.
    for number in range(7):
        put(mount, f"prefix/{hash_of(number)}", number + 1)
    os.listdir(mount.mnt)  # Who has listed a directory teaches no order by what he looks up.
    for child, parent in ((1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 3)):
        os.setxattr(f"{mount.mnt}/prefix/{hash_of(child)}", PARENT, hash_of(parent).encode())
    os.makedirs(f"{mount.mnt}/session/s")
    for number in range(3):
        os.link(f"{mount.mnt}/prefix/{hash_of(number)}", f"{mount.mnt}/session/s/{number}")

    def hashes(found, role):
        return [one["object"]["hash"] for one in found if one["role"] == role]

    def check(*place):
        for word in (hash_of(2), "s"):
            found = lines(mount, "tree", word, *place)
            assert hashes(found, "ancestor") == [hash_of(0), hash_of(1)]
            assert hashes(found, "block") == [hash_of(2)]
            below = hashes(found, "descendant")
            assert below[0] == hash_of(3) and sorted(below) == [hash_of(n) for n in (3, 4, 5, 6)]
            assert below.index(hash_of(5)) == below.index(hash_of(4)) + 1
            depths = {one["object"]["hash"]: one["depth"] for one in found}
            assert [depths[hash_of(n)] for n in range(7)] == [-2, -1, 0, 1, 2, 3, 2]
            assert [one["firm"] for one in found] == [False] + [True] * 6
        text = mount.cli("tree", hash_of(2), *place).stdout.splitlines()
        assert text[0] == "native" and len(text) == 8, text
        assert text[1].startswith("  0") and text[1].endswith("first")
        assert text[3].startswith("> ") and text[3].endswith("firm")
        # Bounds say that they cut.
        found = lines(mount, "tree", "--depth", "1", hash_of(2), *place)
        assert hashes([one for one in found if "object" in one], "descendant") == [hash_of(3)]
        assert [one["more"] for one in found if "more" in one] == [2]
        found = lines(mount, "tree", "--limit", "1", hash_of(2), *place)
        assert hashes([one for one in found if "object" in one], "ancestor") == [hash_of(1)]
        assert [(one["role"], one["more"]) for one in found if "more" in one] == \
            [("ancestor", 1), ("descendant", 2)]
        assert "… 1 more" in mount.cli("tree", "--limit", "1", hash_of(2), *place).stdout

    ask_in_all_ways(mount, check)


def test_what_is_learned_is_shown_and_kept(mounts):
    mount = mounts()
    names = [sglang(number) for number in range(6)]

    def request():
        missing = [name for name in names if not os.path.exists(f"{mount.mnt}/{name}")]
        for name in missing:
            put(mount, name)

    request()
    for _ in range(3):
        request()
    found = lines(mount, "tree", hash_of(5), mount.mnt)
    chain = [one["object"]["hash"] for one in found if one["role"] != "descendant"]
    assert chain == [hash_of(number) for number in range(6)]
    mount.stop()
    offline = lines(mount, "tree", hash_of(5), "--state", mount.state)
    firm = [one["object"]["hash"] for one in found if one["firm"]]
    assert [one["object"]["hash"] for one in offline if one["firm"]] == firm
    mount.start()
    assert len(lines(mount, "ls", mount.mnt)) == 6


def test_many_names_go_page_by_page_beside_a_busy_mount(mounts):
    mount = mounts()
    top = f"{mount.mnt}/sg"
    os.mkdir(top)
    for number in range(20_000):
        os.close(os.open(f"{top}/{sglang(number)}", os.O_CREAT | os.O_WRONLY, 0o644))
    expected = {f"sg/{sglang(number)}" for number in range(20_000)}
    listed = [one["path"] for one in lines(mount, "ls", mount.mnt, seconds=300)]
    assert len(listed) == len(set(listed)) and set(listed) == expected

    # Beside users that make, replace and remove other blocks: what stays is listed once.
    stop = threading.Event()

    def churn(offset):
        number = offset
        while not stop.is_set():
            name = f"{mount.mnt}/sg/{sglang(number)}"
            with open(f"{name}.tmp", "wb") as file:
                file.write(b"x")
            os.rename(f"{name}.tmp", name)
            os.unlink(name)
            number += 1

    threads = [threading.Thread(target=churn, args=(base,)) for base in (10**6, 2 * 10**6)]
    for thread in threads:
        thread.start()
    try:
        program = subprocess.Popen([os.path.join(kvmount.BIN, "kvcachefs"), "ls", "--json",
                                    mount.mnt], stdout=subprocess.PIPE, text=True)
        # Others are answered between its pages; an aborted listing leaves nothing.
        aborted = subprocess.Popen([os.path.join(kvmount.BIN, "kvcachefs"), "ls", mount.mnt],
                                   stdout=subprocess.PIPE)
        aborted.stdout.read(100)
        aborted.stdout.close()
        assert mount.status()["phase"] == "serving"
        listed = [json.loads(line)["path"] for line in program.stdout]
        assert program.wait() == 0
        assert aborted.wait() != 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    stayed = [path for path in listed if path in expected]
    assert len(stayed) == len(expected) and set(stayed) == expected
    mount.stop()
    offline = lines(mount, "ls", "--state", mount.state, seconds=300)
    assert {one["path"] for one in offline} == expected and len(offline) == 20_000


def test_wrong_questions(mounts):
    mount = mounts()
    for words, parts in [
            (("ls",), ["mount point", "--state"]),
            (("ls", mount.mnt, "--state", mount.state), ["--state", "one of them"]),
            (("find",), ["HASH|SESSION"]),
            (("find", "abc"), ["mount point"]),
            (("tree", "abc"), ["mount point"]),
            (("ls", "--by", "size", mount.mnt), ["size"]),
            (("ls", "--runtime", "frob", mount.mnt), ["--runtime", "frob"]),
            (("tree", "--depth", "-1", "abc", mount.mnt), ["--depth"]),
            (("ls", "--frobnicate", mount.mnt), ["--frobnicate"])]:
        line = said(mount, *words, code=2)
        assert all(part in line for part in parts), line
    assert "no kvcachefs" in said(mount, "ls", mount.work)
    absent = f"{mount.work}/absent"
    assert absent in said(mount, "find", "abc", absent)
    assert absent in said(mount, "ls", "--state", absent)
    assert "no metadata" in said(mount, "ls", "--state", mount.nvme)
    # A word that no name can be.
    assert "longer" in said(mount, "find", "f" * 2000, mount.mnt)


def test_no_daemon(mounts):
    mount = mounts()
    put(mount, f"prefix/{hash_of(1)}")
    mount.kill(unmount=False)
    assert "its daemon has died" in said(mount, "ls", mount.mnt)
    # What was published is known without it.
    assert len(lines(mount, "find", hash_of(1), "--state", mount.state)) == 1
    kvmount.lazy_unmount(mount.mnt)
    mount.start()
    assert len(lines(mount, "ls", mount.mnt)) == 1


def counted(mount):
    return mount.status()["tiers"][0]["objects"]


def test_status_counts_objects_exactly(mounts):
    mount = mounts()
    kvmount.wait_until(lambda: counted(mount) == 0, 30, "the first count")
    for number in range(600):
        put(mount, f"sg/{sglang(number)}")
    assert counted(mount) == 600 == len(mount.backing_files())

    def agree(expected):
        kvmount.wait_until(lambda: counted(mount) == len(mount.backing_files()) == expected, 30,
                           f"{expected} objects, counted {counted(mount)}")

    for number in range(0, 600, 3):
        os.unlink(f"{mount.mnt}/sg/{sglang(number)}")
    for number in range(1, 600, 3):
        put(mount, f"sg/{sglang(number)}", 2)  # a rewrite: a new object for each
    agree(400)
    mount.crash()
    # Removals and creations beside the count of the old ones.
    for number in range(2, 600, 3):
        os.unlink(f"{mount.mnt}/sg/{sglang(number)}")
    for number in range(1000, 1050):
        put(mount, f"sg/{sglang(number)}")
    agree(250)
    mount.remount()
    agree(250)
    counts = mount.status()["counts"]
    assert counts["blocks"] == 250 and counts["order_bytes"] > 0
    kvmount.wait_until(lambda: not mount.status()["counts"]["blocks_behind"], 30, "the names")
    assert counts["invisible_calls"] == 0 and counts["order_dropped"] == 0
    assert "250 objects" in mount.cli("status", mount.mnt).stdout
    assert "250 of KV cache" in mount.cli("status", mount.mnt).stdout
