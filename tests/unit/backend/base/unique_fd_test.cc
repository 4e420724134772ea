#include "backend/base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <utility>

namespace kvcachefs {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
int open_null() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(UniqueFd, ClosesAtItsEnd) {
  int raw;
  {
    const UniqueFd fd(open_null());
    raw = fd.get();
    EXPECT_TRUE(fd.valid());
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(UniqueFd, HasOneOwnerAfterAMove) {
  UniqueFd first(open_null());
  const int raw = first.get();
  UniqueFd second = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT: what a move leaves is the point
  EXPECT_EQ(raw, second.get());
  second = UniqueFd(open_null());
  EXPECT_TRUE(second.valid());
}

TEST(UniqueFd, GivesUpItsDescriptor) {
  UniqueFd fd(open_null());
  const int raw = fd.release();
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(is_open(raw));
  ::close(raw);
}

}  // namespace
}  // namespace kvcachefs
