#include "backend/pool/pool_governor.h"

#include <algorithm>

namespace kvcachefs {

PoolGovernor::PoolGovernor(std::uint64_t most) : most_(std::max(most, kLeast)) {
  for (Way& own : ways_) own.limit = most_;
}

std::shared_ptr<PoolGovernor::Request> PoolGovernor::admit(PoolWay way, std::uint64_t size,
                                                           bool is_first,
                                                           Clock::time_point now) {
  {
    const std::lock_guard lock(mutex_);
    Way& own = of(way);
    if (own.under_way + size > own.limit) {
      own.held_back = true;
      if (!is_first) return nullptr;
    }
    own.under_way += size;
  }
  return std::make_shared<Request>(shared_from_this(), way, size, now);
}

std::uint64_t PoolGovernor::limit(PoolWay way) const {
  const std::lock_guard lock(mutex_);
  return ways_[static_cast<std::size_t>(way)].limit;
}

void PoolGovernor::answered(PoolWay way, std::uint64_t size, bool is_full, Clock::duration took,
                            Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Way& own = of(way);
  own.answered += size;
  if (is_full) {
    own.quickest.note(took, now);
    own.took.push_back(took);
  }
  if (own.answered >= own.limit && own.took.size() >= kLeastAnswers) look(own);
}

void PoolGovernor::look(Way& own) {
  const auto late = own.took.begin() + static_cast<std::ptrdiff_t>(own.took.size() * 9 / 10);
  std::nth_element(own.took.begin(), late, own.took.end());
  const auto quickest = own.quickest.value();
  if (*late > kSlow && std::chrono::duration<double>(*late) >
                           kManyTimes * std::chrono::duration<double>(quickest)) {
    own.limit = std::max(own.limit / 2, kLeast);
  } else if (own.held_back) {
    own.limit = std::min(own.limit + kStep, most_);
  }
  own.answered = 0;
  own.held_back = false;
  own.took.clear();
}

void PoolGovernor::ended(PoolWay way, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  of(way).under_way -= size;
}

}  // namespace kvcachefs
