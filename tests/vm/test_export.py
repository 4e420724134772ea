"""The kernel's NFS server exports a mount, as the README says, and the kernel's NFS client uses it."""

import errno
import random

import pytest

import guest
import kvmount
from machine import USER

FILES = 20

pytestmark = pytest.mark.limit(1800)


def contents(seed, sizes):
    rng = random.Random(seed)
    return {f"{number}.bin": rng.randbytes(size) for number, size in enumerate(sizes)}


def test_clients_have_what_is_on_the_mount(vm, client, seed):
    there, here = client
    made = contents(seed, [0, 1, 4095, 4097, 100_000, 2 << 20, *([30_000] * 10)])
    with vm.worker(uid=USER) as user:
        user.call(guest.store_all, there, made)
        assert vm.call(guest.load_all, here, list(made)) == made
        vm.drop_caches()
        assert user.call(guest.load_all, there, list(made)) == made
        names = {name: len(data) for name, data in made.items()}
        assert user.call(guest.listing, there) == names == vm.call(guest.listing, here)
        # The other way round: nothing there remembers that it was not.
        assert user.call(guest.load, f"{there}/new") is None
        vm.call(guest.store, f"{here}/new", b"made here")
        assert user.call(guest.load, f"{there}/new") == b"made here"
        # Renames, onto a file and into a directory.
        user.run(f"cd {there}; mv 4.bin 3.bin; mkdir -p a/b; mv 5.bin a/b/; ln 6.bin a/link; ln -s a/link soft")
        assert vm.call(guest.load_all, here, ["3.bin", "a/b/5.bin", "a/link", "soft", "4.bin"]) == {
            "3.bin": made["4.bin"], "a/b/5.bin": made["5.bin"], "a/link": made["6.bin"],
            "soft": made["6.bin"], "4.bin": None}
        # An append, a truncation, a hole.
        user.run(f"cd {there}; printf more >>7.bin; truncate -s 10 8.bin; truncate -s 100k 9.bin")
        assert vm.call(guest.load_all, here, ["7.bin", "8.bin", "9.bin"]) == {
            "7.bin": made["7.bin"] + b"more", "8.bin": made["8.bin"][:10],
            "9.bin": made["9.bin"] + bytes(102_400 - 30_000)}
        user.run(f"rm -r {there}/*")
        assert vm.call(guest.listing, here) == {}
        # Root's is nobody's there.
        assert vm.call(guest.fails, guest.store, f"{there}/x", b"x") == errno.EACCES


def test_what_was_evicted_is_a_miss_at_once(vm, node, client, seed):
    there, here = client
    first, second = contents(seed, [300_000, 300_000]).values()

    def is_evicted():
        return node.cli("evict", f"{here}/block").returncode == 0

    with vm.worker(uid=USER) as user:
        user.call(guest.store, f"{there}/block", first)
        assert user.call(guest.load, f"{there}/block") == first
        assert "policy       cache" in node.kvcachefs("explain", f"{here}/block")
        # The server keeps open for moments what was read.
        kvmount.wait_until(is_evicted, 60, "an eviction")
        assert user.call(guest.is_gone, f"{there}/block")
        assert user.call(guest.load, f"{there}/block") is None
        user.call(guest.store, f"{there}/block", second)
        assert user.call(guest.load, f"{there}/block") == second

        # What a client has open: version 3 does not tell the server, and the file goes; version 4 does, and it stays.
        user.call(guest.hold, [f"{there}/block"])
        if "v4.2" in there:
            assert not is_evicted()
            assert user.call(guest.read_held) == {f"{there}/block": second}
            user.call(guest.let_go)
            kvmount.wait_until(is_evicted, 60, "an eviction after the close")
        else:
            kvmount.wait_until(is_evicted, 60, "an eviction")
            assert user.call(guest.read_held)[f"{there}/block"] in (second, errno.ESTALE)
            vm.drop_caches()
            assert user.call(guest.read_held)[f"{there}/block"] == errno.ESTALE
            user.call(guest.let_go)
        vm.drop_caches()
        assert user.call(guest.load, f"{there}/block") is None


def test_handles_outlive_caches_daemon_mount_and_server(vm, server, node, client, seed):
    there, here = client
    made = {f"{there}/{name}": data for name, data in contents(seed, [20_000] * FILES).items()}
    user = vm.worker(uid=USER)
    for path, data in made.items():
        user.call(guest.store, path, data)
    user.call(guest.hold, list(made))

    def held():
        return user.call(guest.read_held)

    def all_good():
        assert held() == made  # The handles that the client has.
        assert user.call(guest.load_all, "/", list(made)) == made  # By name.

    all_good()
    vm.drop_caches()
    all_good()

    server.down()
    server.up()
    all_good()
    vm.drop_caches()
    all_good()

    node.kill(False)
    node.start()
    vm.run("exportfs -f")
    if "v4.2" in there:
        # The server has the files open for its clients, on the mount that has died: until it is started again.
        assert all(data in (made[path], errno.EIO) for path, data in held().items())
        server.down()
        server.up()
    vm.drop_caches()
    all_good()

    server.down()
    node.stop()
    node.start()
    server.up()
    vm.drop_caches()
    all_good()
    user.call(guest.let_go)
