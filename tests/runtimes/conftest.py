"""Tools for running real software on a mount: a Python environment and worker scripts."""

import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys

import pytest

import kvmount

HERE = os.path.dirname(os.path.abspath(__file__))
QUICKSTART = os.path.join(kvmount.ROOT, "packaging", "quickstart")
ENVIRONMENT = os.path.join(kvmount.ROOT, "build", "runtimes-venv")
REQUIREMENTS = [os.path.join(HERE, "requirements.txt"),
                os.path.join(QUICKSTART, "requirements.txt")]

sys.path[:0] = [HERE, QUICKSTART]  # tree.py here; runtime.py and make_model.py there


def run(argv, seconds=120, **options):
    """Runs a program that must succeed; its output is in the failure's text."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=seconds * kvmount.SLOWNESS, check=False, **options)
    assert done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout[-6000:]}"
    return done.stdout


def need_program(name, package):
    """Path of a program; its Debian package is installed when it is not there."""
    if shutil.which(name) is None:
        run(["apt-get", "install", "-y", "--no-install-recommends", package], seconds=300)
    path = shutil.which(name)
    assert path, f"{name} is not installed (Debian package {package})"
    return path


def _fingerprint():
    total = hashlib.sha256()
    for path in REQUIREMENTS:
        with open(path, "rb") as file:
            total.update(file.read())
    return total.hexdigest()


def _has_requirements():
    for path in REQUIREMENTS:
        with open(path) as file:
            for line in file:
                name, pinned, version = line.strip().partition("==")
                try:
                    if pinned and importlib.metadata.version(name) != version:
                        return False
                except importlib.metadata.PackageNotFoundError:
                    return False
    return True


@pytest.fixture(scope="session")
def venv_python():
    """An interpreter that has what requirements.txt lists: this one, or one in a venv that is
    built anew when the list changes."""
    if _has_requirements():
        return sys.executable
    python = os.path.join(ENVIRONMENT, "bin", "python")
    stamp = os.path.join(ENVIRONMENT, "stamp")
    os.makedirs(os.path.dirname(ENVIRONMENT), exist_ok=True)
    with open(ENVIRONMENT + ".lock", "w") as lock:  # Two test runs may start at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = _fingerprint()
        if not os.path.exists(stamp) or open(stamp).read() != wanted:
            base = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
            run([base, "-m", "venv", "--clear", ENVIRONMENT])
            run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r",
                 REQUIREMENTS[0]], seconds=600)
            with open(stamp, "w") as file:
                file.write(wanted)
    return python


@pytest.fixture(scope="session")
def worker(venv_python):
    """worker("name", words…) runs workers/name.py in the venv; returns its JSON answer.

    Each call is a process of its own: what it maps or holds open ends with it.
    """
    def call(name, *words, seconds=120):
        script = os.path.join(HERE, "workers", name + ".py")
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
