// Large files of the pool are read while they come, in frames of 1 MiB: who opens one does not wait for the whole of it.
//
//     open ──► an empty backing file of full size, a flight ──► frames that somebody reads, then those after them
//     all frames are here ──► the pool's file is as it was found? ──► settled, as any file that was fetched
//     nobody has it open, and less than half is here, or the pool cannot be reached for kForgetAfter
//     ──► forgotten; the name stays, on the pool alone
//
// One thread asks for frames and looks after the flights; the pool's threads bring them (frame_flight.h). At most
// kMostAsked ranges of a flight that somebody waits for are asked for at a time, and kMostAhead of all flights that nobody
// does; these not while the device is short of room.
//
// Any thread may call any method but start() and stop(). The lock is held for the flights' list and the budget's count.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/pool/pool_service.h"
#include "fs/node/core.h"
#include "fs/pool/damaged_files.h"
#include "fs/pool/frame_flight.h"

namespace kvcachefs {

class FrameFetcher {
 public:
  // Makes what was fetched the file's bytes. Errors: ESTALE (it was removed meanwhile), those of commits.
  using Settle = std::function<Result<void>(const InodePtr&, const PoolCopy&, NewCopy&&,
                                            ObjectId, Fetched&&)>;

  FrameFetcher(Core& core, PoolService& service, DamagedFiles& damaged, Settle settle)
      : core_(core), service_(service), damaged_(damaged), settle_(std::move(settle)) {}
  ~FrameFetcher() { stop(); }
  FrameFetcher(const FrameFetcher&) = delete;
  FrameFetcher& operator=(const FrameFetcher&) = delete;

  void start();
  // What is not whole is forgotten; reads of it fail.
  void stop();

  // Who takes part in a file's flight: it is not forgotten as long as he does.
  struct Joined {
    std::shared_ptr<FrameReader> reader;
    Tier* tier = nullptr;
    ObjectId object = kNoObject;
  };
  // The file's flight, if there is one.
  std::optional<Joined> join(InodeNumber inode);
  // Begins one, or joins the one that is there. `known.file` is open, and is what `copy` says; `path` is for the log.
  // Errors: ENOSPC (it is larger than there can be room for), those of Tier::create(), ENOENT (the file is not remote any
  // more).
  Result<Joined> begin(const InodePtr& inode, const PoolCopy& copy, const std::string& path,
                       PoolKnown&& known);
  // For who opens the file. Errors: EMFILE.
  static Result<Arrival> arrival(Joined&& joined);

  [[nodiscard]] std::size_t flights() const;

 private:
  static constexpr std::size_t kMostAsked = 3;
  static constexpr int kMostAhead = 2;
  static constexpr std::chrono::milliseconds kRetryEvery{100};
  static constexpr std::chrono::milliseconds kIdle{60'000};
  static constexpr std::chrono::milliseconds kForgetAfter{10'000};
  static constexpr std::chrono::milliseconds kRangeDeadline{3000};
  static constexpr std::uint64_t kSlowestRate = 5'000'000;  // bytes a second, of a range
  static constexpr std::chrono::milliseconds kCheckDeadline{2000};

  struct Driven {
    InodePtr inode;
    PoolCopy copy;
    std::string path;
    std::uint32_t device = 0;
    ObjectId object = kNoObject;
    std::shared_ptr<FrameFlight> flight;
    std::size_t measured = 0;  // frames that were here when the budget was told last
    // Whether the pool's file is as it was found, once all frames are here.
    struct Check {
      std::mutex mutex;
      std::optional<Result<PoolStatus>> answer;
    };
    std::shared_ptr<Check> check;  // null: not asked
  };

  // The caller holds the lock.
  Joined joined(const Driven& driven);
  void run();
  // False: its flight is over.
  bool step(Driven& driven);
  bool step_to_the_end(Driven& driven);
  // `counted`: counts it, until it is answered; or null.
  void ask(const Driven& driven, FrameTable::Range range,
           std::shared_ptr<std::atomic<int>> counted);
  void measure(Driven& driven, std::size_t here);
  Result<void> settle(Driven& driven);
  void forget(const Driven& driven);
  void give_up(Driven& driven, const Error& error);
  void remove(std::uint32_t device, ObjectId object);

  Core& core_;
  PoolService& service_;
  DamagedFiles& damaged_;
  const Settle settle_;
  const std::shared_ptr<FrameBell> bell_ = std::make_shared<FrameBell>();
  const std::shared_ptr<std::atomic<int>> ahead_ = std::make_shared<std::atomic<int>>(0);
  mutable std::mutex mutex_;
  std::map<InodeNumber, std::shared_ptr<Driven>> flights_;  // under mutex_
  bool running_ = false;                                    // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
