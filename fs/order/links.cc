#include "fs/order/links.h"

#include <utility>

namespace kvcachefs::order {
namespace {

// Below this share of near hits a class of evidence is worth no guess: 0 makes wrong chains two to
// thirteen times as many, .8 halves what is learned of stores by a pool of threads.
constexpr float kAdopt = 0.5F;
// Evidence that is exact at least this often replaces what was learned otherwise.
constexpr float kTrusted = 0.5F;
// How many of its process's calls ago a name counts as near. 16 to 256 make no difference.
constexpr std::uint32_t kWindow = 64;
constexpr std::size_t kNearLinks = 12;
// How far a circle is looked for: a million tokens of 256 a block.
constexpr std::size_t kLongestCircle = 4096;

}  // namespace

void Links::sight(const Sighting& sighting, Process& process) {
  const Reliability& reliability = process.reliability;
  Evidence best = sighting.by_thread;
  Evidence other = sighting.by_process;
  if (best.name == kNoName ||
      (other.name != kNoName && reliability.value(other.kind) > reliability.value(best.kind))) {
    std::swap(best, other);
  }
  const NameRecord& record = names_[sighting.name];
  if (sighting.first || (record.parent == kNoName && candidate(record) == kNoName)) {
    guess(sighting.name, best, other, reliability);
  } else if (record.confidence >= kSettled) {
    confirm(sighting.name, best, other, process);
  } else {
    decide(sighting, best, other, process);
  }
}

void Links::guess(NameIndex name, const Evidence& best, const Evidence& other,
                  const Reliability& reliability) noexcept {
  names_[name].confidence = kGuessed;
  if (best.name != kNoName && reliability.soft(best.kind) >= kAdopt) {
    set_parent(name, best);
    set_candidate(names_[name], other);
  } else if (other.name != kNoName && reliability.soft(other.kind) >= kAdopt) {
    set_parent(name, other);
    set_candidate(names_[name], best);
  } else {
    link(name, kNoName);
    set_candidate(names_[name], best);
  }
}

// A settled link: the sighting scores its evidence, and only trusted evidence, seen again and
// again, wears the link down.
void Links::confirm(NameIndex name, const Evidence& best, const Evidence& other,
                    Process& process) {
  NameRecord& record = names_[name];
  Reliability& reliability = process.reliability;
  for (const Evidence& e : {best, other}) {
    if (e.name == kNoName) continue;
    const bool exact = e.name == record.parent;
    reliability.score(e.kind, exact, exact || near_on_chain(e.name, name));
  }
  if (record.confidence == kHinted) return;
  const NameIndex parent = record.parent;
  if (parent != kNoName && (best.name == parent || other.name == parent)) {
    if (record.confidence < kLongSettled) record.confidence = (record.confidence + 1) & 7;
    return;
  }
  const NameIndex old_candidate = candidate(record);
  for (const Evidence& e : {best, other}) {
    if (e.name == kNoName || e.name != old_candidate) continue;
    if (reliability.exact(e.kind) < kTrusted) continue;
    record.confidence = (record.confidence - 1) & 7;
    if (record.confidence < kSettled) exchange(name);
    return;
  }
  if (best.name != kNoName && reliability.exact(best.kind) >= kTrusted)
    set_candidate(record, best);
}

void Links::decide(const Sighting& sighting, const Evidence& best, const Evidence& other,
                   Process& process) {
  const NameIndex name = sighting.name;
  NameRecord& record = names_[name];
  Reliability& reliability = process.reliability;
  const NameIndex parent = record.parent;
  const NameIndex old_candidate = candidate(record);
  const bool parent_recent = recent(parent, sighting.kind, process);
  const bool candidate_recent = recent(old_candidate, sighting.kind, process);

  if (parent != kNoName && (best.name == parent || other.name == parent)) {
    record.confidence = kSettled;
    reliability.score(record.parent_class, true, true);
    if (old_candidate != kNoName)
      reliability.score(record.candidate_class, false, candidate_recent);
    return;
  }
  for (const Evidence& e : {best, other}) {
    if (e.name == kNoName || e.name != old_candidate) continue;
    if (parent_recent && reliability.exact(e.kind) < kTrusted) continue;
    exchange(name);
    record.confidence = kSettled;
    reliability.score(record.parent_class, true, true);
    if (parent != kNoName) reliability.score(record.candidate_class, false, parent_recent);
    return;
  }
  if (parent != kNoName) reliability.score(record.parent_class, false, parent_recent);
  if (old_candidate != kNoName)
    reliability.score(record.candidate_class, false, candidate_recent);

  if (parent_recent || candidate_recent) {
    if (!parent_recent) exchange(name);
    record.confidence = kKept;
    // The order of probes replaces the order of stores.
    if (best.name != kNoName && reliability.exact(best.kind) >= kTrusted &&
        reliability.exact(best.kind) >= reliability.exact(record.parent_class)) {
      const Evidence old{record.parent, record.parent_class};
      set_parent(name, best);
      set_candidate(record, old);
    }
  } else if (best.name == kNoName) {
    // Nothing came before it this time, which says nothing against what did the last time.
  } else if (record.confidence == kKept) {
    record.confidence = kGuessed;
    set_candidate(record, best);
  } else if (record.misses >= 2) {
    // Something else each time: the start of many prefixes.
    record.misses = 3;
    link(name, kNoName);
    set_candidate(record, best);
  } else {
    record.misses = (record.misses + 1) & 3;
    guess(name, best, other, reliability);
  }
}

void Links::link(NameIndex name, NameIndex parent) noexcept {
  NameRecord& record = names_[name];
  const NameIndex old = record.parent;
  if (old == parent) return;
  if (old != kNoName) {
    const NameIndex previous = record.previous_sibling;
    const NameIndex next = record.next_sibling;
    if (previous != kNoName) {
      names_[previous].next_sibling = next & kIndexMask;
    } else {
      names_[old].first_child = next & kIndexMask;
    }
    if (next != kNoName) names_[next].previous_sibling = previous & kIndexMask;
  }
  record.parent = parent & kIndexMask;
  record.previous_sibling = kNoName;
  record.next_sibling = kNoName;
  if (parent == kNoName) return;
  const NameIndex first = names_[parent].first_child;
  record.next_sibling = first & kIndexMask;
  if (first != kNoName) names_[first].previous_sibling = name & kIndexMask;
  names_[parent].first_child = name & kIndexMask;
}

bool Links::is_above(NameIndex ancestor, NameIndex name, std::size_t steps) const noexcept {
  for (NameIndex at = names_[name].parent; at != kNoName && steps > 0; --steps) {
    if (at == ancestor) return true;
    at = names_[at].parent;
  }
  return false;
}

NameIndex Links::candidate(const NameRecord& record) const noexcept {
  const NameIndex index = record.candidate;
  if (index == kNoName) return kNoName;
  const NameRecord& other = names_[index];
  const bool same = other.live == 1 && NameTable::print(other.name) == record.candidate_print;
  return same ? index : kNoName;
}

// A thread that is done with a prefix and begins it again says that its first block follows its
// last. What is above a name was born before it, but for links that were only guessed: the walk
// ends there, so that it is long only where there is a circle. One that a guess hides does no
// harm, every walk along links is bounded.
bool Links::makes_circle(NameIndex name, NameIndex parent) const noexcept {
  if (parent == name) return true;
  if (names_[name].first_child == kNoName) return false;
  const Birth born = names_[name].birth();
  NameIndex at = parent;
  for (std::size_t steps = 0; at != kNoName && steps < kLongestCircle; ++steps) {
    if (names_[at].parent == name) return true;
    if (names_[at].birth() < born) return false;
    at = names_[at].parent;
  }
  return false;
}

void Links::set_parent(NameIndex name, const Evidence& evidence) noexcept {
  if (makes_circle(name, evidence.name)) return;
  link(name, evidence.name);
  names_[name].parent_class = evidence.kind;
}

void Links::set_candidate(NameRecord& record, const Evidence& evidence) noexcept {
  record.candidate = evidence.name & kIndexMask;
  if (evidence.name == kNoName) return;
  record.candidate_print = NameTable::print(names_[evidence.name].name) & 0x3f;
  record.candidate_class = evidence.kind;
}

void Links::exchange(NameIndex name) noexcept {
  NameRecord& record = names_[name];
  const Evidence old{record.parent, record.parent_class};
  const Evidence taken{candidate(record), record.candidate_class};
  if (taken.name == kNoName || makes_circle(name, taken.name)) return;
  link(name, taken.name);
  record.parent_class = taken.kind;
  set_candidate(record, old);
}

bool Links::near_on_chain(NameIndex a, NameIndex b) const noexcept {
  return is_above(a, b, kNearLinks) || is_above(b, a, kNearLinks);
}

bool Links::recent(NameIndex name, CallKind kind, const Process& process) const noexcept {
  if (name == kNoName) return false;
  const NameRecord& record = names_[name];
  if (record.process != process.slot || record.kind != static_cast<std::uint32_t>(kind))
    return false;
  const std::uint32_t now = process.streams[static_cast<std::size_t>(kind)].count;
  return record.position() != 0 &&
         ((now - record.position()) & NameRecord::kPositionMask) <= kWindow;
}

}  // namespace kvcachefs::order
