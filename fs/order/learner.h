// Learns from the calls of runtimes in which order names follow each other in a prefix, and keeps
// the order in which eviction takes them.
//
// Runtimes name a block of KV cache by a hash of everything before it, so a name says nothing about
// its neighbours; the calls do. A runtime looks up the blocks of a request in order and stores what
// was missing in order, though by many threads at once. From (call, name, thread, process, time)
// the learner keeps for each name
//
//   a stamp    when a burst of lookups last touched it, or the burst that its store belongs to;
//   a birth    when it was first heard of, and later than its parent's;
//   a parent   the name before it in its prefix, and whether that can be relied on (*firm*).
//
// Eviction takes the lowest (stamp, -birth): the least recent burst, and of one burst the youngest
// block. A prefix is in every burst of what follows it and is born before it, so this takes prefixes
// from their ends, without any link. Links do what bursts do not show: at the start of a run of
// lookups the ancestors of the first name, which the runtime did not look up (it had them in its own
// memory), get the burst's stamp. Links never keep a name from being evicted.
//
// A *name* is a number of the caller's choice that stands for the same content wherever it comes up:
// a hash of name space and prefix hash, or an inode number. A name is *stored* from published(), or
// from the first hit on it, until forget(). Others are remembered for 10 minutes after they were last
// heard of, and no more than kMaxWaiting of them.
//
// Times are nanoseconds of one clock for all calls, above 0, which does not go back and goes on over
// a restart if snapshots are to be restored: wall time at the start plus monotonic time since. An
// earlier time than that of a call before counts as the latter's.
//
// Any thread may call anything; one lock, held for well below a microsecond in the usual call. None
// does I/O. Memory: at most 64 bytes a name, and about 1 MB.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "fs/order/callers.h"
#include "fs/order/name_record.h"

namespace kvcachefs::order {

// Where a name stands for eviction: a lower one goes first. Of equal keys, any.
struct EvictionKey {
  std::uint64_t stamp = 0;  // 10 ms
  std::uint64_t birth = 0;

  friend constexpr bool operator==(const EvictionKey&, const EvictionKey&) noexcept = default;
  friend constexpr std::strong_ordering operator<=>(const EvictionKey& a,
                                                    const EvictionKey& b) noexcept {
    if (a.stamp != b.stamp) return a.stamp <=> b.stamp;
    return b.birth <=> a.birth;
  }
};

// A name that may be evicted, and the place from which to go on.
struct Victim {
  std::uint64_t name = 0;
  EvictionKey key;
};

struct Parent {
  std::uint64_t name = 0;
  bool firm = false;
};

// What a restart must not lose. The rest is learned anew within some hundred calls.
struct Snapshot {
  std::optional<std::uint64_t> parent;  // if it was seen more than once, or told
  bool hinted = false;                  // it was told by set_parent()
  std::uint64_t birth = 0;
  std::uint64_t stamp = 0;  // a multiple of Learner::kStampStep

  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

struct Changed {
  std::uint64_t name = 0;
  Snapshot snapshot;
};

struct ChangedBatch {
  std::vector<Changed> changed;
  // There are more, even if `changed` is empty: too many had changed to remember which, and a
  // call looks at 65,536 names.
  bool more = false;
};

struct LearnerSizes {
  std::size_t names = 0;          // all it remembers
  std::size_t stored = 0;         // of these, what eviction can take
  std::uint64_t not_learned = 0;  // calls dropped because the table was full
  std::size_t bytes = 0;          // of memory that grows with the names
};

enum class Lookup : std::uint8_t { kMiss, kHit };

class LearnerState;

class Learner {
 public:
  // 16 MB of names that are not stored: ten minutes of 400 misses a second.
  static constexpr std::size_t kMaxWaiting = 262'144;
  // Successors are asked for by a prefetcher that doubles its window up to this.
  static constexpr std::size_t kMaxLikely = 64;
  // Recency is written down by the minute, so that a read rarely costs a write.
  static constexpr std::uint64_t kStampStep = 6000;

  Learner();
  ~Learner();
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // --- What happens in the filesystem ---

  // A lookup of any kind (lookup, access, stat), also one that turns out to be the beginning of
  // an open or a store. A miss that the same process repeats within 30 s teaches nothing.
  void probe(std::uint64_t name, const Caller& caller, Lookup result, std::int64_t now_ns);
  // What was looked up as `from`, and is not stored, is `to` in truth: what was learned of it is of `to` from
  // now on, unless that is known already.
  void rename(std::uint64_t from, std::uint64_t to);
  // The first call of a store: the create, under whatever temporary name.
  void store_start(std::uint64_t name, const Caller& caller, std::int64_t now_ns);
  // The rename to the final name, or the first close: the name is stored.
  void published(std::uint64_t name, std::int64_t now_ns);
  // An open that succeeded, for reading.
  void load(std::uint64_t name, const Caller& caller, std::int64_t now_ns);
  // It was used, and nothing about the order of names follows from it: of files that are no blocks.
  // Stored from the first time on.
  void used(std::uint64_t name, std::int64_t now_ns);
  // The same, and it was used last then, unless it is stored already.
  void stored_since(std::uint64_t name, std::int64_t then_ns, std::int64_t now_ns);
  // A stored name counts as used when one of this stamp was, if that is later.
  void raise(std::uint64_t name, std::uint64_t stamp);
  // From now on it is in this group's order of eviction; names are in group 0 at first. Nothing happens to
  // a name that is not known. `group` < kGroups.
  void set_group(std::uint64_t name, Group group);
  // The file is gone. What is known of its order stays for up to 10 minutes, for a new store.
  void forget(std::uint64_t name);
  // The process listed a directory: for 60 s its lookups teach nothing and refresh nothing (its
  // opens do). An invisible caller may be everybody behind it, so there it is 1 s.
  void enumerated(const Caller& caller, std::int64_t now_ns);
  // Takes an enumerated() back: the lookups of the process count from `until_ns` on, at once if
  // that is past.
  void silent_until(const Caller& caller, std::int64_t until_ns, std::int64_t now_ns);

  // --- What is known for certain ---

  // Overrides what is learned, for good. False if by earlier hints `parent` follows `name`: the
  // link does not change then. Either name may come up here for the first time.
  bool set_parent(std::uint64_t name, std::uint64_t parent, std::int64_t now_ns);

  // Takes back what was told or learned of its parent: it is learned anew. False: there is none.
  bool forget_parent(std::uint64_t name);

  // --- What follows from it ---

  // nullopt: not stored.
  std::optional<EvictionKey> eviction_key(std::uint64_t name) const;
  // 0 also of a name that is not known.
  Group group(std::uint64_t name) const;
  // Stored names of a group in the order of eviction, lowest first: at most `limit`, after `after` where
  // given (which need not be stored any more). O(log n) each.
  std::vector<Victim> victims(std::size_t limit,
                              const std::optional<Victim>& after = std::nullopt,
                              Group group = 0);

  std::optional<Parent> parent(std::uint64_t name) const;
  // Stored names whose parent it is, at most `limit`, in no order.
  std::vector<std::uint64_t> children(std::uint64_t name, std::size_t limit = 256) const;
  // Whether no stored name is known to follow it.
  bool is_tip(std::uint64_t name) const;
  // What will likely be read after `name`: stored names along firm links, in order, as far as
  // there is only one to choose. At most `limit` and kMaxLikely.
  std::vector<std::uint64_t> next_likely(std::uint64_t name, std::size_t limit) const;

  // --- Restarts ---

  // nullopt: not stored.
  std::optional<Snapshot> snapshot(std::uint64_t name) const;
  // Stored names whose snapshot differs from what was last taken, at most `limit`.
  ChangedBatch take_changed(std::size_t limit);
  // A stored name from an earlier run. Calls about it may have come before: what they said stays,
  // its older birth counts. In any order; the parents that have not come yet are waited for until
  // restored(), whatever kMaxWaiting says. A stamp later than now counts as now: the clock was ahead then, or is
  // behind now, and the name would stay for as long as that.
  void restore(std::uint64_t name, const Snapshot& snapshot, std::int64_t now_ns);
  void restored();

  LearnerSizes sizes() const;

 private:
  template <typename Call>
  void call_and_climb(Call call);

  mutable std::mutex mutex_;
  std::unique_ptr<LearnerState> state_;  // under mutex_
};

}  // namespace kvcachefs::order
