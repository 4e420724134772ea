#include "fs/known/use_table.h"

#include <algorithm>

namespace kvcachefs {

UseTable::Series UseTable::find(Series from, Series to, Runtime runtime,
                                std::string_view model) const noexcept {
  for (Series at = from; at < to; ++at)
    if (rows_[at].runtime == runtime && rows_[at].model == model) return at;
  return kOther;
}

UseTable::Series UseTable::series_of(Runtime runtime, std::string_view model) {
  const Series count = count_.load(std::memory_order_acquire);
  const Series known = find(1, count, runtime, model);
  if (known != kOther || count == rows_.size()) return known;
  const std::lock_guard lock(mutex_);
  const Series now = count_.load(std::memory_order_relaxed);
  const Series added = find(count, now, runtime, model);
  if (added != kOther || now == rows_.size()) return added;
  rows_[now].runtime = runtime;
  rows_[now].model = model;
  count_.store(now + 1, std::memory_order_release);
  return now;
}

void UseTable::used(Series series) noexcept {
  rows_[series].last_use.store(monotonic_now(), std::memory_order_relaxed);
}

void UseTable::looked_up(Series series, bool hit, std::uint64_t times) noexcept {
  Row& row = rows_[series];
  (hit ? row.hits : row.misses).fetch_add(times, std::memory_order_relaxed);
}

void UseTable::loaded(Series series, std::uint64_t bytes) noexcept {
  rows_[series].loads.fetch_add(1, std::memory_order_relaxed);
  rows_[series].loaded_bytes.fetch_add(bytes, std::memory_order_relaxed);
  used(series);
}

bool UseTable::was_used_within(Series series, std::chrono::nanoseconds time) const noexcept {
  return monotonic_now() - rows_[series].last_use.load(std::memory_order_relaxed) <
         time.count();
}

std::vector<Use> UseTable::uses() const {
  const Series count = count_.load(std::memory_order_acquire);
  std::vector<Use> out;
  for (Series at = 0; at < count; ++at) {
    const Row& row = rows_[at];
    Use use{.runtime = at == kOther ? "other" : name_of(row.runtime),
            .model = at == kOther ? "other" : row.model,
            .hits = row.hits.load(std::memory_order_relaxed),
            .misses = row.misses.load(std::memory_order_relaxed),
            .loads = row.loads.load(std::memory_order_relaxed),
            .loaded_bytes = row.loaded_bytes.load(std::memory_order_relaxed)};
    if (use.hits + use.misses + use.loads > 0) out.push_back(std::move(use));
  }
  return out;
}

}  // namespace kvcachefs
