#include "fs/life/object_walk.h"

#include <algorithm>
#include <vector>

#include "backend/base/log.h"
#include "fs/life/states.h"

namespace kvcachefs {
namespace {

// Rows at a time: an iterator over all of them would hold back the database's cleaning.
constexpr std::size_t kBatch = 4096;

}  // namespace

void ObjectWalk::start() {
  core_.catalog.object_count().begin(core_.catalog.coming_id());
  core_.budget.usage().begin_walk(core_.catalog.coming_id());
  if (const Result<void> taken = take_unsealed(); !taken.ok())
    log_warn("unsealed files not counted errno={}", taken.error().code);
  thread_ = std::thread([this] { run(); });
}

void ObjectWalk::stop() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

Result<void> ObjectWalk::take_unsealed() {
  InodeNumber after = 0;
  while (true) {
    const std::vector<InodeNumber> numbers = TRY(core_.catalog.list_unsealed(after, kBatch));
    if (numbers.empty()) return {};
    after = numbers.back();
    for (const InodeNumber number : numbers) {
      const Result<InodePtr> inode = core_.table.get(number);
      if (!inode.ok()) continue;
      const std::lock_guard lock((*inode)->mutex);
      const Result<Tier*> tier = core_.devices->of(**inode);
      if (!tier.ok()) continue;
      const Result<struct stat> backing = (*tier)->status((*inode)->record.object);
      if (!backing.ok()) continue;
      core_.budget.made(number, *(*inode)->device);
      core_.budget.measured(number, *backing);
    }
  }
}

void ObjectWalk::look_at(const ObjectPlace& place) {
  const Result<InodePtr> found = core_.table.get(place.inode);
  if (!found.ok()) return;
  const InodePtr& inode = *found;
  note_policy(core_, *inode);
  DataStamp stamp;
  {
    const std::lock_guard lock(inode->mutex);
    const InodeRecord& record = inode->record;
    if (record.object != place.id || record.state != DataState::kSealed || record.nlink == 0)
      return;
    const auto copy = core_.budget.sealed_copy(*inode, record);
    if (!copy) return;
    core_.budget.usage().walked(*copy);
    stamp = record.stamp;
  }
  if (core_.knowledge.is_block(place.inode)) return;
  core_.budget.known(place.inode, stamp.mtime);
}

void ObjectWalk::run() {
  ObjectCount& count = core_.catalog.object_count();
  ObjectId last = kNoObject;
  while (!ending_) {
    const auto found = core_.catalog.list_objects(last, kBatch);
    if (!found.ok()) {
      log_warn("objects_not_counted errno={}", found.error().code);
      return;
    }
    for (const ObjectPlace& place : *found) {
      if (ending_) return;
      look_at(place);
    }
    if (!found->empty()) {
      last = found->back().id;
      count.passed(last, *found);
      core_.budget.usage().passed(last);
    }
    if (found->size() < kBatch) {
      count.passed_all();
      core_.budget.usage().end_walk();
      core_.budget.files().restored();
      return;
    }
  }
}

}  // namespace kvcachefs
