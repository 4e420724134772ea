// Tenants of a volume: who is charged for a file, whatever happens to it, and who goes first.
#include "fs/known/tenants.h"

#include <gtest/gtest.h>

#include <string>

#include "fs/known/file_policy.h"
#include "tests/fakes/promise.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs::testing {
namespace {

TestVolumeOptions roomy(std::uint64_t budget = 64 * kMiB) {
  TestVolumeOptions options;
  options.volume.budget.lease = std::chrono::nanoseconds{1};
  options.volume.budget.devices = {{.size = budget, .min_free = {.bytes = 4096, .percent = 0}}};
  return options;
}

class TenantsOf : public ::testing::Test {
 protected:
  static constexpr std::size_t kFile = 128 * kKiB;
  static inline const std::string kBytes = std::string(kFile, 't');

  explicit TenantsOf(const TestVolumeOptions& options = roomy()) : volume_(options) {}
  void SetUp() override {
    volume_.start();
    ASSERT_TRUE(TestVolume::wait_for([&] { return volume_->room_on(0).usage.complete; }));
  }
  InodeNumber directory(InodeNumber parent, const std::string& name) {
    return must(volume_->make_node(parent, name, S_IFDIR | 0755, 0, TestVolume::kRoot)).inode;
  }
  void tell(InodeNumber inode, std::string_view xattr, std::string_view value) {
    must(volume_->set_xattr(inode, xattr, value, 0, TestVolume::kRoot));
  }
  InodeNumber store(InodeNumber parent, const std::string& name) {
    const InodeNumber inode = volume_.store_file(parent, name, kBytes);
    volume_->forget(inode, 1);
    return inode;
  }
  std::uint64_t used(const std::string& path) {
    for (const TenantReport& tenant : volume_->tenants())
      if (tenant.path == path) return tenant.use.all();
    return UINT64_MAX;
  }
  // Nothing is measured twice, or not at all, once it is sealed and the walk is through.
  bool comes_to(const std::string& path, std::uint64_t files) {
    const bool came = TestVolume::wait_for([&] { return used(path) == files * kFile; });
    if (!came) ADD_FAILURE() << path << ": " << used(path) / kFile << " files";
    return came;
  }

  TestVolume volume_;
};

TEST_F(TenantsOf, AreChargedFromTheMakingOn) {
  const InodeNumber a = directory(kRootInode, "a");
  tell(a, kShareXattr, "25%");
  store(a, "1");
  EXPECT_EQ(kFile, used("a"));
  store(kRootInode, "nobodys");
  store(directory(a, "below"), "2");
  comes_to("a", 2);
  must(volume_->unlink(a, "1"));
  comes_to("a", 1);
}

TEST_F(TenantsOf, AreToldLaterOfWhatIsThere) {
  const InodeNumber a = directory(kRootInode, "a");
  store(a, "1");
  store(a, "2");
  tell(a, kQuotaXattr, "10MiB");
  comes_to("a", 2);
  must(volume_->remove_xattr(a, kQuotaXattr, TestVolume::kRoot));
  EXPECT_TRUE(volume_->tenants().empty());
  tell(a, kShareXattr, "1%");
  comes_to("a", 2);
}

TEST_F(TenantsOf, FollowRenamesOfFilesAndDirectories) {
  const InodeNumber a = directory(kRootInode, "a");
  const InodeNumber b = directory(kRootInode, "b");
  tell(a, kShareXattr, "25%");
  tell(b, kShareXattr, "25%");
  store(a, "1");
  const InodeNumber below = directory(a, "below");
  store(below, "2");
  store(below, "3");
  comes_to("a", 3);
  must(volume_->rename(a, "1", b, "1", 0, TestVolume::kRoot));
  comes_to("b", 1);
  must(volume_->rename(a, "below", b, "below", 0, TestVolume::kRoot));
  comes_to("b", 3);
  comes_to("a", 0);
  // The nearest that was told.
  tell(below, kShareXattr, "5%");
  comes_to("b/below", 2);
  comes_to("b", 1);
}

TEST_F(TenantsOf, AreDirectoriesWithASize) {
  const InodeNumber a = directory(kRootInode, "a");
  const InodeNumber file = store(kRootInode, "file");
  EXPECT_ERROR(ENOTDIR, volume_->set_xattr(file, kShareXattr, "1%", 0, TestVolume::kRoot));
  for (const char* bad : {"", "0", "0%", "101%", "1kB", "-1GiB", "much"}) {
    EXPECT_ERROR(EINVAL, volume_->set_xattr(a, kShareXattr, bad, 0, TestVolume::kRoot)) << bad;
    EXPECT_ERROR(EINVAL, volume_->set_xattr(a, kQuotaXattr, bad, 0, TestVolume::kRoot)) << bad;
  }
  EXPECT_ERROR(EINVAL, volume_->set_xattr(a, kQuotaXattr, "10%", 0, TestVolume::kRoot));
  tell(a, kShareXattr, "1%");
  EXPECT_EQ("1%", must(volume_->get_xattr(a, kShareXattr)));
}

TEST_F(TenantsOf, AreAsManyAsCanBeToldApart) {
  std::vector<InodeNumber> made;
  for (std::size_t i = 0; i < kMostTenants; ++i) {
    made.push_back(directory(kRootInode, std::to_string(i)));
    tell(made.back(), kShareXattr, "1%");
  }
  const InodeNumber late = directory(kRootInode, "late");
  EXPECT_ERROR(ENOSPC, volume_->set_xattr(late, kShareXattr, "1%", 0, TestVolume::kRoot));
  tell(made.front(), kShareXattr, "2%");  // it is one already
  must(volume_->rmdir(kRootInode, "1"));
  tell(late, kShareXattr, "1%");
  const InodeNumber later = directory(kRootInode, "later");
  EXPECT_ERROR(ENOSPC, volume_->set_xattr(later, kShareXattr, "1%", 0, TestVolume::kRoot));
  directory(kRootInode, "plain");
  must(volume_->rename(kRootInode, "plain", kRootInode, "2", 0, TestVolume::kRoot));
  tell(later, kShareXattr, "1%");
}

class TenantsOfASmallVolume : public TenantsOf {
 protected:
  TenantsOfASmallVolume() : TenantsOf(roomy(8 * kMiB)) {}
  int there(const std::string& prefix, int count) {
    int found = 0;
    for (int i = 0; i < count; ++i) {
      if (volume_.resolve(prefix + std::to_string(i)).ok()) ++found;
    }
    return found;
  }
  void has_room() {
    TestVolume::wait_for([&] { return volume_->room_on(0).room.bytes > 0; });
  }
};

TEST_F(TenantsOfASmallVolume, AFloodEvictsItsOwn) {
  PROMISE(8);
  const InodeNumber quiet = directory(kRootInode, "quiet");
  const InodeNumber loud = directory(kRootInode, "loud");
  tell(quiet, kShareXattr, "50%");
  tell(loud, kShareXattr, "50%");
  for (int i = 0; i < 24; ++i) store(quiet, std::to_string(i));  // 3 MiB, the oldest
  for (int i = 0; i < 300; ++i) {
    store(loud, std::to_string(i));
    has_room();
  }
  EXPECT_EQ(24, there("quiet/", 24));
  EXPECT_GT(there("loud/", 300), 8);
}

TEST_F(TenantsOfASmallVolume, WithoutAShareTheRestIsWhatGoes) {
  const InodeNumber quiet = directory(kRootInode, "quiet");
  tell(quiet, kShareXattr, "50%");
  for (int i = 0; i < 24; ++i) store(quiet, std::to_string(i));
  for (int i = 0; i < 300; ++i) {
    store(kRootInode, "f" + std::to_string(i));
    has_room();
  }
  EXPECT_EQ(24, there("quiet/", 24));
  // It may have what nobody else wants, and gives it back.
  for (int i = 24; i < 60; ++i) {
    store(quiet, std::to_string(i));
    has_room();
  }
  for (int i = 0; i < 300; ++i) {
    store(kRootInode, "g" + std::to_string(i));
    has_room();
  }
  EXPECT_TRUE(TestVolume::wait_for([&] { return used("quiet") <= 4 * kMiB; }));
  EXPECT_GT(there("quiet/", 60), 16);
}

TEST_F(TenantsOfASmallVolume, AQuotaHoldsAlthoughThereIsRoom) {
  const InodeNumber a = directory(kRootInode, "a");
  tell(a, kQuotaXattr, "1MiB");
  for (int i = 0; i < 40; ++i) store(a, std::to_string(i));
  store(kRootInode, "0");
  EXPECT_TRUE(TestVolume::wait_for([&] { return used("a") <= kMiB; }));
  EXPECT_GT(there("a/", 40), 2);
  EXPECT_EQ(1, there("", 1));
  EXPECT_GT(volume_->drop_counts()[static_cast<std::size_t>(DropReason::kQuota)].files, 20U);
  EXPECT_EQ(0U, volume_->drop_counts()[static_cast<std::size_t>(DropReason::kRoom)].files);
}

TEST_F(TenantsOfASmallVolume, WhereNothingOfAQuotaCanGoItSaysSo) {
  const InodeNumber a = directory(kRootInode, "a");
  tell(a, kPolicyXattr, "pin");
  tell(a, kQuotaXattr, "1MiB");
  for (int i = 0; i < 8; ++i) store(a, std::to_string(i));  // All of it.
  // And beyond, until that is seen.
  for (int i = 8; i < 10; ++i) {
    const Result<Created> made =
        volume_->create(a, std::to_string(i), 0644, O_RDWR, TestVolume::kRoot);
    if (!made.ok()) break;
    volume_.write(*made->opened.file, kBytes);
    volume_->release(*made->opened.file);
    volume_->forget(made->entry.inode, 1);
  }
  const auto refused = [&] {
    const Result<Created> probe = volume_->create(a, "probe", 0644, O_RDWR, TestVolume::kRoot);
    if (!probe.ok()) return probe.error().code == EDQUOT;
    volume_->release(*probe->opened.file);
    volume_->forget(probe->entry.inode, 1);
    must(volume_->unlink(a, "probe"));
    return false;
  };
  EXPECT_TRUE(TestVolume::wait_for(refused));
  store(kRootInode, "others");
  // Also while others' files go all the time.
  for (int i = 0; i < 100; ++i) {
    store(kRootInode, "f" + std::to_string(i));
    has_room();
  }
  EXPECT_GT(volume_->drop_counts()[static_cast<std::size_t>(DropReason::kRoom)].files, 20U);
  EXPECT_TRUE(TestVolume::wait_for(refused));
  for (int i = 0; i < 5; ++i) must(volume_->unlink(a, std::to_string(i)));
  EXPECT_TRUE(TestVolume::wait_for([&] { return !refused(); }));
}

}  // namespace
}  // namespace kvcachefs::testing
