"""A directory that stands for a block, as the prompts of vLLM's example connector: where it is all of
its files are, and a look at it is a look at them."""

import hashlib
import os
import time

import pytest

import kvmount
import watch
from stores import KIB, MIB

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 evicts nothing")

BUDGET = 64 * MIB
LAYERS = [f"model.layers.{number}.self_attn.attn.safetensors" for number in range(4)]
SIZE = 256 * KIB


def folder_of(root, prompt):
    return os.path.join(root, hashlib.sha256(str(prompt).encode()).hexdigest())


def store(root, prompts):
    """As the connector does: the directory, then a file for each layer."""
    for prompt in prompts:
        folder = folder_of(root, prompt)
        os.makedirs(folder, exist_ok=True)
        for layer in LAYERS:
            with open(os.path.join(folder, layer), "wb") as file:
                file.write(f"{prompt}/{layer}".encode().ljust(SIZE, b"\0"))


def load(root, prompts):
    """{prompt: whether it is a hit}, by what the connector asks: whether the directory is there. Each
    hit is read, all of it, or this raises."""
    found = {}
    for prompt in prompts:
        folder = folder_of(root, prompt)
        found[prompt] = os.path.exists(folder)
        if not found[prompt]:
            continue
        for layer in LAYERS:
            with open(os.path.join(folder, layer), "rb") as file:
                assert file.read().startswith(f"{prompt}/{layer}".encode()), (prompt, layer)
    return found


@pytest.fixture(name="told")
def a_told_mount(limited, data_path):
    mount = limited(size=BUDGET, disk=256 * MIB, data_path=data_path, options=["--lease", "20s"])
    root = os.path.join(mount.mnt, "prompts")
    os.mkdir(root)
    os.setxattr(root, "user.kvcachefs.layout", b"vllm_example")
    return mount, root


@pytest.mark.gate
@pytest.mark.by_seed
def test_an_evicted_prompt_leaves_no_directory(told):
    mount, root = told
    prompts = range(3 * BUDGET // (SIZE * len(LAYERS)))
    kvmount.run_as(store, root, prompts)
    watch.wait_at_rest(mount)
    # The looks are leases: who looks at what was just evicted does so at a miss.
    found = kvmount.run_as(load, root, prompts)
    assert 10 < sum(found.values()) < len(prompts) - 10
    assert mount.status()["dropped"]["room"]["files"] > 0
    # Who asks for nothing but the directory again finds it whole again.
    assert kvmount.run_as(load, root, prompts) == found
    assert len(os.listdir(root)) == sum(found.values()) == os.stat(root).st_nlink - 2
    mount.remount()
    assert kvmount.run_as(load, root, prompts) == found
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


def look(root, prompts):
    return [os.path.exists(folder_of(root, prompt)) for prompt in prompts]


@pytest.mark.by_seed
def test_a_look_at_the_directory_keeps_the_prompt(told):
    mount, root = told
    kept = range(12)
    kvmount.run_as(store, root, kept)
    mount.wait_sealed()
    kvmount.drop_caches(2)  # For a second the kernel knows by itself what was just made.
    assert all(kvmount.run_as(look, root, kept))
    began = time.monotonic()
    kvmount.run_as(store, root, range(1000, 1000 + 2 * BUDGET // (SIZE * len(LAYERS))))
    found = kvmount.run_as(load, root, kept)
    if time.monotonic() - began > 18:
        raise kvmount.Late("the lease is over")
    assert all(found.values()), found
    assert mount.status()["dropped"]["room"]["files"] > 0


def test_an_empty_directory_of_nobody_stays(told):
    """Its prompt is about to be stored; and what is no prompt's is a directory like others."""
    mount, root = told
    os.mkdir(folder_of(root, "coming"))
    os.mkdir(os.path.join(root, "notes"))
    with open(os.path.join(root, "notes", "file"), "wb") as file:
        file.write(bytes(SIZE))
    mount.wait_sealed()
    assert mount.cli("evict", os.path.join(root, "notes", "file")).returncode == 0
    kvmount.run_as(store, root, range(3 * BUDGET // (SIZE * len(LAYERS))))
    assert os.path.isdir(folder_of(root, "coming")) and os.path.isdir(os.path.join(root, "notes"))
