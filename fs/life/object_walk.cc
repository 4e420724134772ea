#include "fs/life/object_walk.h"

#include <vector>

#include "backend/base/log.h"

namespace kvcachefs {
namespace {

// Rows at a time: an iterator over all of them would hold back the database's cleaning.
constexpr std::size_t kBatch = 4096;

}  // namespace

void ObjectWalk::start() {
  catalog_.object_count().begin(catalog_.coming_id());
  thread_ = std::thread([this] { run(); });
}

void ObjectWalk::stop() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

void ObjectWalk::run() {
  ObjectCount& count = catalog_.object_count();
  ObjectId last = kNoObject;
  while (!ending_) {
    const auto found = catalog_.list_objects(last, kBatch);
    if (!found.ok()) {
      log_warn("objects_not_counted errno={}", found.error().code);
      return;
    }
    if (!found->empty()) {
      last = found->back().id;
      count.passed(last, *found);
    }
    if (found->size() < kBatch) {
      count.passed_all();
      return;
    }
  }
}

}  // namespace kvcachefs
