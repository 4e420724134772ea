"""Where the mount may answer differently from ext4, and why. Nothing else may differ.

Patterns are those of fnmatch. `case` is the case's name, `control` the line that ext4 gave and
`target` the line that the mount gave in its place.

Differences that no single call shows, left out where trees are compared (random_ops.py): the mtime of
a FIFO after a write through it, for the kernel moves no times of a FUSE inode by itself.
"""

from typing import NamedTuple

import kvmount


class Known(NamedTuple):
    case: str
    control: str
    target: str
    reason: str


KNOWN = [
    Known("fallocate_rare_modes", "fallocate(fd, 8, *) = *", "fallocate(fd, 8, *) = EOPNOTSUPP",
          "FUSE refuses COLLAPSE_RANGE before the daemon is asked"),
    Known("fallocate_rare_modes", "fallocate(fd, 32, *) = *",
          "fallocate(fd, 32, *) = EOPNOTSUPP",
          "FUSE refuses INSERT_RANGE before the daemon is asked"),
    Known("fallocate_rare_modes", "size after*", "size after*",
          "the size that a refused COLLAPSE or INSERT would have left"),
    Known("xattr_big_values", "setxattr(*) = ENOSPC", "setxattr(*) = None",
          "ext4 keeps all of an inode's xattrs in one 4 KiB block; ours may be larger"),
    Known("seek_limits", "lseek(fd, *) = EINVAL", "lseek(fd, *) = *",
          "ext4 knows its largest file when seeking; FUSE finds out when writing"),
    Known("time_stamps_of_names", "  'p' moved atime", "  'p' moved nothing",
          "a directory's atime is not kept: each listing would cost a metadata write"),
    Known("time_stamps_of_names", "  'p/s' moved atime", "  'p/s' moved nothing",
          "a symlink's atime is not kept, and the kernel caches its target"),
]

if kvmount.BELOW == "xfs":
    KNOWN += [Known("beyond_the_largest_file", "* = EFBIG", "*",
                    "a file of ext4 ends at 16 TiB, one of XFS at 8 EiB")]
