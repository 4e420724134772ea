#include "fs/pool/pool_evictor.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "backend/base/log.h"
#include "backend/base/units.h"
#include "backend/pool/pool_sweep.h"
#include "backend/pool/pool_trash.h"
#include "fs/layout/layout.h"
#include "fs/pool/pool_error.h"

namespace kvcachefs {
namespace {

// Of the limit: more than this is too much, and how far down it then goes.
// (The trash has a sixteenth more, and what is on its way the rest.)
constexpr std::uint64_t kHighPercent = 90;
constexpr std::uint64_t kLowPercent = 80;
// Of the size: so much is published before it is counted again.
constexpr std::uint64_t kCountPercent = 2;

std::uint64_t percent(std::uint64_t bytes, std::uint64_t share) noexcept {
  return bytes / 100 * share;
}

// What counts against the files' marks: the files, and what is in the trash beyond its share.
std::uint64_t charged(std::uint64_t used, std::uint64_t trash, std::uint64_t most) noexcept {
  return used - std::min({used, trash, trash_share(most)});
}

bool may_go(const PoolColdFile& file, const std::optional<PoolSums>& sums) noexcept {
  if (sums) return !sums->keep;
  const std::optional<Recognized> name = recognize(file.path);
  return name && !name->temporary && name->kind == NameKind::kBlock &&
         name->policy == FilePolicy::kCache;
}

}  // namespace

void PoolEvictor::start() {
  thread_ = std::thread([this] { run(); });
}

void PoolEvictor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

// False: it is to end.
bool PoolEvictor::sleep(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return stopping_; });
}

void PoolEvictor::run() {
  pthread_setname_np(pthread_self(), "kv-pool-evict");
  while (sleep(kLookEvery)) look();
}

void PoolEvictor::look() {
  if (!service_.is_usable()) return;
  const PoolService::Evictors evictors = service_.evictors();
  if (evictors.nodes.empty()) return;
  if (is_count_old(pool_share(evictors.nodes))) {
    if (const Result<void> counted = count(evictors.nodes); !counted.ok()) {
      log_debug("pool: not counted step=\"{}\" errno={}", counted.error().what,
                counted.error().code);
      return;
    }
  }
  const std::uint64_t counted = own_ + evictors.used_by_others;
  const std::uint64_t trash = service_.trash().bytes;
  std::uint64_t used = counted + (service_.grown() - grown_at_) + trash;
  used_.store(used);
  const auto now = SteadyClock::now();
  const bool is_hopeless = now < hopeless_until_;
  // Of an empty pool, too, and before all agree: what is published first is published fastest.
  service_.set_room(is_hopeless ? std::nullopt : std::optional(most_), counted, grown_at_);
  if (!evictors.all_agree || counted == 0 || is_hopeless) return;
  const bool looks_for_room = now - looked_for_room_ >= kLookForRoomEvery || service_.is_full();
  if (charged(used, trash, size_) <= percent(size_, kHighPercent) && !looks_for_room) return;
  looked_for_room_ = now;
  const Result<std::uint64_t> most = limit(used);
  used_.store(used);
  if (!most.ok()) return;
  most_ = *most;
  const std::uint64_t files = charged(used, trash, *most);
  if (files <= percent(*most, kHighPercent)) return;
  const std::uint64_t too_much = files - percent(*most, kLowPercent);
  // Each node its part.
  const double part = static_cast<double>(own_) / static_cast<double>(counted);
  if (own_ > 0)
    evict(std::min(own_, static_cast<std::uint64_t>(static_cast<double>(too_much) * part)));
}

bool PoolEvictor::is_count_old(std::uint64_t share) const {
  const auto now = SteadyClock::now();
  return (is_used_up_ && now >= hopeless_until_) || share != share_ ||
         service_.grown() - grown_at_ >=
             std::max<std::uint64_t>(percent(size_, kCountPercent), 1) ||
         (service_.is_full() && service_.grown() != grown_at_ &&
          now - counted_ >= kCountFullEvery) ||
         now - counted_ >= kCountEvery;
}

Result<void> PoolEvictor::count(const std::vector<Uuid>& nodes) {
  const std::uint64_t grown_at = service_.grown();
  const auto begin = SteadyClock::now();
  // Enough for a round, from the mark above to the one below.
  if (begin - staying_since_ >= kCountEvery) {
    staying_.clear();
    staying_since_ = begin;
  }
  std::shared_ptr<const PoolTally> counted = TRY(tally(nodes));
  tells_taken_ = counted->tells_taken();
  if (counted->is_doubtful()) counted = TRY(tally(nodes));
  own_ = counted->bytes();
  cold_.assign(counted->coldest().begin(), counted->coldest().end());
  share_ = pool_share(nodes);
  grown_at_ = grown_at;
  counted_ = begin;
  is_used_up_ = false;
  service_.set_used(own_, share_);
  make_uses_of_now(counted->ahead());
  return {};
}

// Else they would stay until that time, whoever uses others.
void PoolEvictor::make_uses_of_now(const std::vector<std::string>& paths) {
  const UnixNanos now = service_.server_now();
  for (const std::string& path : paths) {
    if (!sleep(std::chrono::milliseconds{0})) return;
    const Result<void> used =
        service_.client().call<void>(PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
                                     [path, now](PoolSession& session, Deadline deadline) {
                                       return use_now(session, path, now, deadline);
                                     });
    if (used.ok()) continue;
    log_debug("pool: use not made one of now path=\"{}\" step=\"{}\" errno={}", path,
              used.error().what, used.error().code);
    if (!is_of_path(used.error().code)) return;
  }
}

Result<std::shared_ptr<const PoolTally>> PoolEvictor::tally(const std::vector<Uuid>& nodes) {
  const UnixNanos now = service_.server_now();
  auto tally = std::make_shared<PoolTally>(percent(size_, 2 * (kHighPercent - kLowPercent)),
                                           std::make_shared<const PoolTally::Numbers>(staying_),
                                           now > 0 ? now : INT64_MAX, tells_taken_);
  std::vector<std::string> left = {""};
  while (!left.empty()) {
    if (!sleep(std::chrono::milliseconds{0})) return fail(ECANCELED, "pool: the mount ends");
    const std::string directory = std::move(left.back());
    left.pop_back();
    // A call that hangs may outlive this: then what it counts is thrown away with it.
    std::vector<std::string> below = TRY(service_.client().call<std::vector<std::string>>(
        PoolClass::kBackground, SteadyClock::now() + kListDeadline,
        [directory, tally, nodes, own = service_.node()](PoolSession& session,
                                                         Deadline deadline) {
          const auto is_mine = [&](std::string_view top) {
            return owner_of(top, nodes) == own;
          };
          return tally_directory(session, directory, is_mine, *tally, deadline);
        }));
    std::move(below.begin(), below.end(), std::back_inserter(left));
  }
  return std::shared_ptr<const PoolTally>(std::move(tally));
}

// What the pool may hold now, files and trash: its filesystem may be too full for its size. `used` is no more than is used
// there by anybody, whatever other nodes say.
Result<std::uint64_t> PoolEvictor::limit(std::uint64_t& used) {
  const PoolSpace space = TRY(service_.client().call<PoolSpace>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [](PoolSession& session, Deadline deadline) { return session.space(deadline); }));
  if (space.total == 0) return size_;  // it does not tell
  const std::uint64_t available = std::min(space.available, space.total);
  used = std::min(used, space.total - available);
  return std::min(size_, used + available);
}

void PoolEvictor::evict(std::uint64_t bytes) {
  std::uint64_t freed = 0;
  std::size_t at = 0;
  bool learned = false;  // the next count finds others
  for (; at < cold_.size() && freed < bytes; ++at) {
    if (!sleep(std::chrono::milliseconds{0}) || !service_.is_usable()) return;
    Result<Outcome> outcome = evict_one(cold_[at]);
    // One that the pool does not let go does not keep the others there.
    if (!outcome.ok() && is_of_path(outcome.error().code)) outcome = Outcome::kStays;
    if (!outcome.ok()) {
      log_debug("pool: not evicted path=\"{}\" step=\"{}\" errno={}", cold_[at].path,
                outcome.error().what, outcome.error().code);
      break;
    }
    if (*outcome == Outcome::kStays && staying_.size() < kMostStaying) {
      staying_.insert(cold_[at].fileid);
      learned = true;
    }
    if (*outcome != Outcome::kEvicted) continue;
    freed += cold_[at].size;
    evicted_.fetch_add(1);
    evicted_bytes_.fetch_add(cold_[at].size);
  }
  if (at == cold_.size() && freed == 0 && bytes > 0 && !learned) {
    log_info("pool: fuller than its size, and nothing may go here used=\"{}\" size=\"{}\"",
             format_size(used_.load()), format_size(size_));
    hopeless_until_ = SteadyClock::now() + kHopeless;
  }
  // Those that stayed were used meanwhile, or are to be kept.
  is_used_up_ = at == cold_.size();
  cold_.erase(cold_.begin(), cold_.begin() + static_cast<std::ptrdiff_t>(at));
  own_ -= std::min(own_, freed);
  service_.set_used(own_, share_);
}

Result<PoolEvictor::Outcome> PoolEvictor::evict_one(const PoolColdFile& file) {
  const UnixNanos now = service_.server_now();
  const std::uint64_t number = TRY(catalog_.next_id());
  Result<Outcome> outcome = service_.client().call<Outcome>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [file, now, number, node = service_.node()](PoolSession& session,
                                                  Deadline deadline) -> Result<Outcome> {
        const PoolStatus status = TRY(session.status(file.path, deadline));
        if (status.kind != PoolKind::kFile || status.fileid != file.fileid ||
            status.atime > file.used)
          return Outcome::kUsed;
        const auto sums = find_sums(session, status, deadline);
        // One whose checksums are damaged is of no use to anybody.
        const bool is_useless = !sums.ok() && sums.error().code == EILSEQ;
        if (!is_useless && !may_go(file, TRY(sums))) return Outcome::kStays;
        TRY(put_into_trash(session, file.path, file.fileid, now, node, number, deadline));
        return Outcome::kEvicted;
      });
  if (!outcome.ok()) {
    const int code = outcome.error().code;
    const bool is_gone = code == ENOENT || code == ENOTDIR || code == ESTALE;
    if (is_gone && file.fileid != unheard_) return Outcome::kUsed;
    if (code == ETIMEDOUT || code == ENOTCONN) unheard_ = file.fileid;
    if (!is_gone) return outcome;
    outcome = Outcome::kEvicted;
  }
  if (*outcome != Outcome::kEvicted) return outcome;
  unheard_ = 0;
  const PoolLogRecord record{.change = PoolChange::kEvicted,
                             .path_hash = pool_path_hash(file.path),
                             .fileid = file.fileid,
                             .size = file.size};
  files_.on_change(record);
  service_.tell(record);
  return outcome;
}

void PoolEvictor::add_counts(PoolCounts& counts) const {
  counts.size = size_;
  counts.used = used_.load();
  counts.evicted = evicted_.load();
  counts.evicted_bytes = evicted_bytes_.load();
}

}  // namespace kvcachefs
