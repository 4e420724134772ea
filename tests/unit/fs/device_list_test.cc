#include "fs/device_list.h"

#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using testing::TempDir;
using testing::write_file;

TEST(DeviceList, IsReadAsItWasWritten) {
  const TempDir dir;
  const std::string odd = dir / "a\nb\\n";
  ASSERT_EQ(0, ::mkdir(odd.c_str(), 0700));
  ASSERT_OK(write_device_list(dir.path(), {dir.path(), odd}));
  const auto paths = read_device_list(dir.path());
  ASSERT_OK(paths);
  EXPECT_EQ((std::vector<std::string>{dir.path(), odd}), *paths);
}

TEST(DeviceList, IsReplacedAsAWhole) {
  const TempDir dir;
  ASSERT_OK(write_device_list(dir.path(), {"/usr", "/etc"}));
  ASSERT_OK(write_device_list(dir.path(), {"/etc"}));
  const auto paths = read_device_list(dir.path());
  ASSERT_OK(paths);
  EXPECT_EQ(std::vector<std::string>{"/etc"}, *paths);
}

TEST(DeviceList, HoldsAbsolutePathsOfRelativeOnes) {
  const TempDir dir;
  ASSERT_OK(write_device_list(dir.path(), {"/usr/../etc"}));
  const auto paths = read_device_list(dir.path());
  ASSERT_OK(paths);
  EXPECT_EQ(std::vector<std::string>{"/etc"}, *paths);
}

TEST(DeviceList, SaysWhenThereIsNone) {
  const TempDir dir;
  EXPECT_ERROR(ENOENT, read_device_list(dir.path()));
  EXPECT_ERROR(ENOENT, write_device_list(dir.path(), {dir / "missing"}));
}

TEST(DeviceList, RefusesWhatIsNoList) {
  const TempDir dir;
  for (const char* text : {"relative\n", "/cut", "/bad\\x\n", "\n"}) {
    write_file(dir / "devices", text);
    EXPECT_ERROR(EBADMSG, read_device_list(dir.path())) << text;
  }
}

}  // namespace
}  // namespace kvcachefs
