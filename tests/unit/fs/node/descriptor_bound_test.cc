#include "fs/node/descriptor_bound.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

constexpr std::uint64_t kLimit = 4000;
constexpr uid_t kFirst = 1000;

std::uint64_t take_all(DescriptorBound& bound, uid_t user) {
  std::uint64_t taken = 0;
  while (bound.take(user)) ++taken;
  return taken;
}

TEST(DescriptorBound, AllUsersHaveAQuarterAndEachHisPart) {
  DescriptorBound bound(kLimit);
  EXPECT_EQ(1000u, take_all(bound, kFirst));
  EXPECT_EQ(500u, take_all(bound, kFirst + 1));
  EXPECT_FALSE(bound.take(kFirst));
  bound.give_back(kFirst + 1);
  EXPECT_TRUE(bound.take(kFirst + 1));
  EXPECT_EQ(1500u, bound.kept());
}

TEST(DescriptorBound, ManyUsersLeaveAQuarterToTheDaemon) {
  DescriptorBound bound(kLimit);
  for (uid_t user = 0; user < 10'000; ++user) take_all(bound, user);
  EXPECT_EQ(kLimit / 4 * 3, bound.kept());
}

TEST(DescriptorBound, OfTheProcess) { EXPECT_GE(DescriptorBound::limit_of_process(), 64u); }

}  // namespace
}  // namespace kvcachefs
