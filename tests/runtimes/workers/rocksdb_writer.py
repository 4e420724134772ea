"""RocksDB's C API. `write DB` puts keys 0, 1, 2 … each synced, and prints a key once it is;
`check DB LAST` reads keys 0 to LAST back."""

import ctypes
import ctypes.util
import sys

# A small memtable: the run flushes and compacts while it is watched.
WRITE_BUFFER = 1 << 20


def library():
    for name in ("librocksdb.so.7.8", ctypes.util.find_library("rocksdb"), "librocksdb.so"):
        try:
            return ctypes.CDLL(name) if name else None
        except OSError:
            continue
    return None


class Database:
    def __init__(self, path):
        self.api = library()
        assert self.api, "librocksdb is not installed"
        for name in ("options_create", "open", "get", "writeoptions_create",
                     "readoptions_create"):
            getattr(self.api, "rocksdb_" + name).restype = ctypes.c_void_p
        self.error = ctypes.c_char_p()
        options = ctypes.c_void_p(self.api.rocksdb_options_create())
        self.api.rocksdb_options_set_create_if_missing(options, ctypes.c_ubyte(1))
        self.api.rocksdb_options_set_write_buffer_size(options, ctypes.c_size_t(WRITE_BUFFER))
        self.handle = ctypes.c_void_p(self.api.rocksdb_open(options, path.encode(),
                                                            ctypes.byref(self.error)))
        self.expect_no_error()
        self.synced = ctypes.c_void_p(self.api.rocksdb_writeoptions_create())
        self.api.rocksdb_writeoptions_set_sync(self.synced, ctypes.c_ubyte(1))
        self.reading = ctypes.c_void_p(self.api.rocksdb_readoptions_create())

    def expect_no_error(self):
        if self.error.value:
            sys.exit("rocksdb: " + self.error.value.decode(errors="replace"))

    def put(self, key, value):
        self.api.rocksdb_put(self.handle, self.synced, key, ctypes.c_size_t(len(key)), value,
                             ctypes.c_size_t(len(value)), ctypes.byref(self.error))
        self.expect_no_error()

    def get(self, key):
        size = ctypes.c_size_t()
        found = self.api.rocksdb_get(self.handle, self.reading, key, ctypes.c_size_t(len(key)),
                                     ctypes.byref(size), ctypes.byref(self.error))
        self.expect_no_error()
        return ctypes.string_at(found, size.value) if found else None

    def close(self):
        self.api.rocksdb_close(self.handle)


def pair(number):
    return b"key%010d" % number, (b"value %d of the test " % number) * 200


def main():
    database = Database(sys.argv[2])
    if sys.argv[1] == "write":
        number = 0
        while True:
            database.put(*pair(number))
            print(number, flush=True)
            number += 1
    last = int(sys.argv[3])
    for number in range(last + 1):
        key, value = pair(number)
        if database.get(key) != value:
            sys.exit(f"key {number} of {last} is wrong or gone")
    database.close()
    print(last + 1, "keys are right")


if __name__ == "__main__":
    main()
