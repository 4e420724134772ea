// Who is told to look up once more, on a given clock.
#include "fs/pool/looked_again.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

constexpr std::int64_t kStart = 1'000'000'000;

TEST(LookedAgain, IsSaidOnceWhileItHolds) {
  LookedAgain said;
  EXPECT_TRUE(said.is_first(1, kStart));
  EXPECT_FALSE(said.is_first(1, kStart));
  EXPECT_TRUE(said.is_first(2, kStart + 1)) << "another path";
  EXPECT_FALSE(said.is_first(1, kStart + LookedAgain::kFor - 1));
}

TEST(LookedAgain, IsSaidAnewAfterwards) {
  LookedAgain said;
  EXPECT_TRUE(said.is_first(1, kStart));
  EXPECT_TRUE(said.is_first(1, kStart + LookedAgain::kFor));
  EXPECT_FALSE(said.is_first(1, kStart + LookedAgain::kFor + 1))
      << "counted from the last time";
}

TEST(LookedAgain, IsSaidOfSoManyAtMost) {
  LookedAgain said;
  for (std::uint64_t path = 0; path < LookedAgain::kMost; ++path) {
    ASSERT_TRUE(said.is_first(path, kStart));
  }
  EXPECT_FALSE(said.is_first(LookedAgain::kMost, kStart));
  EXPECT_TRUE(said.is_first(LookedAgain::kMost, kStart + LookedAgain::kFor));
}

}  // namespace
}  // namespace kvcachefs
