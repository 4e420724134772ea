#include "backend/base/random.h"

#include <gtest/gtest.h>

namespace kvcachefs {
namespace {

TEST(Random, UuidsAreOfVersion4AndDiffer) {
  const Uuid first = random_uuid();
  EXPECT_EQ(0x40, first[6] & 0xf0);
  EXPECT_EQ(0x80, first[8] & 0xc0);
  EXPECT_NE(first, random_uuid());
}

TEST(Random, UuidsReadBackAsWritten) {
  const Uuid uuid{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                  0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
  EXPECT_EQ("01234567-89ab-cdef-fedc-ba9876543210", format_uuid(uuid));
  EXPECT_EQ(uuid, parse_uuid(format_uuid(uuid)));
  EXPECT_EQ(uuid, parse_uuid("01234567-89AB-CDEF-FEDC-BA9876543210"));
}

TEST(Random, RefusesWhatIsNoUuid) {
  EXPECT_FALSE(parse_uuid(""));
  EXPECT_FALSE(parse_uuid("01234567-89ab-cdef-fedc-ba987654321"));
  EXPECT_FALSE(parse_uuid("01234567-89ab-cdef-fedc-ba98765432101"));
  EXPECT_FALSE(parse_uuid("0123456789ab-cdef-fedc-ba9876543210-"));
  EXPECT_FALSE(parse_uuid("0123456g-89ab-cdef-fedc-ba9876543210"));
}

}  // namespace
}  // namespace kvcachefs
