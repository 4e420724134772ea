#include "backend/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kvcachefs {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return fail(EINVAL, "half: odd");
  return number / 2;
}
Result<void> check_even(int number) {
  TRY(half(number));
  return {};
}
Result<std::string> quarter(int number) {
  const int first = TRY(half(number));
  return std::to_string(TRY(half(first)));
}

TEST(Result, HoldsItsValue) {
  const Result<int> result = half(8);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(4, *result);
}

TEST(Result, HoldsAnErrno) {
  const Result<int> result = half(7);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(EINVAL, result.error().code);
  EXPECT_STREQ("half: odd", result.error().what);
}

TEST(Result, TryPassesTheErrorUpThroughOtherTypes) {
  EXPECT_EQ("2", *quarter(8));
  EXPECT_EQ(EINVAL, quarter(6).error().code);
  EXPECT_TRUE(check_even(2).ok());
  EXPECT_EQ(EINVAL, check_even(3).error().code);
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  const auto use = [&]() -> Result<int> {
    const std::unique_ptr<int> number = TRY(make());
    return *number;
  };
  EXPECT_EQ(5, *use());
}

TEST(Result, TakesTheErrnoOfASystemCall) {
  errno = ENOENT;
  EXPECT_EQ(ENOENT, fail_errno("open").code);
}

}  // namespace
}  // namespace kvcachefs
