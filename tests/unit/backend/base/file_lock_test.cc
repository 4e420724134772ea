#include "backend/base/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <thread>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using testing::TempDir;
using namespace std::chrono_literals;

TEST(FileLock, HoldsOurPidAndIsPrivate) {
  const TempDir dir;
  const Result<FileLock> lock = FileLock::acquire(dir / "lock");
  ASSERT_OK(lock);
  EXPECT_EQ(std::to_string(::getpid()) + "\n", testing::read_file(dir / "lock"));
  EXPECT_EQ(::getpid(), FileLock::read_pid(dir / "lock"));
  EXPECT_EQ(::getpid(), FileLock::holder(dir / "lock"));
  struct stat status;
  ASSERT_EQ(0, ::stat((dir / "lock").c_str(), &status));
  EXPECT_EQ(0600u, status.st_mode & 07777);
}

TEST(FileLock, NamesTheProcessThatHoldsIt) {
  const TempDir dir;
  const Result<FileLock> first = FileLock::acquire(dir / "lock");
  ASSERT_OK(first);
  pid_t holder = 0;
  EXPECT_ERROR(EBUSY, FileLock::acquire(dir / "lock", &holder, 20ms));
  EXPECT_EQ(::getpid(), holder);
}

TEST(FileLock, IsFreeAfterItsHolder) {
  const TempDir dir;
  testing::write_file(dir / "lock", "99999999999999 and much more than a pid\n");
  EXPECT_EQ(0, FileLock::read_pid(dir / "lock"));
  { ASSERT_OK(FileLock::acquire(dir / "lock")); }
  EXPECT_EQ(0, FileLock::holder(dir / "lock"));
  EXPECT_EQ(::getpid(), FileLock::read_pid(dir / "lock"));
  ASSERT_OK(FileLock::acquire(dir / "lock"));
}

TEST(FileLock, WaitsForAHolderThatIsEnding) {
  const TempDir dir;
  std::optional<Result<FileLock>> first = FileLock::acquire(dir / "lock");
  ASSERT_OK(*first);
  std::thread ending([&first] { first.reset(); });
  EXPECT_OK(FileLock::acquire(dir / "lock", nullptr, 10s));
  ending.join();
}

TEST(FileLock, EndsWithAKilledProcess) {
  const TempDir dir;
  int ready[2];
  ASSERT_EQ(0, ::pipe2(ready, O_CLOEXEC));
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<FileLock> lock = FileLock::acquire(dir / "lock");
    const char answer = lock.ok() ? 'y' : 'n';
    if (::write(ready[1], &answer, 1) == 1) ::pause();
    ::_exit(1);
  }
  char answer = 0;
  ASSERT_EQ(1, ::read(ready[0], &answer, 1));
  EXPECT_EQ('y', answer);
  pid_t holder = 0;
  EXPECT_ERROR(EBUSY, FileLock::acquire(dir / "lock", &holder, 0ms));
  EXPECT_EQ(child, holder);
  ::kill(child, SIGKILL);
  EXPECT_OK(FileLock::acquire(dir / "lock", nullptr, 10s));
  ASSERT_EQ(child, ::waitpid(child, nullptr, 0));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(FileLock, AChildOfForkWritesItsOwnPid) {
  const TempDir dir;
  Result<FileLock> lock = FileLock::acquire(dir / "lock");
  ASSERT_OK(lock);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(lock->write_pid().ok() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  EXPECT_EQ(child, FileLock::read_pid(dir / "lock"));
}

TEST(FileLock, SaysWhyAFileCannotBeLocked) {
  const TempDir dir;
  EXPECT_ERROR(ENOENT, FileLock::acquire(dir / "no/lock"));
  EXPECT_ERROR(EISDIR, FileLock::acquire(dir.path()));
  ASSERT_EQ(0, ::symlink("elsewhere", (dir / "link").c_str()));
  EXPECT_ERROR(ELOOP, FileLock::acquire(dir / "link"));
}

TEST(FileLock, FindsTheHolderOfAnyLockedFile) {
  const TempDir dir;
  const Result<FileLock> lock = FileLock::acquire(dir / "lock");
  ASSERT_OK(lock);
  const UniqueFd other(::open((dir / "lock").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(::getpid(), lock_holder(other.get()));
  const UniqueFd unlocked(::open(dir.path().c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(0, lock_holder(unlocked.get()));
}

}  // namespace
}  // namespace kvcachefs
