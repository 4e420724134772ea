// What was read ahead into memory and not loaded yet: how much it is, and since when.
//
// Not for several threads: who has it (stager.h) locks.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "metadata/record.h"

namespace kvcachefs {

struct StagedFile {
  InodeNumber inode = 0;
  ObjectId object = kNoObject;
  std::uint64_t bytes = 0;
  std::int64_t since = 0;  // monotonic nanoseconds
};

class StagedFiles {
 public:
  // False: it is there already. `since` never decreases from one to the next.
  bool add(const StagedFile& file) {
    const auto [at, is_new] = by_object_.try_emplace(file.object);
    if (!is_new) return false;
    at->second = in_order_.insert(in_order_.end(), file);
    bytes_ += file.bytes;
    return true;
  }
  // nullopt: it is not there.
  std::optional<StagedFile> take(ObjectId object) {
    const auto at = by_object_.find(object);
    if (at == by_object_.end()) return std::nullopt;
    const StagedFile file = *at->second;
    in_order_.erase(at->second);
    by_object_.erase(at);
    bytes_ -= file.bytes;
    return file;
  }
  // The one that is there longest, if that is since before `time`.
  std::optional<StagedFile> take_older_than(std::int64_t time) {
    if (in_order_.empty() || in_order_.front().since >= time) return std::nullopt;
    return take(in_order_.front().object);
  }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::size_t size() const noexcept { return by_object_.size(); }

 private:
  std::list<StagedFile> in_order_;  // the oldest first
  std::unordered_map<ObjectId, std::list<StagedFile>::iterator> by_object_;
  std::uint64_t bytes_ = 0;
};

}  // namespace kvcachefs
