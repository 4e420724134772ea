// What others have put on the pool becomes files here.
//
//     lookup of a name that is not here ──► asked for on the pool ──► an inode in state `remote`, or a miss
//     open of a remote file ──► its bytes are fetched, compared with their checksums ──► published, later sealed
//                               (those of a large one while it is read: frame_fetcher.h)
//     another node removes or replaces it ──► its names go; a directory if it is empty here
//
// Calls that ask the pool wait for it, until their deadline: they belong on threads that nobody else needs. A pool that
// does not answer makes them misses.
//
// Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backend/base/clock.h"
#include "backend/pool/pool_service.h"
#include "backend/pool/pool_transfer.h"
#include "fs/names/namespace.h"
#include "fs/pool/damaged_files.h"
#include "fs/pool/evicted_early.h"
#include "fs/pool/frame_fetcher.h"
#include "fs/pool/known_files.h"
#include "fs/pool/looked_again.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/owner_refresh.h"
#include "fs/pool/pool_counts.h"
#include "fs/pool/pool_options.h"
#include "fs/pool/replaced_names.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

class PoolFiles {
 public:
  static constexpr std::chrono::milliseconds kLookupDeadline{250};
  // Of an open: this, and the size at this rate.
  static constexpr std::chrono::milliseconds kOpenDeadline{2000};
  static constexpr std::uint64_t kOpenRate = 50'000'000;  // bytes a second

  PoolFiles(Core& core, Namespace& names, PoolService& service, const PoolOptions& options,
            ReplacedNames& replaced, EvictedEarly& evicted_early, DamagedFiles& damaged);

  // Whether a lookup should ask the pool: the name is not here, may be there, and nothing says that it is not; or it
  // is here, and what others did to it may have been missed.
  [[nodiscard]] bool is_wanted(InodeNumber directory, std::string_view name);
  // Asks, and makes the name here if it is there; takes away one that is here and not there any more. Waits for the
  // pool. What goes wrong is a miss. The inode, if there is one, is to be held until it is looked up. `loads`: who asks for
  // a block may load it next; its bytes are asked for as soon as it is found.
  InodePtr bring(InodeNumber directory, std::string_view name, bool loads);
  // Of a directory that is not known to be on the pool: others may have made it there.
  [[nodiscard]] bool may_be_there(const SharedName& shared) const {
    return service_.is_usable() && !service_.is_known_missing(shared.path);
  }

  // The bytes of a remote file: waits for the pool. Success when they are here, by whomever. Errors: ENOENT (a miss:
  // they cannot be had in time), ESTALE (another file has the name: who looks it up again finds that one), EIO, ENOSPC.
  // `pace`: who is the first to want them says it.
  Result<void> fetch(const InodePtr& inode, PoolPace pace = PoolPace::kPrompt);
  // Nobody loads now what bring() has asked for.
  void end_early_load(InodeNumber inode) { known_.end_early_load(inode); }
  // Opens a remote file for reading while it comes. nullopt: its bytes are here by now. Waits for the pool to say what it
  // is, and for its first frame. Errors: ENOENT (a miss), ESTALE (as fetch()), those of Tier::create().
  Result<std::optional<Arrival>> fetch_in_frames(const InodePtr& inode);
  // Whether fetch() should not be waited for.
  [[nodiscard]] bool is_large(std::uint64_t size) const noexcept {
    return size > options_.stage_whole;
  }

  void start() {
    frames_.start();
    owners_.start();
  }
  void stop() {
    frames_.stop();
    owners_.stop();
  }

  // Of one thread at a time for each record.
  void on_change(const PoolLogRecord& record);
  void on_gap() { doubted_at_.store(monotonic_now()); }

  [[nodiscard]] PoolCounts counts() const;

 private:
  struct Flight {
    bool done = false;
    Result<void> outcome;
  };

  struct Question {
    SharedName shared;
    InodePtr standing;                // null: the name is not here
    PoolCopy copy;                    // of that one
    std::vector<PoolWord> told = {};  // that one, a directory
  };
  // Without the log of a living node: how long what the pool has said of a file holds.
  static constexpr std::int64_t kHoldsUnfollowed = 1'000'000'000;
  static constexpr std::chrono::milliseconds kTouchDeadline{5000};

  [[nodiscard]] std::optional<Question> to_ask(InodeNumber directory, std::string_view name);
  [[nodiscard]] std::optional<Question> to_find(InodeNumber directory, std::string_view name,
                                                const InodePtr& inode);
  void note_directory(InodeNumber directory, std::string_view name, const Owner& owner,
                      const Question& question, const PoolKnown& found);
  [[nodiscard]] std::optional<Question> to_check(InodeNumber directory, std::string_view name,
                                                 const DentryRecord& dentry);
  void check_owner(Inode& inode);
  bool take_told(Inode& inode, const SharedName& shared, const std::vector<PoolWord>& asked,
                 const PoolKnown& found);
  InodePtr take_over(InodeNumber directory, std::string_view name, const SharedName& shared,
                     KnownFiles::Noted&& found);
  bool keeps(Inode& inode);
  void drop(InodeNumber number, const PoolCopy& copy);
  void drop_directory(Inode& directory, const PoolCopy& copy);
  bool has_gone(Inode& directory, const PoolCopy& copy);
  void drop_emptied();
  void stays_here(Inode& inode, const PoolCopy& copy);
  // Of a directory, the sums say whose it is, and `told` what it was told.
  Result<KnownFiles::Noted> ask(const std::string& path, bool loads, Deadline deadline);
  [[nodiscard]] static Deadline load_deadline(std::chrono::steady_clock::time_point called,
                                              std::uint64_t size);
  Result<void> adopt(InodeNumber directory, std::string_view name, const SharedName& shared,
                     const PoolKnown& found);
  Result<void> fetch_once(const InodePtr& inode, PoolPace pace);
  // Where a remote file stands.
  struct Standing {
    PoolCopy copy;
    std::string path;
  };
  Result<Standing> standing_of(const InodePtr& inode);
  // A backing file, and what came of having it filled.
  struct Load {
    ObjectId object = kNoObject;
    NewCopy local;
    Result<Fetched> fetched;
  };
  void count_bytes(const Inode& inode, std::uint32_t device, std::uint64_t size);
  Result<Load> load(const InodePtr& inode, const Standing& standing, PoolPace pace);
  Result<Fetched> fetch_now(const Standing& standing, std::optional<PoolKnown> known,
                            const UniqueFd& local, Deadline deadline, PoolPace pace);
  Result<FrameFetcher::Joined> join_flight(const InodePtr& inode);
  static Result<Arrival> begun(FrameFetcher::Joined&& joined);
  Result<void> fetch_large(const InodePtr& inode);
  // What became of a load that failed, for who opens the file.
  Error miss_of(const InodePtr& inode, const Standing& standing, const Error& error);
  Result<void> settle(const InodePtr& inode, const PoolCopy& copy, NewCopy&& local,
                      ObjectId object, Fetched&& fetched);
  void tell_use(PoolFilePtr file);
  void doubt_replaced(const PoolLogRecord& record);
  void doubt_owner(const PoolLogRecord& record);

  Core& core_;
  Namespace& names_;
  PoolService& service_;
  const PoolOptions options_;
  ReplacedNames& replaced_;
  EvictedEarly& evicted_early_;
  DamagedFiles& damaged_;
  LookedAgain looked_again_;  // whoever opened what was replaced just then
  EarlyLoad::Count early_{0};
  KnownFiles known_;
  FrameFetcher frames_;
  OwnerRefresh owners_;
  // What was known of the pool before may not hold; what an earlier run knew is among it.
  std::atomic<std::int64_t> doubted_at_{monotonic_now()};
  std::atomic<std::uint64_t> asked_{0};
  std::atomic<std::uint64_t> found_{0};
  std::atomic<std::uint64_t> loaded_{0};
  std::atomic<std::uint64_t> loaded_bytes_{0};
  std::atomic<std::uint64_t> missed_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::mutex mutex_;
  std::condition_variable landed_;
  std::unordered_map<InodeNumber, std::shared_ptr<Flight>> flights_;  // under mutex_
  // Directories that others have removed, and that were not empty here: what is in them may go a moment later. Of what
  // does not fit an empty directory stays here. Under mutex_.
  static constexpr std::size_t kMostEmptying = 1024;
  std::unordered_set<InodeNumber> emptying_;
};

}  // namespace kvcachefs
