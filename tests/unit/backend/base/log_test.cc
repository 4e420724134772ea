#include "backend/base/log.h"

#include <gtest/gtest.h>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

// Every test leaves the log where the other tests expect it.
class Log : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_OK(log_open({})); }
  testing::TempDir dir_;
};

TEST_F(Log, WritesOneLineAnEventFromItsLevelUp) {
  ASSERT_OK(log_open({.file = dir_ / "log", .level = LogLevel::kInfo}));
  log_debug("hidden n={}", 1);
  log_info("started pid={}", 42);
  log_error("it is braces {}", "{} %s");
  log_flush();
  const std::string text = testing::read_file(dir_ / "log");
  EXPECT_EQ(std::string::npos, text.find("hidden"));
  EXPECT_NE(std::string::npos, text.find(" info started pid=42\n"));
  EXPECT_NE(std::string::npos, text.find(" error it is braces {} %s\n"));
}

TEST_F(Log, AppendsToAnOlderLog) {
  testing::write_file(dir_ / "log", "older\n");
  ASSERT_OK(log_open({.file = dir_ / "log"}));
  log_info("newer");
  log_flush();
  EXPECT_TRUE(testing::read_file(dir_ / "log").starts_with("older\n"));
}

TEST_F(Log, CanBeSilent) {
  ASSERT_OK(log_open({.file = dir_ / "log", .level = LogLevel::kOff}));
  log_error("nothing");
  log_flush();
  EXPECT_EQ("", testing::read_file(dir_ / "log"));
  EXPECT_FALSE(log_enabled(LogLevel::kOff));
}

TEST_F(Log, SaysWhyAFileCannotBeOpened) {
  EXPECT_ERROR(ENOENT, log_open({.file = dir_ / "no/log"}));
  EXPECT_ERROR(EISDIR, log_open({.file = dir_.path()}));
}

}  // namespace
}  // namespace kvcachefs
