#include "backend/pool/trash_keeper.h"

#include <pthread.h>

#include <algorithm>

#include "backend/base/log.h"

namespace kvcachefs {

void TrashKeeper::start() {
  thread_ = std::thread([this] { run(); });
}

void TrashKeeper::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

PoolTrash TrashKeeper::trash_locked() const {
  return {.files = seen_.files + (put_.files - seen_at_.files),
          .bytes = seen_.bytes + (put_.bytes - seen_at_.bytes)};
}

PoolTrash TrashKeeper::trash() const {
  const std::lock_guard lock(mutex_);
  return trash_locked();
}

bool TrashKeeper::is_too_much() const {
  const PoolTrash now = trash_locked();
  return now.files > most_.files || now.bytes > most_.bytes;
}

void TrashKeeper::put(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++put_.files;
  put_.bytes += std::min(bytes, kMostPoolBytes);
  if (is_too_much()) changed_.notify_all();
}

void TrashKeeper::run() {
  pthread_setname_np(pthread_self(), "kv-pool-trash");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const std::optional<Duty> duty = duty_();
    const auto begin = SteadyClock::now();
    Result<TrashSwept> swept = duty ? step(*duty) : TrashSwept{};
    const auto took = SteadyClock::now() - begin;
    if (!swept.ok())
      log_debug("pool: trash not looked at step=\"{}\" errno={}", swept.error().what,
                swept.error().code);
    lock.lock();
    // There is more: at once, but where nothing of it could be removed.
    if (duty && swept.ok() && !swept->all && swept->removed.files + swept->renamed > 0)
      continue;
    const std::chrono::nanoseconds shortest =
        std::max<std::chrono::nanoseconds>(kLookEvery, took * kRestWhenFull);
    changed_.wait_for(lock, shortest, [this] { return stopping_; });
    if (!duty || !swept.ok()) continue;
    changed_.wait_for(lock,
                      std::max<std::chrono::nanoseconds>(duty->pause, took * kRest) - shortest,
                      [this] { return stopping_ || is_too_much(); });
  }
}

Result<TrashSwept> TrashKeeper::step(const Duty& duty) {
  PoolTrash at;
  {
    const std::lock_guard lock(mutex_);
    at = put_;
  }
  struct Step {
    TrashSwept swept;
    PoolTrash most;
  };
  const Step done = TRY(client_.call<Step>(
      PoolClass::kBackground, SteadyClock::now() + kStep,
      [duty](PoolSession& session, Deadline deadline) -> Result<Step> {
        TrashRule rule = TrashRule::all_stays();
        rule.before = duty.before;
        rule.now = duty.now;
        rule.renames = duty.renames;
        if (duty.is_bounded) {
          rule.most.files = kMostTrashFiles;
          const std::uint64_t room =
              duty.room > 0 ? duty.room : TRY(session.space(deadline)).total;
          // A pool that does not tell how large it is bounds nothing.
          if (room > 0) rule.most.bytes = trash_share(room);
        }
        return Step{.swept = TRY(sweep_trash(session, rule, kMostInStep, deadline)),
                    .most = rule.most};
      }));
  const std::lock_guard lock(mutex_);
  seen_ = done.swept.left;
  seen_at_ = at;
  most_ = done.most;
  return done.swept;
}

}  // namespace kvcachefs
