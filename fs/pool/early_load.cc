#include "fs/pool/early_load.h"

#include <utility>

#include "backend/base/duplicate_fd.h"
#include "backend/base/log.h"

namespace kvcachefs {

std::unique_ptr<EarlyLoad> EarlyLoad::begin(Core& core, PoolClient& client, Count& count,
                                            const std::string& path, const PoolKnown& found,
                                            Deadline deadline) {
  if (count.fetch_add(1) >= kMost) {
    count.fetch_sub(1);
    return nullptr;
  }
  // Whatever cannot be had now is asked for again by who opens the file.
  const Result<ObjectId> object = core.catalog.next_id();
  Result<NewCopy> local = object.ok() ? core.devices->create_copy(*object) : object.error();
  if (!local.ok()) {
    count.fetch_sub(1);
    return nullptr;
  }
  std::unique_ptr<EarlyLoad> load(new EarlyLoad(core, count, *object, std::move(*local)));
  const std::uint32_t device = load->local_->device;
  Result<UniqueFd> fd = duplicate_fd(load->local_->fd.get());
  if (!fd.ok() || !core.budget.can_hold(device, found.status.size)) return nullptr;
  load->count_bytes(device, found.status.size);
  if (core.budget.is_short(device) || !core.budget.has_room(device)) return nullptr;
  load->arriving_->fd = std::move(*fd);
  client.submit<Fetched>(
      PoolClass::kLoad, deadline,
      [path, found, arriving = load->arriving_](PoolSession& session, Deadline until) {
        return fetch(session, path, found, arriving->fd.get(), until, PoolPace::kPatient);
      },
      [arriving = load->arriving_](Result<Fetched> fetched) {
        const std::lock_guard lock(arriving->mutex);
        arriving->outcome.emplace(std::move(fetched));
        arriving->arrived.notify_all();
      });
  return load;
}

// As a file that is being written: others ask for room at the same time. It has no inode, but an id of the same series
// (Catalog::next_id()).
void EarlyLoad::count_bytes(std::uint32_t device, std::uint64_t size) {
  core_.budget.usage().made(object_, device, 0);
  core_.budget.usage().measured(object_, size);
}

EarlyLoad::~EarlyLoad() {
  if (!local_) return;
  count_.fetch_sub(1);
  core_.budget.usage().reaped(object_, object_);
  if (const Result<void> removed = core_.devices->remove_copy(local_->device, object_);
      !removed.ok())
    log_warn("pool: a backing file was not removed object={} errno={}", object_,
             removed.error().code);
}

bool EarlyLoad::has_failed() const {
  const std::lock_guard lock(arriving_->mutex);
  return arriving_->outcome && !arriving_->outcome->ok();
}

Result<Fetched> EarlyLoad::wait() {
  std::unique_lock lock(arriving_->mutex);
  arriving_->arrived.wait(lock, [this] { return arriving_->outcome.has_value(); });
  return std::move(*arriving_->outcome);
}

NewCopy EarlyLoad::take() {
  count_.fetch_sub(1);
  core_.budget.usage().reaped(object_, object_);
  return std::move(*std::exchange(local_, std::nullopt));
}

}  // namespace kvcachefs
