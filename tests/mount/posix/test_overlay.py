"""The mount as the upper layer of an overlayfs, which hides what was removed or renamed by devices
0:0 (whiteouts), and as many names for a file as a prompt has sessions."""

import ctypes
import errno
import os
import stat
import subprocess

import pytest

import kvmount

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
AT_FDCWD = -100
_LIBC = ctypes.CDLL(None, use_errno=True)


def renameat2(source, target, flags):
    if _LIBC.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), source)


def with_whiteout(root):
    """What is there after renames with a whiteout."""
    path = os.path.join(root, "whiteouts")
    os.mkdir(path)
    for name in ("a", "b"):
        with open(f"{path}/{name}", "w") as file:
            file.write(name)
    renameat2(f"{path}/a", f"{path}/b", RENAME_WHITEOUT)
    left = os.lstat(f"{path}/a")
    with pytest.raises(OSError) as refused:
        renameat2(f"{path}/b", f"{path}/c", RENAME_WHITEOUT | RENAME_EXCHANGE)
    with pytest.raises(OSError) as standing:
        renameat2(f"{path}/b", f"{path}/a", RENAME_WHITEOUT | RENAME_NOREPLACE)
    with open(f"{path}/b") as file:
        content = file.read()
    os.mkdir(f"{path}/d")
    renameat2(f"{path}/d", f"{path}/e", RENAME_WHITEOUT)
    told = (stat.S_IFMT(left.st_mode) == stat.S_IFCHR, left.st_rdev, left.st_nlink, content,
            errno.errorcode[refused.value.errno], errno.errorcode[standing.value.errno],
            sorted((entry.name, entry.is_dir()) for entry in os.scandir(path)))
    os.unlink(f"{path}/a")
    return told, sorted(os.listdir(path)), os.stat(path).st_nlink


def test_a_rename_leaves_a_whiteout(mounts, data_path):
    mount = mounts(data_path=data_path)
    shown = with_whiteout(mount.mnt)
    assert shown == with_whiteout(mount.control)
    mount.remount()
    assert sorted(os.listdir(f"{mount.mnt}/whiteouts")) == shown[1]
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text


def change_layers(lower, upper, work, merged):
    """What an overlayfs over the two shows after changes, and what lies in its upper layer then."""
    for path in (lower, upper, work, merged):
        os.mkdir(path)
    for name in ("kept", "removed", "renamed"):
        with open(f"{lower}/{name}", "w") as file:
            file.write(name)
    os.mkdir(f"{lower}/directory")
    with open(f"{lower}/directory/below", "w") as file:
        file.write("below")
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                    f"lowerdir={lower},upperdir={upper},workdir={work}", merged], check=True,
                   capture_output=True, timeout=60)
    try:
        os.unlink(f"{merged}/removed")
        os.rename(f"{merged}/renamed", f"{merged}/other")
        os.unlink(f"{merged}/directory/below")
        os.rmdir(f"{merged}/directory")
        os.mkdir(f"{merged}/directory")
        with open(f"{merged}/kept", "a") as file:
            file.write(" and changed")
        with open(f"{merged}/new", "w") as file:
            file.write("new")
        shown = {}
        for folder, folders, names in os.walk(merged):
            folders.sort()
            for name in sorted(names):
                with open(os.path.join(folder, name)) as file:
                    shown[os.path.join(os.path.relpath(folder, merged), name)] = file.read()
    finally:
        subprocess.run(["umount", merged], check=True, timeout=60)
    kinds = {entry.name: stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
             for entry in os.scandir(upper)}
    return shown, kinds


def test_it_is_the_upper_layer_of_an_overlay(mounts):
    mount = mounts()
    roots = [mount.mnt, mount.control]
    told = [change_layers(*(os.path.join(mount.work, f"lower-{number}") if part == "lower" else
                            os.path.join(mount.work, f"merged-{number}") if part == "merged" else
                            os.path.join(root, part)
                            for part in ("lower", "upper", "work", "merged")))
            for number, root in enumerate(roots)]
    assert told[0] == told[1]
    assert told[0][0] == {"./kept": "kept and changed", "./new": "new", "./other": "renamed"}


@pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has 65,000 at most")
def test_a_prompt_is_in_more_sessions_than_ext4_has_names_for(mounts):
    mount = mounts()
    path = f"{mount.mnt}/file"
    with open(path, "w") as file:
        file.write("prompt")
    os.mkdir(f"{mount.mnt}/names")
    for number in range(65_100):
        os.link(path, f"{mount.mnt}/names/{number}")
    assert os.stat(path).st_nlink == 65_101
    mount.remount()
    assert os.stat(f"{mount.mnt}/names/65099").st_nlink == 65_101
    os.unlink(f"{mount.mnt}/names/0")
    assert os.stat(path).st_nlink == 65_100
    mount.stop()
    code, text = mount.fsck()
    assert code == 0, text
