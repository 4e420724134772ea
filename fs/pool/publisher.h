// Write-back: a thread that publishes sealed files and directories on the pool, and takes away there what was taken away here.
//
//     seal, rename, mkdir ──► catalog: to be published ──► on the pool, others are told, the copy is recorded
//     unlink, rename ──► catalog: tombstone ──► into the pool's trash, others are told
//     chmod, chown, what a directory is told ──► catalog: owner change ──► its record there, others are told (fs/pool/owner_teller.h)
//
// The queues are tables of the catalog: a restart goes on with them, and a pool that is away for long costs no memory.
// A tombstone comes before what is published anew under its path. Of blocks an ancestor comes before its descendants, so
// that whoever finds a block on the pool finds those before it: bytes of kAtOnce files are under way together, names are
// given in turn. A file that fails for a reason of its own is put off, and those behind it go on; what fails for the pool's
// is tried again from the begin on. What a slow pool, or one that is away, makes too long is cut (fs/pool/queue_bound.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/pool/pool_service.h"
#include "backend/pool/pool_transfer.h"
#include "fs/node/core.h"
#include "fs/pool/damaged_files.h"
#include "fs/pool/directory_describer.h"
#include "fs/pool/evicted_early.h"
#include "fs/pool/keep_teller.h"
#include "fs/pool/name_remover.h"
#include "fs/pool/owner_teller.h"
#include "fs/pool/pool_counts.h"
#include "fs/pool/publish_tries.h"
#include "fs/pool/put_off.h"
#include "fs/pool/queue_bound.h"
#include "fs/pool/replaced_names.h"
#include "fs/pool/shared_name.h"
#include "fs/pool/work_left.h"

namespace kvcachefs {

class Publisher {
 public:
  Publisher(Core& core, PoolService& service, ReplacedNames& replaced,
            EvictedEarly& evicted_early, const DamagedFiles& damaged)
      : core_(core),
        service_(service),
        replaced_(replaced),
        evicted_early_(evicted_early),
        damaged_(damaged),
        names_(core, service),
        bound_(core, files_),
        kept_(core),
        owners_(core, service),
        directories_(core, service) {}
  ~Publisher() { stop(); }
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  void start();
  // What is queued waits for the next run.
  void stop();
  // There is something to do. Any thread; never waits.
  void wake();

  void add_counts(PoolCounts& counts) const;
  [[nodiscard]] std::uint64_t skipped() const noexcept { return bound_.skipped(); }
  [[nodiscard]] std::uint64_t obstructed() const noexcept { return obstructed_.load(); }
  // Why nothing goes to the pool, as of the last try; code 0: nothing speaks against it.
  [[nodiscard]] Error stopped_for() const;

 private:
  static constexpr std::size_t kBatch = 256;
  static constexpr int kBatchesInPass = 8;
  // One less than the client has threads for what nobody waits for: the rest of it goes on.
  static constexpr std::size_t kAtOnce = PoolClient::kBackgroundThreads - 1;
  // After a failure, and to see whether the pool is there.
  static constexpr std::chrono::milliseconds kPause{500};
  static constexpr std::chrono::milliseconds kCallDeadline{5000};
  // Of a publication: kCallDeadline, and the size at kSlowestPublication.

  class Batch;
  class RoomTaken;
  struct Sent;
  struct Candidate;
  struct Seen;
  // kGone: there is nothing to be published (any more). kUnsealed: its seal has it looked at again.
  enum class Outcome : std::uint8_t { kDone, kGone, kObstructed, kUnsealed, kLater };

  void run();
  // What is left of each part.
  struct Round {
    WorkLeft names = WorkLeft::kMore;
    WorkLeft kept = WorkLeft::kMore;
    WorkLeft files = WorkLeft::kMore;
    WorkLeft owners = WorkLeft::kNothing;
    [[nodiscard]] WorkLeft left() const noexcept {
      return std::max({names, kept, files, owners});
    }
  };
  void say(const Result<void>& passed);
  Result<void> pass(Round& round);
  Result<WorkLeft> publish_some();
  bool put_off(InodeNumber number, const Error& error);
  Result<std::vector<InodeNumber>> in_order(std::vector<InodeNumber> numbers);
  void publish_batch(Batch& batch);
  Result<Outcome> publish_one(Batch& batch, std::size_t ticket);
  Result<Outcome> publish_directory(const InodePtr& inode, const Seen& seen);
  Result<Outcome> publish_found(const Candidate& file, Batch& batch, std::size_t ticket);
  Result<std::optional<Candidate>> find_candidate(InodeNumber number);
  struct Standing {
    bool has_name = false;
    bool is_same = false;
    std::optional<PoolCopy> copy;
  };
  static bool is_as_found(const Candidate& file, const InodeRecord& now);
  Result<Standing> look_again(const Candidate& file);
  void tell_replaced(const Candidate& file, const Published& published);
  void clear(const Sent& sent);
  static bool is_own(const Sent& sent, const Published& published);
  // `keep`: what was said of it there, unless something is noted of that.
  static PoolCopy copy_of(const Candidate& file, const Standing& standing,
                          const PoolStatus& status, bool keep);
  static void put_copy(const Candidate& file, const Standing& standing, const PoolCopy& copy,
                       Edit& edit);
  Result<bool> is_at_its_path(const Candidate& file);
  Result<bool> note_copy(const Candidate& file, const PoolStatus& status);
  Result<void> forget_copy(const Candidate& file, const PoolStatus& status);
  Result<Outcome> record(const Candidate& file, const Published& published,
                         std::uint64_t noted);
  Result<void> drop_replaced(const Candidate& file);
  void note_owner(const Candidate& file, const Published& published, Edit& edit);
  Result<Seen> see(InodeNumber number);
  Result<Seen> see_locked(const InodePtr& inode);
  Result<Outcome> forget(InodeNumber number, const Seen& seen, bool is_obstructed);
  [[nodiscard]] bool stopping();

  Core& core_;
  PoolService& service_;
  ReplacedNames& replaced_;
  EvictedEarly& evicted_early_;
  const DamagedFiles& damaged_;
  NameRemover names_;
  PutOff files_;                   // by inode
  WalkInParts<InodeNumber> walk_;  // over what is to be published
  QueueBound bound_;
  KeepTeller kept_;
  OwnerTeller owners_;
  DirectoryDescriber directories_;
  PublishTries tries_;
  std::atomic<std::uint64_t> published_{0};
  std::atomic<std::uint64_t> published_bytes_{0};
  std::atomic<std::uint64_t> duplicates_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::uint64_t> obstructed_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Error stopped_for_{0, ""};  // under mutex_, as the next
  bool pending_ = true;       // the last run may have left something
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvcachefs
