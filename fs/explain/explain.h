// All that can be told of one name: where its file is, why it stays or when it may go; of a name that
// is gone, when and why it was dropped. For `kvcachefs explain`.
//
// What it says holds for the moment. Any thread; takes some milliseconds.
#pragma once

#include <optional>
#include <string>

#include "fs/known/describe.h"
#include "fs/known/file_policy.h"
#include "fs/life/drop_history.h"
#include "fs/life/obstacle.h"
#include "fs/node/core.h"

namespace kvcachefs {

// Where a block stands among others.
struct BlockPlace {
  std::optional<ObjectInfo> parent;  // the block before it, if a file has it
  bool has_parent = false;
  bool is_firm = false;  // the parent can be relied on
  std::size_t children = 0;
  bool more_children = false;
  // How many blocks go before it when room is needed; nullopt: not known yet, or more than
  // kMostBefore.
  std::optional<std::size_t> goes_after;
};
inline constexpr std::size_t kMostChildren = 256;
inline constexpr std::size_t kMostBefore = 65'536;

struct Explanation {
  std::string path;  // relative to the root
  bool found = false;
  // Of a name that is not there: nullopt: never seen, removed by a user, or dropped too long ago.
  std::optional<Dropped> dropped;

  // Of one that is.
  InodeNumber inode = 0;
  InodeRecord record;
  // What holds, and which path told it (nullopt: none; empty: the root).
  std::optional<FilePolicy> policy;  // of files and directories
  // It was to be kept, and is cache all the same (stays_as_cache(), fs/life/states.h).
  bool is_beyond_share = false;
  std::optional<PolicyBy> by;  // of files
  std::optional<std::string> policy_from;
  std::optional<std::chrono::seconds> ttl;
  std::optional<std::string> ttl_from;

  // Of a regular file.
  std::string device;  // its path
  std::uint64_t size = 0;
  std::uint64_t allocated = 0;  // bytes on the disk
  UnixNanos written = 0;        // its mtime
  bool is_missing = false;      // the backing file is
  std::uint32_t opens = 0;
  std::uint32_t writers = 0;
  Obstacle obstacle = Obstacle::kNone;
  Treatment treatment;  // of a file
  std::optional<UnixNanos> expires;
  std::optional<ObjectInfo> block;
  std::optional<BlockPlace> place;
};

// `path`: relative to the root; symlinks in it are not followed. Errors: EINVAL (a name of .kvcachefs),
// EIO, EBADMSG, ESTALE (it changed meanwhile: ask again).
Result<Explanation> explain(Core& core, std::string_view path);

// A path's inode; nullopt: no such name. Errors: EIO, EBADMSG.
struct NameOf {
  InodeNumber directory = 0;  // 0: the root itself
  std::string name;
  InodeNumber inode = 0;
};
Result<std::optional<NameOf>> resolve(Catalog& catalog, std::string_view path);

}  // namespace kvcachefs
