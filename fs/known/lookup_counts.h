// The hit ratio as a runtime sees it: how many of the blocks, and other files, that it asked for were
// there.
//
// A LOOKUP is not yet a question. The kernel sends one of its own right before CREATE, MKDIR, MKNOD,
// SYMLINK, LINK and RENAME (Linux fs/namei.c:filename_create, fs/fuse/dir.c:fuse_atomic_open and
// fuse_dentry_revalidate), a load looks its block up again once the kernel has forgotten the probe's answer, and a
// block of several files is looked up file by file. So a lookup is pending at first: the call that makes
// its name takes its own lookup back, and a process that asks again for a block before it has loaded or
// stored that asks the same question.
//
// While a directory above a block is missing, lookups of the block end there. Those misses go with the directory
// that is made (Unfound), until the first file in it says whose block they were.
//
// Any thread; the locks are leaves.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "fs/known/tenants.h"
#include "fs/known/use_table.h"
#include "fs/node/unfound.h"
#include "fs/order/callers.h"

namespace kvcachefs {

// A name that is looked up or made.
struct AskedName {
  std::uint64_t number = 0;  // block_number() of its directory and itself
  // Of the block that the name is a part of, the same for all its files. 0: each thread's lookups of the name, with
  // no other name between them, are a question.
  std::uint64_t block = 0;
  std::optional<UseTable::Series> series;  // nullopt: nothing of blocks
  TenantSlot tenant = 0;
};

class LookupCounts {
 public:
  // A call that makes a name comes this soon after its own lookup. Later a pending lookup counts.
  static constexpr std::chrono::milliseconds kPending{50};
  // Asked again within this time, neither loaded nor stored meanwhile, a block is the same question.
  static constexpr std::chrono::seconds kQuestion{60};
  // So many lookups of a missing name tell that it is asked for again and again: the kernel may
  // remember the answer. It may not before, because a CREATE has no lookup of its own then.
  static constexpr unsigned kOften = 4;

  struct Totals {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
  };

  LookupCounts(UseTable& uses, Tenants& tenants);

  // `now_ns`: monotonic, as in all calls.
  void found(const AskedName& name, const order::Caller& caller, std::int64_t now_ns);
  // Returns whether the kernel may remember it.
  bool missed(const AskedName& name, const order::Caller& caller, std::int64_t now_ns);
  // A call begins that makes, replaces or removes the name, whatever becomes of it.
  Unfound made(const AskedName& name, const order::Caller& caller);
  // A block was opened for reading. `number`: of one of its files.
  void opened(std::uint64_t number, std::uint32_t process);
  // One was opened to be written anew: its lookup, if there was one alone, was the open's own.
  void rewritten(std::uint64_t number, std::uint32_t process);
  // So many lookups of a file were no call's own, or have ended at directories above it that were
  // missing.
  void count_unfound(unsigned questions, const AskedName& file);

  // Counts what has been pending for kPending. Returns whether more is pending.
  bool settle(std::int64_t now_ns);
  // Settles all that came before the call; waits up to kPending for the last ones.
  Totals settled();

 private:
  // A question has kWays slots to be in. Where all are taken the oldest one counts as it stands.
  static constexpr std::size_t kSlots = 16384;
  static constexpr std::size_t kWays = 4;
  static constexpr std::size_t kLocks = 64;
  static constexpr std::size_t kThreads = 4096;

  enum class Outcome : std::uint8_t { kNone, kFound, kMissed };
  struct Slot {
    std::uint64_t key = 0;
    std::uint64_t number = 0;      // asked for first
    std::uint64_t last_found = 0;  // of a block's files
    std::int64_t asked_ns = 0;
    std::uint32_t thread = 0;  // of the last lookup
    UseTable::Series series = UseTable::kOther;
    TenantSlot tenant = 0;
    Outcome outcome = Outcome::kNone;
    std::uint8_t by_others = 0;  // as in Unfound; of a block all lookups are in `burst`
    std::uint8_t burst = 0;
    bool is_block = false;
    bool has_series = false;
    bool was_counted = false;  // of a block: this question; otherwise: lookups before these
    bool is_answered = false;  // of a block: loaded, or stored
    [[nodiscard]] bool is_pending() const noexcept {
      return outcome != Outcome::kNone && (is_block ? !was_counted : by_others + burst != 0);
    }
  };

  [[nodiscard]] static std::uint64_t key_of(const AskedName& name,
                                            std::uint32_t process) noexcept;
  // Of a slot, by its index.
  [[nodiscard]] std::mutex& lock_of(std::size_t at) { return locks_[at / kWays % kLocks]; }
  bool ask(Outcome outcome, const AskedName& name, const order::Caller& caller,
           std::int64_t now_ns);
  // Runs `then` on the slot of the block that a file was found of, with its lock held.
  template <class Then>
  void with_found(std::uint64_t number, std::uint32_t process, Then then);
  // The index of the first of the slots that a question may be in.
  [[nodiscard]] static std::size_t first_slot(std::uint64_t key) noexcept {
    return key % (kSlots / kWays) * kWays;
  }
  // Under the slot's lock. kSlots: it is in none.
  [[nodiscard]] std::size_t find(std::uint64_t key) const;
  [[nodiscard]] std::size_t find_or_free(std::uint64_t key) const;
  void add(Slot& slot, const AskedName& name, std::uint32_t thread, bool is_burst);
  void count(Slot& slot);
  void count(Outcome outcome, unsigned questions, std::optional<UseTable::Series> series,
             TenantSlot tenant);

  UseTable& uses_;
  Tenants& tenants_;
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
  std::array<std::mutex, kLocks> locks_;
  const std::unique_ptr<std::array<Slot, kSlots>> slots_;
  // What each thread looked up last; threads that share a place interrupt each other's bursts.
  std::array<std::atomic<std::uint64_t>, kThreads> last_{};
  // Where a block's file was found last, by the file's number and the process.
  const std::unique_ptr<std::array<std::atomic<std::uint32_t>, kSlots>> slot_of_file_;
};

}  // namespace kvcachefs
