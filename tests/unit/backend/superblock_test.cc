#include "backend/superblock.h"

#include <gtest/gtest.h>

#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

constexpr const char* kGolden =
    "kvcachefs device\n"
    "format 1\n"
    "device 01234567-89ab-cdef-fedc-ba9876543210\n"
    "catalog 11111111-2222-3333-4444-555555555555\n"
    "crc32c e85f9f73\n";

TEST(Superblock, IsWrittenAsTheFormatSays) {
  const Superblock superblock{.device = *parse_uuid("01234567-89ab-cdef-fedc-ba9876543210"),
                              .catalog = *parse_uuid("11111111-2222-3333-4444-555555555555")};
  EXPECT_EQ(kGolden, encode_superblock(superblock));
}

TEST(Superblock, ReadsBack) {
  const Superblock superblock{.device = random_uuid(), .catalog = random_uuid()};
  const Result<Superblock> read = decode_superblock(encode_superblock(superblock));
  ASSERT_OK(read);
  EXPECT_EQ(superblock.device, read->device);
  EXPECT_EQ(superblock.catalog, read->catalog);
}

TEST(Superblock, RefusesEveryFlippedBitAndEveryLength) {
  const std::string good =
      encode_superblock({.device = random_uuid(), .catalog = random_uuid()});
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const Result<Superblock> read = decode_superblock(bad);
    // A flip in the version's digit reads as another version: refused, too.
    ASSERT_FALSE(read.ok()) << "bit " << bit;
  }
  for (std::size_t length = 0; length < good.size(); ++length) {
    ASSERT_ERROR(EBADMSG, decode_superblock(std::string_view(good).substr(0, length)));
  }
  EXPECT_ERROR(EBADMSG, decode_superblock(good + "\n"));
}

TEST(Superblock, NamesAnotherVersionApartFromDamage) {
  EXPECT_ERROR(EPROTONOSUPPORT, decode_superblock("kvcachefs device\nformat 2\nanything else"));
  EXPECT_ERROR(EPROTONOSUPPORT, decode_superblock("kvcachefs device\nformat 0\n"));
  EXPECT_ERROR(EBADMSG, decode_superblock("kvcachefs device\nformat x\n"));
  EXPECT_ERROR(EBADMSG, decode_superblock("another program's file\n"));
}

}  // namespace
}  // namespace kvcachefs
