"""Runs the programs of the runtimes' tests, and installs those that Debian has."""

import os
import shutil
import subprocess

import kvmount

HERE = os.path.dirname(os.path.abspath(__file__))
QUICKSTART = os.path.join(kvmount.ROOT, "packaging", "quickstart")


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
