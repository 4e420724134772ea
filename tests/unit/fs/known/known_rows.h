// What the tables of blocks and prefixes must hold, by a scan of the tree; and names to test with.
#pragma once

#include <dirent.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "fs/known/block_number.h"
#include "fs/known/place.h"
#include "fs/layout/layout.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs::testing {

// Number of the block to inode and hash; and the rows of the index of hashes.
struct KnownRows {
  std::map<std::uint64_t, std::pair<InodeNumber, std::string>> blocks;
  std::set<std::tuple<std::string, InodeNumber, std::string>> prefixes;

  friend bool operator==(const KnownRows&, const KnownRows&) = default;
};

inline void scan_directory(Catalog& catalog, InodeNumber directory, const std::string& path,
                           std::optional<Runtime> told, KnownRows& rows) {
  if (const auto value = must(catalog.find_xattr(directory, kToldXattr)))
    told = parse_runtime(*value);
  for (const DirEntry& entry : must(catalog.list_directory(directory, 0, 1'000'000))) {
    const std::string full = path.empty() ? entry.name : path + "/" + entry.name;
    if (full.size() > 4096) continue;
    if (entry.type == DT_DIR) scan_directory(catalog, entry.inode, full, told, rows);
    if (entry.type != DT_REG) continue;
    const auto file = recognize(full, told);
    if (!file || file->kind != NameKind::kBlock || file->temporary) continue;
    const std::string hash(file->prefix_hash);
    rows.blocks[block_number(directory, entry.name)] = {entry.inode, hash};
    if (!hash.empty()) rows.prefixes.emplace(hash, directory, entry.name);
  }
}

inline KnownRows rows_by_scan(Catalog& catalog) {
  KnownRows rows;
  scan_directory(catalog, kRootInode, "", std::nullopt, rows);
  return rows;
}

// Without those that removed files have left, until they are reaped.
inline KnownRows rows_in_tables(Catalog& catalog) {
  KnownRows rows;
  std::set<InodeNumber> removed;
  std::set<std::tuple<std::string, InodeNumber, std::string>> left;
  for (const InodeNumber orphan : must(catalog.list_orphan_inodes(0, 1'000'000))) {
    removed.insert(orphan);
    if (const auto of = must(catalog.find_left_rows(orphan)))
      left.emplace(of->hash, of->parent, of->name);
  }
  must(catalog.each_block(
      std::nullopt,
      [&](std::uint64_t block, const BlockRecord& record) {
        if (removed.count(record.inode) == 0) rows.blocks[block] = {record.inode, record.hash};
        return true;
      },
      [](const std::string& what) { ADD_FAILURE() << what; }));
  std::string hash;
  while (const auto next = must(catalog.next_prefix(hash))) {
    hash = *next;
    for (const PrefixName& row : must(catalog.list_prefix(hash, std::nullopt, 1'000'000))) {
      const auto block = rows.blocks.find(block_number(row.parent, row.name));
      const bool is_of_a_file = block != rows.blocks.end() && block->second.second == row.hash;
      if (is_of_a_file || left.count({row.hash, row.parent, row.name}) == 0)
        rows.prefixes.emplace(row.hash, row.parent, row.name);
    }
  }
  return rows;
}

inline void expect_true_rows(Catalog& catalog, const std::string& after) {
  const KnownRows truth = rows_by_scan(catalog);
  const KnownRows found = rows_in_tables(catalog);
  EXPECT_EQ(truth.blocks, found.blocks) << after;
  EXPECT_EQ(truth.prefixes, found.prefixes) << after;
}

inline std::string hash_of(unsigned number) {
  char text[65];
  std::snprintf(text, sizeof text, "%016x%016x%016x%016x", number * 2'654'435'761u, number, 7u,
                number + 1);
  return text;
}

// LMCache's FSConnector, in whatever directory.
inline std::string lmcache_name(unsigned number) {
  return "org-SEP-model@1@0@" + hash_of(number) + "@bfloat16.data";
}

}  // namespace kvcachefs::testing
