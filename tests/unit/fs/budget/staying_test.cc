// Tenants with too much that nobody can evict: the arithmetic.
#include "fs/budget/staying.h"

#include <gtest/gtest.h>

#include "tests/fakes/promise.h"
#include "tests/fakes/tenants.h"

namespace kvcachefs {
namespace {

constexpr std::uint64_t kAll = 8000 * kMiB;
constexpr std::int64_t kSlack = 1000 * std::int64_t{kMiB};

using testing::with_quota;
using testing::with_share;

// In MiB.
struct UseOfOne {
  TenantSlot slot;
  std::uint64_t kept;
  std::uint64_t live = 0;
  std::uint64_t settling = 0;
};
TenantUses uses_of(std::initializer_list<UseOfOne> all) {
  TenantUses out;
  for (const UseOfOne& use : all)
    out[use.slot] = {.evictable = 5000 * kMiB,
                     .kept = use.kept * kMiB,
                     .live = use.live * kMiB,
                     .settling = use.settling * kMiB};
  return out;
}
std::int64_t mib(std::int64_t count) { return count * static_cast<std::int64_t>(kMiB); }

TEST(Staying, NobodyIsBoundedWhereNobodyHasAnything) {
  for (const Staying& staying :
       {Staying(), Staying({}, uses_of({{.slot = 0, .kept = 9000}}), kAll)}) {
    EXPECT_EQ(INT64_MAX, staying.left(0).of_quota);
    EXPECT_EQ(INT64_MAX, staying.left(0).of_share);
    EXPECT_EQ(0U, staying.beyond_quota() | staying.beyond_share() | staying.near() |
                      staying.far_beyond_quota() | staying.far_beyond_share());
  }
}

TEST(Staying, AQuotaBoundsWhatCannotGo) {
  PROMISE(8);
  const std::vector<Tenant> tenants = {with_quota(1, 4000 * kMiB)};
  const auto of = [&](const UseOfOne& use) { return Staying(tenants, uses_of({use}), kAll); };
  // Bytes that can be evicted, now or in a moment, are not counted.
  EXPECT_EQ(mib(3000),
            of({.slot = 1, .kept = 900, .live = 600, .settling = 500}).left(1).of_quota);
  EXPECT_EQ(0U, of({.slot = 1, .kept = 3000}).near());
  EXPECT_EQ(mask_of(1), of({.slot = 1, .kept = 3501}).near());
  EXPECT_EQ(0U, of({.slot = 1, .kept = 4000}).beyond_quota());
  EXPECT_EQ(mask_of(1), of({.slot = 1, .kept = 3000, .live = 1001}).beyond_quota());
  EXPECT_EQ(0U, of({.slot = 1, .kept = 4500}).far_beyond_quota());
  EXPECT_EQ(mask_of(1), of({.slot = 1, .kept = 4501}).far_beyond_quota());
  // It bounds nobody else, and no share.
  EXPECT_EQ(INT64_MAX, of({.slot = 1, .kept = 4501}).left(0).of_quota);
  EXPECT_EQ(0U, of({.slot = 1, .kept = 4501}).beyond_share());
}

TEST(Staying, ASmallQuotaIsAlwaysNear) {
  const Staying staying({with_quota(1, 64 * kMiB)}, uses_of({{.slot = 1, .kept = 0}}), kAll);
  EXPECT_EQ(mask_of(1), staying.near());
}

TEST(Staying, AShareIsWhatMayStayOfIt) {
  PROMISE(8);
  const std::vector<Tenant> tenants = {with_share(1, 50), with_share(2, 25),
                                       with_quota(3, 7000 * kMiB)};
  const Staying staying(
      tenants,
      uses_of({{.slot = 0, .kept = 900}, {.slot = 1, .kept = 100}, {.slot = 3, .kept = 600}}),
      kAll);
  EXPECT_EQ(mib(3900), staying.left(1).of_share);
  EXPECT_EQ(mib(2000), staying.left(2).of_share);
  // Those without a share have the rest together.
  EXPECT_EQ(mib(500), staying.left(0).of_share);
  EXPECT_EQ(mib(500), staying.left(3).of_share);
  EXPECT_EQ(kSlack, staying.slack());
  EXPECT_EQ(0U, staying.beyond_share());
  const auto with = [&](std::uint64_t live) {
    return Staying(tenants, uses_of({{.slot = 1, .kept = 3000, .live = live}}), kAll);
  };
  // Files that are being written may be an eighth of the budget more.
  EXPECT_EQ(0U, with(2000).beyond_share());
  EXPECT_EQ(mask_of(1), with(2001).beyond_share());
  EXPECT_EQ(0U, with(3000).far_beyond_share());
  EXPECT_EQ(mask_of(1), with(3001).far_beyond_share());
  EXPECT_EQ(mask_of(1), with(1501).near());
  EXPECT_EQ(0U, with(1500).near());
}

TEST(Staying, AFileThatStaysTakesAnInodeOfTheShares) {
  PROMISE(8);
  const std::vector<Tenant> tenants = {with_share(1, 50)};
  // 1,000 inodes in all: 8 MiB for each.
  const auto left = [&](std::uint64_t kept, std::uint64_t files, std::uint64_t inode_bytes) {
    TenantUses uses = uses_of({{.slot = 0, .kept = kept, .live = 100}});
    uses[0].staying_files = files;
    return Staying(tenants, uses, kAll, inode_bytes).left(0).of_share;
  };
  EXPECT_EQ(mib(3900), left(0, 0, 8 * kMiB));
  EXPECT_EQ(mib(4000 - 8 * 400), left(0, 400, 8 * kMiB));
  // Large ones take no more than their bytes.
  EXPECT_EQ(mib(3900 - 3500), left(3500, 400, 8 * kMiB));
  EXPECT_EQ(mib(3900), left(0, 400, 0));
  // A quota is about bytes alone.
  TenantUses uses = uses_of({{.slot = 2, .kept = 1}});
  uses[2].staying_files = 500;
  EXPECT_EQ(mib(99),
            Staying({with_quota(2, 100 * kMiB)}, uses, kAll, 8 * kMiB).left(2).of_quota);
}

TEST(Staying, SharesOfMoreThanThereIsAreCutDown) {
  const std::vector<Tenant> tenants = {with_share(1, 100), with_share(2, 100)};
  const Staying staying(tenants, uses_of({{.slot = 1, .kept = 100}}), kAll);
  EXPECT_EQ(mib(3900), staying.left(1).of_share);
  EXPECT_EQ(mib(4000), staying.left(2).of_share);
  // Root's own few files, and what has no tenant, have some room all the same.
  EXPECT_EQ(mib(500), staying.left(0).of_share);
}

TEST(Staying, BeforeADiskWasLookedAtNoShareCounts) {
  const Staying staying({with_share(1, 50), with_quota(2, kMiB)},
                        uses_of({{.slot = 2, .kept = 2}}), 0);
  EXPECT_EQ(INT64_MAX, staying.left(0).of_share);
  EXPECT_EQ(-mib(1), staying.left(2).of_quota);
}

}  // namespace
}  // namespace kvcachefs
