// POSIX ACLs as values; the expectations are those of acl(5) and of ext4.
#include "fs/acl/posix_acl.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <initializer_list>

#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

constexpr std::uint32_t kNobody = UINT32_MAX;

std::string value_of(std::initializer_list<AclEntry> entries, std::uint32_t version = 2) {
  std::string value;
  const auto put = [&value](std::uint32_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) value += static_cast<char>(number >> (8 * i) & 0xff);
  };
  put(version, 4);
  for (const AclEntry& entry : entries) {
    put(entry.tag, 2);
    put(entry.perm, 2);
    put(entry.id, 4);
  }
  return value;
}

const std::string kMinimal = value_of({{AclEntry::kUserObj, 6, kNobody},
                                       {AclEntry::kGroupObj, 4, kNobody},
                                       {AclEntry::kOther, 0, kNobody}});
const std::string kExtended = value_of({{AclEntry::kUserObj, 7, kNobody},
                                        {AclEntry::kUser, 6, 1000},
                                        {AclEntry::kGroupObj, 5, kNobody},
                                        {AclEntry::kGroup, 4, 100},
                                        {AclEntry::kMask, 6, kNobody},
                                        {AclEntry::kOther, 1, kNobody}});

TEST(PosixAcl, EncodesWhatItParsed) {
  for (const std::string& value : {kMinimal, kExtended}) {
    const Result<PosixAcl> acl = PosixAcl::parse(value);
    ASSERT_OK(acl);
    EXPECT_FALSE(acl->empty());
    EXPECT_EQ(value, acl->encode());
  }
}

TEST(PosixAcl, AHeaderAloneIsAnEmptyList) {
  const Result<PosixAcl> acl = PosixAcl::parse(value_of({}));
  ASSERT_OK(acl);
  EXPECT_TRUE(acl->empty());
}

TEST(PosixAcl, RefusesWhatIsNoList) {
  EXPECT_ERROR(EINVAL, PosixAcl::parse(""));
  EXPECT_ERROR(EINVAL, PosixAcl::parse("\x02"));
  EXPECT_ERROR(EOPNOTSUPP, PosixAcl::parse(value_of({}, 1)));
  EXPECT_ERROR(EINVAL, PosixAcl::parse(kMinimal + "x"));
  EXPECT_ERROR(EINVAL, PosixAcl::parse(kMinimal.substr(0, kMinimal.size() - 8)));  // no other
  const AclEntry user{AclEntry::kUserObj, 7, kNobody};
  const AclEntry group{AclEntry::kGroupObj, 7, kNobody};
  const AclEntry other{AclEntry::kOther, 7, kNobody};
  const AclEntry mask{AclEntry::kMask, 7, kNobody};
  EXPECT_ERROR(EINVAL, PosixAcl::parse(value_of({group, user, other})));
  EXPECT_ERROR(EINVAL, PosixAcl::parse(value_of({user, user, group, other})));
  EXPECT_ERROR(EINVAL, PosixAcl::parse(value_of({user, group, mask, mask, other})));
  EXPECT_ERROR(EINVAL,
               PosixAcl::parse(value_of({user, {AclEntry::kUser, 7, 5}, group, other})));
  EXPECT_ERROR(
      EINVAL,
      PosixAcl::parse(value_of({user, {AclEntry::kUser, 7, kNobody}, group, mask, other})));
  EXPECT_ERROR(EINVAL,
               PosixAcl::parse(value_of({{AclEntry::kUserObj, 8, kNobody}, group, other})));
  EXPECT_ERROR(EINVAL, PosixAcl::parse(value_of({user, group, other, {64, 7, kNobody}})));
}

TEST(PosixAcl, StandsForModeBits) {
  EXPECT_EQ(0640u, PosixAcl::parse(kMinimal)->mode_bits());
  EXPECT_TRUE(PosixAcl::parse(kMinimal)->equals_mode());
  // The group's bits are those of the mask where there is one.
  EXPECT_EQ(0761u, PosixAcl::parse(kExtended)->mode_bits());
  EXPECT_FALSE(PosixAcl::parse(kExtended)->equals_mode());
}

TEST(PosixAcl, WhoDoesNotHaveItIsToldNoMoreThanItGives) {
  EXPECT_EQ(0640u, PosixAcl::parse(kMinimal)->least_mode());
  const auto least = [](std::uint16_t user, std::uint16_t group, std::uint16_t named_group,
                        std::uint16_t mask, std::uint16_t other) {
    const std::string value = value_of({{AclEntry::kUserObj, 6, kNobody},
                                        {AclEntry::kUser, user, 1000},
                                        {AclEntry::kGroupObj, group, kNobody},
                                        {AclEntry::kGroup, named_group, 100},
                                        {AclEntry::kMask, mask, kNobody},
                                        {AclEntry::kOther, other, kNobody}});
    return PosixAcl::parse(value)->least_mode();
  };
  EXPECT_EQ(0664u, least(6, 6, 6, 7, 4));
  EXPECT_EQ(0600u, least(7, 0, 7, 7, 0));  // the mask is not the group's
  EXPECT_EQ(0640u, least(7, 6, 7, 4, 0));
  EXPECT_EQ(0600u, least(0, 6, 7, 7, 4));  // a user who is kept out may be one of the group
  EXPECT_EQ(0660u, least(7, 6, 0, 7, 6));  // those of a group that is kept out are others
  EXPECT_EQ(0600u, least(7, 6, 7, 0, 6));
}

TEST(PosixAcl, PermitsAsTheKernelDoes) {
  const PosixAcl acl = *PosixAcl::parse(kExtended);
  const auto may = [&](unsigned wanted, uid_t user, std::initializer_list<gid_t> groups) {
    return acl.permits(wanted, user, 500, 50, [&](gid_t group) {
      return std::find(groups.begin(), groups.end(), group) != groups.end();
    });
  };
  EXPECT_TRUE(may(7, 500, {}));      // the mask is not the owner's
  EXPECT_TRUE(may(6, 1000, {}));     // a named user
  EXPECT_FALSE(may(1, 1000, {50}));  // has his entry alone
  EXPECT_TRUE(may(4, 7, {50}));      // 5 of the group, masked with 6
  EXPECT_FALSE(may(1, 7, {50}));
  EXPECT_TRUE(may(4, 7, {100}));
  EXPECT_FALSE(may(2, 7, {50, 100}));  // no entry gives it
  EXPECT_FALSE(may(1, 7, {100}));      // a member does not count as one of the others
  EXPECT_TRUE(may(1, 7, {}));
  EXPECT_FALSE(may(4, 7, {}));
}

TEST(PosixAcl, ChmodSetsTheMaskAndLeavesTheGroup) {
  PosixAcl acl = *PosixAcl::parse(kExtended);
  acl.set_mode_bits(0604);
  EXPECT_EQ(0604u, acl.mode_bits());
  EXPECT_EQ(value_of({{AclEntry::kUserObj, 6, kNobody},
                      {AclEntry::kUser, 6, 1000},
                      {AclEntry::kGroupObj, 5, kNobody},
                      {AclEntry::kGroup, 4, 100},
                      {AclEntry::kMask, 0, kNobody},
                      {AclEntry::kOther, 4, kNobody}}),
            acl.encode());
}

TEST(PosixAcl, InheritanceTakesWhatBothAllow) {
  mode_t mode = S_IFREG | S_ISGID | 0666;
  const PosixAcl made = PosixAcl::parse(kExtended)->inherit(mode);
  EXPECT_EQ(static_cast<mode_t>(S_IFREG | S_ISGID | 0660), mode);
  EXPECT_EQ(0660u, made.mode_bits());
  mode = 0700;
  EXPECT_EQ(0700u, PosixAcl::parse(kExtended)->inherit(mode).mode_bits());
  EXPECT_EQ(0700u, mode);
}

}  // namespace
}  // namespace kvcachefs
