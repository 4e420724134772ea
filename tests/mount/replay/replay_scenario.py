"""What each runtime does to its directory, call for call, on scaled-down blocks.

A Scenario works on one directory with one seed. Any number of threads and processes call
`store(key)` and `load(key)` for integer keys; `prepare()` is what a process does at its start and
`finish()` at its end. `load` verifies and raises Mismatch; it returns False for a miss. Scenarios
whose files do not outlive the process (anonymous pools) have `lasting = False`: they store and
verify through the descriptors that they hold.
"""

import itertools
import os
import threading

from replay_io import SECTOR, content, digest, exists


_unique = itertools.count()


def unique():
    """A suffix no other thread or process uses."""
    return f"{os.getpid()}.{threading.get_ident()}.{next(_unique)}"


class Scenario:
    """See the module. `size` is the scaled block."""

    name = "abstract"
    size = 16 * SECTOR
    lasting = True
    collides = True  # May two processes store one key at once? (False: not even on ext4.)

    def __init__(self, root, seed):
        self.root = root
        self.seed = seed

    def prepare(self):
        os.makedirs(self.root, exist_ok=True)

    def finish(self):
        pass

    def data(self, key):
        return content(self.seed, f"{self.name}/{key}", self.size)

    def hash(self, key):
        return digest(self.seed, f"{self.name}/{key}")

    def probe(self, key):
        """Does the runtime think that it has the block? The call it uses to find out."""
        return exists(self.path(key))

    def path(self, key):
        raise NotImplementedError

    def store(self, key):
        raise NotImplementedError

    def load(self, key):
        raise NotImplementedError

    def check_directory(self, keys):
        """After a quiet moment: nothing but the stored blocks, all of them."""
