#include "fs/fuse/caller_ids.h"

#include <optional>
#include <sstream>
#include <string>

#include "backend/base/proc_status.h"

namespace kvcachefs {
namespace {

// The last of four: real, effective, saved, of the filesystem.
std::optional<uid_t> last_id(const std::string& line) {
  std::istringstream words(line);
  uid_t id = 0;
  for (int i = 0; i < 4; ++i)
    if (!(words >> id)) return std::nullopt;
  return id;
}

}  // namespace

CallerIds::Ids CallerIds::of_process(pid_t thread) {
  return {.uid = last_id(proc_status(thread, "Uid")).value_or(kNobody),
          .gid = last_id(proc_status(thread, "Gid")).value_or(kNobody)};
}

CallerIds::Ids CallerIds::of(pid_t thread, Clock::time_point now) {
  if (thread == 0) return {};
  {
    const std::lock_guard lock(mutex_);
    const auto at = known_.find(thread);
    if (at != known_.end() && now < at->second.until) return at->second.ids;
  }
  const Ids ids = ask_(thread);
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kMost) known_.clear();
  known_[thread] = {.ids = ids, .until = now + kTrusted};
  return ids;
}

}  // namespace kvcachefs
