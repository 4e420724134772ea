// Fixed-width integers in keys (big-endian, so that they order as numbers) and in values
// (little-endian).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace kvcachefs::wire {

// Appends to a value.
template <std::integral T>
void put_le(std::string& out, T value) {
  auto bits = static_cast<std::make_unsigned_t<T>>(value);
  char bytes[sizeof(T)];
  for (char& byte : bytes) {
    byte = static_cast<char>(bits & 0xff);
    if constexpr (sizeof(T) > 1) bits = static_cast<decltype(bits)>(bits >> 8);
  }
  out.append(bytes, sizeof bytes);
}

// Appends to a key.
inline void put_be64(std::string& out, std::uint64_t value) {
  char bytes[8];
  for (int i = 7; i >= 0; --i) {
    bytes[i] = static_cast<char>(value & 0xff);
    value >>= 8;
  }
  out.append(bytes, sizeof bytes);
}

// Precondition: at least 8 bytes.
[[nodiscard]] inline std::uint64_t get_be64(std::string_view bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Takes values from the front of a record. After the first one that is not there everything is
// 0 and ok() false, so that a decoder checks once, at the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) noexcept : rest_(bytes) {}

  template <std::integral T>
  [[nodiscard]] T take() noexcept {
    if (rest_.size() < sizeof(T)) {
      ok_ = false;
      rest_ = {};
      return 0;
    }
    std::make_unsigned_t<T> value = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) {
      if constexpr (sizeof(T) > 1) value = static_cast<decltype(value)>(value << 8);
      value = static_cast<decltype(value)>(value | static_cast<unsigned char>(rest_[i]));
    }
    rest_.remove_prefix(sizeof(T));
    return static_cast<T>(value);
  }
  [[nodiscard]] std::string_view take_bytes(std::size_t count) noexcept {
    if (rest_.size() < count) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  [[nodiscard]] std::string_view take_rest() noexcept { return take_bytes(rest_.size()); }
  [[nodiscard]] std::size_t left() const noexcept { return rest_.size(); }
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  // All was there, and nothing is left over.
  [[nodiscard]] bool done() const noexcept { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace kvcachefs::wire
