"""The few calls of RocksDB's C API that the crash tests need, through librocksdb.so."""

import ctypes
import ctypes.util
import multiprocessing


class RocksDb:
    """An open database."""

    def __init__(self, path, create=False, small_buffers=False):
        name = ctypes.util.find_library("rocksdb")
        assert name, "librocksdb.so is not installed"
        self._lib = ctypes.CDLL(name)
        for function in ("options_create", "writeoptions_create", "readoptions_create",
                         "writebatch_create", "open_column_families", "get_cf",
                         "list_column_families", "create_column_family"):
            getattr(self._lib, "rocksdb_" + function).restype = ctypes.c_void_p
        options = self._new("options_create")
        self._lib.rocksdb_options_set_create_if_missing(options, ctypes.c_ubyte(create))
        self._lib.rocksdb_options_set_paranoid_checks(options, ctypes.c_ubyte(1))
        if small_buffers:
            # A few seconds of writing then see flushes, compactions and new manifests.
            self._lib.rocksdb_options_set_write_buffer_size(options, ctypes.c_size_t(64 << 10))
        self._options = options
        names = [b"default"] if create else self._families(path)
        count = len(names)
        handles = (ctypes.c_void_p * count)()
        self._db = ctypes.c_void_p(self._call(
            "open_column_families", options, path.encode(), ctypes.c_int(count),
            (ctypes.c_char_p * count)(*names), (ctypes.c_void_p * count)(*[options.value] * count),
            handles))
        self._handles = [ctypes.c_void_p(h) for h in handles]
        self._default = self._handles[names.index(b"default")]
        self._synced = self._new("writeoptions_create")
        self._lib.rocksdb_writeoptions_set_sync(self._synced, ctypes.c_ubyte(1))
        self._reading = self._new("readoptions_create")

    def _new(self, function):
        return ctypes.c_void_p(getattr(self._lib, "rocksdb_" + function)())

    def _call(self, function, *args):
        """Calls rocksdb_<function> with an error argument at the end."""
        error = ctypes.c_char_p()
        result = getattr(self._lib, "rocksdb_" + function)(*args, ctypes.byref(error))
        if error.value:
            raise OSError(f"rocksdb_{function}: {error.value.decode(errors='replace')}")
        return result

    def _families(self, path):
        length = ctypes.c_size_t()
        names = self._call("list_column_families", self._options, path.encode(),
                           ctypes.byref(length))
        array = ctypes.cast(names, ctypes.POINTER(ctypes.c_char_p))
        return [array[i] for i in range(length.value)]

    def write(self, pairs):
        """One synced batch into the default column family."""
        batch = self._new("writebatch_create")
        for key, value in pairs:
            self._lib.rocksdb_writebatch_put_cf(
                batch, self._default, key, ctypes.c_size_t(len(key)), value,
                ctypes.c_size_t(len(value)))
        self._call("write", self._db, self._synced, batch)
        self._lib.rocksdb_writebatch_destroy(batch)

    def get(self, key):
        length = ctypes.c_size_t()
        value = self._call("get_cf", self._db, self._reading, self._default, key,
                           ctypes.c_size_t(len(key)), ctypes.byref(length))
        if not value:
            return None
        data = ctypes.string_at(value, length.value)
        self._lib.rocksdb_free(ctypes.c_void_p(value))
        return data

    def add_family(self, name):
        handle = self._call("create_column_family", self._db, self._options, name.encode())
        self._handles.append(ctypes.c_void_p(handle))

    def close(self):
        for handle in self._handles:
            self._lib.rocksdb_column_family_handle_destroy(handle)
        self._lib.rocksdb_close(self._db)


def in_child(work, *arguments):
    """Returns work(*arguments), called in a process of its own.

    RocksDB starts threads that a later fork of this process would believe to have, and not have:
    a database opened there neither flushes nor compacts.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run():
        theirs.send(work(*arguments))

    child = context.Process(target=run, daemon=True)
    child.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        child.join()
