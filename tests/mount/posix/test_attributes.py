"""Attributes that the oracle's comparison of calls does not see: births, and who sees which xattrs."""

import errno
import os
import subprocess

import pytest

import kvmount


def birth(path):
    """Seconds, as statx(2) has them; 0: none."""
    return float(subprocess.run(["stat", "--format=%.9W", path], check=True, capture_output=True,
                                text=True).stdout)


def births(root):
    """What happens to the birth of a file and of a directory in a short life."""
    os.mkdir(f"{root}/birth")
    with open(f"{root}/birth/f", "wb") as file:
        file.write(b"x")
    before = [birth(f"{root}/birth/f"), birth(f"{root}/birth")]
    os.utime(f"{root}/birth/f", (1, 1))
    os.rename(f"{root}/birth/f", f"{root}/birth/g")
    with open(f"{root}/birth/g", "ab") as file:
        file.write(b"y")
    after = [birth(f"{root}/birth/g"), birth(f"{root}/birth")]
    times = os.stat(f"{root}/birth/g")
    return before, [before == after, before[0] >= before[1] > 0, before[0] > times.st_atime == 1]


def test_birth_time_same_as_ext4(mounts, data_path):
    mount = mounts(data_path=data_path)
    ours, properties = births(mount.mnt)
    assert properties == births(mount.control)[1] == [True, True, True]
    if kvmount.PLAIN:
        return
    mount.remount()
    assert [birth(f"{mount.mnt}/birth/g"), birth(f"{mount.mnt}/birth")] == ours


@pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory knows no runtimes")
def test_names_of_runtimes_are_known(mounts, data_path):
    """llama.cpp's slots have names of the user's choice: their directory is told."""
    mount = mounts(data_path=data_path)
    slots = f"{mount.mnt}/slots"
    os.mkdir(slots)
    name = f"{'5f' * 32}_meta-llama-Llama-3.1-8B_0_2.bin"
    for path in (f"{slots}/user0.bin", f"{mount.mnt}/{name}"):
        with open(path, "wb") as file:
            file.write(b"x")
    shown = {key: os.getxattr(f"{mount.mnt}/{name}", f"user.kvcachefs.{key}")
             for key in ("runtime", "model", "prefix")}
    assert shown == {"runtime": b"sglang_file", "model": b"meta-llama-Llama-3.1-8B",
                     "prefix": b"5f" * 32}
    assert os.listxattr(f"{mount.mnt}/{name}") == []
    with pytest.raises(OSError) as refused:
        os.getxattr(f"{slots}/user0.bin", "user.kvcachefs.runtime")
    assert refused.value.errno == errno.ENODATA
    os.setxattr(slots, "user.kvcachefs.layout", b"llama_cpp")
    assert os.getxattr(f"{slots}/user0.bin", "user.kvcachefs.runtime") == b"llama_cpp"
    with pytest.raises(OSError) as refused:
        os.setxattr(slots, "user.kvcachefs.layout", b"llama")
    assert refused.value.errno == errno.EINVAL
    mount.remount()
    assert os.getxattr(f"{slots}/user0.bin", "user.kvcachefs.runtime") == b"llama_cpp"


def test_trusted_xattrs_are_shown_to_the_privileged_only(shared_mount):
    for root in (shared_mount.mnt, shared_mount.control):
        os.chmod(root, 0o755)
        path = f"{root}/trusted"
        with open(path, "wb"):
            pass
        os.setxattr(path, "user.seen", b"1")
        os.setxattr(path, "trusted.hidden", b"2")
        assert sorted(os.listxattr(path)) == ["trusted.hidden", "user.seen"]
        assert kvmount.run_as(os.listxattr, path, uid=kvmount.NOBODY) == ["user.seen"]
