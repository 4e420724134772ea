// How much the files of each model are used: what was looked up and found, and what was loaded.
//
// A *series* is a runtime and a model, as names spell them. So many are told apart; the rest counts as
// one. Any thread; a count is a relaxed addition.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/clock.h"
#include "fs/layout/layout.h"

namespace kvcachefs {

struct Use {
  std::string_view runtime;  // "other": of all that were too many
  std::string model;         // empty: the names of this runtime tell none
  std::uint64_t hits = 0;    // lookups
  std::uint64_t misses = 0;
  std::uint64_t loads = 0;  // opens for reading
  std::uint64_t loaded_bytes = 0;
};

class UseTable {
 public:
  // Enough for the models of one server. Who makes names up makes no more of them.
  static constexpr std::size_t kMost = 64;
  using Series = std::uint32_t;
  static constexpr Series kOther = 0;

  [[nodiscard]] Series series_of(Runtime runtime, std::string_view model);
  void used(Series series) noexcept;
  void looked_up(Series series, bool hit, std::uint64_t times = 1) noexcept;
  void loaded(Series series, std::uint64_t bytes) noexcept;
  // Whether its blocks were looked up or opened in that time; at a start nobody knows, and it counts as a use.
  [[nodiscard]] bool was_used_within(Series series,
                                     std::chrono::nanoseconds time) const noexcept;
  // Of those that were used, in the order of their coming; the others first.
  [[nodiscard]] std::vector<Use> uses() const;

 private:
  struct alignas(64) Row {
    Runtime runtime = Runtime::kNone;
    std::string model;
    std::atomic<std::uint64_t> hits{0};
    std::atomic<std::uint64_t> misses{0};
    std::atomic<std::uint64_t> loads{0};
    std::atomic<std::uint64_t> loaded_bytes{0};
    std::atomic<std::int64_t> last_use{monotonic_now()};
  };
  [[nodiscard]] Series find(Series from, Series to, Runtime runtime,
                            std::string_view model) const noexcept;

  std::mutex mutex_;  // of who adds a row
  std::array<Row, kMost + 1> rows_;
  std::atomic<Series> count_{1};  // rows that do not change any more, but their counts
};

}  // namespace kvcachefs
