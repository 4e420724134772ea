"""What Python programs do with array files. `write DIR` stores them in every usual way,
`check DIR` (in another process) reads all of them back in every usual way.

The last line of output is JSON: how many comparisons were made.
"""

import json
import os
import sys

import numpy as np
import safetensors
import safetensors.numpy

BIG = 17 << 20  # numpy.tofile preallocates from 16 MiB on
SHAPE = (32, 64, 257)  # an odd row length: nothing is page aligned
done = 0


def sample(seed, shape=SHAPE, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def expect(left, right):
    global done
    if left.dtype != right.dtype or not np.array_equal(left, right):
        sys.exit(f"comparison {done + 1} differs")
    done += 1


def write(root):
    np.save(f"{root}/plain.npy", sample(1))
    np.save(f"{root}/edited.npy", sample(2))
    edited = np.load(f"{root}/edited.npy", mmap_mode="r+")
    edited[3:5] = sample(3)[3:5]
    edited.flush()
    unflushed = np.load(f"{root}/edited.npy", mmap_mode="r+")
    unflushed[7] = sample(3)[7]
    del unflushed, edited

    created = np.memmap(f"{root}/map.bin", dtype=np.float32, mode="w+", shape=SHAPE)
    created[:] = sample(4)
    created.flush()
    del created
    mapped = np.lib.format.open_memmap(f"{root}/header.npy", mode="w+", dtype=np.float32,
                                       shape=SHAPE)
    mapped[:] = sample(5)
    del mapped

    np.savez(f"{root}/archive.npz", one=sample(6), two=sample(7, dtype=np.float16))
    np.savez_compressed(f"{root}/small.npz", one=np.arange(1 << 20))

    # A block the way runtimes publish it: a temporary name, then a rename over the final one.
    raw = np.random.default_rng(8).integers(0, 256, BIG, dtype=np.uint8)
    raw.tofile(f"{root}/block.bin.tmp")
    os.replace(f"{root}/block.bin.tmp", f"{root}/block.bin")

    tensors = {f"layer.{i}.{kind}": sample(10 + i, dtype=dtype)
               for i, (kind, dtype) in enumerate([("k", np.float16), ("v", np.float32)] * 4)}
    safetensors.numpy.save_file(tensors, f"{root}/cache.safetensors", metadata={"a": "b"})


def check(root):
    edited = sample(2)
    edited[3:5], edited[7] = sample(3)[3:5], sample(3)[7]
    for name, right in (("plain", sample(1)), ("edited", edited), ("header", sample(5))):
        for mode in (None, "r", "c", "r+"):
            expect(np.load(f"{root}/{name}.npy", mmap_mode=mode), right)
    expect(np.memmap(f"{root}/map.bin", dtype=np.float32, mode="r", shape=SHAPE), sample(4))
    expect(np.fromfile(f"{root}/map.bin", dtype=np.float32).reshape(SHAPE), sample(4))
    with np.load(f"{root}/archive.npz") as archive:
        expect(archive["one"], sample(6))
        expect(archive["two"], sample(7, dtype=np.float16))
    expect(np.load(f"{root}/small.npz")["one"], np.arange(1 << 20))
    raw = np.random.default_rng(8).integers(0, 256, BIG, dtype=np.uint8)
    expect(np.fromfile(f"{root}/block.bin", dtype=np.uint8), raw)
    target = np.zeros(BIG, np.uint8)
    with open(f"{root}/block.bin", "rb", buffering=0) as file:
        if file.readinto(target) != BIG:
            sys.exit("short read")
    expect(target, raw)

    loaded = safetensors.numpy.load_file(f"{root}/cache.safetensors")
    with safetensors.safe_open(f"{root}/cache.safetensors", framework="numpy") as mapped:
        if mapped.metadata() != {"a": "b"} or len(mapped.keys()) != 8:
            sys.exit("safetensors metadata")
        for i, name in enumerate(sorted(mapped.keys())):
            right = sample(10 + i, dtype=np.float16 if name.endswith("k") else np.float32)
            expect(mapped.get_tensor(name), right)
            expect(loaded[name], right)
            expect(mapped.get_slice(name)[5:9], right[5:9])


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
    print(json.dumps({"comparisons": done}))
