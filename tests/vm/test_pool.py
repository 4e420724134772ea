"""A pool on the kernel's NFS server: mounted by the kernel's client (hard, as by default), or spoken to by kvcachefs itself."""

import os
import random

import pytest

import guest
import kvmount
import machine

pytestmark = pytest.mark.limit(1800)

POOL = "/vm/pool"
# A lookup of what the pool does not tell is over in a quarter of a second. Emulated, and beside others: a bound that
# a call which waits for a hard mount does not keep.
NOT_A_HANG_S = 15


def block(number):
    """A name that says what is in the file."""
    return f"meta-llama-Llama-3.1-8B-Instruct@1@0@{1000 + number}3f2a11c0de@bfloat16.data"


def blocks(rng, first, count):
    return {block(first + at): rng.randbytes(rng.choice([1, 4096, 100_000, 1 << 20])) for at in range(count)}


@pytest.fixture(scope="module", autouse=True)
def exported(vm, server):
    vm.run(f"mkdir -p {POOL}")
    options = "(rw,no_subtree_check,no_root_squash)"
    server.export(f"{POOL} 127.0.0.1{options} ::1{options}")


@pytest.fixture(params=["dir-3", "dir-4.2", "nfs"])
def pair(request, vm, exported):
    """(pool's directory on the server, two mounts that share it)"""
    kind, _, version = request.param.partition("-")
    root = f"{POOL}/{request.param}"
    vm.run(f"mkdir -p {root}")
    client = machine.Client(vm, root, version) if kind == "dir" else None
    uri = f"dir://{client.__enter__()}" if client else f"nfs://localhost{root}"
    nodes = [machine.Node(vm, f"{name}-{request.param}", "--pool", uri) for name in "ab"]
    for node in nodes:
        kvmount.wait_until(lambda node=node: node.pool()["nodes"] == 2, 60, "both know each other")
    yield root, *nodes
    for node in nodes:
        node.stop()
    if client:
        client.__exit__(None, None, None)


def wait_until_up(node, is_up):
    kvmount.wait_until(lambda: node.pool()["up"] is is_up, 60, f"the pool {'up' if is_up else 'down'} for {node.name}")


def wait_until_found(vm, node, directory, made):
    """Every block is found there, exactly; until then it is a miss."""
    found = {}

    def all_found():
        missing = [name for name in made if found.get(name) is None]
        found.update(vm.call(guest.load_all, node.path(directory), missing))
        assert all(data is None or data == made[name] for name, data in found.items())
        return None not in found.values()

    kvmount.wait_until(all_found, 120, f"{len(made)} blocks on {node.name}")


def hangs(vm, uri):
    """Whether a program of the guest that asks the client itself waits for the server; a pool of nfs:// has no client."""
    path = uri.removeprefix("dir://")
    return path == uri or "137" in vm.run(f"timeout -s KILL 2 stat -f {path} >/dev/null || echo $?")


def work_without_pool(vm, nodes, local, stored):
    """What is here is served, what is not is a miss, what is stored is here; all without waiting for the pool."""
    for node in nodes:
        slowest = 0
        for name in [f"{block(5000 + at)}" for at in range(10)]:
            seconds, data = vm.call(guest.timed, guest.load, node.path("model", name))
            assert data is None
            slowest = max(slowest, seconds)
        seconds, data = vm.call(guest.timed, guest.load_all, node.path("model"), list(local))
        assert data == local
        slowest = max(slowest, seconds)
        slowest = max(slowest, vm.call(guest.timed, guest.store_all, node.path("model"), stored[node.name])[0])
        assert vm.call(guest.load_all, node.path("model"), list(stored[node.name])) == stored[node.name]
        slowest = max(slowest, vm.call(guest.timed, guest.listing, node.mnt)[0])
        print(f"{node.name}: the slowest call took {slowest:.3f} s")
        assert slowest < NOT_A_HANG_S
        wait_until_up(node, False)
        said = node.kvcachefs("status", node.mnt)
        assert "down" in next(line for line in said.splitlines() if "pool" in line), said


def test_what_others_change_is_seen_whatever_the_client_remembers(vm, pair):
    """The kernel's client believes for half a minute or more what it has seen of a directory. Names that kvcachefs itself has not
    asked for yet: it would believe a miss, too, of what nobody tells it of."""
    root, a, _ = pair
    data = b"put there by another client"
    client = a.pool()["uri"].removeprefix("dir://")
    vm.run(f"mkdir -p {root}/known")
    for number, name in enumerate(("known", "made/later", "known")):
        file = block(8000 + number)
        if not client.startswith("nfs:"):
            for _ in range(3):
                assert vm.run(f"stat {client}/{name}/{file} >/dev/null 2>&1 || echo missing").strip() == "missing"
        vm.run(f"mkdir -p {root}/{name}")
        vm.call(guest.store_all, f"{root}/{name}", {file: data})
        kvmount.wait_until(lambda name=name, file=file: vm.call(guest.load, a.path(name, file)) == data, 10,
                           f"what was put into {name}")


def test_two_share_it_whatever_becomes_of_the_server(vm, server, pair, seed):
    root, a, b = pair
    rng = random.Random(seed)
    local = blocks(rng, 0, 12)
    vm.run(f"mkdir {a.path('model')}")
    assert vm.call(guest.load, b.path("model", block(0))) is None
    vm.call(guest.store_all, a.path("model"), local)
    a.kvcachefs("flush", a.mnt)
    assert vm.call(guest.load_all, os.path.join(root, "model"), list(local)) == local
    wait_until_found(vm, b, "model", local)
    assert b.pool()["loaded"] == len(local)

    for number, (cut, heal) in enumerate([(server.down, server.up), (server.block, server.unblock)]):
        stored = {node.name: blocks(rng, 100 * (2 * number + at + 1), 4) for at, node in enumerate((a, b))}
        cut()
        try:
            assert hangs(vm, a.pool()["uri"])
            work_without_pool(vm, (a, b), local, stored)
        finally:
            heal()
        for node in (a, b):
            wait_until_up(node, True)
            node.kvcachefs("flush", "--timeout", "2min", node.mnt)
        wait_until_found(vm, b, "model", stored[a.name])
        wait_until_found(vm, a, "model", stored[b.name])
        local.update(stored[a.name] | stored[b.name])
        # And what is stored from now on.
        new = blocks(rng, 1000 + 100 * number, 4)
        vm.call(guest.store_all, b.path("model"), new)
        b.kvcachefs("flush", b.mnt)
        wait_until_found(vm, a, "model", new)
        local.update(new)
    a.kvcachefs("pool", "check", "--read", a.pool()["uri"])
    assert vm.call(guest.load_all, os.path.join(root, "model"), list(local)) == local
