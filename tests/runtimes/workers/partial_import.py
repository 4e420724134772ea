"""Imports single modules of big packages, unmodified, without the rest of the package and
without PyTorch. The storage code of LLM runtimes needs little of either."""

import ctypes
import importlib.machinery
import os
import subprocess
import sys
import types

import numpy as np


def module(name, **attributes):
    """Registers an empty module with these attributes."""
    made = types.ModuleType(name)
    made.__dict__.update(attributes)
    sys.modules[name] = made
    return made


def package(name, root):
    """Registers a package whose submodules are found below root, its own code not being run."""
    path = os.path.join(root, *name.split("."))
    made = module(name, __path__=[path])
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__spec__.submodule_search_locations = [path]


class Tensor:
    """The few methods of a torch.Tensor that storage code calls, on a NumPy array."""

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array))

    def view(self, dtype):
        return Tensor(self.array.view(dtype))

    def numpy(self):
        return self.array


def small_torch():
    """A module `torch` that has Tensor, and makes up any other type that is named."""
    torch = module("torch", Tensor=Tensor, uint8=np.uint8, from_numpy=Tensor)

    def made_up(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})

    torch.__getattr__ = made_up
    return torch


def empty_libraries(directory, names):
    """Loads empty shared libraries: an extension links to them and calls nothing in them."""
    os.makedirs(directory, exist_ok=True)
    for name in names:
        path = os.path.join(directory, name)
        if not os.path.exists(path):
            # Others load it from there while it is made.
            made = f"{path}.{os.getpid()}"
            subprocess.run(["cc", "-shared", f"-Wl,-soname,{name}", "-o", made, "-x", "c",
                            os.devnull], check=True)
            os.replace(made, path)
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
