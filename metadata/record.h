// The records of the catalog and their encoding: versioned, little-endian, written down in
// FORMAT.md.
//
// Times are nanoseconds since the epoch, sizes bytes. Numbers of inodes and ids of objects are
// 64 bit, start at 1 and are never used twice; inode 1 is the root directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/result.h"

namespace kvcachefs {

using InodeNumber = std::uint64_t;
using ObjectId = std::uint64_t;
inline constexpr InodeNumber kRootInode = 1;
// No database has given as many: a record that says so is damaged.
inline constexpr std::uint64_t kMostNumbers = std::uint64_t{1} << 62;
inline constexpr ObjectId kNoObject = 0;

// The states of an inode's data; drawn in fs/life/states.h.
enum class DataState : std::uint8_t {
  kNone = 0,         // not a regular file
  kUnpublished = 1,  // created, nothing recorded yet: dropped after a crash
  kPublished = 2,    // recorded by FLUSH, rename or link: a crash of the daemon keeps it
  kSealed = 3,       // durable, with checksums
  kMutable = 4,      // changed, or open for writing, after publication
  kRemote = 5,       // sealed; its bytes are on the pool alone
};

// InodeRecord::flags. A new flag needs a new format version.
enum InodeFlag : std::uint32_t {
  kInodeFsynced =
      1u << 0,  // fsynced once (sticky): a crash leaves what the backing filesystem left
  kInodePoisoned = 1u << 1,  // its writing failed: its name is a miss
  kInodeKeep = 1u << 2,      // fsynced, or truncated after publication: an application's file
  kInodeHasAcl = 1u << 3,    // has at least one POSIX ACL xattr
  kInodeHasXattr = 1u << 4,  // has at least one xattr
  // Published as prefix/<hash>: its bytes do not change any more.
  kInodeFirstWriter = 1u << 5,
  kInodeReused =
      1u
      << 6,  // a block that was opened once more after it was stored (fs/known/pool_writes.h)
  // Made, and perhaps left open, under a daemon that has ended: who has it open may write on.
  kInodeMayGrow = 1u << 7,
  // What is published of it was on the disk at a close, rename or link under policy keep. While that is its policy a crash
  // leaves what the backing filesystem left, as of kInodeFsynced. While a rewrite is not published it speaks of
  // previous_object.
  kInodeOnDisk = 1u << 8,
};

// What a file looked like when it was last recorded: equal means unchanged since.
struct DataStamp {
  std::uint64_t size = 0;
  UnixNanos mtime = 0;
  UnixNanos ctime = 0;
  bool operator==(const DataStamp&) const = default;
};

// A process: numbers are used again, but not within one boot with the same beginning.
struct ProcessId {
  std::uint32_t boot = 0;    // which boot of the machine: a hash of its id
  std::uint32_t number = 0;  // 0: none is known
  std::uint64_t began = 0;   // clock ticks since the boot
  [[nodiscard]] bool any() const noexcept { return number != 0; }
  bool operator==(const ProcessId&) const = default;
};

// Names of a file; ext4 has 65,000 at most (EXT4_LINK_MAX). A system prompt has one in each session
// that begins with it.
inline constexpr std::uint32_t kMostHardLinks = 1'000'000;

struct InodeRecord {
  std::uint32_t mode = 0;  // S_IFMT and permission bits
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t nlink = 0;  // kMostHardLinks at most
  std::uint64_t rdev = 0;
  std::uint32_t generation = 0;
  std::uint32_t flags = 0;
  // Regular files keep size, mtime and atime in their backing file; these are theirs for all
  // other types. A regular file's ctime is the later of this one and its backing file's.
  UnixNanos atime = 0;
  UnixNanos mtime = 0;
  UnixNanos ctime = 0;
  UnixNanos btime = 0;
  DataState state = DataState::kNone;
  ObjectId object = kNoObject;
  // While a published file is being rewritten into a new object: the one that holds the old
  // bytes.
  ObjectId previous_object = kNoObject;
  DataState previous_state = DataState::kNone;
  DataStamp stamp;     // kPublished, kSealed, kMutable, kRemote: as last recorded
  std::string target;  // symlinks: what they point to
  ProcessId writer;    // regular files: who made or rewrote it, if that is known
  bool operator==(const InodeRecord&) const = default;
};

// One version of a file's data and where its copy is. (With one kind of tier an object has one
// copy.)
struct ObjectRecord {
  InodeNumber inode = 0;
  std::uint32_t device = 0;  // index into the catalog's table of device UUIDs
  // CRC32C of each 256 KiB chunk at the seal; empty: none was taken, or it no longer holds.
  std::vector<std::uint32_t> chunk_crc32c;
  DataStamp sealed;  // what the file was when the checksums were taken
  bool operator==(const ObjectRecord&) const = default;
};
inline constexpr std::uint64_t kChecksumChunk = 256 * 1024;

struct DentryRecord {
  InodeNumber inode = 0;
  std::uint8_t type = 0;     // DT_*
  std::uint64_t cookie = 0;  // position in its directory's listing, never used twice
  bool operator==(const DentryRecord&) const = default;
};

// A name of a file that holds a block of KV cache, and what is known of its place in the order of
// its prefix. What the numbers mean is fs/order's affair: a block's own one is the row's key.
struct BlockRecord {
  InodeNumber inode = 0;
  bool has_parent = false;
  bool hinted = false;  // the parent was told, not learned
  std::uint64_t parent = 0;
  std::uint64_t birth = 0;
  std::uint64_t stamp = 0;
  std::string hash;  // the prefix hash that its name shows; empty: none
  bool operator==(const BlockRecord&) const = default;
};
// As the longest that a layout knows (128 digits and a sign).
inline constexpr std::size_t kLongestHash = 129;

// Where a file, or a directory, stands on the pool.
struct PoolCopy {
  // The server's inode number. 0: of a directory that this node is making there, or has made, or
  // that another node has removed there and that was not empty here.
  std::uint64_t fileid = 0;
  std::uint64_t path_hash = 0;  // pool_path_hash() of its path there
  std::uint64_t size = 0;       // bytes; of a directory 0
  UnixNanos mtime = 0;          // by the server's clock; of a directory 0
  bool keep = false;  // this node has said there, or is about to, that it is not to be evicted
  bool operator==(const PoolCopy&) const = default;
  // Whether they speak of the same file, whatever was said of it.
  [[nodiscard]] bool is_same_file(const PoolCopy& other) const noexcept {
    return fileid == other.fileid && path_hash == other.path_hash && size == other.size &&
           mtime == other.mtime;
  }
};

// A name that was taken away here, and still has to be on the pool. It hides that file, and no other.
struct Tombstone {
  // 0: the directory that stands there; it went here while this node was making it on the pool.
  std::uint64_t fileid = 0;
  bool is_directory = false;
  [[nodiscard]] bool hides(std::uint64_t number) const noexcept {
    return fileid == number || (is_directory && fileid == 0);
  }
  bool operator==(const Tombstone&) const = default;
};

// An owner and a mode that were given here to what is on the pool, or whether it may be evicted there, or what it was
// told, that are still to be noted there. It speaks of that file or directory, and of no other.
inline constexpr std::uint8_t kMostToldWords = 7;  // all bits of OwnerChange::told
struct OwnerChange {
  std::uint64_t fileid = 0;
  // nullopt: it is what others made it.
  std::optional<std::uint32_t> uid = std::nullopt;
  std::optional<std::uint32_t> gid = std::nullopt;
  std::optional<std::uint32_t> mode = std::nullopt;  // permission bits
  std::optional<bool> keep = std::nullopt;           // of a file
  std::uint8_t told = 0;  // of a directory: bits of what it was told here, or is no longer
  bool operator==(const OwnerChange&) const = default;
};

struct DirEntry {
  std::uint64_t cookie = 0;
  InodeNumber inode = 0;
  std::uint8_t type = 0;
  std::string name;
};

[[nodiscard]] std::string encode(const InodeRecord& record);
[[nodiscard]] std::string encode(const ObjectRecord& record);
[[nodiscard]] std::string encode(const DentryRecord& record);
[[nodiscard]] std::string encode(const BlockRecord& record);
[[nodiscard]] std::string encode(const PoolCopy& record);
[[nodiscard]] std::string encode(const Tombstone& record);
[[nodiscard]] std::string encode(const OwnerChange& record);
// Error of each: EBADMSG for anything that encode() does not write (too short, too long,
// unknown version, flag, state or type). Lengths are checked before anything is allocated.
Result<InodeRecord> decode_inode(std::string_view bytes);
Result<ObjectRecord> decode_object(std::string_view bytes);
Result<DentryRecord> decode_dentry(std::string_view bytes);
Result<BlockRecord> decode_block(std::string_view bytes);
Result<PoolCopy> decode_pool_copy(std::string_view bytes);
Result<Tombstone> decode_tombstone(std::string_view bytes);
Result<OwnerChange> decode_owner_change(std::string_view bytes);

}  // namespace kvcachefs
