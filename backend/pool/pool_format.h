// What kvcachefs puts on a pool beside the users' files, below `.kvcachefs/`: FORMAT.md in this folder. Reading
// takes whatever stands there and gives a value or an error; nothing here does I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/random.h"
#include "backend/base/result.h"

namespace kvcachefs {

inline constexpr std::uint32_t kPoolFormat = 2;
inline constexpr std::string_view kPoolService = ".kvcachefs";
inline constexpr std::uint32_t kPoolServiceMode = 0644;  // of the files there
inline constexpr std::size_t kPoolTextLimit = 4096;      // bytes of a superblock or a heartbeat
inline constexpr std::uint64_t kPoolSumsDirectories = 256;  // pool_sums_path()
inline constexpr std::uint64_t kPoolChunk =
    256 * 1024;  // bytes of a file that have one checksum
// Of what is published: a terabyte.
inline constexpr std::uint64_t kMostPoolChunks = std::uint64_t{1} << 22;
inline constexpr std::chrono::hours kMostPoolLease{1};
// The numbers of a node's change logs end there: one is begun anew now and then.
inline constexpr std::uint64_t kMostPoolLogs = std::uint64_t{1} << 48;
// Of all that a pool holds, and of its size.
inline constexpr std::uint64_t kMostPoolBytes = std::uint64_t{1} << 60;

// ---- what the pool is

struct PoolSuperblock {
  Uuid pool{};
};
[[nodiscard]] std::string encode_pool_superblock(const PoolSuperblock& superblock);
// Errors: EBADMSG (not one of ours, or damaged), EPROTONOSUPPORT (of another format).
[[nodiscard]] Result<PoolSuperblock> decode_pool_superblock(std::string_view text);

// ---- who uses it

// The time of a heartbeat is the mtime of its file.
struct PoolNode {
  Uuid node{};
  Uuid incarnation{};                  // of this run of its daemon
  std::chrono::milliseconds lease{0};  // the longest that it grants
  std::uint64_t log = 0;               // the number of the change log that it appends to
  // Of one that evicts: what the pool may hold, 0 for one that does not; what it holds below the tops that this node
  // looks after; and among whom they were shared out then (pool_share()).
  std::uint64_t size = 0;  // bytes
  std::uint64_t used = 0;  // bytes
  std::uint64_t share = 0;
};
[[nodiscard]] std::string encode_pool_node(const PoolNode& node);
// Errors: as of the superblock; EBADMSG, too, of numbers that no node of ours says.
[[nodiscard]] Result<PoolNode> decode_pool_node(std::string_view text);

// ---- what changed

enum class PoolChange : std::uint8_t {
  kPublished = 1,
  kRemoved = 2,  // by a user: nobody has it any more
  kEvicted = 3,  // for its room: a copy elsewhere is as good as before
};

struct PoolLogRecord {
  PoolChange change = PoolChange::kPublished;
  std::uint64_t path_hash = 0;  // pool_path_hash()
  std::uint64_t fileid = 0;
  std::uint64_t size = 0;      // bytes
  std::uint64_t sequence = 0;  // of this node's records, from 1 on
  bool operator==(const PoolLogRecord&) const = default;
};
inline constexpr std::size_t kPoolLogRecordBytes = 64;
[[nodiscard]] std::string encode_pool_log_record(const PoolLogRecord& record);
// Errors: EBADMSG (damaged, not wholly written yet, or of a file that no node of ours
// publishes).
[[nodiscard]] Result<PoolLogRecord> decode_pool_log_record(std::string_view bytes);

// XXH64 of the path with seed 0.
[[nodiscard]] std::uint64_t pool_path_hash(std::string_view path) noexcept;

// ---- what a file has to be

// Tells whose bytes it speaks of: a server gives the numbers of removed files to others.
struct PoolSums {
  std::uint64_t fileid = 0;
  std::uint64_t path_hash = 0;
  std::uint64_t size = 0;  // bytes
  UnixNanos mtime = 0;     // of the server, after the last write
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t mode = 0;  // permission bits
  bool keep = false;       // it is not evicted
  // Of each kPoolChunk bytes, the last one's of what is left. None: nobody has made them, only its owner is known.
  std::vector<std::uint32_t> chunk_crc32c;
  [[nodiscard]] bool speaks_of_bytes() const noexcept {
    return size == 0 || !chunk_crc32c.empty();
  }
  bool operator==(const PoolSums&) const = default;
};
[[nodiscard]] std::string encode_pool_sums(const PoolSums& sums);
// Errors: EBADMSG, EPROTONOSUPPORT.
[[nodiscard]] Result<PoolSums> decode_pool_sums(std::string_view bytes);
// Of a record, in bytes: of a file of a terabyte.
inline constexpr std::size_t kMostPoolSums = (std::size_t{16} << 20) + 4096;
// Of the record of a file of that size.
[[nodiscard]] std::size_t pool_sums_bytes(std::uint64_t size) noexcept;

// ---- what a directory was told

// A key and its value, as they stand on the pool: 1 to kLongestPoolWord printable ASCII
// characters each, no space. What they mean is the mount's business (fs/pool/told_words.h).
struct PoolWord {
  std::string key;
  std::string value;
  bool operator==(const PoolWord&) const = default;
};
inline constexpr std::size_t kLongestPoolWord = 64;
// Of a directory. A record of that many fits into kPoolTextLimit.
inline constexpr std::size_t kMostPoolWords = 24;
// The value that says: the directory is told this no longer.
inline constexpr std::string_view kPoolUntold = "-";
[[nodiscard]] bool is_pool_word(std::string_view text) noexcept;

struct PoolTold {
  std::uint64_t fileid = 0;
  std::uint64_t path_hash = 0;
  std::vector<PoolWord> words = {};  // a key once
  [[nodiscard]] const std::string* find(std::string_view key) const noexcept;
  bool operator==(const PoolTold&) const = default;
};
[[nodiscard]] std::string encode_pool_told(const PoolTold& told);
// Keys that this version does not know are given, too: who writes the record anew keeps them.
// Errors: as of the superblock.
[[nodiscard]] Result<PoolTold> decode_pool_told(std::string_view text);

// ---- where it stands, below the pool's directory

// Of what is below kPoolService.
[[nodiscard]] std::string pool_service_path(std::string_view path);
[[nodiscard]] std::string pool_superblock_path();
[[nodiscard]] std::string pool_node_path(const Uuid& node);
[[nodiscard]] std::string pool_temporary_path(const Uuid& node, std::uint64_t number);
[[nodiscard]] std::string pool_log_path(const Uuid& node, std::uint64_t log);
// The number of one of this node's. nullopt: it is none.
[[nodiscard]] std::optional<std::uint64_t> parse_pool_log_name(std::string_view name,
                                                               const Uuid& node);
[[nodiscard]] std::string pool_sums_path(std::uint64_t fileid);
[[nodiscard]] std::string pool_told_path(std::uint64_t fileid);
// `now`: by the server's clock.
[[nodiscard]] std::string pool_trash_path(UnixNanos now, const Uuid& node,
                                          std::uint64_t number);
// The same in the directory that is always there.
[[nodiscard]] std::string pool_spare_trash_path(UnixNanos now, const Uuid& node,
                                                std::uint64_t number);
// The hour since 1970 of a directory of the trash. nullopt: it is none of an hour.
[[nodiscard]] std::optional<std::uint64_t> parse_pool_trash_hour(
    std::string_view name) noexcept;
// When it was put there, in seconds since 1970, from its name. nullopt: it is no name of ours.
[[nodiscard]] std::optional<std::uint64_t> parse_pool_trash_name(
    std::string_view name) noexcept;

}  // namespace kvcachefs
