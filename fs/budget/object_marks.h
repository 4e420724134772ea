// What each sealed object was counted as: kept or not, and whose. Where both are as usual, nothing is
// remembered. Ids are given in a row, so 64 neighbours share a page: some 1.5 bytes an object, 90 at worst.
//
// Not thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "fs/known/tenants.h"
#include "metadata/record.h"

namespace kvcachefs {

struct ObjectMark {
  bool kept = false;
  TenantSlot tenant = 0;
  friend bool operator==(const ObjectMark&, const ObjectMark&) = default;
};

class ObjectMarks {
 public:
  [[nodiscard]] ObjectMark of(ObjectId object) const noexcept {
    const auto page = pages_.find(object / kPage);
    return page == pages_.end() ? ObjectMark{} : decode(page->second.marks[object % kPage]);
  }
  void set(ObjectId object, ObjectMark mark) {
    const std::uint8_t code = encode(mark);
    auto page = pages_.find(object / kPage);
    if (page == pages_.end()) {
      if (code == 0) return;
      page = pages_.try_emplace(object / kPage).first;
    }
    std::uint8_t& at = page->second.marks[object % kPage];
    page->second.used +=
        static_cast<std::size_t>(code != 0) - static_cast<std::size_t>(at != 0);
    at = code;
    if (page->second.used == 0) pages_.erase(page);
  }
  // The mark, which is as usual afterwards.
  ObjectMark take(ObjectId object) {
    const ObjectMark mark = of(object);
    set(object, {});
    return mark;
  }
  [[nodiscard]] std::size_t pages() const noexcept { return pages_.size(); }

 private:
  static constexpr std::size_t kPage = 64;
  static constexpr std::uint8_t kKept = 0x80;
  struct Page {
    std::array<std::uint8_t, kPage> marks{};
    std::size_t used = 0;
  };

  static std::uint8_t encode(ObjectMark mark) noexcept {
    return static_cast<std::uint8_t>(mark.tenant | (mark.kept ? kKept : 0));
  }
  static ObjectMark decode(std::uint8_t code) noexcept {
    return {.kept = (code & kKept) != 0,
            .tenant = static_cast<TenantSlot>(code & (order::kGroups - 1))};
  }

  std::unordered_map<ObjectId, Page> pages_;  // by the first id of 64, divided
};

}  // namespace kvcachefs
