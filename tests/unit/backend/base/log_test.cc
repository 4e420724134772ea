#include "backend/base/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include "backend/base/clock.h"
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

// A name can be any bytes: it makes no line, no key and no colour of its own.
TEST_F(Log, NamesStayInTheirPlace) {
  ASSERT_OK(log_open({.file = dir_ / "log"}));
  const std::string name = "a\n2026-01-01 1 error forged\x1b[31m\" errno=\"5\\";
  const char* const text = "b\rc";
  log_warn("not read path=\"{}\" step=\"{}\" of=\"{}\" errno={}", name, std::string_view(name),
           text, 5);
  log_flush();
  const std::string log = testing::read_file(dir_ / "log");
  EXPECT_EQ(1, std::count(log.begin(), log.end(), '\n'));
  const std::string shown = R"(a\x0a2026-01-01 1 error forged\x1b[31m\x22 errno=\x225\x5c)";
  EXPECT_NE(std::string::npos, log.find(R"(not read path=")" + shown + R"(" step=")" + shown +
                                        R"(" of="b\x0dc" errno=5)"))
      << log;
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

// Logs until `path` is there.
bool log_until_there(const std::string& path) {
  const std::int64_t end = monotonic_now() + 20 * kNanosPerSecond;
  while (monotonic_now() < end) {
    log_info("again");
    if (std::filesystem::exists(path)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_F(Log, GoesOnInANewFileWhenTheOldOneIsRenamedOrRemoved) {
  const std::string path = dir_ / "log";
  ASSERT_OK(log_open({.file = path}));
  log_info("first");
  std::filesystem::rename(path, path + ".1");
  ASSERT_TRUE(log_until_there(path));
  EXPECT_NE(std::string::npos, testing::read_file(path + ".1").find("first"));
  EXPECT_EQ(std::string::npos, testing::read_file(path).find("first"));
  std::filesystem::remove(path);
  ASSERT_TRUE(log_until_there(path));
  // Another one under its name.
  testing::write_file(path + ".new", "other\n");
  std::filesystem::rename(path + ".new", path);
  const std::int64_t end = monotonic_now() + 20 * kNanosPerSecond;
  while (monotonic_now() < end && testing::read_file(path).find("again") == std::string::npos) {
    log_info("again");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(testing::read_file(path).starts_with("other\n"));
  EXPECT_NE(std::string::npos, testing::read_file(path).find("again"));
}

TEST_F(Log, IsNotForEverybodyToRead) {
  const std::string path = dir_ / "log";
  const auto mode = [&] {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  };
  const mode_t before = ::umask(0);
  ASSERT_OK(log_open({.file = path}));
  EXPECT_EQ(0640u, mode());
  log_info("first");
  std::filesystem::rename(path, path + ".1");
  ASSERT_TRUE(log_until_there(path));
  EXPECT_EQ(0640u, mode());
  ::umask(before);
}

TEST_F(Log, StaysInTheOldFileWhereNoNewOneCanBeMade) {
  const std::string path = dir_ / "log";
  ASSERT_OK(log_open({.file = path}));
  std::filesystem::rename(path, path + ".1");
  std::filesystem::create_directory(path);
  const std::int64_t looked = monotonic_now() + 2 * kNanosPerSecond;
  while (monotonic_now() < looked) {
    log_info("still");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  log_info("last");
  EXPECT_NE(std::string::npos, testing::read_file(path + ".1").find("last"));
}

TEST_F(Log, SaysWhyAFileCannotBeOpened) {
  EXPECT_ERROR(ENOENT, log_open({.file = dir_ / "no/log"}));
  EXPECT_ERROR(EISDIR, log_open({.file = dir_.path()}));
}

}  // namespace
}  // namespace kvcachefs
