// Who has too much: the arithmetic of shares and quotas.
#include "fs/budget/shares.h"

#include <gtest/gtest.h>

#include "tests/fakes/promise.h"
#include "tests/fakes/tenants.h"

namespace kvcachefs {
namespace {

constexpr std::uint64_t kBudget = 1000 * kMiB;

using testing::with_quota;
using testing::with_share;

TenantUses uses(std::initializer_list<std::pair<TenantSlot, std::uint64_t>> mib) {
  TenantUses out;
  for (const auto& [slot, bytes] : mib) out[slot].evictable = bytes * kMiB;
  return out;
}

TEST(Shares, OfNobodySayNothing) {
  const Shares none;
  EXPECT_EQ(0U, none.beyond_share());
  EXPECT_EQ(0U, none.beyond_quota());
  const Shares only_quota({with_quota(1, 10 * kMiB)}, uses({{0, 900}, {1, 5}}), kBudget,
                          kBudget);
  EXPECT_EQ(0U, only_quota.beyond_share());
}

TEST(Shares, WhoFloodsIsBeyondHisOwn) {
  PROMISE(8);
  const std::vector<Tenant> tenants = {with_share(1, 50), with_share(2, 50)};
  const Shares shares(tenants, uses({{1, 400}, {2, 600}}), kBudget, kBudget);
  EXPECT_EQ(mask_of(2), shares.beyond_share());
}

TEST(Shares, NobodysFilesHaveWhatTheSharesLeave) {
  const std::vector<Tenant> tenants = {with_share(1, 70), with_quota(2, kBudget)};
  // 300 MiB are left for slot 0 and the tenant without a share together.
  const Shares within(tenants, uses({{0, 100}, {1, 700}, {2, 200}}), kBudget, kBudget);
  EXPECT_EQ(0U, within.beyond_share());
  const Shares beyond(tenants, uses({{0, 101}, {1, 650}, {2, 200}}), kBudget, kBudget);
  EXPECT_EQ(kAllTenants & ~mask_of(1), beyond.beyond_share());
}

TEST(Shares, AreCutDownWhenTheyAreMoreThanThereIs) {
  const std::vector<Tenant> tenants = {with_share(1, 100), with_share(2, 100)};
  const Shares shares(tenants, uses({{1, 499}, {2, 501}}), kBudget, kBudget);
  EXPECT_EQ(mask_of(2), shares.beyond_share());
}

TEST(Shares, WhileRoomIsNeededSomebodyHasTooMuch) {
  const std::vector<Tenant> tenants = {with_share(1, 30), with_share(2, 20)};
  const TenantUses all = uses({{0, 500}, {1, 300}, {2, 200}});
  EXPECT_EQ(0U, Shares(tenants, all, kBudget, kBudget).beyond_share());
  // The disk below was filled by somebody else, or headroom is to be made.
  EXPECT_NE(0U, Shares(tenants, all, kBudget, 999 * kMiB).beyond_share());
  EXPECT_NE(0U, Shares(tenants, all, kBudget, 1).beyond_share());
}

TEST(Shares, AreMetByEvictions) {
  const std::vector<Tenant> tenants = {with_share(1, 50), with_quota(2, 10 * kMiB)};
  Shares shares(tenants, uses({{0, 390}, {1, 500}, {2, 111}}), kBudget, kBudget);
  EXPECT_EQ(kAllTenants & ~mask_of(1), shares.beyond_share());
  EXPECT_EQ(mask_of(2), shares.beyond_quota());
  shares.evicted(2, kMiB);  // in one account with nobody's
  EXPECT_EQ(0U, shares.beyond_share());
  EXPECT_EQ(mask_of(2), shares.beyond_quota());
  shares.evicted(2, 100 * kMiB);
  EXPECT_EQ(0U, shares.beyond_quota());
}

TEST(Shares, SizesAreTakenAsTheyAre) {
  Tenant tenant = with_share(1, 0);
  tenant.terms.share = SizeLimit{.bytes = 200 * kMiB, .percent = 0};
  EXPECT_EQ(mask_of(1),
            Shares({tenant}, uses({{0, 799}, {1, 201}}), kBudget, kBudget).beyond_share());
}

}  // namespace
}  // namespace kvcachefs
