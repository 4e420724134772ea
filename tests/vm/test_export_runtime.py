"""`kvcachefs export --run` here, the kernel's NFS client in the guest: the quickstart's runtime, on both sides.

Evaluates a prompt, saves its KV state and goes on; a process that loads the state must go on with the very same tokens.
"""

import os

import pytest

import exports
import guest
import kvmount
from machine import USER, ClientOfHost

TOKENS = 64  # of the prompt; the state has 128 KiB for each, and for each of the answer
WORK = "/vm/runtime"
MODEL = f"{WORK}/model.gguf"
# While the guest has a CPU: a minute to evaluate, save and go on, half of that to load and go on.
CONVERSE_S = 600

pytestmark = pytest.mark.limit(420)


@pytest.fixture(scope="module")
def model(vm, tmp_path_factory):
    """Made here and in the guest: the path here."""
    path = str(tmp_path_factory.mktemp("model") / "model.gguf")
    guest.make_model(path)
    vm.run(f"install -d -o {USER} {WORK}")
    vm.call(guest.make_model, MODEL)
    return path


@pytest.fixture(params=["3", "4.2"])
def place(request, vm):
    """A directory of an exported mount, USER's: (its path in the guest, on the mount)."""
    options = ["--nfs", "3"] if request.param == "3" else []
    with exports.rpcbind(), kvmount.Mount("export-runtime", foreground=False) as mount:
        export = exports.Export(mount, *options)
        try:
            export.wait()
            os.mkdir(f"{mount.mnt}/llama-slots")
            os.chown(f"{mount.mnt}/llama-slots", USER, USER)
            with ClientOfHost(vm, export) as path:
                assert f"vers={request.param}," in vm.run(f"grep ' {path} ' /proc/mounts")
                yield f"{path}/llama-slots", f"{mount.mnt}/llama-slots"
        finally:
            export.end()


def in_guest(vm, half, slots, notes=None):
    """A half of the quickstart as USER there; nothing that the guest remembers of a file is used."""
    vm.drop_caches()
    found, said = vm.call(guest.converse, half, slots, WORK, MODEL, TOKENS, notes, seconds=CONVERSE_S, uid=USER)
    print(said)
    return found


def here(half, slots, work, model, notes=None):
    found, said = guest.converse(half, slots, str(work), model, TOKENS, notes)
    print(said)
    return found


def content(path):
    (name,) = os.listdir(path)
    with open(f"{path}/{name}", "rb") as file:
        return name, file.read()


def test_a_runtime_on_a_client_goes_on_with_what_it_has_saved(vm, place, model, tmp_path):
    there, on_mount = place
    notes = in_guest(vm, "save", there)
    name, saved = content(on_mount)
    assert len(saved) == notes["bytes"] > TOKENS * (128 << 10)
    assert vm.call(guest.load, f"{there}/{name}", uid=USER) == saved

    before = vm.call(guest.bytes_from_server, os.path.dirname(there))
    in_guest(vm, "continue", there, notes)
    assert vm.call(guest.bytes_from_server, os.path.dirname(there)) - before >= len(saved)

    # So does one that runs on the machine of the mount.
    here("continue", on_mount, tmp_path, model, notes)
    assert content(on_mount) == (name, saved)


def test_a_runtime_on_a_client_goes_on_with_what_the_mount_has(vm, place, model, tmp_path):
    there, on_mount = place
    notes = here("save", on_mount, tmp_path, model)
    before = vm.call(guest.bytes_from_server, os.path.dirname(there))
    in_guest(vm, "continue", there, notes)
    assert vm.call(guest.bytes_from_server, os.path.dirname(there)) - before >= notes["bytes"]
