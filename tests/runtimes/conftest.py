"""Tools for running real software on a mount: a Python environment and worker scripts."""

import json
import os
import shutil
import sys

import pytest

import kvmount

_HERE = os.path.dirname(os.path.abspath(__file__))
# tree.py of this folder; runtime.py and make_model.py of the quickstart
sys.path[:0] = [_HERE, os.path.join(kvmount.ROOT, "packaging", "quickstart")]

from programs import run  # noqa: E402


@pytest.fixture(scope="session")
def venv_python():
    """An interpreter that has what requirements.txt lists; all clones on this machine share it."""
    directory = run([os.path.join(kvmount.ROOT, "packaging", "python-env.sh"),
                     os.path.join(_HERE, "requirements.txt")], seconds=600)
    return os.path.join(directory.splitlines()[-1], "bin", "python")


@pytest.fixture(scope="session")
def worker(venv_python):
    """worker("name", words…) runs workers/name.py in the venv; returns its JSON answer.

    Each call is a process of its own: what it maps or holds open ends with it.
    """
    def call(name, *words, seconds=120):
        script = os.path.join(_HERE, "workers", name + ".py")
        output = run([venv_python, script, *map(str, words)], seconds=seconds)
        return json.loads(output.splitlines()[-1])

    return call


@pytest.fixture
def place(shared_mount, request):
    """A fresh directory on the module's mount, removed after the test."""
    path = os.path.join(shared_mount.mnt, request.node.originalname)
    os.mkdir(path)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def oracle(shared_mount, request):
    """A fresh directory beside the mount, on the disk's own filesystem."""
    path = os.path.join(shared_mount.control, request.node.originalname)
    os.mkdir(path)
    yield path
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def mount_left_sound(request):
    """After each test on a shared mount: still mounted, in the data path that was asked for."""
    yield
    if "shared_mount" in request.fixturenames and not kvmount.PLAIN:
        mount = request.getfixturevalue("shared_mount")
        if mount.is_mounted():
            assert mount.status()["data_path"]["mode"] == mount.data_path
        else:
            mount.start()
            pytest.fail("the test left the mount down")
