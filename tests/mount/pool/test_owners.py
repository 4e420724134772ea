"""Who may read what others have stored: the owner and the mode that a file was stored with, on every node, whoever the
server takes the nodes for."""

import os
import struct

import pytest

import kvmount
import pools

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="pools of kvcachefs")

ALICE, BOB = 12345, 12346
GROUP = 12400


def load(path):
    """The bytes, or the errno."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        return error.errno


def read_as(uid, path, gid=None):
    return kvmount.run_as(load, path, uid=uid, gid=gid)


def test_a_pool_that_may_not_be_written_says_so():
    with pools.Pool("nfs", squash="All_Squash") as pool, pools.node(pool, "a") as a:
        kvmount.wait_until(lambda: pools.state(a)["not_joined_for"], 20, "it says why")
        assert "Permission denied" in pools.state(a)["not_joined_for"]
        assert "not joined yet: pool: " in a.cli("status", a.mnt).stdout
        os.chmod(pool.root, 0o777)
        pools.wait_until_joined(a)
        assert pools.state(a)["not_joined_for"] is None


def check_changes(a, b):
    """chmod and chown, after all is on the pool and in use: they hold on both nodes, from either."""
    def paths(name):
        return os.path.join(a.mnt, name), os.path.join(b.mnt, name)

    def both(path_a, path_b, uid, expected):
        kvmount.wait_until(lambda: read_as(uid, path_b) == expected, 20, f"{path_b}: {expected} to {uid}")
        assert read_as(uid, path_a) == expected

    mine_a, mine_b = paths("mine.bin")
    kvmount.run_as(os.chmod, mine_a, 0o644, uid=ALICE)
    both(mine_a, mine_b, BOB, b"of alice")
    # From the other node, which has it by now.
    kvmount.run_as(os.chmod, mine_b, 0o600, uid=ALICE)
    both(mine_b, mine_a, BOB, 13)
    os.chown(mine_a, BOB, GROUP)
    both(mine_a, mine_b, BOB, b"of alice")
    both(mine_a, mine_b, ALICE, 13)
    os.chown(mine_a, ALICE, GROUP)
    both(mine_a, mine_b, BOB, 13)
    # A directory: what is below it opens, and closes.
    closed_a, closed_b = paths("closed")
    inside_a, inside_b = paths("closed/inside.bin")
    kvmount.run_as(os.chmod, closed_a, 0o755, uid=ALICE)
    both(inside_a, inside_b, BOB, b"inside")
    kvmount.run_as(os.chmod, closed_b, 0o700, uid=ALICE)
    both(inside_b, inside_a, BOB, 13)
    done = a.cli("flush", a.mnt)
    assert done.returncode == 0, done


@pytest.mark.parametrize("squash", ["No_Root_Squash", "Root_Squash", "All_Squash"])
def test_owners_hold_on_every_node(squash):
    with pools.Pool("nfs", squash=squash) as pool:
        if squash != "No_Root_Squash":
            os.chmod(pool.root, 0o777)  # Nobody may write there.
        with pools.node(pool, "a") as a, pools.node(pool, "b") as b:
            pools.wait_until_joined(a, b)
            for mount in (a, b):
                os.chmod(mount.mnt, 0o777)
            kvmount.run_as(pools.store, a.mnt, "mine.bin", b"of alice", 0o600, uid=ALICE)
            kvmount.run_as(pools.store, a.mnt, "ours.bin", b"of a group", 0o640, uid=ALICE, gid=GROUP)
            kvmount.run_as(os.makedirs, os.path.join(a.mnt, "closed"), uid=ALICE)
            kvmount.run_as(os.chmod, os.path.join(a.mnt, "closed"), 0o700, uid=ALICE)
            kvmount.run_as(pools.store, os.path.join(a.mnt, "closed"), "inside.bin", b"inside", 0o644,
                           uid=ALICE)
            done = a.cli("flush", a.mnt)
            assert done.returncode == 0, (done, pools.state(a))
            for mount in (a, b):
                mine, ours, inside = (os.path.join(mount.mnt, name)
                                      for name in ("mine.bin", "ours.bin", "closed/inside.bin"))
                # First who may not: nothing is to be had by being first.
                for closed_to_him in (mine, ours):
                    kvmount.wait_until(lambda path=closed_to_him: read_as(BOB, path) != 2, 20, "it is found")
                    assert read_as(BOB, closed_to_him) == 13
                kvmount.wait_until(lambda inside=inside: read_as(ALICE, inside) == b"inside", 20,
                                   "the directory is found")
                assert read_as(BOB, inside) == 13
                assert read_as(ALICE, mine) == b"of alice"
                assert read_as(BOB, ours, gid=GROUP) == b"of a group"
                found = os.stat(mine)
                assert (found.st_uid, found.st_mode & 0o7777) == (ALICE, 0o600)
            check_changes(a, b)
            # What another node stores over it is its own.
            kvmount.run_as(pools.store, b.mnt, "bobs.bin", b"of bob", 0o600, uid=BOB)
            assert b.cli("flush", b.mnt).returncode == 0
            theirs = os.path.join(a.mnt, "bobs.bin")
            kvmount.wait_until(lambda: read_as(BOB, theirs) == b"of bob", 20, "it is found")
            assert read_as(ALICE, theirs) == 13


def test_an_owner_that_was_changed_while_the_pool_was_away_is_told_later():
    with pools.Pool("nfs", own=True) as pool, pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        for mount in (a, b):
            os.chmod(mount.mnt, 0o777)
        kvmount.run_as(pools.store, a.mnt, "mine.bin", b"of alice", 0o644, uid=ALICE)
        assert a.cli("flush", a.mnt).returncode == 0
        mine_a, mine_b = (os.path.join(mount.mnt, "mine.bin") for mount in (a, b))
        kvmount.wait_until(lambda: read_as(BOB, mine_b) == b"of alice", 20, "it is found")
        pool.stop()
        os.chmod(mine_a, 0o600)
        left = a.cli("flush", "--timeout", "1s", a.mnt)
        assert left.returncode != 0 and "changed attribute" in left.stderr, left
        assert read_as(BOB, mine_a) == 13
        a.crash()
        assert read_as(BOB, mine_a) == 13
        pool.resume()
        kvmount.wait_until(lambda: read_as(BOB, mine_b) == 13, 30, "it is told")
        assert a.cli("flush", a.mnt).returncode == 0


def acl(mask, **named):
    """An access ACL of a file of Alice's: the named users may read, the file's group and others may not
    (include/uapi/linux/posix_acl_xattr.h)."""
    nobody = 0xffffffff
    entries = [(1, 6, nobody), *((2, 4, uid) for uid in sorted(named.values())), (4, 0, nobody), (16, mask, nobody),
               (32, 0, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.promise(8)
def test_an_acl_lets_nobody_in_elsewhere_whom_it_keeps_out():
    name = "system.posix_acl_access"
    with pools.Pool("nfs") as pool, pools.node(pool, "a") as a, pools.node(pool, "b") as b:
        pools.wait_until_joined(a, b)
        for mount in (a, b):
            os.chmod(mount.mnt, 0o777)

        def publish(stored, data):
            kvmount.run_as(pools.store, a.mnt, stored + ".new", data, 0o600, uid=ALICE, gid=GROUP)
            os.setxattr(os.path.join(a.mnt, stored + ".new"), name, acl(4, bob=BOB))
            os.rename(os.path.join(a.mnt, stored + ".new"), os.path.join(a.mnt, stored))
            assert a.cli("flush", a.mnt).returncode == 0
            return os.path.join(a.mnt, stored), os.path.join(b.mnt, stored)

        def bits(path):
            return os.stat(path).st_mode & 0o777

        first_a, first_b = publish("first", b"first")
        kvmount.wait_until(lambda: read_as(ALICE, first_b) == b"first", 20, "it is found")
        other = BOB + 1
        for path in (first_a, first_b):
            assert read_as(other, path, gid=GROUP) == 13
        assert bits(first_b) == 0o600
        # Here all is as it was, also once it has been told.
        assert bits(first_a) == 0o640 and read_as(BOB, first_a) == b"first"
        # Given when it is there already.
        os.setxattr(first_a, name, acl(4, bob=BOB, other=other))
        assert a.cli("flush", a.mnt).returncode == 0
        assert read_as(other, first_a, gid=GROUP) == b"first" and bits(first_a) == 0o640
        assert bits(first_b) == 0o600
        # Without it the bits are the group's.
        os.removexattr(first_a, name)
        assert read_as(other, first_a, gid=GROUP) == b"first" and read_as(BOB, first_a) == 13
        kvmount.wait_until(lambda: read_as(other, first_b, gid=GROUP) == b"first", 20, "it is told")
        assert bits(first_a) == bits(first_b) == 0o640

        # chmod elsewhere changes what the ACL lets through at most.
        second_a, second_b = publish("second", b"second")
        kvmount.wait_until(lambda: os.path.exists(second_b), 20, "it is found")
        os.chmod(second_b, 0o620)
        kvmount.wait_until(lambda: bits(second_a) == 0o620, 20, "it is told")
        assert read_as(BOB, second_a) == 13
