#include "fs/budget/evictor.h"

#include <algorithm>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "fs/life/drop.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

constexpr std::chrono::milliseconds kWhileWritten{5};
constexpr std::chrono::milliseconds kIdle{1000};
// What was passed over because it was open or leased is met again after this.
constexpr std::chrono::milliseconds kWalkAgain{250};
// What the reaper has not unlinked in this time is held by somebody (O_PATH, a watch).
constexpr std::chrono::milliseconds kStuck{2000};
// For so long something that is not sealed yet, or not renamed, may still become a victim.
constexpr std::chrono::milliseconds kMayCome{1000};
// Looked at in one round; room is looked at again in between.
constexpr std::size_t kMostInRound = 512;

}  // namespace

Evictor::Evictor(Core& core)
    : core_(core), policy_(core.knowledge.learner()), walk_(policy_, core.budget.files()) {}

void Evictor::start() {
  thread_ = std::thread([this] { run(); });
}

void Evictor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Evictor::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_one();
}

void Evictor::run() {
  Clock::time_point busy_until{};
  while (true) {
    round();
    const std::vector<Need> now = needs();
    const bool is_short =
        std::any_of(now.begin(), now.end(), [](const Need& need) { return need.any(); });
    if (is_short || core_.budget.has_writers()) busy_until = Clock::now() + kIdle;
    const bool busy = Clock::now() < busy_until;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, busy ? kWhileWritten : kIdle,
                      [this, busy] { return stopping_ || (woken_ && !busy); });
    if (std::exchange(woken_, false)) busy_until = Clock::now() + kIdle;
    if (stopping_) return;
  }
}

std::uint64_t Evictor::leaving_soon(std::uint32_t device, std::uint64_t leaving) {
  leaving_.resize(core_.devices->indices());
  Leaving& last = leaving_[device];
  if (last.bytes != leaving) last = {.bytes = leaving, .changed = Clock::now()};
  return Clock::now() - last.changed < kStuck ? leaving : 0;
}

std::vector<Evictor::Need> Evictor::needs() {
  std::vector<Need> needs(core_.devices->indices());
  for (std::uint32_t index = 0; index < needs.size(); ++index) {
    if (!core_.devices->has(index)) continue;
    const DeviceRoom seen = core_.budget.room_on(index);
    const std::uint64_t leaving = leaving_soon(index, seen.usage.leaving);
    needs[index].bytes = static_cast<std::int64_t>(seen.marks.headroom) - seen.room.bytes -
                         static_cast<std::int64_t>(leaving);
    needs[index].leaving = leaving > 0;
    // An inode comes back with its file; how many are leaving is not known.
    needs[index].inodes = leaving > 0 ? 0 : -seen.room.inodes;
  }
  return needs;
}

void Evictor::round() {
  Budget& budget = core_.budget;
  budget.look([this](InodeNumber number) { return core_.table.find(number); }, monotonic_now());
  std::vector<Need> needs = this->needs();
  const auto is_short = [&needs] {
    return std::any_of(needs.begin(), needs.end(), [](const Need& need) { return need.any(); });
  };
  if (is_short()) {
    const Clock::time_point now = Clock::now();
    if (walk_began_ == Clock::time_point{} || now - walk_began_ >= kWalkAgain) {
      walk_.restart();
      walk_began_ = now;
      walk_ended_ = false;
    }
    core_.knowledge.settle();
    walk_.refresh();
    for (std::size_t i = 0; i < kMostInRound && !walk_ended_ && is_short(); ++i) {
      const std::optional<Candidate> candidate = walk_.next();
      if (candidate) {
        consider(*candidate, needs);
      } else {
        walk_ended_ = true;
      }
    }
  }
  in_vain_.resize(needs.size(), Clock::time_point::max());
  for (std::uint32_t index = 0; index < needs.size(); ++index) {
    const UsageSums usage = budget.room_on(index).usage;
    if (!needs[index].any() || needs[index].evicted > 0 || needs[index].leaving) {
      in_vain_[index] = Clock::time_point::max();
      budget.set_exhausted(index, false);
    } else if (walk_ended_) {
      in_vain_[index] = std::min(in_vain_[index], Clock::now());
      const bool may_come = usage.live > 0 && Clock::now() - in_vain_[index] < kMayCome;
      budget.set_exhausted(index, !may_come);
    }
  }
  budget.announce();
}

void Evictor::consider(const Candidate& candidate, std::vector<Need>& needs) {
  InodeNumber number = candidate.name;
  if (candidate.is_block) {
    const auto record = core_.catalog.find_block(candidate.name);
    if (!record.ok()) return;  // damaged, or the database fails: said by it
    if (!*record) return;      // its removal is noted, and not told yet
    number = (*record)->inode;
  }
  const Result<InodePtr> inode = core_.table.get(number);
  if (!inode.ok()) {
    if (!candidate.is_block && inode.error().code == ESTALE)
      core_.budget.files().forget(number);
    return;
  }
  if (!candidate.is_block && core_.knowledge.is_block(number)) {
    // It got a block's name since.
    core_.budget.files().forget(number);
    return;
  }
  take(*inode, needs);
}

bool Evictor::take(const InodePtr& inode, std::vector<Need>& needs) {
  std::uint64_t bytes = 0;
  std::uint32_t device = 0;
  note_policy(core_, *inode);
  {
    const std::lock_guard lock(inode->mutex);
    const InodeRecord& record = inode->record;
    const bool stored =
        record.state == DataState::kSealed || record.state == DataState::kPublished;
    if (!inode->is_file() || !stored || record.nlink == 0 || inode->opens > 0 ||
        inode->evicting)
      return false;
    if (inode->kept || core_.budget.is_leased(inode->number)) return false;
    const std::optional<SealedCopy> copy = core_.budget.sealed_copy(*inode, record);
    if (!copy || copy->device >= needs.size() || !needs[copy->device].any()) return false;
    // From here on nobody is told that it is there.
    inode->evicting = true;
    bytes = copy->bytes;
    device = copy->device;
  }
  if (const Result<void> dropped = drop_names(core_, inode->number, DropReason::kRoom);
      !dropped.ok()) {
    const std::lock_guard lock(inode->mutex);
    inode->evicting = false;
    log_warn("eviction failed inode={} errno={} step=\"{}\"", inode->number,
             dropped.error().code, dropped.error().what);
    return false;
  }
  Need& need = needs[device];
  need.bytes -= static_cast<std::int64_t>(bytes);
  --need.inodes;
  ++need.evicted;
  return true;
}

}  // namespace kvcachefs
