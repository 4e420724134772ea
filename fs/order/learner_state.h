// The rules of the learner (see learner.h for what they are for), without its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fs/order/callers.h"
#include "fs/order/changed_queue.h"
#include "fs/order/group_orders.h"
#include "fs/order/learner.h"
#include "fs/order/links.h"
#include "fs/order/name_list.h"
#include "fs/order/name_table.h"

namespace kvcachefs::order {

// A walk from a name to its ancestors that gives them its stamp; it may be a long one, so it is
// done in parts, with the lock released in between.
struct Climb {
  NameRef at;
  Stamp stamp = 0;
  std::size_t steps_left = 0;

  [[nodiscard]] bool done() const noexcept { return steps_left == 0; }
};

class LearnerState {
 public:
  LearnerState() : orders_(names_), waiting_(names_), links_(names_), changed_(names_) {}

  Climb probe(std::uint64_t name, const Caller& caller, Lookup result, std::int64_t now_ns);
  void store_start(std::uint64_t name, const Caller& caller, std::int64_t now_ns);
  Climb published(std::uint64_t name, std::int64_t now_ns);
  Climb load(std::uint64_t name, const Caller& caller, std::int64_t now_ns);
  void used(std::uint64_t name, std::int64_t now_ns);
  void stored_since(std::uint64_t name, std::int64_t then_ns, std::int64_t now_ns);
  void raise_stored(std::uint64_t name, Stamp stamp);
  void rename(std::uint64_t from, std::uint64_t to);
  void set_group(std::uint64_t name, Group group);
  void forget(std::uint64_t name);
  void enumerated(const Caller& caller, std::int64_t now_ns);
  void silent_until(const Caller& caller, std::int64_t until_ns, std::int64_t now_ns);
  bool set_parent(std::uint64_t name, std::uint64_t parent, std::int64_t now_ns);
  bool forget_parent(std::uint64_t name);
  void climb(Climb& climb);

  std::optional<EvictionKey> eviction_key(std::uint64_t name) const;
  Group group(std::uint64_t name) const;
  std::vector<Victim> victims(std::size_t limit, const std::optional<Victim>& after,
                              Group group);
  std::optional<Parent> parent(std::uint64_t name) const;
  std::vector<std::uint64_t> children(std::uint64_t name, std::size_t limit) const;
  bool is_tip(std::uint64_t name) const;
  std::vector<std::uint64_t> next_likely(std::uint64_t name, std::size_t limit) const;

  std::optional<Snapshot> snapshot(std::uint64_t name) const;
  ChangedBatch take_changed(std::size_t limit);
  void restore(std::uint64_t name, const Snapshot& snapshot, std::int64_t now_ns);
  // Drops what may be dropped, some of it; true when nothing is left to drop.
  bool restored();

  LearnerSizes sizes() const;

 private:
  struct Found {
    NameIndex index = kNoName;
    bool first = false;
  };
  struct Call {
    CallKind kind;
    CallNow now;
    CallBefore before;  // what the next call will see
    bool look;          // it says something about the order
  };

  std::int64_t tick(std::int64_t now_ns) noexcept;
  Found find_or_add(std::uint64_t name);
  NameIndex find_or_wait_for(std::uint64_t name);
  NameIndex add(std::uint64_t name);
  void mention(NameIndex name);
  void observe(const Found& found, const Call& call, Process& process, ThreadStream& thread);
  Evidence evidence_of(const NameRef& previous, NameIndex name, std::int64_t time_ns,
                       const UsualGap& gap, CallBefore before, CallNow now,
                       EvidenceSource source) const noexcept;
  void count_gap(const NameRef& previous, std::int64_t time_ns, const Call& call,
                 UsualGap& gap) const noexcept;
  [[nodiscard]] bool starts_run(const ThreadStream& thread, CallNow now) const noexcept;
  [[nodiscard]] NameIndex resolve(const NameRef& ref) const noexcept;
  [[nodiscard]] bool is_firm(const NameRecord& record) const noexcept;
  [[nodiscard]] NameIndex written_parent(const NameRecord& record) const noexcept;
  [[nodiscard]] std::uint32_t seconds_since_seen(const NameRecord& record) const noexcept;
  [[nodiscard]] bool missed_lately(std::uint64_t name, const Process& process) const noexcept;
  [[nodiscard]] Stamp stamp_now() const noexcept;
  [[nodiscard]] Snapshot snapshot_of(const NameRecord& record) const;
  [[nodiscard]] std::optional<NameIndex> only_successor(NameIndex name) const noexcept;

  Climb start_climb(NameIndex name);
  void raise(NameIndex name, Stamp stamp);
  void make_stored(NameIndex name, Stamp stamp);
  void set_birth(NameIndex name, Birth birth);
  void repair_birth(NameIndex name);
  bool break_circle(NameIndex name, NameIndex parent);
  void note_change(NameIndex name);
  void trim(std::size_t most);
  void drop(NameIndex name);

  NameTable names_;
  GroupOrders orders_;
  NameList waiting_;
  Links links_;
  ChangedQueue changed_;
  Callers callers_;
  std::int64_t now_ns_ = 1;
  Birth last_birth_ = 0;
  std::uint16_t last_run_ = 0;
  bool restoring_ = false;
  std::uint64_t not_learned_ = 0;
};

}  // namespace kvcachefs::order
