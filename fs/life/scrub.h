// The scrub: a background thread that reads sealed files from their disks, slowly, and compares them
// with their checksums, so that damage is found before somebody wants the file.
//
// It goes through the objects in the order of their ids, from where it was; after the last it rests until
// kPassEvery after the pass began. It yields to opens that are being verified. O_DIRECT: what it reads
// takes nobody's place in the page cache.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "fs/life/verify.h"
#include "fs/node/core.h"

namespace kvcachefs {

class Scrubber {
 public:
  // `bytes_per_second` 0: it rests.
  Scrubber(Core& core, Verifier& verifier, std::uint64_t bytes_per_second)
      : core_(core), verifier_(verifier), bytes_per_second_(bytes_per_second) {}
  ~Scrubber() { stop(); }
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  void start();
  // Waits for one read of 1 MiB at most.
  void stop();

  // From the next read on. Any thread.
  void set_rate(std::uint64_t bytes_per_second);

  [[nodiscard]] std::uint64_t scrubbed_bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);
  }
  // Seconds since the epoch; 0: no pass of this mount has come to its end.
  [[nodiscard]] std::int64_t pass_end_s() const noexcept {
    return pass_end_s_.load(std::memory_order_relaxed);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::hours kPassEvery{1};
  // Objects at a time: an iterator over all of them would hold back the database's cleaning.
  static constexpr std::size_t kBatch = 256;
  // What a file costs at least, however small it is: its open takes the disk's time, too.
  static constexpr std::uint64_t kLeastCost = 16 * 1024;

  void run();
  void pass();
  void scrub(ObjectId object);
  // Waits for the turn of that many bytes. False: the thread is to end.
  [[nodiscard]] bool may_read(std::uint64_t bytes);

  Core& core_;
  Verifier& verifier_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::int64_t> pass_end_s_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t bytes_per_second_;  // under mutex_, as the next two
  Clock::time_point next_read_{};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvcachefs
