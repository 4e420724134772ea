#include "fs/pool/frame_fetcher.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/clock.h"
#include "backend/base/duplicate_fd.h"
#include "backend/base/log.h"
#include "fs/pool/drop_shared.h"

namespace kvcachefs {
namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

void FrameFetcher::start() {
  {
    const std::lock_guard lock(mutex_);
    running_ = true;
  }
  thread_ = std::thread([this] { run(); });
}

void FrameFetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    running_ = false;
  }
  bell_->end();
  if (thread_.joinable()) thread_.join();
  std::map<InodeNumber, std::shared_ptr<Driven>> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(flights_);
  }
  for (const auto& [number, driven] : left) {
    driven->flight->fail_for_good(fail(ENOTCONN, "pool: the mount ends"));
    remove(driven->device, driven->object);
  }
}

FrameFetcher::Joined FrameFetcher::joined(const Driven& driven) {
  return {.reader = std::make_shared<FrameReader>(driven.flight),
          .tier = &core_.devices->at(driven.device),
          .object = driven.object};
}

std::optional<FrameFetcher::Joined> FrameFetcher::join(InodeNumber inode) {
  const std::lock_guard lock(mutex_);
  const auto at = flights_.find(inode);
  if (at == flights_.end()) return std::nullopt;
  return joined(*at->second);
}

std::size_t FrameFetcher::flights() const {
  const std::lock_guard lock(mutex_);
  return flights_.size();
}

Result<FrameFetcher::Joined> FrameFetcher::begin(const InodePtr& inode, const PoolCopy& copy,
                                                 const std::string& path, PoolKnown&& known) {
  const ObjectId object = TRY(core_.catalog.next_id());
  NewCopy local = TRY(core_.devices->create_copy(object));
  Result<Joined> outcome = fail(ENOENT, "pool: the file is not there alone any more");
  bool is_new = false;
  if (!core_.budget.can_hold(local.device, copy.size)) {
    outcome = fail(ENOSPC, "pool: a file is larger than there can be room for");
  } else if (::ftruncate(local.fd.get(), static_cast<off_t>(copy.size)) != 0) {
    outcome = fail_errno("size of a backing file");
  } else {
    auto driven = std::make_shared<Driven>();
    driven->inode = inode;
    driven->copy = copy;
    driven->path = path;
    driven->device = local.device;
    driven->object = object;
    driven->flight =
        std::make_shared<FrameFlight>(std::move(known), std::move(local.fd), bell_);
    // Who settles a flight does so under the inode's lock, and takes it from the list afterwards.
    const std::lock_guard inode_lock(inode->mutex);
    const std::lock_guard lock(mutex_);
    if (running_ && inode->record.state == DataState::kRemote) {
      const auto [at, inserted] = flights_.emplace(inode->number, driven);
      is_new = inserted;
      if (is_new) core_.budget.usage().made(inode->number, local.device, inode->tenant.load());
      outcome = joined(*at->second);
    }
  }
  if (!is_new) remove(local.device, object);
  if (is_new) bell_->ring();
  return outcome;
}

Result<Arrival> FrameFetcher::arrival(Joined&& joined) {
  return Arrival{.bytes = joined.reader,
                 .tier = joined.tier,
                 .object = joined.object,
                 .fd = TRY(duplicate_fd(joined.reader->flight().fd()))};
}

void FrameFetcher::run() {
  pthread_setname_np(pthread_self(), "kv-pool-frames");
  auto until = SteadyClock::now() + kIdle;
  while (bell_->wait(until)) {
    std::vector<std::shared_ptr<Driven>> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [number, driven] : flights_) all.push_back(driven);
    }
    bool retries = false;
    for (const std::shared_ptr<Driven>& driven : all) {
      if (!step(*driven)) continue;
      // Nobody rings when the pool can be reached again, or when there is room again.
      retries = retries || driven->flight->state().failed_ns != 0 ||
                core_.budget.is_short(driven->device);
    }
    until = SteadyClock::now() + (retries ? kRetryEvery : kIdle);
  }
}

bool FrameFetcher::step(Driven& driven) {
  FrameFlight& flight = *driven.flight;
  FrameFlight::State state = flight.state();
  measure(driven, state.frames - state.missing);
  if (state.failure) {
    // Whoever still writes has a file that nobody finds.
    give_up(driven, *state.failure);
    return false;
  }
  if (state.missing == 0) return step_to_the_end(driven);
  const bool is_unread = state.readers == 0 && !state.is_wanted;
  const bool is_out_of_reach =
      state.failing_ns != 0 &&
      monotonic_now() - state.failing_ns >= std::chrono::nanoseconds(kForgetAfter).count();
  if (is_unread && (state.missing * 2 > state.frames || is_out_of_reach)) {
    bool is_unread_now = false;
    {
      // Who joins does so under this lock.
      const std::lock_guard lock(mutex_);
      state = flight.state();
      is_unread_now = state.readers == 0 && !state.is_wanted;
      if (is_unread_now) forget(driven);
    }
    if (is_unread_now) {
      flight.fail_for_good(fail(ENOENT, "pool: nobody reads it any more"));
      remove(driven.device, driven.object);
      return false;
    }
  }
  const bool may_ask =
      state.failed_ns == 0 ||
      monotonic_now() - state.failed_ns >= std::chrono::nanoseconds(kRetryEvery).count();
  if (!may_ask) return true;
  std::size_t asked = state.asked;
  while (asked < kMostAsked) {
    const auto range = flight.next_wanted();
    if (!range) break;
    ask(driven, *range, nullptr);
    ++asked;
  }
  // Nobody waits for it: not while the room for it is short, and of a pool that has failed one at
  // a time.
  if (core_.budget.is_short(driven.device) || (state.failed_ns != 0 && state.asked > 0))
    return true;
  if (ahead_->load() >= kMostAhead) return true;
  if (const auto range = flight.next_ahead()) {
    ahead_->fetch_add(1);
    ask(driven, *range, ahead_);
  }
  return true;
}

void FrameFetcher::ask(const Driven& driven, FrameTable::Range range,
                       std::shared_ptr<std::atomic<int>> counted) {
  const std::shared_ptr<FrameFlight>& flight = driven.flight;
  const auto deadline =
      SteadyClock::now() + kRangeDeadline +
      std::chrono::milliseconds(flight->size_of(range) / (kSlowestRate / 1000));
  service_.client().submit<void>(
      PoolClass::kLoad, deadline,
      [flight, range](PoolSession& session, Deadline until) {
        return flight->fetch(session, range, until);
      },
      [flight, range, counted = std::move(counted)](const Result<void>& outcome) {
        if (counted != nullptr) counted->fetch_sub(1);
        flight->answered(range, outcome);
      });
}

// The budget sees what a file that is written by us grows by.
void FrameFetcher::measure(Driven& driven, std::size_t here) {
  if (here == driven.measured) return;
  driven.measured = here;
  struct stat backing {};
  if (::fstat(driven.flight->fd(), &backing) != 0) return;
  const std::lock_guard lock(driven.inode->mutex);
  if (driven.inode->record.state == DataState::kRemote)
    core_.budget.measured(*driven.inode, backing);
}

bool FrameFetcher::step_to_the_end(Driven& driven) {
  const FrameFlight::State state = driven.flight->state();
  // What has been answered may still be at work, and must not write into what is sealed.
  if (state.asked != 0 || state.working != 0) return true;
  if (driven.check == nullptr) {
    driven.check = std::make_shared<Driven::Check>();
    service_.client().submit<PoolStatus>(
        PoolClass::kLoad, SteadyClock::now() + kCheckDeadline,
        [file = driven.flight->file()](PoolSession& session, Deadline deadline) {
          return session.status(*file, deadline);
        },
        [check = driven.check, bell = bell_](Result<PoolStatus> answer) {
          {
            const std::lock_guard lock(check->mutex);
            check->answer.emplace(std::move(answer));
          }
          bell->ring();
        });
    return true;
  }
  std::optional<Result<PoolStatus>> answer;
  {
    const std::lock_guard lock(driven.check->mutex);
    answer = std::move(driven.check->answer);
    driven.check->answer.reset();
  }
  if (!answer) return true;
  const PoolStatus& found = driven.flight->status();
  const bool is_away = !answer->ok() && is_passing(answer->error().code);
  if (is_away && !driven.flight->is_compared()) {
    // It is looked at again as soon as it is of use to somebody.
    driven.check.reset();
    if (state.readers > 0) return true;
  }
  // What was compared with its checksums is what was found, wherever that is by now.
  if (!answer->ok() && !(is_away && driven.flight->is_compared())) {
    give_up(driven, answer->error());
    return false;
  }
  if (answer->ok() && ((*answer)->size != found.size || (*answer)->mtime != found.mtime)) {
    give_up(driven, fail(ESTALE, "pool: a file was changed while it was read"));
    return false;
  }
  if (const Result<void> settled = settle(driven); !settled.ok()) {
    give_up(driven, settled.error());
    return false;
  }
  const std::lock_guard lock(mutex_);
  flights_.erase(driven.inode->number);
  driven.flight->finish();
  return false;
}

Result<void> FrameFetcher::settle(Driven& driven) {
  FrameFlight& flight = *driven.flight;
  return settle_(driven.inode, driven.copy,
                 NewCopy{.device = driven.device, .fd = TRY(duplicate_fd(flight.fd()))},
                 driven.object,
                 Fetched{.file = flight.file(),
                         .status = flight.status(),
                         .chunk_crc32c = flight.take_sums(),
                         .sums = flight.expected()});
}

// The caller holds mutex_: the next flight of the file is counted after this one.
void FrameFetcher::forget(const Driven& driven) {
  flights_.erase(driven.inode->number);
  core_.budget.usage().reaped(driven.inode->number, driven.object);
}

void FrameFetcher::give_up(Driven& driven, const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    forget(driven);
  }
  driven.flight->fail_for_good(error);
  remove(driven.device, driven.object);
  log_info("pool: not loaded path=\"{}\" step=\"{}\" errno={}", driven.path, error.what,
           error.code);
  if (error.code == EILSEQ)
    damaged_.found(driven.path, driven.copy.path_hash, driven.copy.fileid);
  // It is not what it was found as: who looks again asks the pool.
  const bool is_other = error.code == ENOENT || error.code == ENOTDIR || error.code == ESTALE ||
                        error.code == EILSEQ;
  if (!is_other) return;
  if (const Result<void> dropped = drop_shared(core_, driven.inode->number, driven.copy);
      !dropped.ok())
    log_warn("pool: name not removed inode={} errno={}", driven.inode->number,
             dropped.error().code);
}

// Those who have it open keep what is here.
void FrameFetcher::remove(std::uint32_t device, ObjectId object) {
  if (const Result<void> removed = core_.devices->remove_copy(device, object); !removed.ok())
    log_warn("pool: a backing file was not removed object={} errno={}", object,
             removed.error().code);
}

}  // namespace kvcachefs
