// The version of the database: what this build reads, and what it does with anything else.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "backend/base/result.h"
#include "metadata/store.h"

namespace kvcachefs {

// Raised by every change that an older build would misread: another key or value layout, a new
// flag, a new meaning. An older database is upgraded in one batch when it is opened.
inline constexpr std::uint32_t kDatabaseFormat = 7;

// RocksDB's names of the tables, in the order of Table. FORMAT.md lists their contents.
inline constexpr std::array<const char*, kTableCount> kTableNames{
    "default", "dentries", "listings", "inodes",   "objects",     "back_references", "xattrs",
    "orphans", "unsealed", "blocks",   "prefixes", "pool_copies", "pool_queue"};

enum class DatabaseState { kNew, kCurrent, kOlder };

// Looks at the format key of an opened store. `problem`, when given, becomes a line for a
// person. Errors: EPROTONOSUPPORT (newer, or not a database of ours), EBADMSG (the key does not
// read), EIO.
Result<DatabaseState> check_format(Store& store, std::string* problem = nullptr);
// The records that make a new database one: format and UUID.
void write_format(WriteBatch& batch);
// What makes an older database a current one. Format 1 had no blocks and no prefixes: the whole
// tree is to be read for them. Format 2 had no writers: nobody knows them, and the reading does no harm. Format 3 knew no pools, format 4 no
// kInodeMayGrow, format 5 not what was said on the pool of what is to be kept, format 6 no
// kInodeOnDisk.
void write_upgrade(WriteBatch& batch);

}  // namespace kvcachefs
