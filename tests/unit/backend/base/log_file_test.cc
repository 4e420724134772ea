// A log file goes on in a new one of its name. tests/mount/cli has the rotation of a real
// mount.
#include "backend/base/log_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

TEST(LogFile, GoesOnInANewFileOfItsName) {
  const testing::TempDir dir;
  LogFile log(dir / "log");
  ASSERT_OK(log.open());
  log.append("one\n");
  std::filesystem::rename(dir / "log", dir / "log.1");
  ASSERT_OK(log.open());
  log.append("two\n");
  EXPECT_EQ("one\n", testing::read_file(dir / "log.1"));
  EXPECT_EQ("two\n", testing::read_file(dir / "log"));
}

TEST(LogFile, TakesNoneThatHasFurtherNamesOrIsALink) {
  const testing::TempDir dir;
  LogFile log(dir / "log");
  ASSERT_OK(log.open());
  std::filesystem::rename(dir / "log", dir / "log.1");
  testing::write_file(dir / "precious", "precious");
  std::filesystem::create_hard_link(dir / "precious", dir / "log");
  EXPECT_ERROR(EMLINK, log.open());
  std::filesystem::remove(dir / "log");
  std::filesystem::create_symlink(dir / "precious", dir / "log");
  EXPECT_ERROR(ELOOP, log.open());
  log.append("still there\n");
  EXPECT_EQ("precious", testing::read_file(dir / "precious"));
  EXPECT_EQ("still there\n", testing::read_file(dir / "log.1"));
}

}  // namespace
}  // namespace kvcachefs
