#include "fs/order/learner_state.h"

#include <algorithm>

namespace kvcachefs::order {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// Longer than any pause inside a run of lookups, a stalled one included.
constexpr std::int64_t kLongestGapNanos = kSecond;
// A thread that paused this long begins another request.
constexpr std::int64_t kRunPauseNanos = 2'000'000;
// A load, or the lookup that a store begins with, says nothing new about a name that was looked up
// for it: many threads do them, in an order of their own.
constexpr std::uint32_t kLookIsNewSeconds = 30;
constexpr Stamp kLoadRefresh = 60 * kSecond / kNanosPerStamp;
constexpr std::uint32_t kKeptSeconds = 600;
constexpr std::int64_t kSilenceNanos = 60 * kSecond;
constexpr std::int64_t kInvisibleSilenceNanos = kSecond;
// Evidence this exact needs no second sighting.
constexpr float kFirm = 0.8F;
// A million tokens of 256 a block.
constexpr std::size_t kLongestChain = 4096;
constexpr std::size_t kClimbAtOnce = 256;
constexpr std::size_t kChildrenLookedAt = 64;
constexpr std::size_t kWalkAtOnce = 65536;
constexpr Birth kBirthStep = 16;
// Of a name that only a snapshot has mentioned.
constexpr Birth kUnborn = (Birth{1} << 56) - 1;

}  // namespace

Climb LearnerState::probe(std::uint64_t name, const Caller& caller, Lookup result,
                          std::int64_t now_ns) {
  const std::int64_t now = tick(now_ns);
  Process& process = callers_.process(caller.process, now);
  if (now < process.silent_until) return {};
  ThreadStream& thread = callers_.thread(caller, now);
  const bool hit = result == Lookup::kHit;
  const bool repeated = !hit && missed_lately(name, process);
  const Found found = find_or_add(name);
  if (found.index == kNoName) return {};

  const CallNow now_kind = hit ? CallNow::kHit : CallNow::kMiss;
  const bool run_start = starts_run(thread, now_kind);
  observe(found,
          Call{.kind = CallKind::kProbe,
               .now = now_kind,
               .before = hit ? CallBefore::kProbeHit : CallBefore::kProbeMiss,
               .look = !repeated},
          process, thread);
  if (repeated) return {};
  const Stamp burst = process.probes.stamp_at(now);
  NameRecord& record = names_[found.index];
  if (hit) {
    if (record.stored == 0) {
      make_stored(found.index, burst);
    } else {
      raise(found.index, burst);
    }
    if (run_start) return start_climb(found.index);
  } else if (record.stored == 0) {
    // Its store, if one comes, belongs to this burst.
    record.set_stamp(burst);
    record.process = process.slot & 0x3f;
    record.open_head = 1;
    process.open_heads.add(NameRef{found.index, name}, burst, now);
  }
  return {};
}

void LearnerState::store_start(std::uint64_t name, const Caller& caller, std::int64_t now_ns) {
  const std::int64_t now = tick(now_ns);
  Process& process = callers_.process(caller.process, now);
  ThreadStream& thread = callers_.thread(caller, now);
  const Found found = find_or_add(name);
  if (found.index == kNoName) return;
  observe(found,
          Call{.kind = CallKind::kStore,
               .now = CallNow::kStore,
               .before = CallBefore::kStore,
               .look = found.first},
          process, thread);
  NameRecord& record = names_[found.index];
  if (record.stored == 1) {
    raise(found.index, process.open_heads.lowest(stamp_now(), now));
  } else if (record.stamp() == 0) {
    record.set_stamp(process.open_heads.lowest(stamp_now(), now));
  }
}

Climb LearnerState::published(std::uint64_t name, std::int64_t now_ns) {
  const std::int64_t now = tick(now_ns);
  const Found found = find_or_add(name);
  if (found.index == kNoName) return {};
  NameRecord& record = names_[found.index];
  if (record.open_head == 1) {
    record.open_head = 0;
    Process* process = callers_.process_at(record.process);
    if (process != nullptr) process->open_heads.stored(NameRef{found.index, name}, now);
  }
  if (record.stored == 1) return {};
  make_stored(found.index, record.stamp() != 0 ? record.stamp() : stamp_now());
  return start_climb(found.index);
}

Climb LearnerState::load(std::uint64_t name, const Caller& caller, std::int64_t now_ns) {
  const std::int64_t now = tick(now_ns);
  Process& process = callers_.process(caller.process, now);
  ThreadStream& thread = callers_.thread(caller, now);
  const Found found = find_or_add(name);
  if (found.index == kNoName) return {};
  NameRecord& record = names_[found.index];
  const bool run_start = starts_run(thread, CallNow::kHit);
  const bool look = found.first || seconds_since_seen(record) > kLookIsNewSeconds;
  observe(found,
          Call{.kind = CallKind::kLoad,
               .now = CallNow::kHit,
               .before = CallBefore::kLoad,
               .look = look},
          process, thread);
  const Stamp burst = process.loads.stamp_at(now);
  if (record.stored == 0) {
    make_stored(found.index, burst);
  } else if (record.stamp() + kLoadRefresh < burst) {
    // Nobody looked it up before.
    raise(found.index, burst);
  } else {
    return {};
  }
  return run_start ? start_climb(found.index) : Climb{};
}

void LearnerState::used(std::uint64_t name, std::int64_t now_ns) {
  tick(now_ns);
  const Found found = find_or_add(name);
  if (found.index == kNoName) return;
  if (names_[found.index].stored == 0) {
    make_stored(found.index, stamp_now());
  } else {
    raise(found.index, stamp_now());
  }
}

void LearnerState::stored_since(std::uint64_t name, std::int64_t then_ns, std::int64_t now_ns) {
  tick(now_ns);
  const Found found = find_or_add(name);
  if (found.index == kNoName || names_[found.index].stored == 1) return;
  const auto stamp = static_cast<Stamp>(std::max<std::int64_t>(then_ns, 0) / kNanosPerStamp);
  make_stored(found.index, std::clamp<Stamp>(stamp, 1, stamp_now()));
}

void LearnerState::raise_stored(std::uint64_t name, Stamp stamp) {
  const NameIndex index = names_.find(name);
  if (index != kNoName && names_[index].stored == 1) raise(index, stamp);
}

void LearnerState::rename(std::uint64_t from, std::uint64_t to) {
  const NameIndex index = names_.find(from);
  if (index == kNoName || names_[index].stored == 1 || names_.find(to) != kNoName) return;
  NameRecord& record = names_[index];
  if (Process* process = callers_.process_at(record.process); process != nullptr)
    process->open_heads.renamed(NameRef{index, from}, to);
  names_.rename(index, to);
}

void LearnerState::set_group(std::uint64_t name, Group group) {
  const NameIndex index = names_.find(name);
  if (index != kNoName) orders_.set_group(index, group);
}

void LearnerState::forget(std::uint64_t name) {
  const NameIndex index = names_.find(name);
  if (index == kNoName) return;
  NameRecord& record = names_[index];
  if (record.stored == 0) return;
  orders_.remove(index);
  record.stored = 0;
  record.changed = 0;
  record.set_stamp(0);
  waiting_.push_back(index);
  trim(2);
}

void LearnerState::enumerated(const Caller& caller, std::int64_t now_ns) {
  const std::int64_t now = tick(now_ns);
  callers_.process(caller.process, now).silent_until =
      now + (caller.process == 0 ? kInvisibleSilenceNanos : kSilenceNanos);
}

void LearnerState::silent_until(const Caller& caller, std::int64_t until_ns,
                                std::int64_t now_ns) {
  const std::int64_t now = tick(now_ns);
  callers_.process(caller.process, now).silent_until = until_ns;
}

bool LearnerState::set_parent(std::uint64_t name, std::uint64_t parent, std::int64_t now_ns) {
  tick(now_ns);
  if (name == parent) return false;
  // The parent first: it is born first.
  const NameIndex above = find_or_add(parent).index;
  const NameIndex index = find_or_add(name).index;
  if (above == kNoName || index == kNoName) return false;
  NameRecord& record = names_[index];
  if (record.parent == above && record.confidence == kHinted) return true;
  if (!break_circle(index, above)) return false;
  links_.link(index, above);
  record.confidence = kHinted;
  record.candidate = kNoName;
  repair_birth(index);
  note_change(index);
  return true;
}

bool LearnerState::forget_parent(std::uint64_t name) {
  const NameIndex index = names_.find(name);
  if (index == kNoName || names_[index].parent == kNoName) return false;
  NameRecord& record = names_[index];
  links_.link(index, kNoName);
  record.confidence = kGuessed;
  record.candidate = kNoName;
  note_change(index);
  return true;
}

// If the name is above what is to be its parent, a link in between must go: one that was learned.
bool LearnerState::break_circle(NameIndex name, NameIndex parent) {
  if (names_[name].first_child == kNoName) return true;
  NameIndex learned = kNoName;
  NameIndex at = parent;
  for (std::size_t steps = 0; at != kNoName && at != name && steps < kLongestChain; ++steps) {
    if (learned == kNoName && names_[at].confidence != kHinted) learned = at;
    at = names_[at].parent;
  }
  if (at != name) return true;
  if (learned == kNoName) return false;
  links_.link(learned, kNoName);
  names_[learned].confidence = kGuessed;
  note_change(learned);
  return true;
}

void LearnerState::climb(Climb& climb) {
  NameIndex at = resolve(climb.at);
  for (std::size_t steps = 0; at != kNoName && climb.steps_left > 0; ++steps) {
    if (steps == kClimbAtOnce) {
      climb.at = NameRef{at, names_[at].name};
      return;
    }
    --climb.steps_left;
    if (!is_firm(names_[at])) break;
    const NameIndex parent = names_[at].parent;
    if (names_[parent].stamp() >= climb.stamp) break;
    raise(parent, climb.stamp);
    at = parent;
  }
  climb.steps_left = 0;
}

std::optional<EvictionKey> LearnerState::eviction_key(std::uint64_t name) const {
  const NameIndex index = names_.find(name);
  if (index == kNoName || names_[index].stored == 0) return std::nullopt;
  return EvictionKey{names_[index].stamp(), names_[index].birth()};
}

Group LearnerState::group(std::uint64_t name) const {
  const NameIndex index = names_.find(name);
  return index == kNoName ? Group{0} : static_cast<Group>(names_[index].group);
}

std::vector<Victim> LearnerState::victims(std::size_t limit, const std::optional<Victim>& after,
                                          Group group) {
  std::vector<NameIndex> lowest;
  if (after) {
    const Position position{after->key.stamp, after->key.birth, after->name};
    orders_.of(group).lowest(limit, &position, lowest);
  } else {
    orders_.of(group).lowest(limit, nullptr, lowest);
  }
  std::vector<Victim> victims;
  victims.reserve(lowest.size());
  for (const NameIndex index : lowest) {
    const NameRecord& record = names_[index];
    victims.push_back(Victim{record.name, EvictionKey{record.stamp(), record.birth()}});
  }
  return victims;
}

std::optional<Parent> LearnerState::parent(std::uint64_t name) const {
  const NameIndex index = names_.find(name);
  if (index == kNoName || names_[index].parent == kNoName) return std::nullopt;
  const NameRecord& record = names_[index];
  return Parent{names_[record.parent].name, is_firm(record)};
}

std::vector<std::uint64_t> LearnerState::children(std::uint64_t name, std::size_t limit) const {
  std::vector<std::uint64_t> children;
  const NameIndex index = names_.find(name);
  if (index == kNoName) return children;
  for (NameIndex child = names_[index].first_child; child != kNoName && children.size() < limit;
       child = names_[child].next_sibling) {
    if (names_[child].stored == 1) children.push_back(names_[child].name);
  }
  return children;
}

bool LearnerState::is_tip(std::uint64_t name) const { return children(name, 1).empty(); }

std::vector<std::uint64_t> LearnerState::next_likely(std::uint64_t name,
                                                     std::size_t limit) const {
  std::vector<std::uint64_t> next;
  NameIndex at = names_.find(name);
  limit = std::min(limit, Learner::kMaxLikely);
  while (at != kNoName && next.size() < limit) {
    const std::optional<NameIndex> successor = only_successor(at);
    if (!successor) break;
    at = *successor;
    next.push_back(names_[at].name);
  }
  return next;
}

std::optional<NameIndex> LearnerState::only_successor(NameIndex name) const noexcept {
  std::optional<NameIndex> only;
  std::size_t looked_at = 0;
  for (NameIndex child = names_[name].first_child; child != kNoName;
       child = names_[child].next_sibling) {
    if (++looked_at > kChildrenLookedAt) return std::nullopt;
    if (names_[child].stored == 0 || !is_firm(names_[child])) continue;
    if (only) return std::nullopt;
    only = child;
  }
  return only;
}

std::optional<Snapshot> LearnerState::snapshot(std::uint64_t name) const {
  const NameIndex index = names_.find(name);
  if (index == kNoName || names_[index].stored == 0) return std::nullopt;
  return snapshot_of(names_[index]);
}

Snapshot LearnerState::snapshot_of(const NameRecord& record) const {
  Snapshot snapshot;
  snapshot.birth = record.birth();
  snapshot.stamp = record.stamp() / Learner::kStampStep * Learner::kStampStep;
  const NameIndex parent = written_parent(record);
  if (parent != kNoName) {
    snapshot.parent = names_[parent].name;
    snapshot.hinted = record.confidence == kHinted;
  }
  return snapshot;
}

ChangedBatch LearnerState::take_changed(std::size_t limit) {
  ChangedBatch batch;
  std::size_t records = kWalkAtOnce;
  while (batch.changed.size() < limit) {
    const NameIndex index = changed_.take(records);
    if (index == kNoName) break;
    if (names_[index].stored == 1)
      batch.changed.push_back(Changed{names_[index].name, snapshot_of(names_[index])});
  }
  batch.more = changed_.more();
  return batch;
}

void LearnerState::restore(std::uint64_t name, const Snapshot& snapshot, std::int64_t now_ns) {
  tick(now_ns);
  restoring_ = true;
  const NameIndex index = find_or_wait_for(name);
  if (index == kNoName) return;
  NameRecord& record = names_[index];
  if (snapshot.birth < record.birth()) set_birth(index, snapshot.birth);
  last_birth_ = std::max(last_birth_, snapshot.birth);
  const Stamp stamp = std::clamp<Stamp>(snapshot.stamp, 1, stamp_now());
  if (record.stored == 0) {
    make_stored(index, stamp);
    // What is not so any more is written anew.
    if (snapshot.stamp <= stamp) record.changed = 0;
  } else {
    raise(index, stamp);
  }
  if (!snapshot.parent || *snapshot.parent == name || record.confidence >= kSettled) return;
  const NameIndex parent = find_or_wait_for(*snapshot.parent);
  if (parent == kNoName || names_[parent].parent == index) return;
  links_.link(index, parent);
  record.confidence = (snapshot.hinted ? kHinted : kKept) & 7;
}

bool LearnerState::restored() {
  restoring_ = false;
  trim(kClimbAtOnce);
  return waiting_.size() <= Learner::kMaxWaiting;
}

LearnerSizes LearnerState::sizes() const {
  return LearnerSizes{
      .names = names_.size(),
      .stored = orders_.size(),
      .not_learned = not_learned_,
      .bytes = names_.memory_bytes() + orders_.memory_bytes() + changed_.memory_bytes()};
}

std::int64_t LearnerState::tick(std::int64_t now_ns) noexcept {
  now_ns_ = std::max(now_ns_, now_ns);
  return now_ns_;
}

// A new name waits to be stored; an old one that waits was mentioned just now.
LearnerState::Found LearnerState::find_or_add(std::uint64_t name) {
  NameIndex index = names_.find(name);
  const bool first = index == kNoName;
  if (first) {
    trim(2);
    index = add(name);
    if (index == kNoName) return Found{};
  } else if (names_[index].stored == 0) {
    mention(index);
  }
  if (names_[index].birth() == kUnborn) {
    last_birth_ =
        std::max(last_birth_ + kBirthStep, static_cast<Birth>(now_ns_ / 1000) * kBirthStep);
    names_[index].set_birth(last_birth_);
  }
  return Found{index, first};
}

NameIndex LearnerState::find_or_wait_for(std::uint64_t name) {
  const NameIndex index = names_.find(name);
  return index != kNoName ? index : add(name);
}

NameIndex LearnerState::add(std::uint64_t name) {
  const NameIndex index = names_.insert(name);
  if (index == kNoName) {
    ++not_learned_;
    return kNoName;
  }
  names_[index].set_birth(kUnborn);
  names_[index].seen_seconds = static_cast<std::uint16_t>(now_ns_ / kSecond);
  waiting_.push_back(index);
  return index;
}

void LearnerState::mention(NameIndex name) {
  names_[name].seen_seconds = static_cast<std::uint16_t>(now_ns_ / kSecond);
  waiting_.remove(name);
  waiting_.push_back(name);
}

void LearnerState::observe(const Found& found, const Call& call, Process& process,
                           ThreadStream& thread) {
  NameRecord& record = names_[found.index];
  ProcessStream& stream = process.streams[static_cast<std::size_t>(call.kind)];
  ++stream.count;
  if (process.id != 0) {
    Evidence by_thread;
    // Seen in this run already: the thread is at another request, or at the same one again.
    if (found.first || record.run != thread.run) {
      by_thread = evidence_of(thread.previous, found.index, thread.time_ns, thread.usual_gap,
                              thread.before, call.now, EvidenceSource::kThread);
    }
    if (call.look) {
      if (by_thread.name == kNoName) {
        thread.run = ++last_run_;
        if (last_run_ == 0) thread.run = ++last_run_;
      }
      Evidence by_process =
          evidence_of(stream.previous, found.index, stream.time_ns, stream.usual_gap,
                      stream.before, call.now, EvidenceSource::kProcess);
      if (by_process.name == by_thread.name) by_process = Evidence{};
      const NameIndex before = written_parent(record);
      links_.sight(Sighting{.name = found.index,
                            .by_thread = by_thread,
                            .by_process = by_process,
                            .kind = call.kind,
                            .first = found.first},
                   process);
      record.run = thread.run;
      record.set_position(stream.count);
      record.kind = static_cast<unsigned>(call.kind) & 3;
      record.process = process.slot & 0x3f;
      if (is_firm(record)) repair_birth(found.index);
      if (written_parent(record) != before) note_change(found.index);
    }
  }
  record.seen_seconds = static_cast<std::uint16_t>(now_ns_ / kSecond);
  const NameRef ref{found.index, record.name};
  count_gap(thread.previous, thread.time_ns, call, thread.usual_gap);
  count_gap(stream.previous, stream.time_ns, call, stream.usual_gap);
  thread.previous = ref;
  thread.time_ns = now_ns_;
  thread.before = call.before;
  stream.previous = ref;
  stream.time_ns = now_ns_;
  stream.before = call.before;
}

Evidence LearnerState::evidence_of(const NameRef& previous, NameIndex name,
                                   std::int64_t time_ns, const UsualGap& gap, CallBefore before,
                                   CallNow now, EvidenceSource source) const noexcept {
  const std::int64_t passed = now_ns_ - time_ns;
  const NameIndex index = resolve(previous);
  if (index == kNoName || index == name || passed >= kLongestGapNanos) return {};
  return Evidence{index, evidence_class(before, now, gap.bucket(passed), source)};
}

// The pace of what is judged by it: not of pauses, nor of calls that say nothing about the order.
void LearnerState::count_gap(const NameRef& previous, std::int64_t time_ns, const Call& call,
                             UsualGap& gap) const noexcept {
  const std::int64_t passed = now_ns_ - time_ns;
  if (previous.index != kNoName && call.look && passed < kLongestGapNanos) gap.add(passed);
}

bool LearnerState::starts_run(const ThreadStream& thread, CallNow now) const noexcept {
  return thread.previous.index == kNoName || now_ns_ - thread.time_ns > kRunPauseNanos ||
         (thread.before == CallBefore::kProbeMiss && now == CallNow::kHit);
}

NameIndex LearnerState::resolve(const NameRef& ref) const noexcept {
  if (ref.index == kNoName) return kNoName;
  const NameRecord& record = names_[ref.index];
  return record.live == 1 && record.name == ref.name ? ref.index : kNoName;
}

bool LearnerState::is_firm(const NameRecord& record) const noexcept {
  if (record.parent == kNoName) return false;
  if (record.confidence > kGuessed) return true;
  const Process* process = callers_.process_at(record.process);
  return process != nullptr && process->reliability.exact(record.parent_class) >= kFirm;
}

NameIndex LearnerState::written_parent(const NameRecord& record) const noexcept {
  return record.confidence > kGuessed ? record.parent : kNoName;
}

std::uint32_t LearnerState::seconds_since_seen(const NameRecord& record) const noexcept {
  return static_cast<std::uint16_t>(static_cast<std::uint16_t>(now_ns_ / kSecond) -
                                    record.seen_seconds);
}

// The kernel looks a name up again when a store begins and what it knew has expired.
bool LearnerState::missed_lately(std::uint64_t name, const Process& process) const noexcept {
  const NameIndex index = names_.find(name);
  if (index == kNoName) return false;
  const NameRecord& record = names_[index];
  return record.stored == 0 && record.stamp() != 0 && record.process == process.slot &&
         seconds_since_seen(record) <= kLookIsNewSeconds;
}

Stamp LearnerState::stamp_now() const noexcept {
  return static_cast<Stamp>(now_ns_ / kNanosPerStamp) + 1;
}

Climb LearnerState::start_climb(NameIndex name) {
  Climb climb{.at = NameRef{name, names_[name].name},
              .stamp = names_[name].stamp(),
              .steps_left = kLongestChain};
  this->climb(climb);
  return climb;
}

void LearnerState::raise(NameIndex name, Stamp stamp) {
  NameRecord& record = names_[name];
  const Stamp old = record.stamp();
  if (stamp <= old) return;
  if (record.stored == 0) {
    record.set_stamp(stamp);
    return;
  }
  orders_.remove(name);
  record.set_stamp(stamp);
  orders_.insert(name);
  if (stamp / Learner::kStampStep != old / Learner::kStampStep) note_change(name);
}

void LearnerState::make_stored(NameIndex name, Stamp stamp) {
  NameRecord& record = names_[name];
  waiting_.remove(name);
  record.stored = 1;
  record.set_stamp(stamp);
  orders_.insert(name);
  note_change(name);
}

void LearnerState::set_birth(NameIndex name, Birth birth) {
  NameRecord& record = names_[name];
  if (record.stored == 1) orders_.remove(name);
  record.set_birth(birth);
  if (record.stored == 1) orders_.insert(name);
}

// A name is born after its parent, so that of one stamp it goes first.
void LearnerState::repair_birth(NameIndex name) {
  const NameRecord& record = names_[name];
  const Birth parent = names_[record.parent].birth();
  if (record.birth() > parent || parent == kUnborn) return;
  set_birth(name, parent + 1);
  note_change(name);
}

void LearnerState::note_change(NameIndex name) {
  if (names_[name].stored == 1) changed_.add(name);
}

// A few at each call that adds one: the list never grows by more than it may.
void LearnerState::trim(std::size_t most) {
  if (restoring_) return;
  for (; most > 0 && waiting_.front() != kNoName; --most) {
    const NameIndex oldest = waiting_.front();
    if (waiting_.size() < Learner::kMaxWaiting &&
        seconds_since_seen(names_[oldest]) <= kKeptSeconds) {
      return;
    }
    drop(oldest);
  }
}

void LearnerState::drop(NameIndex name) {
  links_.unlink_all(name, [this](NameIndex child) {
    if (written_parent(names_[child]) != kNoName) note_change(child);
  });
  waiting_.remove(name);
  names_.erase(name);
}

}  // namespace kvcachefs::order
