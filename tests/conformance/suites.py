"""The outside suites pjdfstest and fsx: installed once per version, found again afterwards."""

import fcntl
import os
import re
import shutil
import subprocess

PJDFSTEST = "0.2.2"
FSX = "0.3.2"
# Beside the user's other caches, not in the tree: a fresh clone finds what an earlier one built.
CACHE = os.path.join(os.path.expanduser("~"), ".cache", "kvcachefs-cargo",
                     f"pjdfstest-{PJDFSTEST}-fsx-{FSX}")
INSTALL_LIMIT_S = 1200


def missing():
    """Why the suites cannot be built here (one line), or None. The only reason is no cargo."""
    cargo = shutil.which("cargo")
    if cargo is None:
        return "left out: no cargo here, pjdfstest and fsx need cargo >= 1.85"
    text = subprocess.run([cargo, "--version"], capture_output=True, text=True, timeout=60,
                          check=False).stdout
    found = re.search(r"cargo (\d+)\.(\d+)", text)
    if not found or (int(found[1]), int(found[2])) < (1, 85):
        return f"left out: {text.strip() or 'cargo'} is too old, pjdfstest and fsx need 1.85"
    return None


def install():
    """Builds both when they are not in the cache; returns the directory of the executables."""
    os.makedirs(os.path.dirname(CACHE), exist_ok=True)
    binaries = os.path.join(CACHE, "bin")
    with open(CACHE + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two test runs at once build it once.
        for package, version in (("pjdfstest", PJDFSTEST), ("fsx", FSX)):
            if os.access(os.path.join(binaries, package), os.X_OK):
                continue
            target = CACHE + ".target"
            done = subprocess.run(
                ["cargo", "install", "--locked", "--root", CACHE, "--target-dir", target,
                 f"{package}@{version}"], capture_output=True, text=True,
                timeout=INSTALL_LIMIT_S, check=False)
            if done.returncode != 0:
                raise AssertionError(f"cargo install {package}@{version}:\n{done.stderr[-4000:]}")
        shutil.rmtree(CACHE + ".target", ignore_errors=True)
    return binaries
