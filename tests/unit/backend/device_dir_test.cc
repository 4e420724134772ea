// What a device directory does beyond the contract of tiers (tests/contract/tier_test.cc): its
// superblock, its lock, what it refuses, and how it says so.
#include "backend/device_dir.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "backend/superblock.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using testing::TempDir;
using testing::TempMount;

class DeviceDirTest : public ::testing::Test {
 protected:
  DeviceDirTest() : catalog_(random_uuid()) {}

  Result<std::unique_ptr<DeviceDir>> open(const std::string& path, bool create = true) {
    return DeviceDir::open({.path = path, .catalog = catalog_}, create, &problem_);
  }
  // The problem names the path and says what to do.
  void expect_explained(const std::string& path) {
    EXPECT_NE(std::string::npos, problem_.text.find(path)) << problem_.text;
    EXPECT_GT(problem_.text.size(), path.size() + 10) << problem_.text;
  }

  const Uuid catalog_;
  const TempDir dir_;
  OpenProblem problem_;
};

TEST_F(DeviceDirTest, IsMadeCompleteAndPrivate) {
  const auto device = open(dir_.path());
  ASSERT_OK(device);
  int subdirectories = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "objects")) {
    EXPECT_TRUE(entry.is_directory());
    EXPECT_EQ(std::filesystem::perms::owner_all, entry.status().permissions());
    ++subdirectories;
  }
  EXPECT_EQ(256, subdirectories);
  EXPECT_TRUE(std::filesystem::is_directory(dir_ / "quarantine"));
  const Result<Superblock> superblock =
      decode_superblock(testing::read_file(dir_ / "kvcachefs-device"));
  ASSERT_OK(superblock);
  EXPECT_EQ(catalog_, superblock->catalog);
  EXPECT_EQ((*device)->info().uuid, superblock->device);
  EXPECT_EQ("nvme", (*device)->info().kind);
  EXPECT_EQ(dir_.path(), (*device)->info().path);
  EXPECT_FALSE(
      std::filesystem::exists(dir_ / ("kvcachefs-device." + format_uuid(superblock->device))));
}

TEST_F(DeviceDirTest, KeepsItsUuidAndItsObjects) {
  Uuid uuid;
  {
    const auto device = open(dir_.path());
    ASSERT_OK(device);
    uuid = (*device)->info().uuid;
    ASSERT_OK((*device)->create(77));
  }
  const auto again = open(dir_.path(), false);
  ASSERT_OK(again);
  EXPECT_EQ(uuid, (*again)->info().uuid);
  EXPECT_OK((*again)->status(77));
}

TEST_F(DeviceDirTest, PlacesAnObjectByItsId) {
  const auto device = open(dir_.path());
  ASSERT_OK(device);
  ASSERT_OK((*device)->create(0x0123456789abcdef));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "objects/bc/0123456789abcdef"));
  ASSERT_OK((*device)->quarantine(0x0123456789abcdef));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "quarantine/0123456789abcdef"));
}

TEST_F(DeviceDirTest, FilesAreOursWhateverTheUmask) {
  const mode_t before = ::umask(0777);
  const auto device = open(dir_.path());
  const bool created = device.ok() && (*device)->create(5).ok();
  ::umask(before);
  ASSERT_OK(device);
  ASSERT_TRUE(created);
  const Result<struct stat> status = (*device)->status(5);
  ASSERT_OK(status);
  EXPECT_EQ(0600u, status->st_mode & 07777);
  struct stat objects;
  ASSERT_EQ(0, ::stat((dir_ / "objects/00").c_str(), &objects));
  EXPECT_EQ(0700u, objects.st_mode & 07777);
}

TEST_F(DeviceDirTest, RefusesASecondUser) {
  const auto device = open(dir_.path());
  ASSERT_OK(device);
  EXPECT_ERROR(EBUSY, open(dir_.path()));
  EXPECT_EQ(::getpid(), problem_.holder);
  EXPECT_NE(std::string::npos, problem_.text.find(std::to_string(::getpid()))) << problem_.text;
}

TEST_F(DeviceDirTest, RefusesAMissingDirectoryOrDevice) {
  EXPECT_ERROR(ENOENT, open(dir_ / "missing"));
  expect_explained(dir_ / "missing");
  EXPECT_ERROR(ENOENT, open(dir_.path(), false));
  expect_explained(dir_.path());
}

TEST_F(DeviceDirTest, RefusesAFile) {
  testing::write_file(dir_ / "file", "");
  EXPECT_ERROR(ENOTDIR, open(dir_ / "file"));
  expect_explained(dir_ / "file");
}

TEST_F(DeviceDirTest, RefusesADirectoryThatOthersMayWrite) {
  for (const mode_t mode : {0770u, 0707u, 0777u}) {
    ASSERT_EQ(0, ::chmod(dir_.path().c_str(), mode));
    EXPECT_ERROR(EPERM, open(dir_.path()));
    expect_explained(dir_.path());
  }
  ASSERT_EQ(0, ::chmod(dir_.path().c_str(), 01777));
  EXPECT_OK(open(dir_.path())) << "sticky: others cannot touch what is ours";
}

TEST_F(DeviceDirTest, RefusesADirectoryOfAnotherUser) {
  ASSERT_EQ(0, ::geteuid()) << "needs root";
  ASSERT_EQ(0, ::chown(dir_.path().c_str(), 65534, 65534));
  EXPECT_ERROR(EPERM, open(dir_.path()));
  expect_explained(dir_.path());
}

TEST_F(DeviceDirTest, RefusesWithoutPermission) {
  ASSERT_EQ(0, ::geteuid()) << "needs root";
  ASSERT_EQ(0, ::seteuid(65534));
  const auto device = open(dir_.path());
  ASSERT_EQ(0, ::seteuid(0));
  EXPECT_ERROR(EACCES, device);
  expect_explained(dir_.path());
}

TEST_F(DeviceDirTest, RefusesTheDeviceOfAnotherCatalog) {
  { ASSERT_OK(open(dir_.path())); }
  EXPECT_ERROR(ESTALE, DeviceDir::open({.path = dir_.path(), .catalog = random_uuid()}, true,
                                       &problem_));
  expect_explained(dir_.path());
}

TEST_F(DeviceDirTest, RefusesObjectsOfSomethingElse) {
  std::filesystem::create_directories(dir_ / "objects/pack");
  testing::write_file(dir_ / "objects/pack/idx", "not ours");
  EXPECT_ERROR(ENOTEMPTY, open(dir_.path()));
  expect_explained(dir_.path());
  EXPECT_EQ("not ours", testing::read_file(dir_ / "objects/pack/idx"));
}

TEST_F(DeviceDirTest, FinishesACreationThatWasCutShort) {
  std::filesystem::create_directories(dir_ / "objects/00");
  std::filesystem::create_directories(dir_ / "objects/a7");
  EXPECT_OK(open(dir_.path()));
}

TEST_F(DeviceDirTest, RefusesADamagedSuperblock) {
  testing::write_file(dir_ / "kvcachefs-device", "kvcachefs device\nformat 1\ngarbage\n");
  EXPECT_ERROR(EBADMSG, open(dir_.path()));
  expect_explained(dir_.path());
  testing::write_file(dir_ / "kvcachefs-device", "");
  EXPECT_ERROR(EBADMSG, open(dir_.path()));
  testing::write_file(dir_ / "kvcachefs-device", std::string(1 << 20, 'x'));
  EXPECT_ERROR(EBADMSG, open(dir_.path()));
}

TEST_F(DeviceDirTest, RefusesANewerFormat) {
  testing::write_file(dir_ / "kvcachefs-device", "kvcachefs device\nformat 99\nwho knows\n");
  EXPECT_ERROR(EPROTONOSUPPORT, open(dir_.path()));
  expect_explained(dir_.path());
}

TEST_F(DeviceDirTest, RefusesSymlinksInsideTheDevice) {
  { ASSERT_OK(open(dir_.path())); }
  const TempDir elsewhere;
  ASSERT_EQ(0, ::rmdir((dir_ / "objects/07").c_str()));
  ASSERT_EQ(0, ::symlink(elsewhere.path().c_str(), (dir_ / "objects/07").c_str()));
  EXPECT_ERROR(ELOOP, open(dir_.path()));
  expect_explained(dir_.path());
}

TEST_F(DeviceDirTest, AnOpenDoesNotLeaveTheDevice) {
  const auto device = open(dir_.path());
  ASSERT_OK(device);
  const TempDir elsewhere;
  testing::write_file(elsewhere / "0000000000007001", "secret");
  ASSERT_EQ(0, ::rmdir((dir_ / "objects/07").c_str()));
  ASSERT_EQ(0, ::symlink(elsewhere.path().c_str(), (dir_ / "objects/07").c_str()));
  EXPECT_ERROR(ELOOP, (*device)->open(0x7001, O_RDONLY));
  EXPECT_ERROR(ELOOP, (*device)->create(0x7002));
  ASSERT_EQ(0, ::symlink((elsewhere / "0000000000007001").c_str(),
                         (dir_ / "objects/08/0000000000008001").c_str()));
  EXPECT_ERROR(ELOOP, (*device)->open(0x8001, O_RDONLY));
  EXPECT_ERROR(EBADMSG, (*device)->status(0x8001));
}

TEST_F(DeviceDirTest, DoesNotWaitAtAFifo) {
  const auto device = open(dir_.path());
  ASSERT_OK(device);
  ASSERT_EQ(0, ::mkfifo((dir_ / "objects/00/0000000000000009").c_str(), 0600));
  EXPECT_OK((*device)->open(9, O_RDONLY));
  EXPECT_ERROR(EBADMSG, (*device)->status(9));
}

TEST_F(DeviceDirTest, MakesALostSubdirectoryAgain) {
  { ASSERT_OK(open(dir_.path())); }
  ASSERT_EQ(0, ::rmdir((dir_ / "objects/42").c_str()));
  const auto device = open(dir_.path());
  ASSERT_OK(device);
  EXPECT_OK((*device)->create(0x42000));
}

TEST_F(DeviceDirTest, ReadOnlyFilesystem) {
  TempMount mount("size=8m");
  {
    const auto device = open(mount.path());
    ASSERT_OK(device);
    ASSERT_OK((*device)->create(1));
    mount.set_read_only(true);
    EXPECT_ERROR(EROFS, (*device)->create(2));
    EXPECT_ERROR(EROFS, (*device)->remove(1));
    EXPECT_ERROR(EROFS, (*device)->quarantine(1));
    EXPECT_OK((*device)->open(1, O_RDONLY));
    mount.set_read_only(false);
  }
  TempMount empty("size=8m");
  empty.set_read_only(true);
  EXPECT_ERROR(EROFS, open(empty.path()));
  expect_explained(empty.path());
}

TEST_F(DeviceDirTest, FullFilesystem) {
  TempMount mount("nr_inodes=300");
  const auto device = open(mount.path());
  ASSERT_OK(device);
  int code = 0;
  for (std::uint64_t id = 1; id < 400 && code == 0; ++id) {
    code = testing::code_of((*device)->create(id));
  }
  EXPECT_EQ(ENOSPC, code);
  TempMount tiny("nr_inodes=20");
  EXPECT_ERROR(ENOSPC, open(tiny.path()));
  expect_explained(tiny.path());
}

TEST_F(DeviceDirTest, AnotherMountHasAnotherIdentity) {
  TempMount first("size=8m");
  TempMount second("size=8m");
  const auto a = open(first.path());
  const auto b = open(second.path());
  ASSERT_OK(a);
  ASSERT_OK(b);
  EXPECT_EQ(*(*a)->mount_identity(), *(*a)->mount_identity());
  EXPECT_NE(*(*a)->mount_identity(), *(*b)->mount_identity());
}

}  // namespace
}  // namespace kvcachefs
