#include "fs/order/learner.h"

#include "fs/order/learner_state.h"

namespace kvcachefs::order {

Learner::Learner() : state_(std::make_unique<LearnerState>()) {}
Learner::~Learner() = default;

// A climb along a long chain lets others in between its parts.
template <typename Call>
void Learner::call_and_climb(Call call) {
  Climb climb;
  {
    const std::lock_guard lock(mutex_);
    climb = call();
  }
  while (!climb.done()) {
    const std::lock_guard lock(mutex_);
    state_->climb(climb);
  }
}

void Learner::probe(std::uint64_t name, const Caller& caller, Lookup result,
                    std::int64_t now_ns) {
  call_and_climb([&] { return state_->probe(name, caller, result, now_ns); });
}

void Learner::store_start(std::uint64_t name, const Caller& caller, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  state_->store_start(name, caller, now_ns);
}

void Learner::published(std::uint64_t name, std::int64_t now_ns) {
  call_and_climb([&] { return state_->published(name, now_ns); });
}

void Learner::load(std::uint64_t name, const Caller& caller, std::int64_t now_ns) {
  call_and_climb([&] { return state_->load(name, caller, now_ns); });
}

void Learner::used(std::uint64_t name, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  state_->used(name, now_ns);
}

void Learner::stored_since(std::uint64_t name, std::int64_t then_ns, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  state_->stored_since(name, then_ns, now_ns);
}

void Learner::raise(std::uint64_t name, std::uint64_t stamp) {
  const std::lock_guard lock(mutex_);
  state_->raise_stored(name, stamp);
}

void Learner::rename(std::uint64_t from, std::uint64_t to) {
  const std::lock_guard lock(mutex_);
  state_->rename(from, to);
}

void Learner::set_group(std::uint64_t name, Group group) {
  const std::lock_guard lock(mutex_);
  state_->set_group(name, group);
}

Group Learner::group(std::uint64_t name) const {
  const std::lock_guard lock(mutex_);
  return state_->group(name);
}

void Learner::forget(std::uint64_t name) {
  const std::lock_guard lock(mutex_);
  state_->forget(name);
}

void Learner::enumerated(const Caller& caller, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  state_->enumerated(caller, now_ns);
}

void Learner::silent_until(const Caller& caller, std::int64_t until_ns, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  state_->silent_until(caller, until_ns, now_ns);
}

bool Learner::set_parent(std::uint64_t name, std::uint64_t parent, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  return state_->set_parent(name, parent, now_ns);
}

bool Learner::forget_parent(std::uint64_t name) {
  const std::lock_guard lock(mutex_);
  return state_->forget_parent(name);
}

std::optional<EvictionKey> Learner::eviction_key(std::uint64_t name) const {
  const std::lock_guard lock(mutex_);
  return state_->eviction_key(name);
}

std::vector<Victim> Learner::victims(std::size_t limit, const std::optional<Victim>& after,
                                     Group group) {
  const std::lock_guard lock(mutex_);
  return state_->victims(limit, after, group);
}

std::optional<Parent> Learner::parent(std::uint64_t name) const {
  const std::lock_guard lock(mutex_);
  return state_->parent(name);
}

std::vector<std::uint64_t> Learner::children(std::uint64_t name, std::size_t limit) const {
  const std::lock_guard lock(mutex_);
  return state_->children(name, limit);
}

bool Learner::is_tip(std::uint64_t name) const {
  const std::lock_guard lock(mutex_);
  return state_->is_tip(name);
}

std::vector<std::uint64_t> Learner::next_likely(std::uint64_t name, std::size_t limit) const {
  const std::lock_guard lock(mutex_);
  return state_->next_likely(name, limit);
}

std::optional<Snapshot> Learner::snapshot(std::uint64_t name) const {
  const std::lock_guard lock(mutex_);
  return state_->snapshot(name);
}

ChangedBatch Learner::take_changed(std::size_t limit) {
  const std::lock_guard lock(mutex_);
  return state_->take_changed(limit);
}

void Learner::restore(std::uint64_t name, const Snapshot& snapshot, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  state_->restore(name, snapshot, now_ns);
}

void Learner::restored() {
  bool done = false;
  while (!done) {
    const std::lock_guard lock(mutex_);
    done = state_->restored();
  }
}

LearnerSizes Learner::sizes() const {
  const std::lock_guard lock(mutex_);
  return state_->sizes();
}

}  // namespace kvcachefs::order
