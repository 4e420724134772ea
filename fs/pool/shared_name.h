// Which names are shared through the pool, and where they stand there: at their own paths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fs/known/knowledge.h"

namespace kvcachefs {

struct SharedName {
  std::string path;  // on the pool, and relative to the root of the mount
  std::uint64_t path_hash = 0;
  // The name says what is in the file (a block of KV cache): one copy is as good as another. Else the last one
  // that was published stands.
  bool is_block = false;
};

// Inodes with one number of a server: an old one whose names went, and the file that is there.
inline constexpr std::size_t kMostOfOneNumber = 16;

// nullopt: it stays on this node (temporaries and what is below them, session/, what is too deep), or its directory is
// gone. Not under an inode's lock.
[[nodiscard]] std::optional<SharedName> shared_name(Knowledge& knowledge, InodeNumber directory,
                                                    std::string_view name);
// The one of an inode's names that is shared: where its copy on the pool is, else the first that may be. Other hard links stay
// on this node. Errors: EIO, EBADMSG.
struct SharedLink {
  InodeNumber directory = 0;
  std::string name;
  SharedName shared;
};
[[nodiscard]] Result<std::optional<SharedLink>> shared_link_of(Catalog& catalog,
                                                               Knowledge& knowledge,
                                                               InodeNumber inode);
[[nodiscard]] Result<std::optional<SharedName>> shared_name_of(Catalog& catalog,
                                                               Knowledge& knowledge,
                                                               InodeNumber inode);

}  // namespace kvcachefs
