// Where a hash stands in the listing of .kvcachefs/by-prefix, as the number that a directory
// entry has for who lists on from there (d_off, getdents(2)).
//
// A hash is longer than such a number. It has the order of the first characters, and of those
// that begin alike which of them it is: hashes that come or go among these between two calls
// may have one listed twice or not at all. More than kMostAlike are not listed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "metadata/record.h"

namespace kvcachefs {

inline constexpr std::string_view kHashCharacters = "-0123456789abcdef";  // in their order

[[nodiscard]] inline bool is_hash(std::string_view name) noexcept {
  return !name.empty() && name.size() <= kLongestHash &&
         name.find_first_not_of(kHashCharacters) == std::string_view::npos;
}

struct HashPlace {
  static constexpr std::size_t kBeginning = 12;
  static constexpr std::uint64_t kMostAlike = (1 << 12) - 1;
  // After all characters of a hash.
  static constexpr char kBehind = '~';

  std::string beginning;     // of a hash; a whole one may be shorter
  std::uint64_t number = 0;  // from 1 on; at most kMostAlike

  // Of the hash that comes after the one at this place, in their order.
  void advance(std::string_view hash) {
    const std::string_view begins = hash.substr(0, kBeginning);
    if (begins != beginning) *this = {.beginning = std::string(begins), .number = 0};
    ++number;
  }

  // Less than 2^62 + 2^57, and the greater, the later.
  [[nodiscard]] std::uint64_t cookie() const noexcept {
    std::uint64_t digits = 0;
    for (std::size_t at = 0; at < kBeginning; ++at) {
      // 0 stands for the end, which comes before all characters.
      const std::uint64_t digit =
          at < beginning.size() ? kHashCharacters.find(beginning[at]) + 1 : 0;
      digits = digits * (kHashCharacters.size() + 1) + digit;
    }
    return digits * (kMostAlike + 1) + number;
  }

  // Of any number: one that cookie() does not give is a place, too.
  [[nodiscard]] static HashPlace of_cookie(std::uint64_t cookie) {
    constexpr std::uint64_t kBase = kHashCharacters.size() + 1;
    HashPlace place{.beginning = {}, .number = cookie % (kMostAlike + 1)};
    std::uint64_t digits = cookie / (kMostAlike + 1);
    std::string text;
    for (std::size_t at = 0; at < kBeginning; ++at, digits /= kBase) {
      // Nothing comes after an end.
      if (digits % kBase == 0) {
        text.clear();
      } else {
        text += kHashCharacters[digits % kBase - 1];
      }
    }
    place.beginning.assign(text.rbegin(), text.rend());
    return place;
  }
};

}  // namespace kvcachefs
