#include "fs/known/queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "fs/known/block_number.h"
#include "metadata/keys.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;
using Paths = std::vector<std::string>;

// 64 digits, as SGLang's.
std::string hash_of(int number) { return fmt::format("{:08x}{:056x}", number, number); }
std::string sglang(int number, std::string_view model = "m", int rank = 0) {
  return fmt::format("{}_{}_{}_2.bin", hash_of(number), model, rank);
}

class QueriesTest : public ::testing::Test {
 protected:
  // Live; `rows` of a page.
  Queries live(std::size_t rows = kPageRows) {
    learned_ = std::make_unique<LearnerOrder>(volume_.catalog(), volume_->order());
    return {volume_.catalog(), *learned_, rows};
  }
  Queries offline() {
    recorded_ = std::make_unique<RecordedOrder>(volume_.catalog());
    return {volume_.catalog(), *recorded_};
  }
  static Paths listed(Queries queries, const ObjectFilter& filter = {}) {
    Paths paths;
    std::optional<std::uint64_t> after;
    do {
      const ObjectPage page = must(queries.objects(after, filter));
      EXPECT_EQ(0u, page.damaged);
      for (const ObjectInfo& info : page.objects) paths.push_back(info.path);
      after = page.next;
    } while (after);
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  static Paths files_of(Queries queries, std::string_view hash) {
    Paths paths;
    std::optional<PrefixName> after;
    do {
      const HashPage page = must(queries.files_of(hash, after));
      for (const ObjectInfo& info : page.objects) paths.push_back(info.path);
      after = page.next;
    } while (after);
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  static Paths hashes(Queries queries, std::string_view beginning) {
    Paths found;
    std::optional<std::string> after;
    do {
      const HashesPage page = must(queries.hashes(beginning, after));
      found.insert(found.end(), page.hashes.begin(), page.hashes.end());
      after = page.next;
    } while (after);
    return found;
  }
  void follow(InodeNumber inode, const std::string& parent) {
    ASSERT_OK(volume_->set_xattr(inode, "user.kvcachefs.parent", parent, 0, TestVolume::kRoot));
  }
  // Blocks 1 <- 2 <- 3, and 4 that follows 2, too.
  void make_chain() {
    std::vector<InodeNumber> inodes;
    for (int i = 1; i <= 4; ++i)
      inodes.push_back(volume_.store_file(kRootInode, sglang(i), "x"));
    follow(inodes[1], hash_of(1));
    follow(inodes[2], hash_of(2));
    follow(inodes[3], hash_of(2));
  }
  static std::uint64_t number(int of) { return block_number(kRootInode, sglang(of)); }

  TestVolume volume_;
  std::unique_ptr<LearnerOrder> learned_;
  std::unique_ptr<RecordedOrder> recorded_;
};

TEST_F(QueriesTest, AListingHasEachPublishedBlockOnceWhateverThePages) {
  const InodeNumber directory = volume_.mkdir(kRootInode, "cache");
  Paths expected;
  for (int i = 0; i < 20; ++i) {
    volume_.store_file(directory, sglang(i), "x");
    expected.push_back("cache/" + sglang(i));
  }
  volume_.store_file(directory, "notes.txt", "x");
  volume_.store_file(directory, ".00000000000000000000000000000000.tmp", "x");
  const Created unpublished = volume_.create(directory, sglang(99));
  std::sort(expected.begin(), expected.end());
  for (const std::size_t rows : {1, 3, 20, 21, 512})
    EXPECT_EQ(expected, listed(live(rows))) << rows;
  EXPECT_EQ(expected, listed(offline()));
  volume_.close(*unpublished.opened.file);
  EXPECT_EQ(21u, listed(live()).size());
  ASSERT_OK(volume_->unlink(directory, sglang(3)));
  ASSERT_OK(volume_->rename(kRootInode, "cache", kRootInode, "moved", 0));
  const Paths after = listed(live(2));
  EXPECT_EQ(20u, after.size());
  EXPECT_EQ("moved/" + sglang(0), after.front());
}

TEST_F(QueriesTest, AFileIsDescribedInFull) {
  const UnixNanos before = file_clock_now();
  const InodeNumber inode = volume_.store_file(kRootInode, sglang(7, "llama", 1), "12345");
  const ObjectPage page = must(live().objects(std::nullopt, {}));
  ASSERT_EQ(1u, page.objects.size());
  const ObjectInfo& info = page.objects.front();
  EXPECT_EQ(sglang(7, "llama", 1), info.path);
  EXPECT_EQ("sglang_file", info.runtime);
  EXPECT_EQ("llama", info.model);
  EXPECT_EQ(hash_of(7), info.hash);
  EXPECT_EQ(1u, info.rank);
  EXPECT_EQ(2u, info.world);
  EXPECT_EQ(5u, info.size);
  EXPECT_EQ(inode, info.inode);
  EXPECT_EQ(block_number(kRootInode, info.path), info.block);
  EXPECT_GE(info.created, before);
  // Steps of 10 ms.
  ASSERT_TRUE(info.last_use);
  EXPECT_GE(*info.last_use, before - 20'000'000);
  EXPECT_LE(*info.last_use, file_clock_now() + kNanosPerSecond);
}

TEST_F(QueriesTest, AListingIsFiltered) {
  volume_.store_file(kRootInode, sglang(1, "a"), "x");
  volume_.store_file(kRootInode, sglang(2, "b"), "x");
  const InodeNumber native = volume_.mkdir(kRootInode, "prefix");
  volume_.store_file(native, hash_of(3), "x");
  EXPECT_EQ(Paths{sglang(2, "b")}, listed(live(), {.model = "b", .runtime = ""}));
  EXPECT_EQ(Paths{"prefix/" + hash_of(3)}, listed(live(), {.model = "", .runtime = "native"}));
  EXPECT_EQ(Paths{}, listed(live(), {.model = "a", .runtime = "native"}));
}

TEST_F(QueriesTest, AHashLeadsToItsFilesInAllLayouts) {
  const InodeNumber native = volume_.mkdir(kRootInode, "prefix");
  volume_.store_file(native, hash_of(5), "x");
  Paths expected{"prefix/" + hash_of(5)};
  for (const int rank : {0, 1}) {
    volume_.store_file(kRootInode, sglang(5, "m", rank), "x");
    expected.push_back(sglang(5, "m", rank));
  }
  volume_.store_file(kRootInode, sglang(6), "x");
  std::sort(expected.begin(), expected.end());
  for (const std::size_t rows : {1, 2, 3, 512})
    EXPECT_EQ(expected, files_of(live(rows), hash_of(5))) << rows;
  EXPECT_EQ(Paths{}, files_of(live(), hash_of(55)));
  EXPECT_EQ(Paths{}, files_of(live(), ""));
  EXPECT_EQ(Paths{}, files_of(live(), std::string(5000, 'a')));
  EXPECT_EQ(Paths{}, files_of(live(), std::string("0\0", 2)));
  ASSERT_OK(volume_->unlink(native, hash_of(5)));
  EXPECT_EQ(2u, files_of(live(1), hash_of(5)).size());
}

TEST_F(QueriesTest, TheBeginningOfAHashLeadsToThoseThatAreHeld) {
  const std::string beginning = hash_of(9).substr(0, 8);
  EXPECT_EQ(Paths{}, hashes(live(), beginning));
  volume_.store_file(kRootInode, sglang(9), "x");
  volume_.store_file(kRootInode, sglang(9, "m", 1), "x");
  volume_.store_file(kRootInode, sglang(10), "x");
  EXPECT_EQ(Paths{hash_of(9)}, hashes(live(), beginning));
  EXPECT_EQ(Paths{hash_of(9)}, hashes(live(), hash_of(9)));
  EXPECT_EQ(Paths{}, hashes(live(), beginning.substr(0, 7)));
  EXPECT_EQ(Paths{}, hashes(live(), "ffffffffff"));
  const InodeNumber native = volume_.mkdir(kRootInode, "prefix");
  volume_.store_file(native, beginning + "0123456789abcdef", "x");
  EXPECT_EQ(2u, hashes(live(), beginning).size());
  EXPECT_EQ(2u, hashes(live(1), beginning).size());
  // Not held by a file that everybody may rely on.
  const Created unpublished = volume_.create(native, beginning + "00112233445566778899");
  EXPECT_EQ(2u, hashes(live(), beginning).size());
  volume_.close(*unpublished.opened.file);
}

TEST_F(QueriesTest, ASessionIsItsEntries) {
  const InodeNumber native = volume_.mkdir(kRootInode, "prefix");
  const InodeNumber top = volume_.mkdir(kRootInode, "session");
  EXPECT_FALSE(must(live().session("a", 0)).found);
  const InodeNumber session = volume_.mkdir(top, "a");
  EXPECT_TRUE(must(live().session("a", 0)).found);
  for (int i = 0; i < 5; ++i) {
    const InodeNumber inode = volume_.store_file(native, hash_of(i), "xyz");
    volume_->forget(must(volume_->link(inode, session, std::to_string(i))).inode, 1);
  }
  volume_.store_file(session, "notes", "x");
  std::uint64_t after = 0;
  std::vector<SessionEntry> entries;
  do {
    SessionPage page = must(live(2).session("a", after));
    for (SessionEntry& entry : page.entries) entries.push_back(std::move(entry));
    after = page.next.value_or(0);
  } while (after != 0);
  ASSERT_EQ(5u, entries.size());
  for (std::uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(i, entries[i].position);
    EXPECT_EQ("session/a/" + std::to_string(i), entries[i].path);
    ASSERT_TRUE(entries[i].object);
    EXPECT_EQ("prefix/" + hash_of(static_cast<int>(i)), entries[i].object->path);
    EXPECT_EQ(3u, entries[i].object->size);
  }
  EXPECT_EQ(Paths{"a"}, must(live().sessions(0)).sessions);
  EXPECT_FALSE(must(live().session("b", 0)).found);
  EXPECT_FALSE(must(live().session("", 0)).found);
  EXPECT_FALSE(must(live().session(std::string(300, 'x'), 0)).found);
}

// A file that very many sessions link is still found by its block.
TEST_F(QueriesTest, ABlockIsFoundAmongManyNames) {
  const InodeNumber top = volume_.mkdir(kRootInode, "session");
  std::vector<InodeNumber> sessions;
  for (int i = 0; i < 40; ++i) sessions.push_back(volume_.mkdir(top, std::to_string(i)));
  const InodeNumber native = volume_.mkdir(kRootInode, "prefix");
  const InodeNumber inode = volume_.store_file(native, hash_of(1), "x");
  for (const InodeNumber session : sessions)
    volume_->forget(must(volume_->link(inode, session, "0")).inode, 1);
  EXPECT_EQ(Paths{"prefix/" + hash_of(1)}, listed(live()));
}

TEST_F(QueriesTest, AChainGoesToTheRootAndBranchesBelow) {
  make_chain();
  const ChainPage chain = must(live().chain(number(3)));
  ASSERT_EQ(3u, chain.links.size());
  EXPECT_FALSE(chain.next);
  for (const int i : {3, 2, 1}) {
    const ChainLink& link = chain.links[static_cast<std::size_t>(3 - i)];
    EXPECT_EQ(number(i), link.block);
    ASSERT_TRUE(link.object);
    EXPECT_EQ(sglang(i), link.object->path);
    EXPECT_EQ(i > 1, link.parent.has_value());
    EXPECT_EQ(i > 1, link.parent && link.parent->firm);
  }
  const ChainPage first = must(live(2).chain(number(3)));
  EXPECT_EQ(2u, first.links.size());
  EXPECT_EQ(number(1), first.next);
  const ChildrenPage children = must(live().children(number(2)));
  std::set<std::uint64_t> blocks;
  for (const ChainLink& link : children.links) blocks.insert(link.block);
  EXPECT_EQ((std::set{number(3), number(4)}), blocks);
  EXPECT_FALSE(children.more);
  EXPECT_TRUE(must(live(1).children(number(2))).more);
  EXPECT_TRUE(must(live().children(number(3))).links.empty());
  // Of a block that nobody knows.
  EXPECT_FALSE(must(live().chain(12345)).links.front().object);
}

TEST_F(QueriesTest, OfflineTheOrderIsWhatTheLastRunWrote) {
  volume_.start();
  make_chain();
  volume_.stop_cleanly();
  volume_.run();
  const ChainPage chain = must(offline().chain(number(4)));
  ASSERT_EQ(3u, chain.links.size());
  EXPECT_EQ(number(1), chain.links.back().block);
  EXPECT_TRUE(chain.links.front().parent->firm);
  EXPECT_TRUE(chain.links.front().object->last_use);
  EXPECT_EQ(2u, must(offline().children(number(2))).links.size());
  EXPECT_FALSE(must(offline().children(number(2))).partial);
  RecordedOrder few(volume_.catalog(), /*most_links=*/1);
  EXPECT_TRUE(must(Queries(volume_.catalog(), few).children(number(2))).partial);
}

// Rows that name each other as parents, as no learner writes them.
TEST_F(QueriesTest, AChainThatGoesRoundFillsPagesAndNoMore) {
  make_chain();
  Edit edit;
  for (const int i : {1, 2}) {
    BlockRecord record = *must(volume_.catalog().find_block(number(i)));
    record.has_parent = true;
    record.parent = number(3 - i);
    edit.put_block(number(i), record);
  }
  ASSERT_OK(volume_.catalog().commit(std::move(edit)));
  const ChainPage page = must(offline().chain(number(1)));
  EXPECT_LE(page.links.size(), kPageRows);
  EXPECT_TRUE(page.next);
  EXPECT_EQ(1u, must(offline().children(number(1))).links.size());
}

TEST_F(QueriesTest, ARecordThatDoesNotReadIsCountedAndPassedOver) {
  make_chain();
  const InodeNumber damaged = must(volume_.resolve(sglang(2)));
  WriteBatch batch;
  batch.put(Table::kInodes, keys::number(damaged), "?");
  ASSERT_OK(volume_.store().write(batch));
  const ObjectPage page = must(live().objects(std::nullopt, {}));
  EXPECT_EQ(1u, page.damaged);
  EXPECT_EQ(3u, page.objects.size());
  EXPECT_EQ(1u, must(live().files_of(hash_of(2), std::nullopt)).damaged);
  EXPECT_EQ(3u, must(live().chain(number(3))).links.size());
}

}  // namespace
}  // namespace kvcachefs
