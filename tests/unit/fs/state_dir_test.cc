#include "fs/state_dir.h"

#include <unistd.h>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using testing::TempDir;
using testing::write_file;
constexpr auto kCreate = StateDir::IfMissing::kCreate;
constexpr auto kFail = StateDir::IfMissing::kFail;

unsigned mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(0, ::stat(path.c_str(), &status)) << path;
  return status.st_mode & 07777;
}

TEST(StateDir, IsMadeForUsAlone) {
  const TempDir dir;
  std::string problem;
  auto state = StateDir::open(dir / "state", kCreate, problem);
  ASSERT_OK(state) << problem;
  EXPECT_EQ(0700u, mode_of(dir / "state"));
  EXPECT_TRUE(state->is_fresh());
  EXPECT_EQ(::getpid(), FileLock::holder(lock_path_of(dir / "state")));
}

TEST(StateDir, AFailedStartLeavesNothingBehind) {
  const TempDir dir;
  std::string problem;
  {
    const auto state = StateDir::open(dir / "state", kCreate, problem);
    ASSERT_OK(state) << problem;
    std::filesystem::create_directory(state->database_path());
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "state"));
}

TEST(StateDir, AFailedStartLeavesWhatWasThere) {
  const TempDir dir;
  std::string problem;
  std::filesystem::create_directory(dir / "state");
  write_file(dir / "state/devices", "x");
  {
    const auto state = StateDir::open(dir / "state", kCreate, problem);
    ASSERT_OK(state) << problem;
    std::filesystem::create_directory(state->database_path());
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "state/devices"));
  EXPECT_FALSE(std::filesystem::exists(dir / "state/db"));

  std::filesystem::create_directory(dir / "state/db");
  { ASSERT_OK(StateDir::open(dir / "state", kCreate, problem)) << problem; }
  EXPECT_TRUE(std::filesystem::exists(dir / "state/db"));
}

// What was checked is what is used, and what is removed.
TEST(StateDir, WhatTakesItsPlaceIsNotTouched) {
  const TempDir dir;
  std::string problem;
  {
    const auto state = StateDir::open(dir / "state", kCreate, problem);
    ASSERT_OK(state) << problem;
    std::filesystem::rename(dir / "state", dir / "moved");
    std::filesystem::create_directories(dir / "state/db");
    write_file(dir / "state/db/file", "another's");
    std::filesystem::create_directory(state->database_path());
    EXPECT_TRUE(std::filesystem::exists(dir / "moved/db"));
    EXPECT_EQ(dir / "state/db", state->shown_database_path());
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "state/db/file"));
  EXPECT_TRUE(std::filesystem::is_empty(dir / "moved"));
}

TEST(StateDir, AnothersDirectoryStaysAsItIs) {
  const TempDir dir;
  std::string problem;
  std::filesystem::create_directory(dir / "home");
  ASSERT_EQ(0, ::chmod((dir / "home").c_str(), 0755));
  write_file(dir / "home/letters", "x");
  EXPECT_ERROR(ENOTEMPTY, StateDir::open(dir / "home", kCreate, problem));
  EXPECT_NE(std::string::npos, problem.find("letters")) << problem;
  EXPECT_ERROR(ENOENT, StateDir::open(dir / "home", StateDir::IfMissing::kFail, problem));
  EXPECT_EQ(0755u, mode_of(dir / "home"));
  EXPECT_FALSE(std::filesystem::exists(dir / "home/lock"));
}

TEST(StateDir, TheRootOfAFilesystemOfItsOwnWillDo) {
  const TempDir dir;
  std::string problem;
  std::filesystem::create_directories(dir / "state/lost+found");
  EXPECT_OK(StateDir::open(dir / "state", kCreate, problem)) << problem;
}

TEST(StateDir, KeepKeepsIt) {
  const TempDir dir;
  std::string problem;
  {
    auto state = StateDir::open(dir / "state", kCreate, problem);
    ASSERT_OK(state) << problem;
    state->keep();
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "state"));
}

TEST(StateDir, ASecondUserIsRefusedWithThePidOfTheFirst) {
  const TempDir dir;
  std::string problem;
  const auto first = StateDir::open(dir / "state", kCreate, problem);
  ASSERT_OK(first) << problem;
  EXPECT_ERROR(EBUSY, StateDir::open(dir / "state", kCreate, problem));
  EXPECT_NE(std::string::npos,
            problem.find("in use by kvcachefs with pid " + std::to_string(::getpid())))
      << problem;
  EXPECT_TRUE(std::filesystem::exists(dir / "state"));
}

TEST(StateDir, OthersWhoMayWriteAreRefused) {
  const TempDir dir;
  std::string problem;
  std::filesystem::create_directory(dir / "state");
  for (const unsigned mode : {0720u, 0702u, 01777u}) {
    ASSERT_EQ(0, ::chmod((dir / "state").c_str(), mode));
    EXPECT_ERROR(EPERM, StateDir::open(dir / "state", kCreate, problem));
    EXPECT_NE(std::string::npos, problem.find("chmod 0700")) << problem;
  }
  ASSERT_EQ(0, ::chmod((dir / "state").c_str(), 0755));
  EXPECT_OK(StateDir::open(dir / "state", kCreate, problem)) << problem;
  EXPECT_EQ(0700u, mode_of(dir / "state"));
}

TEST(StateDir, AnotherUsersDirectoryIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a directory away";
  const TempDir dir;
  std::string problem;
  std::filesystem::create_directory(dir / "state");
  ASSERT_EQ(0, ::chown((dir / "state").c_str(), 65534, 65534));
  EXPECT_ERROR(EPERM, StateDir::open(dir / "state", kCreate, problem));
  EXPECT_NE(std::string::npos, problem.find("uid 65534")) << problem;
}

TEST(StateDir, WhatIsNoDirectoryIsRefused) {
  const TempDir dir;
  std::string problem;
  write_file(dir / "file", "");
  EXPECT_ERROR(ENOTDIR, StateDir::open(dir / "file", kCreate, problem));
  ASSERT_EQ(0, ::symlink(dir.path().c_str(), (dir / "link").c_str()));
  EXPECT_ERROR(ENOTDIR, StateDir::open(dir / "link", kCreate, problem));
  EXPECT_ERROR(ENOENT, StateDir::open(dir / "no/state", kCreate, problem));
  EXPECT_ERROR(ENOENT, StateDir::open(dir / "absent", kFail, problem));
  EXPECT_FALSE(std::filesystem::exists(dir / "absent"));
}

}  // namespace
}  // namespace kvcachefs
