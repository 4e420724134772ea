#include "fs/life/scrub.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>

#include "backend/base/log.h"

namespace kvcachefs {
namespace {

// How often it looks whether opens are still being verified.
constexpr std::chrono::milliseconds kScrubYield{20};

}  // namespace

void Scrubber::start() {
  if (core_.options.verify == VerifyMode::kOff) return;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "kv-scrub");
}

void Scrubber::set_rate(std::uint64_t bytes_per_second) {
  const std::lock_guard lock(mutex_);
  bytes_per_second_ = bytes_per_second;
  next_read_ = {};
  changed_.notify_one();
}

void Scrubber::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Scrubber::run() {
  while (true) {
    const Clock::time_point began = Clock::now();
    pass();
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, began + kPassEvery, [this] { return stopping_; })) return;
  }
}

void Scrubber::pass() {
  ObjectId last = kNoObject;
  while (true) {
    const auto found = core_.catalog.list_objects(last, kBatch);
    if (!found.ok()) {
      log_warn("scrub event=ended_early errno={}", found.error().code);
      return;
    }
    for (const ObjectPlace& place : *found) {
      if (!may_read(0)) return;
      // Of a lost device every file would be damaged.
      if (!core_.devices->has(place.device) ||
          core_.devices->state(place.device) != DeviceState::kLost)
        scrub(place.id);
      last = place.id;
    }
    if (found->size() < kBatch) break;
  }
  pass_end_s_.store(std::time(nullptr), std::memory_order_relaxed);
}

void Scrubber::scrub(ObjectId object) {
  const Result<std::optional<ObjectRecord>> record = core_.catalog.find_object(object);
  if (!record.ok() || !*record || (*record)->chunk_crc32c.empty()) return;
  const Result<InodePtr> inode = core_.table.get((*record)->inode);
  if (!inode.ok()) return;
  std::uint64_t read = 0;
  const Result<void> scrubbed = verifier_.scrub(*inode, object, [&](std::uint64_t bytes) {
    if (!may_read(read == 0 ? std::max(bytes, kLeastCost) : bytes)) return false;
    read += bytes;
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return true;
  });
  // Damage has been told by who found it.
  if (!scrubbed.ok() && scrubbed.error().code != ESTALE) {
    log_warn("scrub object={} event=not_read errno={} step=\"{}\"", object,
             scrubbed.error().code, scrubbed.error().what);
  }
}

bool Scrubber::may_read(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (bytes_per_second_ == 0) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point now = Clock::now();
    const bool yields = bytes > 0 && verifier_.is_busy();
    if (!yields && (bytes == 0 || next_read_ <= now)) break;
    changed_.wait_until(lock, yields ? now + kScrubYield : next_read_);
  }
  if (bytes > 0 && bytes_per_second_ > 0) {
    const std::chrono::duration<double> turn(static_cast<double>(bytes) /
                                             static_cast<double>(bytes_per_second_));
    next_read_ =
        std::max(next_read_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(turn);
  }
  return !stopping_;
}

}  // namespace kvcachefs
