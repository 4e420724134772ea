#include "fs/known/lookup_counts.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

namespace kvcachefs {
namespace {

std::uint64_t with_process(std::uint64_t number, std::uint32_t process) noexcept {
  std::uint64_t key = number ^ std::uint64_t{process} * 0x9e3779b97f4a7c15;
  key = (key ^ key >> 31) * 0xd6e8feb86659fd93;
  return key ^ key >> 32;
}

void increase(std::uint8_t& count, unsigned by = 1) noexcept {
  count = static_cast<std::uint8_t>(
      std::min<unsigned>(count + by, std::numeric_limits<std::uint8_t>::max()));
}

}  // namespace

LookupCounts::LookupCounts(UseTable& uses, Tenants& tenants)
    : uses_(uses),
      tenants_(tenants),
      slots_(std::make_unique<std::array<Slot, kSlots>>()),
      slot_of_file_(std::make_unique<std::array<std::atomic<std::uint32_t>, kSlots>>()) {}

std::uint64_t LookupCounts::key_of(const AskedName& name, std::uint32_t process) noexcept {
  return name.block != 0 ? with_process(name.block, process) : with_process(name.number, 0);
}

void LookupCounts::found(const AskedName& name, const order::Caller& caller,
                         std::int64_t now_ns) {
  ask(Outcome::kFound, name, caller, now_ns);
}

bool LookupCounts::missed(const AskedName& name, const order::Caller& caller,
                          std::int64_t now_ns) {
  return ask(Outcome::kMissed, name, caller, now_ns);
}

bool LookupCounts::ask(Outcome outcome, const AskedName& name, const order::Caller& caller,
                       std::int64_t now_ns) {
  const std::uint64_t key = key_of(name, caller.process);
  const std::uint64_t last = with_process(name.number, caller.tid);
  const bool is_burst =
      last_[caller.tid % kThreads].exchange(last, std::memory_order_relaxed) == last;
  const std::lock_guard lock(lock_of(first_slot(key)));
  const std::size_t at = find_or_free(key);
  if (outcome == Outcome::kFound && name.block != 0)
    (*slot_of_file_)[with_process(name.number, caller.process) % kSlots].store(
        static_cast<std::uint32_t>(at), std::memory_order_relaxed);
  Slot& slot = (*slots_)[at];
  const bool is_old = now_ns - slot.asked_ns >= std::chrono::nanoseconds{kQuestion}.count();
  bool is_asked_anew = slot.key != key || slot.outcome != outcome || is_old;
  // Another file of a block that was loaded belongs to that load.
  if (slot.is_block && slot.is_answered && slot.number == name.number) is_asked_anew = true;
  if (slot.is_block && slot.is_answered && outcome == Outcome::kMissed) is_asked_anew = true;
  if (is_asked_anew) {
    count(slot);
    slot = {.key = key,
            .number = name.number,
            .asked_ns = now_ns,
            .series = name.series.value_or(UseTable::kOther),
            .tenant = name.tenant,
            .outcome = outcome,
            .is_block = name.block != 0,
            .has_series = name.series.has_value()};
  }
  if (outcome == Outcome::kFound) slot.last_found = name.number;
  if (slot.number == name.number) add(slot, name, caller.tid, is_burst);
  if (!slot.is_block || !slot.is_answered) slot.asked_ns = now_ns;
  return slot.burst + slot.by_others >= kOften;
}

std::size_t LookupCounts::find(std::uint64_t key) const {
  for (std::size_t at = first_slot(key); at < first_slot(key) + kWays; ++at)
    if ((*slots_)[at].key == key) return at;
  return kSlots;
}

std::size_t LookupCounts::find_or_free(std::uint64_t key) const {
  const std::size_t found = find(key);
  if (found != kSlots) return found;
  const auto first = slots_->begin() + static_cast<std::ptrdiff_t>(first_slot(key));
  const auto oldest =
      std::min_element(first, first + kWays, [](const Slot& one, const Slot& other) {
        return std::pair(one.is_pending(), one.asked_ns) <
               std::pair(other.is_pending(), other.asked_ns);
      });
  return static_cast<std::size_t>(oldest - slots_->begin());
}

void LookupCounts::add(Slot& slot, const AskedName& name, std::uint32_t thread, bool is_burst) {
  if (!slot.is_block && !is_burst) {
    increase(slot.by_others, slot.burst != 0 ? 1 : 0);
    slot.burst = 0;
  }
  slot.thread = thread;
  increase(slot.burst);
  // One of the two is no call's own.
  if (name.block != 0 && slot.burst > 1) count(slot);
}

Unfound LookupCounts::made(const AskedName& name, const order::Caller& caller) {
  const std::uint64_t key = key_of(name, caller.process);
  const std::lock_guard lock(lock_of(first_slot(key)));
  const std::size_t at = find(key);
  if (at == kSlots) return {};
  Slot& slot = (*slots_)[at];
  if (slot.number != name.number || slot.outcome == Outcome::kNone) return {};
  if (slot.is_block) {
    if (slot.is_answered) return {};
    slot.was_counted = slot.is_answered = true;
    return {};
  }
  Unfound unfound{.by_others = slot.by_others, .was_asked_before = slot.was_counted};
  if (slot.thread == caller.tid)
    unfound.burst = slot.burst;
  else
    increase(unfound.by_others, slot.burst != 0 ? 1 : 0);
  slot.outcome = Outcome::kNone;
  return unfound;
}

template <class Then>
void LookupCounts::with_found(std::uint64_t number, std::uint32_t process, Then then) {
  const std::size_t at =
      (*slot_of_file_)[with_process(number, process) % kSlots].load(std::memory_order_relaxed);
  const std::lock_guard lock(lock_of(at));
  Slot& slot = (*slots_)[at];
  if (slot.outcome == Outcome::kFound && slot.last_found == number) then(slot);
}

void LookupCounts::opened(std::uint64_t number, std::uint32_t process) {
  with_found(number, process, [this](Slot& slot) {
    count(slot);
    slot.is_answered = true;
  });
}

void LookupCounts::rewritten(std::uint64_t number, std::uint32_t process) {
  with_found(number, process, [](Slot& slot) { slot.was_counted = slot.is_answered = true; });
}

void LookupCounts::count_unfound(unsigned questions, const AskedName& file) {
  count(Outcome::kMissed, questions, file.series, file.tenant);
}

void LookupCounts::count(Slot& slot) {
  if (slot.outcome == Outcome::kNone) return;
  const std::optional<UseTable::Series> series =
      slot.has_series ? std::optional(slot.series) : std::nullopt;
  if (slot.is_block) {
    if (!slot.was_counted) count(slot.outcome, 1, series, slot.tenant);
  } else {
    count(slot.outcome, slot.by_others + (slot.burst != 0 ? 1u : 0u), series, slot.tenant);
    slot.by_others = slot.burst = 0;
  }
  slot.was_counted = true;
}

void LookupCounts::count(Outcome outcome, unsigned questions,
                         std::optional<UseTable::Series> series, TenantSlot tenant) {
  const bool hit = outcome == Outcome::kFound;
  (hit ? hits_ : misses_).fetch_add(questions, std::memory_order_relaxed);
  if (!series) return;
  uses_.looked_up(*series, hit, questions);
  if (tenant != 0) tenants_.looked_up(tenant, hit, questions);
}

LookupCounts::Totals LookupCounts::settled() {
  if (settle(monotonic_now())) {
    std::this_thread::sleep_for(kPending);
    settle(monotonic_now());
  }
  return {.hits = hits_, .misses = misses_};
}

bool LookupCounts::settle(std::int64_t now_ns) {
  bool is_more = false;
  for (std::size_t at = 0; at < kSlots; ++at) {
    const std::lock_guard lock(lock_of(at));
    Slot& slot = (*slots_)[at];
    if (!slot.is_pending()) continue;
    if (now_ns - slot.asked_ns < std::chrono::nanoseconds{kPending}.count())
      is_more = true;
    else
      count(slot);
  }
  return is_more;
}

}  // namespace kvcachefs
