#include "backend/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace kvcachefs {
namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Crc32c, IsTheCastagnoliChecksum) {
  EXPECT_EQ(0xE3069283u, crc32c(0, bytes("123456789")));
  // RFC 3720, B.4.
  EXPECT_EQ(0x8A9136AAu, crc32c(0, bytes(std::string(32, '\0'))));
  EXPECT_EQ(0x62A8AB43u, crc32c(0, bytes(std::string(32, '\xff'))));
}

TEST(Crc32c, OfNothingIsZero) { EXPECT_EQ(0u, crc32c(0, {})); }

TEST(Crc32c, Chains) {
  const std::string text(100'000, 'k');
  const std::string_view all = text;
  for (const std::size_t at : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, all.size()}) {
    EXPECT_EQ(crc32c(0, bytes(all)),
              crc32c(crc32c(0, bytes(all.substr(0, at))), bytes(all.substr(at))));
  }
}

TEST(Crc32c, SeesOneFlippedBit) {
  std::string text(256 * 1024, '\0');
  const std::uint32_t before = crc32c(0, bytes(text));
  text[123'456] = 1;
  EXPECT_NE(before, crc32c(0, bytes(text)));
}

}  // namespace
}  // namespace kvcachefs
