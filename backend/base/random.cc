#include "backend/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>

namespace kvcachefs {
namespace {

constexpr bool dash_before(std::size_t byte) noexcept {
  return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

constexpr int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void random_bytes(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got > 0) {
      out = out.subspan(static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      std::abort();  // ENOSYS or EFAULT: no kernel that we run on
    }
  }
}

Uuid random_uuid() noexcept {
  Uuid uuid;
  random_bytes(std::as_writable_bytes(std::span(uuid)));
  uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0f) | 0x40);
  uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

std::string format_uuid(const Uuid& uuid) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(36);
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (dash_before(i)) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 0x0f];
  }
  return text;
}

std::optional<Uuid> parse_uuid(std::string_view text) noexcept {
  if (text.size() != 36) return std::nullopt;
  Uuid uuid;
  std::size_t at = 0;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (dash_before(i) && text[at++] != '-') return std::nullopt;
    const int high = hex_value(text[at]);
    const int low = hex_value(text[at + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    uuid[i] = static_cast<std::uint8_t>(high << 4 | low);
    at += 2;
  }
  return uuid;
}

}  // namespace kvcachefs
