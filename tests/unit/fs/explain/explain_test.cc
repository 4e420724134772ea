// What is told of a path, and what `evict` drops and leaves.
#include "fs/explain/explain.h"

#include <fcntl.h>

#include "fs/explain/evict.h"
#include "tests/unit/fs/known/known_rows.h"

namespace kvcachefs {
namespace {

using testing::lmcache_name;
using testing::must;
using testing::TestVolume;

std::uint64_t left(const EvictPage& page, Obstacle why) {
  return page.left[static_cast<std::size_t>(why)];
}

TEST(Explain, TellsOfFilesByTheirState) {
  TestVolume volume;
  const Created made = volume.create(kRootInode, lmcache_name(1));
  volume.write(*made.opened.file, "12345");
  Explanation told = must(volume->explain(lmcache_name(1)));
  EXPECT_TRUE(told.found);
  EXPECT_EQ(Obstacle::kOpen, told.obstacle);
  EXPECT_EQ(1u, told.writers);
  EXPECT_FALSE(told.block.has_value());  // nobody may rely on it yet
  volume.close(*made.opened.file);
  told = must(volume->explain("/" + lmcache_name(1) + "/"));
  EXPECT_EQ(Obstacle::kUnsealed, told.obstacle);
  ASSERT_TRUE(told.block.has_value());
  volume.settle();
  told = must(volume->explain(lmcache_name(1)));
  EXPECT_EQ(Obstacle::kNone, told.obstacle);
  EXPECT_EQ(5u, told.size);
  EXPECT_EQ(volume.device_paths().front(), told.device);
  EXPECT_EQ(PolicyBy::kLayout, told.by);
  EXPECT_ERROR(EINVAL, volume->explain(".kvcachefs/by-prefix"));
}

TEST(Explain, NamesTheDirectoryThatToldIt) {
  TestVolume volume;
  const InodeNumber a = volume.mkdir(kRootInode, "a");
  const InodeNumber b = volume.mkdir(a, "b");
  const InodeNumber file = volume.store_file(kRootInode, "f", "x");
  must(volume->link(file, b, "f", kRoot));
  must(volume->set_xattr(kRootInode, kPolicyXattr, "process", 0, kRoot));
  must(volume->set_xattr(a, kPolicyXattr, "keep", 0, kRoot));
  // The stricter name decides, whichever is asked about.
  const Explanation told = must(volume->explain("f"));
  EXPECT_EQ(FilePolicy::kKeep, told.policy);
  EXPECT_EQ("a", told.policy_from);
  EXPECT_EQ("", must(volume->explain("/")).policy_from);
  EXPECT_EQ("a", must(volume->explain("a/b")).policy_from);
}

TEST(Explain, RemembersWhatTheDaemonDropped) {
  TestVolume volume;
  const InodeNumber directory = volume.mkdir(kRootInode, "d");
  const InodeNumber file = volume.store_file(directory, "f", "12345");
  volume.settle();
  ASSERT_EQ(0, ::unlink(volume.backing_path_of(file).c_str()));
  EXPECT_ERROR(ENOENT, volume->lookup(directory, "f"));
  const Explanation told = must(volume->explain("d/f"));
  EXPECT_FALSE(told.found);
  ASSERT_TRUE(told.dropped.has_value());
  EXPECT_EQ(DropReason::kLost, told.dropped->reason);
  EXPECT_EQ(file, told.dropped->inode);
  EXPECT_EQ(5u, told.dropped->size);
  EXPECT_EQ(1u, volume->drop_counts()[static_cast<std::size_t>(DropReason::kLost)].files);
  // What a user removes is no loss.
  volume.store_file(directory, "g", "x");
  must(volume->unlink(directory, "g"));
  EXPECT_FALSE(must(volume->explain("d/g")).dropped.has_value());
}

TEST(Evict, DropsSealedFilesAndSaysWhyOthersStay) {
  TestVolume volume;
  const InodeNumber directory = volume.mkdir(kRootInode, "d");
  volume.store_file(directory, "goes", "12345");
  const InodeNumber kept = volume.store_file(directory, "kept", "x");
  const InodeNumber pinned = volume.store_file(directory, "pinned", "x");
  const InodeNumber held = volume.store_file(directory, "held", "x");
  const InodeNumber below = volume.mkdir(directory, "below");
  must(volume->set_xattr(kept, kPolicyXattr, "keep", 0, kRoot));
  must(volume->set_xattr(pinned, kPolicyXattr, "pin", 0, kRoot));
  volume.settle();
  OpenFile& open = volume.open(held, O_RDONLY);
  volume.store_file(directory, "unsealed", "x");
  EXPECT_EQ(directory, must(volume->evict("d")).directory);
  const EvictPage page = must(volume->evict_in(directory, 0));
  EXPECT_EQ(1u, page.files);
  EXPECT_EQ(5u, page.bytes);
  for (const Obstacle why :
       {Obstacle::kOpen, Obstacle::kUnsealed, Obstacle::kKept, Obstacle::kPinned})
    EXPECT_EQ(1u, left(page, why)) << name_of(why);
  EXPECT_EQ(4u, page.examples.size());
  EXPECT_EQ(std::vector<InodeNumber>{below}, page.directories);
  EXPECT_FALSE(page.next.has_value());
  EXPECT_ERROR(ENOENT, volume.resolve("d/goes"));
  EXPECT_EQ(DropReason::kAsked, must(volume->explain("d/goes")).dropped->reason);
  volume->release(open);
  EXPECT_EQ(1u, must(volume->evict("d/held")).files);
  EXPECT_ERROR(ENOENT, volume->evict("d/held"));
  EXPECT_ERROR(ENOTDIR, volume->evict_in(kept, 0));
}

TEST(Evict, ChangesNothingOfAReadOnlyMount) {
  TestVolume volume({.volume = {.keep_by_default = false, .read_only = true}});
  EXPECT_ERROR(EROFS, volume->evict("f"));
  EXPECT_ERROR(EROFS, volume->evict_in(kRootInode, 0));
}

}  // namespace
}  // namespace kvcachefs
