// The store on RocksDB, the only place that includes it: one database, a column family a table.
//
// Writes go to the write-ahead log in the page cache, so that they survive the end of the
// process; sync() makes them survive the end of the machine. What a machine's crash leaves is a
// prefix of the writes. After the disk was full, writes work again by themselves once there is
// space: the database is closed and opened anew (rocksdb_instance.h says why), for which callers
// wait; meanwhile reads go on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "metadata/store.h"

namespace kvcachefs {

struct RocksdbOptions {
  // Of the records read and of indexes and filters. Bounds: 8 MiB to 256 MiB.
  std::uint64_t cache_bytes = 64u << 20;
  // Records written and not yet in a table file, all tables together (twice that while it is
  // being written out). Bounds: 8 MiB to 128 MiB.
  std::uint64_t write_buffer_bytes = 64u << 20;
  // Each costs a descriptor; its index and filter are in the cache. Bounds: 64 to 4096.
  int max_open_files = 256;
  // The directory's name in messages; empty: as it is opened.
  std::string shown_as = {};
};

class RocksdbStore {
 public:
  // Whether there is one in the directory `dir`, whole or not.
  static bool exists(const std::string& dir) noexcept;
  // Opens the database in the directory `dir`; makes both when they are not there and `create`
  // (the parent directory must be there). `problem`, when given, becomes a line for a person;
  // the log has it too. Errors: EINVAL (an option out of its bounds), ENOENT (no database, and
  // none is to be made), EBUSY (open in another process), EACCES, EROFS, ENOTDIR, EBADMSG
  // (damaged), EPROTONOSUPPORT (has tables that this version does not know), ENOSPC, EIO.
  static Result<std::unique_ptr<Store>> open(const std::string& dir,
                                             const RocksdbOptions& options, bool create,
                                             std::string* problem = nullptr);
};

}  // namespace kvcachefs
