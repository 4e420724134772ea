#include "metadata/free_space.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "backend/base/clock.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using testing::TempMount;

// The disk is asked at intervals: what `admit` says becomes `code` within a few of them.
int admit_until(FreeSpace& space, bool frees, int code) {
  const std::int64_t deadline = monotonic_now() + 10 * kNanosPerSecond;
  int now = 0;
  do {
    now = testing::code_of(space.admit(frees));
  } while (now != code && monotonic_now() < deadline);
  return now;
}

void fill(const TempMount& mount, std::uint64_t leave_bytes) {
  const std::uint64_t available = std::filesystem::space(mount.path()).available;
  ASSERT_GT(available, leave_bytes);
  testing::write_file(mount / "ballast", std::string(available - leave_bytes, 'b'));
}

TEST(FreeSpace, AdmitsEverythingWhileThereIsRoom) {
  const TempMount mount("size=256m");
  FreeSpace space;
  ASSERT_OK(space.open(mount.path()));
  EXPECT_OK(space.admit(false));
  EXPECT_OK(space.admit(true));
  EXPECT_TRUE(std::filesystem::exists(mount / "reserve"));
}

TEST(FreeSpace, OnAFullDiskOnlyWhatFreesIsAdmitted) {
  const TempMount mount("size=256m");
  FreeSpace space;
  ASSERT_OK(space.open(mount.path()));
  ASSERT_OK(space.admit(false));
  ASSERT_NO_FATAL_FAILURE(fill(mount, 1 << 20));
  EXPECT_EQ(ENOSPC, admit_until(space, false, ENOSPC));
  EXPECT_TRUE(std::filesystem::exists(mount / "reserve")) << "kept for removals";
  EXPECT_OK(space.admit(true));
  EXPECT_FALSE(std::filesystem::exists(mount / "reserve")) << "its room is the database's now";
}

TEST(FreeSpace, AdmitsEverythingAgainOnceThereIsRoom) {
  const TempMount mount("size=256m");
  FreeSpace space;
  ASSERT_OK(space.open(mount.path()));
  ASSERT_OK(space.admit(false));
  ASSERT_NO_FATAL_FAILURE(fill(mount, 1 << 20));
  ASSERT_EQ(ENOSPC, admit_until(space, false, ENOSPC));
  ASSERT_OK(space.admit(true));
  std::filesystem::remove(mount / "ballast");
  EXPECT_EQ(0, admit_until(space, false, 0));
  EXPECT_TRUE(std::filesystem::exists(mount / "reserve"));
}

TEST(FreeSpace, KnowsWhatTheFilesOccupyWithoutTheReserve) {
  const TempMount mount("size=256m");
  FreeSpace space;
  ASSERT_OK(space.open(mount.path()));
  ASSERT_OK(space.admit(false));
  ASSERT_TRUE(std::filesystem::exists(mount / "reserve"));
  EXPECT_EQ(0u, space.used());
  testing::write_file(mount / "000004.log", std::string(100'000, 'x'));
  EXPECT_EQ(100'000u, space.used());
  EXPECT_EQ(100'000u, space.used()) << "a listing does not go on where the last one ended";
}

TEST(FreeSpace, NeedsItsDirectory) {
  FreeSpace space;
  EXPECT_ERROR(ENOENT, space.open("/var/tmp/kvcachefs-test-missing/db"));
}

}  // namespace
}  // namespace kvcachefs
