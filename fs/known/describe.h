// All that can be told of one file that holds a block of KV cache: for `kvcachefs ls`, `find` and
// `tree`.
//
// Over the catalog and an order, live or offline. No file is touched: the size is the one recorded
// when the file was published last.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "fs/known/order_source.h"
#include "fs/known/place.h"
#include "metadata/catalog.h"

namespace kvcachefs {

struct ObjectInfo {
  std::uint64_t block = 0;  // fs/known/block_number.h
  InodeNumber inode = 0;
  std::string path;  // relative to the root
  std::string_view runtime;
  // Empty, and nullopt: the name does not tell.
  std::string model;
  std::string hash;
  std::string part;
  std::optional<std::uint32_t> world;
  std::optional<std::uint32_t> rank;
  std::optional<std::uint32_t> group;
  std::uint64_t size = 0;  // bytes
  UnixNanos created = 0;
  std::optional<UnixNanos> last_use;

  // Of memory, and about what it takes in an answer.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return 256 + path.size() + model.size() + hash.size() + part.size();
  }
};

// Made for one query: it keeps the places of directories that it has met. One thread.
// nullopt of all calls: that is no published file with a block's name (any more). Errors: EIO,
// EBADMSG (a record does not read).
class Describer {
 public:
  Describer(Catalog& catalog, OrderSource& order) : catalog_(catalog), order_(order) {}

  Result<std::optional<ObjectInfo>> by_block(std::uint64_t block);
  Result<std::optional<ObjectInfo>> by_block(std::uint64_t block, const BlockRecord& record);
  Result<std::optional<ObjectInfo>> by_name(InodeNumber directory, const std::string& name);
  // The block among the names of an inode: the entry of a session is a link to one.
  Result<std::optional<ObjectInfo>> by_inode(InodeNumber inode);

 private:
  Result<UnixNanos> shown(std::int64_t own);
  Result<std::shared_ptr<const Place>> place_of(InodeNumber directory);
  Result<std::optional<ObjectInfo>> describe(InodeNumber directory, std::string_view name,
                                             InodeNumber inode, const BlockRecord* record);

  Catalog& catalog_;
  OrderSource& order_;
  std::optional<std::int64_t>
      ahead_;  // by how much the wall clock is ahead of the mount's own time
  std::unordered_map<InodeNumber, std::shared_ptr<const Place>> places_;
};

}  // namespace kvcachefs
