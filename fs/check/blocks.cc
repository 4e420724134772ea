// The tables of blocks and prefixes: every row stands for a name, and every name that is a block's
// has its rows.
#include <dirent.h>
#include <fmt/format.h>

#include <set>
#include <string>

#include "fs/check/check.h"
#include "fs/known/block_number.h"
#include "fs/known/place.h"
#include "metadata/keys.h"

namespace kvcachefs {

Result<void> Check::check_blocks() {
  // Names that are still to be read make no rows missing, and none wrong.
  blocks_behind_ = !TRY(setup_.catalog.list_unread(0, 1)).empty();
  TRY(each_row(
      Table::kBlocks, [&](std::string_view key, std::string_view value) -> Result<void> {
        const std::uint64_t number = *keys::to_number(key);
        const BlockRecord block = TRY(decode_block(value));
        if (TRY(has_name(block.inode, number))) return {};
        problem(kRemove,
                fmt::format("block {:016x} is no name of inode {}", number, block.inode));
        return erase(Table::kBlocks, key);
      }));
  const std::set<std::string> left = TRY(prefix_keys_left());
  return each_row(
      Table::kPrefixes, [&](std::string_view key, std::string_view) -> Result<void> {
        const keys::Prefix at = *keys::to_prefix(key);
        const auto block = TRY(setup_.catalog.find_block(block_number(at.parent, at.name)));
        if (block && block->hash == at.hash) return {};
        if (left.count(std::string(key)) > 0) return {};
        problem(kRemove, fmt::format("prefix {} in \"{}\" in directory {} is of no block",
                                     printable(at.hash), printable(at.name), at.parent));
        return erase(Table::kPrefixes, key);
      });
}

// The rows that files have left which are still to be removed.
Result<std::set<std::string>> Check::prefix_keys_left() {
  constexpr std::size_t kBatch = 1024;
  std::set<std::string> keys_left;
  InodeNumber after = 0;
  while (true) {
    const std::vector<InodeNumber> orphans =
        TRY(setup_.catalog.list_orphan_inodes(after, kBatch));
    if (orphans.empty()) return keys_left;
    after = orphans.back();
    for (const InodeNumber orphan : orphans) {
      const auto left = TRY(setup_.catalog.find_left_rows(orphan));
      if (left && !left->hash.empty())
        keys_left.insert(keys::prefix(left->hash, left->parent, left->name));
    }
  }
}

// Or had it last, and is still to be removed.
Result<bool> Check::has_name(InodeNumber inode, std::uint64_t block) {
  for (const auto& [directory, name] : TRY(setup_.catalog.list_links(inode, kMostHardLinks))) {
    if (block_number(directory, name) == block) return true;
  }
  const auto left = TRY(setup_.catalog.find_left_rows(inode));
  return left && block_number(left->parent, left->name) == block;
}

Result<void> Check::check_block_names() {
  if (blocks_behind_) return {};
  std::shared_ptr<const Place> place;
  InodeNumber of = 0;
  bool missing = false;
  TRY(each_row(
      Table::kDentries, [&](std::string_view key, std::string_view value) -> Result<void> {
        const keys::Named at = *keys::to_named(key);
        if (missing || (!setup_.catalog.is_told() && !may_be_recognized(at.name))) return {};
        const Result<DentryRecord> dentry = decode_dentry(value);
        if (!dentry.ok() || dentry->type != DT_REG) return {};
        if (of != at.owner) place = TRY(find_place(setup_.catalog, at.owner));
        of = at.owner;
        if (place == nullptr) return {};
        const std::string path = path_in(*place, at.name);
        const auto file = finished_block(path, place->told);
        if (!file) return {};
        const auto block = TRY(setup_.catalog.find_block(block_number(at.owner, at.name)));
        const bool stands =
            block && block->inode == dentry->inode && block->hash == file->prefix_hash &&
            (block->hash.empty() ||
             TRY(has_row(Table::kPrefixes, keys::prefix(block->hash, at.owner, at.name))));
        missing = !stands;
        return {};
      }));
  if (!missing) return {};
  problem(kReadAnew, "the tables of blocks and prefixes do not have all names");
  Edit edit;
  edit.put_unread(kRootInode);
  return commit(std::move(edit));
}

}  // namespace kvcachefs
