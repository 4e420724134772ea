// Which tries to publish a file were made and not heard of again: they may still be under way, and may have published it.
// The next try ends them (PoolSource). Bounded: of those that are forgotten the pool's sweep removes what they left.
//
// Any thread; the lock is a leaf.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "metadata/record.h"

namespace kvcachefs {

class PublishTries {
 public:
  static constexpr std::size_t kMost = 1024;   // objects
  static constexpr std::size_t kMostEach = 8;  // tries of one

  struct Tries {
    std::vector<std::uint64_t> numbers;
    std::vector<std::uint64_t> files;  // their numbers on the pool
    // Numbers of what the name stood for, which one of them may have replaced.
    std::vector<std::uint64_t> replaced;
  };

  // Another try begins; those before it.
  Tries begin(ObjectId object, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (tries_.count(object) == 0 && tries_.size() >= kMost) tries_.erase(tries_.begin());
    Tries& known = tries_[object];
    Tries before = known;
    if (known.numbers.size() >= kMostEach) known.numbers.erase(known.numbers.begin());
    known.numbers.push_back(number);
    return before;
  }
  // It has ended those before it, and may get the name from here on. `standing`: what that stands for now; 0: nothing.
  void prepared(ObjectId object, std::uint64_t number, std::uint64_t file,
                std::uint64_t standing) {
    const std::lock_guard lock(mutex_);
    const auto known = tries_.find(object);
    if (known == tries_.end()) return;
    Tries& tries = known->second;
    tries.numbers = {number};
    tries.files = {file};
    if (standing == 0) return;
    if (tries.replaced.size() >= kMostEach) tries.replaced.erase(tries.replaced.begin());
    tries.replaced.push_back(standing);
  }
  void forget(ObjectId object) {
    const std::lock_guard lock(mutex_);
    tries_.erase(object);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<ObjectId, Tries> tries_;
};

}  // namespace kvcachefs
