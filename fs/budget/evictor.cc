#include "fs/budget/evictor.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "fs/budget/find_victim.h"
#include "fs/budget/siblings.h"
#include "fs/life/drop_replaced.h"
#include "fs/life/evict_file.h"
#include "fs/life/give_up_bytes.h"
#include "fs/life/is_mapped.h"
#include "fs/order/name_record.h"

namespace kvcachefs {
namespace {

constexpr std::chrono::milliseconds kWhileWritten{5};
constexpr std::chrono::milliseconds kIdle{1000};
// While somebody has more than his quota, and nothing of it could go yet: his calls fail.
constexpr std::chrono::milliseconds kWhileOverQuota{50};
// What was passed over because it was open or leased is met again after this, and after some times what the
// walk took.
constexpr std::chrono::nanoseconds kWalkAgain = std::chrono::milliseconds{20};
constexpr int kWalkShare = 4;
// The same while there is always somebody behind them who can go.
constexpr std::chrono::nanoseconds kLongestWalk = std::chrono::milliseconds{250};
// A walk that passed over so few goes back to them after kWalkAgain: a look at them costs a
// millisecond, and they may have been busy for a moment alone.
constexpr std::size_t kFewPassed = 64;
// What the reaper has not unlinked in this time is held by somebody. A disk that others keep busy takes
// seconds for an unlink.
constexpr std::chrono::seconds kStuck{10};
// As long as the kernel remembers a name without a lease (kBlockTimeout).
constexpr std::chrono::nanoseconds kYoung = std::chrono::seconds{1};
// Looked at in one round, and passed over because they were kept; room is looked at again in between.
constexpr std::size_t kMostInRound = 512;
constexpr std::size_t kMostReplaced = 64;
constexpr std::size_t kMostGivenUp = 16;
constexpr std::size_t kMostPassed = 65'536;
// What was found to be kept is passed over so long, unless there is too much of it to remember.
constexpr std::chrono::seconds kKeptTrusted{60};
constexpr std::size_t kMostKept = 1 << 20;
constexpr std::chrono::seconds kBetweenTold{1};

std::uint64_t kept_key(const Candidate& candidate) noexcept {
  // Numbers of blocks are hashes, those of inodes are small.
  return candidate.is_block ? candidate.name : ~candidate.name;
}

}  // namespace

Evictor::Evictor(Core& core)
    : core_(core), policy_(core.knowledge.learner()), walk_(policy_, core.budget.files()) {}

void Evictor::start() {
  core_.budget.set_watched(true);
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "kv-evict");
}

void Evictor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  core_.budget.set_watched(false);
}

bool Evictor::is_stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void Evictor::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_one();
}

void Evictor::run() {
  Clock::time_point busy_until{};
  Clock::time_point looked{};
  while (true) {
    if (Clock::now() - looked >= kIdle) {
      looked = Clock::now();
      look_after_writers();
      look_at_mapped(core_);
    }
    round();
    if (is_short(needs()) || core_.budget.has_writers()) busy_until = Clock::now() + kIdle;
    const bool busy = Clock::now() < busy_until;
    std::unique_lock lock(mutex_);
    const auto rest = shares_.beyond_quota() != 0 ? kWhileOverQuota : kIdle;
    changed_.wait_for(lock, busy ? kWhileWritten : rest,
                      [this, busy] { return stopping_ || (woken_ && !busy); });
    if (std::exchange(woken_, false)) busy_until = Clock::now() + kIdle;
    if (stopping_) return;
  }
}

// The files of one that has ended are counted anew, as orphans, and may go.
bool Evictor::look_after_writers() {
  if (!core_.knowledge.writers().look()) return false;
  look_anew(Clock::now());
  if (core_.on_policy_told) core_.on_policy_told();
  return true;
}

// All that stayed may go by now.
void Evictor::look_anew(Clock::time_point now) {
  kept_.clear();
  begin_walk(now);
}

bool Evictor::is_leaving_soon(std::uint32_t device, const UsageSums& usage) {
  leaving_.resize(core_.devices->indices());
  Leaving& last = leaving_[device];
  if (last.bytes != usage.leaving || last.files != usage.leaving_files)
    last = {.bytes = usage.leaving, .files = usage.leaving_files, .changed = Clock::now()};
  return usage.leaving_files > 0 && Clock::now() - last.changed < kStuck;
}

std::vector<Evictor::Need> Evictor::needs() {
  std::vector<Need> needs(core_.devices->indices());
  for (std::uint32_t index = 0; index < needs.size(); ++index) {
    // What is not well gets no new files, and gives no room.
    if (core_.devices->state(index) != DeviceState::kWell) continue;
    // Nor does what does not answer: a walk for its sake would pass over all files.
    if (core_.devices->silent(index) > 0 || core_.devices->stalled(index) > 0) continue;
    const DeviceRoom seen = core_.budget.room_on(index);
    Need& need = needs[index];
    need.bytes = static_cast<std::int64_t>(seen.marks.headroom) - seen.room.bytes;
    need.marks = seen.marks;
    if (seen.room.inodes != INT64_MAX)
      need.inodes = seen.marks.inode_headroom - seen.room.inodes;
    need.leaving = is_leaving_soon(index, seen.usage);
    if (!need.leaving) continue;
    need.bytes -= static_cast<std::int64_t>(seen.usage.leaving);
    need.inodes -= static_cast<std::int64_t>(seen.usage.leaving_files);
  }
  return needs;
}

void Evictor::round() {
  Budget& budget = core_.budget;
  budget.look([this](InodeNumber number) { return core_.table.find(number); }, monotonic_now());
  forget_kept_if_told();
  give_up_overgrown();
  std::vector<Need> needs = this->needs();
  found_on_.resize(needs.size());
  shares_ = shares(needs);
  drop_all_replaced(needs);
  if (is_short(needs) || shares_.beyond_quota() != 0) walk(needs);
  if (is_short(needs) && walk_ended_ && on_nothing_left) on_nothing_left();
  const bool was_desperate = core_.is_desperate.load();
  become_desperate(needs);
  budget.keep_over_quota(shares_.beyond_quota());
  budget.set_over_share(shares_.beyond_share());
  for (std::uint32_t index = 0; index < needs.size(); ++index) {
    const Need& need = needs[index];
    const bool has_room = !need.any() || need.evicted > 0 || need.is_coming();
    if (has_room || found_on_[index].young) {
      budget.set_exhausted(index, std::nullopt);
    } else if (walk_ended_ && found_on_[index].nothing() &&
               (was_desperate || !core_.is_publishing) && !look_after_writers()) {
      budget.set_exhausted(index, walk_began_);
    }
  }
  budget.announce();
}

// A program that opened a file before its tenant came near the bounds writes on unseen.
void Evictor::give_up_overgrown() {
  const Staying staying = core_.budget.look_at_staying();
  for (const auto& [tenants, code] : {std::pair(staying.far_beyond_quota(), EDQUOT),
                                      std::pair(staying.far_beyond_share(), ENOSPC)}) {
    if (tenants == 0) continue;
    for (const InodeNumber number : core_.budget.largest_written(tenants, kMostGivenUp))
      if (give_up(number, code)) break;
  }
}

// The largest one that has lost anything, with each look.
bool Evictor::give_up(InodeNumber number, int code) {
  const InodePtr inode = core_.table.find(number);
  if (inode == nullptr) return false;
  const Result<bool> given_up = give_up_bytes(core_, *inode, code);
  if (given_up.ok() && !*given_up) return false;
  if (std::exchange(given_up_last_, number) != number)
    log_warn(
        "given_up inode={} errno={} failed_with={}: its bytes were more than its tenant may "
        "have",
        number, code, given_up.ok() ? 0 : given_up.error().code);
  return given_up.ok();
}

// With the first walk over all that found nothing; until there is room for a while.
void Evictor::become_desperate(const std::vector<Need>& needs) {
  if (!core_.is_publishing) return;
  if (!is_short(needs)) {
    core_.is_desperate.store(false);
  } else if (walk_ended_ && found_nothing(needs) && !core_.is_desperate.exchange(true)) {
    begin_walk(Clock::now());
  }
}

// A told policy may let go what was passed over. Not each of many that are told begins a walk:
// all that is kept is looked at anew, and the walk would never come to what lies behind.
void Evictor::forget_kept_if_told() {
  const std::uint64_t age = core_.knowledge.treatments_age();
  const Clock::time_point now = Clock::now();
  const auto pause = std::max<Clock::duration>(kBetweenTold, walked_for_ * kWalkShare);
  if (age == kept_age_ || now - told_at_ < pause) return;
  kept_age_ = age;
  told_at_ = now;
  look_anew(now);
}

bool Evictor::is_short(const std::vector<Need>& needs) {
  return std::any_of(needs.begin(), needs.end(), [](const Need& need) { return need.any(); });
}

// What all may have together is what they have, less what is missing.
Shares Evictor::shares(const std::vector<Need>& needs) const {
  const Budget& budget = core_.budget;
  const std::vector<Tenant> tenants = core_.knowledge.tenants().list();
  if (tenants.empty()) return {};
  std::uint64_t whole = 0;
  std::uint64_t missing = 0;
  for (std::uint32_t index = 0; index < needs.size(); ++index) {
    const DeviceRoom seen = budget.room_on(index);
    if (!seen.usage.complete) return {};
    whole += seen.room.budget;
    missing += static_cast<std::uint64_t>(std::max<std::int64_t>(needs[index].bytes, 0));
  }
  const TenantUses uses = budget.usage().by_tenant();
  std::uint64_t used = 0;
  for (const TenantUse& use : uses) used += use.all();
  return {tenants, uses, whole, used - std::min(used, missing)};
}

bool Evictor::is_pressing(const std::vector<Need>& needs) const {
  const bool soon = std::any_of(found_on_.begin(), found_on_.end(),
                                [](const Found& found) { return found.young; });
  return std::any_of(needs.begin(), needs.end(),
                     [soon](const Need& need) { return need.is_pressing(soon); });
}

TenantMask Evictor::eligible(const std::vector<Need>& needs) const {
  const TenantMask quota = shares_.beyond_quota();
  if (!is_short(needs)) return quota;
  const TenantMask share = shares_.beyond_share();
  const bool anybody = share == 0 || (of_anybody_ && is_pressing(needs));
  return anybody ? kAllTenants : quota | share;
}

std::optional<Candidate> Evictor::next(const std::vector<Need>& needs) {
  const TenantMask mask = eligible(needs);
  std::optional<Candidate> candidate;
  // Nobody can use an orphan any more.
  if (is_short(needs)) candidate = walk_.next(mask_of(kOrphans));
  if (!candidate) candidate = walk_.next(mask);
  if (candidate || mask == kAllTenants || !is_pressing(needs)) return candidate;
  of_anybody_ = true;
  return walk_.next();
}

void Evictor::walk(std::vector<Need>& needs) {
  const Clock::time_point now = Clock::now();
  const auto pause = std::max<Clock::duration>(walked_all_ ? kWalkAgain : kLongestWalk,
                                               walked_for_ * kWalkShare);
  // Room was there for a while: what was passed over then may go by now.
  const bool is_old = now - walked_last_ >= kIdle;
  if (is_old || now - walk_began_ >= pause) {
    begin_walk(now);
  } else if (passed_ > 0 && passed_ <= kFewPassed && now - went_back_ >= kWalkAgain) {
    go_back(now);
  }
  walked_last_ = now;
  core_.knowledge.settle();
  // What was stored since the walk came to its end is met, too.
  walk_.refresh();
  // With those alone who have too much it does not count as an end: the others' can still go.
  const bool ended = !walk_on(needs);
  walk_ended_ = ended && eligible(needs) == kAllTenants;
  if (ended) core_.budget.set_over_quota(shares_.beyond_quota() & ~found_of_);
  walked_for_ += Clock::now() - now;
  walked_all_ = walked_all_ || walk_ended_;
}

// The walk keeps what it has found so far.
void Evictor::go_back(Clock::time_point now) {
  walk_.restart();
  passed_ = 0;
  went_back_ = now;
}

void Evictor::begin_walk(Clock::time_point now) {
  go_back(now);
  walk_began_ = now;
  walked_for_ = {};
  walked_all_ = false;
  walk_ended_ = false;
  found_on_.assign(core_.devices->indices(), {});
  found_of_ = 0;
  has_moved_ = false;
  of_anybody_ = false;
  if (now - kept_since_ >= kKeptTrusted || kept_.size() >= kMostKept) {
    kept_.clear();
    kept_since_ = now;
  }
}

bool Evictor::walk_on(std::vector<Need>& needs) {
  std::size_t looked_at = 0;
  const Clock::time_point until = Clock::now() + kLongestWalk;
  for (std::size_t i = 0; i < kMostPassed && looked_at < kMostInRound; ++i) {
    if (!is_short(needs) && shares_.beyond_quota() == 0) break;
    if (is_stopping() || Clock::now() >= until) break;
    const std::optional<Candidate> candidate = next(needs);
    if (!candidate && !std::exchange(has_moved_, false)) return false;
    if (!candidate) {
      walk_.refresh();
      continue;
    }
    if (kept_.count(kept_key(*candidate)) > 0) {
      ++passed_;
      continue;
    }
    ++looked_at;
    if (!consider(*candidate, needs)) ++passed_;
  }
  return true;
}

void Evictor::note_young(const Candidate& candidate, std::uint32_t device) {
  found_of_ |= mask_of(candidate.tenant);
  if (device < found_on_.size()) found_on_[device].young = true;
}

bool Evictor::found_nothing(const std::vector<Need>& needs) const {
  for (std::size_t i = 0; i < needs.size(); ++i)
    if (needs[i].any() && !found_on_[i].nothing()) return false;
  return true;
}

// Stored just now: its writer may be about to rename it, and what the kernel remembers of it must not outlast
// it. Its stamp may be that of the lookup long before, and its close may have waited for room long after its last
// write. The caller holds the inode's lock.
bool Evictor::is_young(const Candidate& candidate, const Inode& inode) const {
  const std::int64_t used =
      static_cast<std::int64_t>(candidate.key.stamp) * order::kNanosPerStamp;
  if (core_.knowledge.now() - used < kYoung.count()) return true;
  const UnixNanos age =
      core_.options.clocks.files() - std::max(inode.record.stamp.ctime, inode.closed_at);
  return age >= 0 && age < kYoung.count();
}

// Whether it must stay for now: the others of its block are of no use without it.
bool Evictor::is_in_use(const Candidate& sibling, Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  if (inode.opens > 0 || core_.budget.is_leased(inode.number)) return true;
  if (!is_young(sibling, inode)) return false;
  if (inode.device) note_young(sibling, *inode.device);
  return true;
}

bool Evictor::consider(const Candidate& candidate, std::vector<Need>& needs) {
  if (!walk_.is_current(candidate)) {  // used since: its turn comes later
    has_moved_ = true;
    return false;
  }
  const FoundVictim victim = find_victim(core_, candidate);
  if (victim.inode == nullptr) return false;
  Siblings siblings;
  if (!victim.hash.empty()) siblings = siblings_of(core_, policy_, candidate, victim.hash);
  if (siblings.newest > candidate.key.stamp) {
    policy_.raise(candidate.name, siblings.newest);
    has_moved_ = true;
    return false;
  }
  std::vector<std::pair<Candidate, InodePtr>> others;
  for (const Candidate& sibling : siblings.others) {
    const InodePtr inode = find_victim(core_, sibling).inode;
    if (inode == nullptr) continue;
    if (is_in_use(sibling, *inode)) return false;
    others.emplace_back(sibling, inode);
  }
  const TenantMask quota = shares_.beyond_quota();
  const TenantMask allowed = eligible(needs) | mask_of(kOrphans);
  const bool has_quota_too_much = (quota & mask_of(candidate.tenant)) != 0;
  const DropReason reason = has_quota_too_much ? DropReason::kQuota : DropReason::kRoom;
  const bool gone = evict(candidate, victim.inode, reason, needs, [&](const SealedCopy& copy) {
    // Moved to another tenant's directory since.
    if ((allowed & mask_of(copy.tenant)) == 0) return false;
    // The name of what is on the pool alone has its turn, too: else there would be ever more of these to pass over.
    const bool is_needed = copy.device == kNoDevice
                               ? is_short(needs)
                               : copy.device < needs.size() && needs[copy.device].any();
    if (!is_needed && (quota & mask_of(copy.tenant)) == 0) return false;
    if (!is_young(candidate, *victim.inode)) return true;
    if (copy.device != kNoDevice) note_young(candidate, copy.device);
    return false;
  });
  if (!gone) return false;
  for (const auto& [sibling, inode] : others) evict(sibling, inode, reason, needs, {});
  return true;
}

bool Evictor::evict(const Candidate& candidate, const InodePtr& inode, DropReason reason,
                    std::vector<Need>& needs,
                    const std::function<bool(const SealedCopy&)>& wanted) {
  const Result<Eviction> gone = evict_file(core_, inode, reason, wanted);
  if (!gone.ok()) {
    if (gone.error().code != ESTALE)
      log_warn("eviction failed inode={} errno={} step=\"{}\"", inode->number,
               gone.error().code, gone.error().what);
    return false;
  }
  const bool stays = gone->obstacle == Obstacle::kKept || gone->obstacle == Obstacle::kPinned ||
                     gone->obstacle == Obstacle::kOwned;
  if (stays && kept_.size() < kMostKept) kept_.insert(kept_key(candidate));
  if (gone->obstacle != Obstacle::kNone) return false;
  if (!candidate.is_block) core_.counters.evicted_plain.fetch_add(1, std::memory_order_relaxed);
  shares_.evicted(candidate.tenant, gone->bytes);
  if (gone->device >= needs.size()) return true;
  found_of_ |= mask_of(candidate.tenant);
  found_on_[gone->device].evicted = true;
  needs[gone->device].freed(gone->bytes);
  return true;
}

void Evictor::drop_all_replaced(std::vector<Need>& needs) {
  if (!is_short(needs)) return;
  const std::vector<InodeNumber> numbers =
      core_.budget.rewritten(replaced_last_, kMostReplaced);
  replaced_last_ = numbers.size() < kMostReplaced ? 0 : numbers.back();
  for (const InodeNumber number : numbers) {
    const InodePtr inode = core_.table.find(number);
    if (inode == nullptr) continue;
    const auto gone = drop_replaced(core_, *inode, [&](std::uint32_t device) {
      return device < needs.size() && needs[device].any();
    });
    if (!gone.ok())
      log_warn("replaced_not_dropped inode={} errno={} step=\"{}\"", number, gone.error().code,
               gone.error().what);
    if (gone.ok() && *gone) needs[(*gone)->device].freed((*gone)->bytes);
  }
}

}  // namespace kvcachefs
