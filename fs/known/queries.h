// What `kvcachefs find`, `ls` and `tree` ask: each answer is a page, bounded in rows, bytes and
// time, and says where the next one begins. The asker keeps that; nothing of a listing is kept
// here, so that one that is never finished costs nothing.
//
// What changes between two pages is in the listing or not; what does not change is in it once. One
// thread, live or offline. Errors of all: EIO. A record that does not read is counted and left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/known/describe.h"
#include "fs/known/order_source.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// Of a page: the mount's one control thread makes it, and `status` waits meanwhile.
inline constexpr std::size_t kPageRows = 512;
// JSON may take six times that.
inline constexpr std::size_t kPageBytes = 128 * 1024;
inline constexpr std::int64_t kPageNanos = 50'000'000;
// A leading part of a hash that is shorter is no use, as with git.
inline constexpr std::size_t kShortestBeginning = 8;

// Empty: any.
struct ObjectFilter {
  std::string model;
  std::string runtime;
};

struct ObjectPage {
  std::vector<ObjectInfo> objects;
  std::optional<std::uint64_t> next;  // pass as `after`; nullopt: that was the last page
  std::uint64_t damaged = 0;
};

// The files of one hash.
struct HashPage {
  std::vector<ObjectInfo> objects;
  std::optional<PrefixName> next;
  std::uint64_t damaged = 0;
};

struct HashesPage {
  std::vector<std::string> hashes;
  std::optional<std::string> next;
};

struct SessionEntry {
  std::string path;  // relative to the root
  std::optional<std::uint32_t> position;
  InodeNumber inode = 0;
  std::optional<ObjectInfo> object;
};
struct SessionPage {
  bool found = false;  // the session is there
  std::vector<SessionEntry> entries;
  std::optional<std::uint64_t> next;
  std::uint64_t damaged = 0;
};
struct SessionsPage {
  std::vector<std::string> sessions;
  std::optional<std::uint64_t> next;
};

struct ChainLink {
  std::uint64_t block = 0;
  std::optional<ObjectInfo> object;  // nullopt: no file has it now
  std::optional<order::Parent> parent;
};
// From a block towards the root of its prefix.
struct ChainPage {
  std::vector<ChainLink> links;
  std::optional<std::uint64_t> next;  // the block to go on with
};
struct ChildrenPage {
  std::vector<ChainLink> links;
  bool more = false;     // there are more of them
  bool partial = false;  // the order itself is known in part (OrderSource::is_partial)
};

class Queries {
 public:
  Queries(Catalog& catalog, OrderSource& order, std::size_t rows = kPageRows);

  // In the order of their numbers, which is none.
  Result<ObjectPage> objects(std::optional<std::uint64_t> after, const ObjectFilter& filter);
  Result<HashPage> files_of(std::string_view hash, const std::optional<PrefixName>& after);
  // Hashes of published files that begin so. A page may be empty and not the last: where many files
  // were removed a moment ago their hashes are looked at all the same.
  Result<HashesPage> hashes(std::string_view beginning,
                            const std::optional<std::string>& after);
  // Entries of session/<id> in the order of their making.
  Result<SessionPage> session(std::string_view id, std::uint64_t after);
  Result<SessionsPage> sessions(std::uint64_t after);
  Result<ChainPage> chain(std::uint64_t block);
  // Used last first.
  Result<ChildrenPage> children(std::uint64_t block);

 private:
  class Budget;
  // Of a directory of the root; 0: there is none.
  Result<InodeNumber> directory(InodeNumber parent, std::string_view name);
  Result<ChainLink> link(std::uint64_t block);

  Catalog& catalog_;
  OrderSource& order_;
  const std::size_t rows_;
  Describer describer_;
};

}  // namespace kvcachefs
