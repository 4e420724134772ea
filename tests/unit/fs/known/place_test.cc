// Where a directory hangs and what it was told to hold, as these change.
#include "tests/unit/fs/known/known_rows.h"

namespace kvcachefs {
namespace {

using testing::lmcache_name;
using testing::must;
using testing::rows_in_tables;
using testing::TestVolume;

// Beside the volume's own: nothing but the catalog is shared.
class PlacesOf : public ::testing::Test {
 protected:
  std::string path(InodeNumber directory) {
    const auto kept = must(places_.of(directory));
    const auto fresh = must(find_place(volume_.catalog(), directory));
    EXPECT_EQ(kept == nullptr, fresh == nullptr);
    if (kept == nullptr || fresh == nullptr) return "none";
    EXPECT_EQ(kept->path, fresh->path);
    EXPECT_EQ(kept->told, fresh->told);
    return kept->path;
  }
  std::optional<Runtime> told(InodeNumber directory) {
    return must(places_.of(directory))->told;
  }
  void tell(InodeNumber directory, std::string_view runtime) {
    must(volume_->set_xattr(directory, kToldXattr, runtime, 0, kRoot));
    places_.changed();
  }

  TestVolume volume_;
  InodeTable table_{volume_.catalog(), [](const Inode&) {}};
  Tenants tenants_;
  Places places_{volume_.catalog(), table_, tenants_};
};

TEST_F(PlacesOf, ArePathsBelowTheRoot) {
  const InodeNumber a = volume_.mkdir(kRootInode, "a");
  const InodeNumber b = volume_.mkdir(a, "b");
  EXPECT_EQ("", path(kRootInode));
  EXPECT_EQ("a/b", path(b));
  EXPECT_EQ("a", path(a));
  EXPECT_EQ("a/b/name", path_in(*must(places_.of(b)), "name"));
  EXPECT_EQ("name", path_in(*must(places_.of(kRootInode)), "name"));
}

TEST_F(PlacesOf, AreKeptUntilSomethingChanges) {
  const InodeNumber a = volume_.mkdir(kRootInode, "a");
  const InodePtr held = must(table_.get(a));
  const auto first = must(places_.of(a));
  EXPECT_EQ(first, must(places_.of(a)));
  places_.changed();
  EXPECT_NE(first, must(places_.of(a)));
}

TEST_F(PlacesOf, FollowRenamesOfDirectoriesAbove) {
  const InodeNumber a = volume_.mkdir(kRootInode, "a");
  const InodeNumber b = volume_.mkdir(a, "b");
  const InodeNumber c = volume_.mkdir(b, "c");
  EXPECT_EQ("a/b/c", path(c));
  must(volume_->rename(kRootInode, "a", kRootInode, "x", 0, kRoot));
  places_.changed();
  EXPECT_EQ("x/b/c", path(c));
  must(volume_->rename(a, "b", kRootInode, "y", 0, kRoot));
  places_.changed();
  EXPECT_EQ("y/c", path(c));
}

TEST_F(PlacesOf, AreToldByTheNearestDirectory) {
  const InodeNumber a = volume_.mkdir(kRootInode, "a");
  const InodeNumber b = volume_.mkdir(a, "b");
  const InodeNumber c = volume_.mkdir(b, "c");
  EXPECT_EQ(std::nullopt, told(c));
  tell(a, "vllm");
  EXPECT_EQ(Runtime::kVllm, told(c));
  tell(b, "none");
  EXPECT_EQ(Runtime::kNone, told(c));
  EXPECT_EQ(Runtime::kVllm, told(a));
  must(volume_->remove_xattr(b, kToldXattr, kRoot));
  places_.changed();
  EXPECT_EQ(Runtime::kVllm, told(c));
  tell(kRootInode, "aibrix");
  EXPECT_EQ(Runtime::kVllm, told(c));
  must(volume_->remove_xattr(a, kToldXattr, kRoot));
  places_.changed();
  EXPECT_EQ(Runtime::kAibrix, told(c));
}

TEST_F(PlacesOf, AreNoneOfADirectoryThatIsRemoved) {
  const InodeNumber a = volume_.mkdir(kRootInode, "a");
  const InodeNumber b = volume_.mkdir(a, "b");
  must(volume_->rmdir(a, "b"));
  places_.changed();
  const auto kept = places_.of(b);
  EXPECT_TRUE(!kept.ok() || *kept == nullptr);
  const auto fresh = find_place(volume_.catalog(), b);
  EXPECT_TRUE(!fresh.ok() || *fresh == nullptr);
  // Who still stands in it.
  EXPECT_ERROR(ENOENT, volume_->create(b, lmcache_name(1), 0644, O_RDWR, kRoot));
  EXPECT_ERROR(ENOENT, volume_->lookup(b, lmcache_name(1), kRoot));
}

TEST_F(PlacesOf, AreNoneBelowTheLongestPath) {
  const std::string name(255, 'd');
  InodeNumber at = kRootInode;
  std::string expected;
  for (int depth = 0; depth < 16; ++depth) {
    at = volume_.mkdir(at, name);
    expected += (depth > 0 ? "/" : "") + name;
  }
  EXPECT_EQ(expected, path(at));  // 4,095 bytes
  const InodeNumber below = volume_.mkdir(at, "x");
  EXPECT_EQ("none", path(below));
  EXPECT_EQ("none", path(volume_.mkdir(below, "y")));
  // A block's name there is a name like any other.
  const InodeNumber file = volume_.store_file(below, lmcache_name(1), "deep");
  EXPECT_EQ("deep", must(volume_.read(file)));
  EXPECT_TRUE(rows_in_tables(volume_.catalog()).blocks.empty());
  must(volume_->unlink(below, lmcache_name(1)));
}

}  // namespace
}  // namespace kvcachefs
