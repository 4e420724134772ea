// The bytes of a block that a lookup has just found on the pool, on their way while it is still asked whose it is, and before
// it has an inode: whoever asks for a block mostly loads it next.
//
// They go to a backing file that nothing leads to. Who loads the file takes it over; one that nobody takes goes with this.
// Any thread, but take() and the destructor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "backend/pool/pool_client.h"
#include "backend/pool/pool_transfer.h"
#include "fs/node/core.h"

namespace kvcachefs {

class EarlyLoad {
 public:
  // That nobody has taken yet: the pool's other threads are for files that are being opened.
  static constexpr int kMost = 2;
  using Count = std::atomic<int>;

  // `found.file` is open; `count` outlives what is begun. Null: not now. `deadline` is that of the bytes.
  static std::unique_ptr<EarlyLoad> begin(Core& core, PoolClient& client, Count& count,
                                          const std::string& path, const PoolKnown& found,
                                          Deadline deadline);
  ~EarlyLoad();
  EarlyLoad(const EarlyLoad&) = delete;
  EarlyLoad& operator=(const EarlyLoad&) = delete;

  // It has come to nothing, and may be tried again.
  [[nodiscard]] bool has_failed() const;
  // Waits for the bytes; once. What it gives was compared with nothing yet. Errors: as those of fetch().
  Result<Fetched> wait();

  [[nodiscard]] ObjectId object() const noexcept { return object_; }
  // The backing file is the caller's from here on, and his to count.
  NewCopy take();

 private:
  // Of the call, which may take longer than this lives.
  struct Arriving {
    UniqueFd fd;
    mutable std::mutex mutex;
    std::condition_variable arrived;
    std::optional<Result<Fetched>> outcome;
  };

  EarlyLoad(Core& core, Count& count, ObjectId object, NewCopy&& local)
      : core_(core), count_(count), object_(object), local_(std::move(local)) {}

  void count_bytes(std::uint32_t device, std::uint64_t size);

  Core& core_;
  Count& count_;
  const ObjectId object_;
  std::optional<NewCopy> local_;  // nullopt: taken
  const std::shared_ptr<Arriving> arriving_ = std::make_shared<Arriving>();
};

}  // namespace kvcachefs
