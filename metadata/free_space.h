// Keeps the database away from a full disk, and lets names be removed all the same.
//
// A database whose write found no room has to be opened anew, and the state directory shares its
// disk with the data by default. So a commit that adds something is refused while less than
// kFloor is free; one that frees something is let through, on the room of a reserve file that is
// given up then and made anew when there is space again.
//
// Any thread. The disk is asked at most once in kInterval while it has room.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

class FreeSpace {
 public:
  // Below it nothing is added: logs and tables are being written when the disk fills up.
  static constexpr std::uint64_t kFloor = 24ull << 20;

  // `dir` exists; the reserve file is made in it if there is room. Errors: what opening `dir`
  // gives.
  Result<void> open(const std::string& dir);

  // Before the database in `dir` is opened on a full disk. True: there was a reserve to give up.
  static bool give_up_reserve(const std::string& dir) noexcept;

  // What the directory's files occupy, but the reserve: no more than their lengths, for RocksDB allots
  // ahead. Files that come and go meanwhile may be missing.
  [[nodiscard]] std::uint64_t used() const;

  // Before a write. `frees`: it removes more than it adds. Errors: ENOSPC.
  Result<void> admit(bool frees);

 private:
  static constexpr std::uint64_t kReserve = 32ull << 20;
  static constexpr std::int64_t kInterval =
      100'000'000;  // ns; a writer of 240 MB/s fills the floor in it

  void make_reserve();

  UniqueFd dir_;
  std::atomic<std::int64_t> next_look_{0};
  std::mutex mutex_;
  bool has_reserve_ = false;
  bool short_ = false;
};

}  // namespace kvcachefs
