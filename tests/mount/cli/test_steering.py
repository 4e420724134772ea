"""`kvcachefs set`, `pin`, `unpin`, `evict` and `explain`."""

import json
import os
import time

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the command line of kvcachefs")

POLICY = "user.kvcachefs.policy"
TTL = "user.kvcachefs.ttl"


def sglang(number, model="m"):
    return f"{number:08x}{number:056x}_{model}_0_1.bin"


def put(mount, path, size=1000):
    """Stores a file and waits for its seal."""
    whole = os.path.join(mount.mnt, path)
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    with open(whole, "wb") as file:
        file.write(b"x" * size)
    return whole


def sealed(mount):
    mount.wait_sealed(30)


def told(mount, path):
    done = mount.cli("explain", "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def evicted(mount, *words, code=0):
    done = mount.cli("evict", "--json", *words)
    assert done.returncode == code, done
    return json.loads(done.stdout)


def fails(mount, *words, code=1):
    done = mount.cli(*words)
    assert done.returncode == code and done.stdout == "", done
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("kvcachefs: ")
    return done.stderr


def works(mount, *words):
    done = mount.cli(*words)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


@pytest.mark.gate
@pytest.mark.short
def test_set_tells_what_getfattr_shows(mounts):
    mount = mounts()
    file = put(mount, "d/notes.txt")
    directory = os.path.dirname(file)
    assert os.getxattr(file, POLICY) == b"cache"
    works(mount, "set", directory, "policy=keep", "ttl=7d")
    assert (os.getxattr(directory, POLICY), os.getxattr(directory, TTL)) == (b"keep", b"7d")
    assert os.getxattr(file, POLICY) == b"keep"
    assert os.listxattr(file) == []
    works(mount, "set", file, "policy=process")
    assert os.getxattr(file, POLICY) == b"process" and os.getxattr(file, TTL) == b"604800s"
    works(mount, "set", file, "policy=")
    assert os.getxattr(file, POLICY) == b"keep"
    mount.remount()
    assert os.getxattr(file, POLICY) == b"keep"
    os.removexattr(directory, POLICY)
    assert os.getxattr(file, POLICY) == b"cache"


def test_set_says_what_is_wrong(mounts):
    mount = mounts()
    file = put(mount, "f")
    for word, what in (("policy=evict", "cache, process, keep or pin"), ("ttl=soon", "7d"),
                       ("policy", "policy=POLICY"), ("size=3", "policy=POLICY")):
        assert what in fails(mount, "set", file, word, code=2)
    assert "twice" in fails(mount, "set", file, "policy=keep", "ttl=1h", "policy=pin", code=2)
    assert "no kvcachefs is mounted" in fails(mount, "set", mount.work, "policy=keep")
    assert "No such file" in fails(mount, "set", f"{mount.mnt}/gone", "policy=keep")
    assert "explain" in fails(mount, "set", file, "ttl=")
    assert os.listxattr(file) == []


def test_whoever_may_write_a_file_may_pin_it(mounts):
    mount = mounts()
    os.chmod(mount.mnt, 0o755)
    file = put(mount, "f")

    def tell():
        try:
            os.setxattr(file, POLICY, b"pin")
        except PermissionError:
            return "refused"
        return "done"

    assert kvmount.run_as(tell, uid=kvmount.NOBODY) == "refused"
    os.chown(file, kvmount.NOBODY, -1)
    assert kvmount.run_as(tell, uid=kvmount.NOBODY) == "done"


def test_pin_and_unpin(mounts):
    mount = mounts()
    file = put(mount, "d/f")
    works(mount, "pin", f"{mount.mnt}/d")
    assert os.getxattr(file, POLICY) == b"pin"
    sealed(mount)
    assert evicted(mount, file, code=1)["left"]["pinned"] == 1
    assert "explain" in fails(mount, "unpin", file)
    works(mount, "unpin", f"{mount.mnt}/d")
    assert os.getxattr(file, POLICY) == b"cache"
    works(mount, "set", file, "policy=keep")
    assert "its policy is keep" in fails(mount, "unpin", file)
    assert os.getxattr(file, POLICY) == b"keep"


@pytest.mark.gate
@pytest.mark.short
def test_evict_drops_what_may_go(mounts):
    mount = mounts()
    files = [put(mount, f"d/{n % 5}/{sglang(n)}") for n in range(40)]
    kept = put(mount, "d/kept/f")
    works(mount, "set", os.path.dirname(kept), "policy=keep")
    pinned = put(mount, "d/pinned")
    works(mount, "pin", pinned)
    sealed(mount)
    assert "--recursive" in fails(mount, "evict", f"{mount.mnt}/d")
    assert evicted(mount, files[0])["files"] == 1
    with open(files[1], "rb") as held:
        done = evicted(mount, "--recursive", f"{mount.mnt}/d")
        assert held.read() == b"x" * 1000
    assert (done["files"], done["bytes"]) == (38, 38_000)
    assert done["left"] == {"open": 1, "unsealed": 0, "kept": 1, "pinned": 1, "owned": 0,
                            "queued": 0}
    assert {e["path"]: e["why"] for e in done["examples"]} == {
        os.path.relpath(files[1], mount.mnt): "open", "d/kept/f": "kept", "d/pinned": "pinned"}
    for file in files:
        assert os.path.exists(file) == (file == files[1])
    assert os.path.exists(kept) and os.path.exists(pinned)
    dropped = mount.status()["dropped"]["asked"]
    assert (dropped["files"], dropped["bytes"]) == (39, 39_000)
    assert "evicted     39 files" in works(mount, "status", mount.mnt)
    text = works(mount, "evict", "--recursive", mount.mnt)
    assert text.startswith("evicted 1 file, 1000 B\nleft 2: 1 kept, 1 pinned\n")
    mount.stop()
    assert mount.fsck()[0] == 0


def test_evict_takes_many_files_page_by_page(mounts):
    mount = mounts()
    for n in range(1300):
        put(mount, f"d/{n}", size=1)
    sealed(mount)
    assert evicted(mount, "--recursive", mount.mnt)["files"] == 1300
    assert os.listdir(f"{mount.mnt}/d") == []
    assert evicted(mount, "--recursive", mount.mnt)["files"] == 0


def test_evict_takes_all_names_and_frees_the_room(mounts):
    mount = mounts()
    file = put(mount, "a", size=1 << 20)
    os.link(file, f"{mount.mnt}/b")
    sealed(mount)
    assert evicted(mount, file)["files"] == 1
    assert os.listdir(mount.mnt) == []
    kvmount.wait_until(lambda: mount.status()["tiers"][0]["objects"] == 0, 30, "the reaper")


def test_evict_says_which_file_is_not_there(mounts):
    mount = mounts()
    assert f"{mount.mnt}/d/absent: " in fails(mount, "evict", f"{mount.mnt}/d/absent")


def test_evict_leaves_what_is_being_written(mounts):
    mount = mounts()
    with open(f"{mount.mnt}/f", "wb") as file:
        file.write(b"x")
        file.flush()
        assert evicted(mount, f"{mount.mnt}/f", code=1)["left"]["open"] == 1
    assert "no such file" in fails(mount, "evict", f"{mount.mnt}/gone")


@pytest.mark.gate
@pytest.mark.short
def test_explain_tells_of_a_block(mounts):
    mount = mounts()
    unused = put(mount, "unused")
    paths = [put(mount, f"sg/{sglang(n)}") for n in range(3)]
    for before, after in zip(paths, paths[1:]):
        os.setxattr(after, "user.kvcachefs.parent", os.path.basename(before)[:64].encode())
    sealed(mount)
    one = told(mount, paths[1])
    # To ask is no use of it: once the kernel has forgotten the name it would ask the daemon.
    began = time.monotonic()
    kvmount.wait_until(lambda: time.monotonic() - began > 1.1, 10, "a name's second")
    assert told(mount, paths[1]) == one
    assert one["found"] and one["path"] == os.path.relpath(paths[1], mount.mnt)
    assert one["inode"] == os.stat(paths[1]).st_ino and one["type"] == "file"
    assert (one["state"], one["size"], one["open"]) == ("sealed", 1000, 0)
    assert one["device"] == mount.nvme and one["allocated"] >= 1000
    assert os.path.exists(f"{mount.nvme}/objects/{int(one['object'], 16) >> 12 & 255:02x}/{one['object']}")
    assert (one["policy"], one["policy_by"]) == ("cache", "layout")
    # To tell of its parent is a use, once the kernel has forgotten the name that was made.
    assert one["obstacle"] in (None, "leased") and told(mount, unused)["obstacle"] is None
    assert (one["block"]["runtime"], one["block"]["model"]) == ("sglang_file", "m")
    assert one["chain"]["parent"]["path"] == os.path.relpath(paths[0], mount.mnt)
    assert one["chain"]["children"] == 1 and one["chain"]["firm"]
    # A prefix goes from its end.
    order = [told(mount, path)["chain"]["goes_after"] for path in paths]
    assert sorted(order) == [0, 1, 2] and order[2] < order[1] < order[0]
    text = works(mount, "explain", paths[1])
    for words in ("sglang_file, model m", "stays for now: somebody has just found it", "state        sealed"):
        assert words in text


def test_explain_tells_who_decides(mounts):
    mount = mounts()
    file = put(mount, "a/b/f")
    works(mount, "set", f"{mount.mnt}/a", "policy=cache", "ttl=1h")
    sealed(mount)
    one = told(mount, file)
    assert (one["policy_by"], one["policy_from"]) == ("directory", "a")
    assert (one["ttl"], one["ttl_from"]) == (3600, "a")
    assert abs(one["expires"] - one["written"] - 3600) < 1
    assert "told to a" in works(mount, "explain", file)
    works(mount, "pin", file)
    one = told(mount, file)
    assert (one["policy_by"], one["policy_from"], one["obstacle"]) == ("file", "a/b/f", "pinned")
    assert one["ttl"] is None and one["expires"] is None
    assert told(mount, f"{mount.mnt}/a/b")["policy"] == "cache"
    assert told(mount, mount.mnt)["path"] == "" and told(mount, mount.mnt)["policy"] is None
    database = put(mount, "app.db")
    with open(database, "ab") as opened:
        os.fsync(opened.fileno())
        assert told(mount, database)["obstacle"] == "open"
    sealed(mount)
    one = told(mount, database)
    assert (one["policy"], one["policy_by"], one["obstacle"]) == ("keep", "application", "kept")


@pytest.mark.gate
@pytest.mark.short
def test_explain_tells_why_a_file_is_gone(mounts):
    mount = mounts()
    file = put(mount, f"d/{sglang(1)}")
    sealed(mount)
    inode = os.stat(file).st_ino
    evicted(mount, file)
    gone = told(mount, file)
    assert not gone["found"]
    assert (gone["dropped"]["reason"], gone["dropped"]["inode"]) == ("asked", inode)
    assert gone["dropped"]["size"] == 1000 and gone["dropped"]["last_use"] is not None
    assert "kvcachefs evict asked for it" in works(mount, "explain", file)
    # Its directory may be gone, too.
    os.rmdir(f"{mount.mnt}/d")
    assert told(mount, file)["dropped"]["reason"] == "asked"
    never = told(mount, f"{mount.mnt}/d/never")
    assert (never["found"], never["dropped"]) == (False, None)
    assert "never seen" in works(mount, "explain", f"{mount.mnt}/x/y/z")
    # Removed by a user: that is no loss.
    other = put(mount, "e/f")
    os.unlink(other)
    assert told(mount, other)["dropped"] is None
    assert "made up" in fails(mount, "explain", f"{mount.mnt}/.kvcachefs/by-prefix")
    assert "no kvcachefs is mounted" in fails(mount, "explain", mount.work)


def test_a_link_out_of_the_mount_is_not_followed(mounts, tmp_path):
    """Whoever may write into the mount may make one, and root's pin would write to what it names."""
    mount = mounts()
    link = os.path.join(mount.mnt, "link")
    os.symlink(tmp_path, link)
    for words in (("pin", link), ("set", link, "ttl=5s"), ("unpin", link)):
        assert "leads out of the mount" in fails(mount, *words)
    assert os.listxattr(tmp_path) == []
    whole = put(mount, "file")
    os.symlink("file", os.path.join(mount.mnt, "inside"))
    works(mount, "pin", os.path.join(mount.mnt, "inside"))
    assert os.getxattr(whole, POLICY) == b"pin"


@pytest.mark.parametrize("name", [b"j\xff", "\u00fc".encode(), b"new\nline", b"quote\"\\"], ids=repr)
def test_names_are_any_bytes(mounts, name):
    mount = mounts()
    whole = os.fsdecode(os.path.join(os.fsencode(mount.mnt), name))
    with open(whole, "wb") as file:
        file.write(b"x" * 1000)
    sealed(mount)
    assert told(mount, whole)["found"] is True
    assert evicted(mount, whole)["files"] == 1
    gone = told(mount, whole)
    assert gone["found"] is False and gone["dropped"]["reason"] == "asked"
