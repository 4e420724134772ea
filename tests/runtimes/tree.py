"""Comparison of two directory trees in everything `cp -a` promises to keep."""

import hashlib
import os
import stat


def _content(path):
    total = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while part := file.read(1 << 20):
            total.update(part)
    return total.hexdigest()


def describe(root):
    """{relative path: what it is}; hard links appear as the list of their names."""
    found, links = {}, {}
    for top, directories, files in os.walk(os.fsencode(root)):
        for name in [b"."] * (top == os.fsencode(root)) + directories + files:
            path = os.path.normpath(os.path.join(top, name))
            about = os.lstat(path)
            relative = os.path.relpath(path, os.fsencode(root))
            entry = {
                "mode": stat.filemode(about.st_mode),
                "bits": oct(about.st_mode),
                "owner": (about.st_uid, about.st_gid),
                "mtime_ns": about.st_mtime_ns,
                "xattrs": {key: os.getxattr(path, key, follow_symlinks=False)
                           for key in sorted(os.listxattr(path, follow_symlinks=False))},
            }
            if stat.S_ISREG(about.st_mode):
                entry["size"] = about.st_size
                entry["content"] = _content(path)
                if about.st_nlink > 1:
                    links.setdefault(about.st_ino, []).append(relative)
            elif stat.S_ISLNK(about.st_mode):
                entry["target"] = os.readlink(path)
            elif stat.S_ISCHR(about.st_mode) or stat.S_ISBLK(about.st_mode):
                entry["device"] = about.st_rdev
            found[relative] = entry
    for names in links.values():
        for name in names:
            found[name]["same file as"] = sorted(names)
    return found


def differences(left, right):
    """Lines that say what differs between two results of describe()."""
    lines = [f"only on the left: {name!r}" for name in sorted(left.keys() - right.keys())]
    lines += [f"only on the right: {name!r}" for name in sorted(right.keys() - left.keys())]
    for name in sorted(left.keys() & right.keys()):
        for key in left[name].keys() | right[name].keys():
            one, other = left[name].get(key), right[name].get(key)
            if one != other:
                lines.append(f"{name!r}: {key}: {one} != {other}")
    return lines


def assert_same(left, right):
    lines = differences(describe(left), describe(right))
    assert not lines, f"{len(lines)} differences between {left} and {right}:\n" + "\n".join(
        lines[:20])
