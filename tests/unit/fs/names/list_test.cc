// Listing a directory: complete, in order, and steady while names come and go.
#include <dirent.h>

#include <algorithm>
#include <map>
#include <random>

#include "fs/explain/evict.h"
#include "tests/fakes/seed.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::TestVolume;

std::vector<ListedEntry> list_some(TestVolume& volume, InodeNumber directory,
                                   std::uint64_t after, std::size_t most, bool plus = false) {
  std::vector<ListedEntry> entries;
  must(volume->list(directory, after, plus, [&](const ListedEntry& listed) {
    if (entries.size() == most) return false;
    entries.push_back(listed);
    return true;
  }));
  return entries;
}

TEST(Listing, BeginsWithDotAndDotDot) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  const auto entries = list_some(volume, dir, 0, 10);
  ASSERT_EQ(2u, entries.size());
  EXPECT_EQ(".", entries[0].entry.name);
  EXPECT_EQ(dir, entries[0].entry.inode);
  EXPECT_EQ(1u, entries[0].entry.cookie);
  EXPECT_EQ("..", entries[1].entry.name);
  EXPECT_EQ(kRootInode, entries[1].entry.inode);
  EXPECT_EQ(2u, entries[1].entry.cookie);
  EXPECT_EQ(1u, list_some(volume, dir, 1, 10).size());
  EXPECT_TRUE(list_some(volume, dir, 2, 10).empty());
}

TEST(Listing, GoesOnAfterAnyCookie) {
  TestVolume volume;
  for (int i = 0; i < 700; ++i) volume.mkdir(kRootInode, std::to_string(i));
  std::vector<std::string> names;
  std::uint64_t after = 0;
  while (true) {
    const auto some = list_some(volume, kRootInode, after, 37);
    if (some.empty()) break;
    for (const ListedEntry& listed : some) {
      names.push_back(listed.entry.name);
      EXPECT_LT(after, listed.entry.cookie);
      after = listed.entry.cookie;
    }
  }
  ASSERT_EQ(702u, names.size());
  for (int i = 0; i < 700; ++i)
    EXPECT_EQ(std::to_string(i), names[static_cast<std::size_t>(i) + 2]);
}

TEST(Listing, ShowsEveryLastingNameOnceWhileOthersComeAndGo) {
  TestVolume volume;
  std::mt19937_64 random(testing::test_seed());
  std::vector<std::string> lasting;
  for (int i = 0; i < 400; ++i) {
    lasting.push_back("keep" + std::to_string(i));
    volume.mkdir(kRootInode, lasting.back());
    volume.mkdir(kRootInode, "go" + std::to_string(i));
  }
  int made = 0;
  std::map<std::string, int> seen;
  std::uint64_t after = 0;
  while (true) {
    const auto some = list_some(volume, kRootInode, after, 1 + random() % 40);
    if (some.empty() || made > 4000) break;
    for (const ListedEntry& listed : some) ++seen[listed.entry.name];
    after = some.back().entry.cookie;
    for (int i = 0; i < 10; ++i) {
      const Result<void> removed =
          volume->rmdir(kRootInode, "go" + std::to_string(random() % 400));
      EXPECT_TRUE(removed.ok() || removed.error().code == ENOENT);
      if (made < 200) volume.mkdir(kRootInode, "new" + std::to_string(made++));
    }
  }
  for (const std::string& name : lasting) EXPECT_EQ(1, seen[name]) << name;
  for (const auto& [name, times] : seen) EXPECT_EQ(1, times) << name;
}

TEST(Listing, KeepsCookiesOverARestart) {
  TestVolume volume;
  for (int i = 0; i < 10; ++i) volume.mkdir(kRootInode, std::to_string(i));
  const std::uint64_t after = list_some(volume, kRootInode, 0, 5).back().entry.cookie;
  volume.settle();
  volume.mkdir(kRootInode, "later");
  const auto rest = list_some(volume, kRootInode, after, 100);
  ASSERT_EQ(8u, rest.size());
  EXPECT_EQ("3", rest.front().entry.name);
  EXPECT_EQ("later", rest.back().entry.name);
}

TEST(Listing, PlusCountsALookupForEachDirectoryThatWasTaken) {
  TestVolume volume;
  for (int i = 0; i < 4; ++i) volume->forget(volume.mkdir(kRootInode, std::to_string(i)), 1);
  EXPECT_EQ(0u, volume->counts().inodes_cached);
  const auto entries = list_some(volume, kRootInode, 2, 3, true);
  ASSERT_EQ(3u, entries.size());
  EXPECT_EQ(3u, volume->counts().inodes_cached);
  for (const ListedEntry& listed : entries) {
    ASSERT_TRUE(listed.plus);
    EXPECT_EQ(listed.entry.inode, listed.plus->inode);
    EXPECT_EQ(1, listed.plus->entry_timeout_s);
    volume->forget(listed.entry.inode, 1);
  }
  EXPECT_EQ(0u, volume->counts().inodes_cached);
}

// Whoever looks a file up after a crawler has to come to us, for a lease.
TEST(Listing, PlusSaysOfFilesTheirNamesAlone) {
  TestVolume volume;
  volume->forget(volume.store_file(kRootInode, "file", "xy"), 1);
  const auto entries = list_some(volume, kRootInode, 2, 3, true);
  ASSERT_EQ(1u, entries.size());
  EXPECT_FALSE(entries.front().plus);
  EXPECT_EQ("file", entries.front().entry.name);
  EXPECT_EQ(0u, volume->counts().inodes_cached);
}

TEST(Listing, OfARemovedDirectoryIsEmpty) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  EXPECT_OK(volume->rmdir(kRootInode, "d"));
  EXPECT_EQ(2u, list_some(volume, dir, 0, 10).size());
}

TEST(Listing, EndsThoughEveryNameIsReplacedMeanwhile) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  for (int i = 0; i < 20; ++i) volume.store_file(dir, std::to_string(i), "x");
  for (const bool replace : {true, false}) {
    std::vector<std::string> seen;
    std::uint64_t after = 0;
    for (bool more = true; more && seen.size() < 1000;) {
      more = false;
      // One entry a call, as a reader with the smallest of buffers.
      std::optional<DirEntry> entry;
      must(volume->list(dir, after, false, [&](const ListedEntry& listed) {
        if (entry) return false;
        entry = listed.entry;
        return true;
      }));
      if (!entry) break;
      more = true;
      after = entry->cookie;
      if (entry->name == "." || entry->name == "..") continue;
      seen.push_back(entry->name);
      if (replace) {
        volume.store_file(dir, "t", "y");
        must(volume->rename(dir, "t", dir, entry->name, 0));
      } else {
        must(volume->unlink(dir, entry->name));
        volume.store_file(dir, entry->name, "y");
      }
    }
    EXPECT_EQ(20u, seen.size()) << replace;
    EXPECT_EQ(20u, volume.names_in(dir).size());
  }
}

// ---- what the kernel remembers ----

// Lists the directory through an open one; true: the kernel may have done so alone.
bool list_open(TestVolume& volume, InodeNumber directory) {
  const OpenedDirectory opened = volume->open_directory(directory, TestVolume::kRoot);
  std::uint64_t after = 0;
  while (opened.directory != nullptr) {
    volume->begin_listing(*opened.directory, after);
    const auto some = list_some(volume, directory, after, 10);
    if (some.empty()) volume->end_listing(*opened.directory);
    if (some.empty()) break;
    after = some.back().entry.cookie;
  }
  if (opened.directory != nullptr) volume->release_directory(*opened.directory);
  return opened.remembers;
}

TEST(Listing, IsForgottenByTheKernelWhenTheDaemonDropsAName) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  volume.store_file(dir, "f", "x");
  volume.settle();
  EXPECT_TRUE(list_open(volume, dir));
  EXPECT_TRUE(list_open(volume, dir));
  EXPECT_TRUE(volume.notifications().take_listings().empty());
  must(volume->evict("d/f"));
  EXPECT_FALSE(list_open(volume, dir));
  const auto messages = volume.notifications().take_listings();
  ASSERT_EQ(1u, messages.size());
  EXPECT_EQ(dir, messages.front().first);
  volume->listing_dropped(dir, messages.front().second);
  EXPECT_TRUE(list_open(volume, dir));
}

TEST(Listing, IsForgottenByTheKernelWhenTheDirectoryHasAnotherParent) {
  TestVolume volume;
  const InodeNumber from = volume.mkdir(kRootInode, "from");
  const InodeNumber to = volume.mkdir(kRootInode, "to");
  const InodeNumber dir = volume.mkdir(from, "d");
  list_open(volume, dir);
  must(volume->rename(from, "d", from, "e", 0));
  EXPECT_TRUE(volume.notifications().take_listings().empty()) << "it has not";
  must(volume->rename(from, "e", to, "d", 0));
  const auto messages = volume.notifications().take_listings();
  ASSERT_EQ(1u, messages.size());
  EXPECT_EQ(dir, messages.front().first);
}

TEST(Listing, OfASyntheticDirectoryIsNotRemembered) {
  TestVolume volume;
  const Entry entry = must(volume->lookup(kRootInode, ".kvcachefs"));
  const OpenedDirectory opened = volume->open_directory(entry.inode, TestVolume::kRoot);
  EXPECT_FALSE(opened.remembers);
  EXPECT_EQ(nullptr, opened.directory);
}

TEST(Listing, OfADirectoryThatIsStillOpenAtTheEndLeavesNothing) {
  TestVolume volume;
  const InodeNumber dir = volume.mkdir(kRootInode, "d");
  ASSERT_NE(nullptr, volume->open_directory(dir, TestVolume::kRoot).directory);
  EXPECT_OK(volume->rmdir(kRootInode, "d"));
  volume->forget(dir, 1);
  volume.stop_cleanly();
}

}  // namespace
}  // namespace kvcachefs
