#include "fs/budget/expirer.h"

#include <pthread.h>

#include <algorithm>
#include <optional>

#include "backend/base/log.h"
#include "fs/budget/find_victim.h"
#include "fs/layout/layout.h"
#include "fs/life/evict_file.h"
#include "fs/order/name_record.h"

namespace kvcachefs {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

// A store takes seconds; what is a day old was left by a process that is gone.
constexpr nanoseconds kStale = std::chrono::hours{24};
// Some 2,500 files a second, a few percent of a processor.
constexpr std::size_t kMostInStep = 256;
constexpr std::chrono::milliseconds kBetweenSteps{100};
// A time to live is kept to a tenth, or to ten minutes.
constexpr int kShareOfTtl = 10;
constexpr seconds kShortestPause{1};
constexpr seconds kLongestPause{600};

bool is_temporary(Core& core, InodeNumber inode) {
  constexpr std::size_t kNames = 64;
  const auto links = core.catalog.list_links(inode, kNames);
  return links.ok() && !links->empty() &&
         std::all_of(links->begin(), links->end(),
                     [](const auto& link) { return is_temporary_name(link.second); });
}

}  // namespace

Expirer::Expirer(Core& core)
    : core_(core), policy_(core.knowledge.learner()), walk_(policy_, core.budget.files()) {}

void Expirer::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "kv-expire");
}

void Expirer::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Expirer::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_one();
}

void Expirer::run() {
  while (true) {
    const bool more = step(core_.knowledge.now());
    const auto ttl = core_.knowledge.shortest_ttl();
    const nanoseconds pause =
        ttl ? std::clamp<nanoseconds>(*ttl / kShareOfTtl, kShortestPause, kLongestPause)
            : nanoseconds{kLongestPause};
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, more ? nanoseconds{kBetweenSteps} : pause,
                      [this] { return stopping_ || woken_; });
    woken_ = false;
    if (stopping_) return;
  }
}

bool Expirer::step(std::int64_t now_ns) {
  nanoseconds youngest = kStale;
  if (const auto ttl = core_.knowledge.shortest_ttl())
    youngest = std::min<nanoseconds>(youngest, *ttl);
  if (!under_way_) walk_.restart();
  under_way_ = true;
  walk_.refresh();
  for (std::size_t i = 0; i < kMostInStep; ++i) {
    const std::optional<Candidate> candidate = walk_.next();
    const std::int64_t used =
        candidate ? static_cast<std::int64_t>(candidate->key.stamp) * order::kNanosPerStamp
                  : now_ns;
    if (!candidate || now_ns - used < youngest.count()) {
      under_way_ = false;
      return false;
    }
    consider(*candidate, now_ns - used);
  }
  return true;
}

void Expirer::consider(const Candidate& candidate, std::int64_t age_ns) {
  if (!walk_.is_current(candidate)) return;  // used since
  const InodePtr inode = find_victim(core_, candidate).inode;
  if (inode == nullptr) return;
  InodeRecord record;
  {
    const std::lock_guard lock(inode->mutex);
    record = inode->record;
  }
  const Result<Treatment> treatment = core_.knowledge.treatment(inode->number, record);
  if (!treatment.ok()) return;  // its names are changing: in the next pass
  const bool expired =
      treatment->ttl && age_ns >= std::chrono::nanoseconds{*treatment->ttl}.count();
  // What is on the pool alone is found there again.
  const bool stale =
      age_ns >= kStale.count() && (record.state == DataState::kRemote ||
                                   (!candidate.is_block && is_temporary(core_, inode->number)));
  if (!expired && !stale) return;
  const Result<Eviction> gone = evict_file(core_, inode, DropReason::kExpired);
  if (!gone.ok() && gone.error().code != ESTALE)
    log_warn("expiry failed inode={} errno={} step=\"{}\"", inode->number, gone.error().code,
             gone.error().what);
}

}  // namespace kvcachefs
