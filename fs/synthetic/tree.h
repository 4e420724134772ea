// `.kvcachefs` in the root: a directory that no catalog holds, made up when somebody looks.
//
//   .kvcachefs/by-prefix/<hash>           a relative symlink to the file that holds the hash, or,
//   .kvcachefs/by-prefix/<hash>/<label>   where several models, ranks, groups, parts or directories
//                                         have one, a directory of such symlinks
//
// Each caller sees what he could come to by its path. A link by itself leads to what is his or
// root's; what is others' has its owner in its label.
//
// Read-only. It is not listed in the root, and what it answers holds for the moment only: the kernel
// is told to keep nothing. In memory are the nodes that the kernel knows, of these the newest: of
// what was pushed out ESTALE makes the kernel look it up again (path_lookupat(), fs/namei.c).
//
// Any thread; its lock is a leaf.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fs/known/find_blocks.h"
#include "fs/node/core.h"

namespace kvcachefs {

class SyntheticTree {
 public:
  explicit SyntheticTree(Core& core) : core_(core) {}

  static constexpr InodeNumber kBit = InodeNumber{1} << 63;
  static constexpr InodeNumber kTop = kBit | 1;

  // Whether a node id is of this tree. The catalog gives no number with this bit.
  static constexpr bool owns(InodeNumber inode) noexcept { return (inode & kBit) != 0; }
  // Whether this is the name of the tree itself: nobody may make another one there. An older file
  // of that name is found before it.
  static bool is_entrance(InodeNumber parent, std::string_view name) noexcept {
    return parent == kRootInode && name == ".kvcachefs";
  }

  // As the methods of the same names in fs/volume.h. ESTALE: what the kernel remembers is no longer
  // so; it looks the name up again.
  Result<Entry> enter();
  Result<Entry> lookup(InodeNumber parent, std::string_view name, const Caller& caller);
  void forget(InodeNumber inode, std::uint64_t lookups);
  Result<AttributesReply> attributes(InodeNumber inode);
  Result<std::string> read_link(InodeNumber inode);
  Result<void> list(InodeNumber directory, std::uint64_t after, const Caller& caller,
                    const std::function<bool(const ListedEntry&)>& visit);

 private:
  static constexpr InodeNumber kByPrefix = kBit | 2;
  // Each with its path, of 4 KiB at most: anybody can look up as many as he has made names.
  static constexpr std::size_t kMostNodes = 2048;

  // Below by-prefix.
  struct Node {
    std::string hash;
    // Of a link: the kernel may keep it as long as it knows the node.
    std::string target = {};
    bool directory = false;
    std::uint64_t lookups = 0;
    std::list<InodeNumber>::iterator place = {};  // in by_age_
    bool operator==(const Node& other) const noexcept {
      return hash == other.hash && target == other.target && directory == other.directory;
    }
  };

  using Nodes = std::unordered_map<InodeNumber, Node>;

  void erase(Nodes::iterator at);  // under mutex_
  Result<Entry> entry_of(InodeNumber inode);
  Result<Node> node(InodeNumber inode);
  // Its number, which is the same as long as somebody knows it; counts a lookup.
  InodeNumber remember(Node node);
  static InodeNumber number_of(const Node& node);
  Result<struct stat> status(InodeNumber inode);
  Result<std::list<FoundBlock>> find(std::string_view hash, std::size_t limit,
                                     const Caller& caller);
  Result<void> list_hashes(std::uint64_t after, const Caller& caller,
                           const std::function<bool(const ListedEntry&)>& visit);
  Result<void> list_links(const Node& directory, std::uint64_t after, const Caller& caller,
                          const std::function<bool(const ListedEntry&)>& visit);

  Core& core_;
  std::mutex mutex_;
  Nodes nodes_;                    // under mutex_
  std::list<InodeNumber> by_age_;  // the same, the oldest first
};

// The names of a hash's files in its directory, in the same order: runtime, model, rank, group,
// part as far as the files' names tell, `,u` and the owner of what is neither root's nor the
// user's, and a number where that does not tell two apart.
[[nodiscard]] std::vector<std::string> labels_of(const std::list<FoundBlock>& found,
                                                 std::uint32_t uid);

}  // namespace kvcachefs
