"""One virtual machine for the whole label, with the NFS server in it."""

import os
import sys

import pytest

import kvmount
import machine
import vm as vm_module
from machine import USER

sys.path.insert(0, os.path.join(kvmount.ROOT, "packaging", "quickstart"))


@pytest.fixture(scope="session")
def vm():
    assert os.path.exists(os.path.join(vm_module.IMAGE, "initrd")), "tests/vm/image.sh makes it: tests/run.sh vm"
    with vm_module.Vm() as booted:
        yield booted


@pytest.fixture(scope="session")
def server(vm):
    return machine.Server(vm)


@pytest.fixture(scope="session")
def node(vm, server):
    """A mount that the server exports. Leases of two seconds: what is evicted in tests has been looked up just now."""
    made = machine.Node(vm, "export", "--lease", "2s")
    server.export(machine.export_line(made.mnt))
    yield made
    server.down()
    made.stop()


@pytest.fixture(params=["3", "4.2"])
def client(request, vm, node):
    """A directory of the export: (its path on the client's side, on the mount). USER's, for a client's root is nobody."""
    name = f"v{request.param}"
    vm.run(f"mkdir -p {node.path(name)}; chown {USER}:{USER} {node.path(name)}")
    with machine.Client(vm, node.mnt, request.param, ",actimeo=5,lookupcache=positive") as path:
        yield f"{path}/{name}", node.path(name)
    vm.run(f"rm -rf {node.path(name)}")
