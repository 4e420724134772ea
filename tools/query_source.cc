#include "tools/query_source.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "backend/base/file_lock.h"
#include "backend/base/log.h"
#include "fs/control_queries.h"
#include "tools/commands.h"
#include "tools/mount_path.h"

namespace kvcachefs {

void add_place(CLI::App& command, QueryPlace& place) {
  command
      .add_option("MOUNTPOINT", place.mountpoint, "The mount point, or any path in the mount")
      ->type_name("");
  command
      .add_option("--state", place.state,
                  wrap_help("Instead of a mount point: its state directory. When no daemon "
                            "runs, what it wrote last is read there"))
      ->type_name("DIR");
}

bool is_one_place(const QueryPlace& place, std::string& problem) {
  if (place.mountpoint.empty() != place.state.empty()) return true;
  problem = place.state.empty() ? "name a mount point, or a state directory with --state"
                                : "a mount point and --state: give one of them";
  return false;
}

Result<std::unique_ptr<QuerySource>> QuerySource::open(const QueryPlace& place,
                                                       std::string& problem) {
  std::unique_ptr<QuerySource> source{new QuerySource()};
  if (place.state.empty()) {
    source->mount_ = TRY(find_mount(place.mountpoint, FindMount::kHolding, problem));
    return source;
  }
  const pid_t daemon = FileLock::holder(lock_path_of(place.state));
  if (daemon != 0) {
    source->mount_.entry.point = place.state;
    source->mount_.state = place.state;
    source->mount_.daemon = daemon;
    return source;
  }
  // What matters is in the answer, or in `problem`.
  [[maybe_unused]] const auto opened = log_open({.file = "", .level = LogLevel::kOff});
  source->offline_ = TRY(OfflineState::open(place.state, problem));
  source->order_ = std::make_unique<RecordedOrder>(source->offline_->catalog());
  return source;
}

Result<nlohmann::json> QuerySource::ask(const ControlRequest& request, std::string& problem) {
  if (offline_ == nullptr) return ask_daemon(mount_, request, problem);
  const auto answer = answer_query(offline_->catalog(), *order_, request);
  if (!answer) {
    problem = fmt::format("{}: {}: {}: see kvcachefs fsck", request.command,
                          answer.error().what, std::strerror(answer.error().code));
    return answer.error();
  }
  nlohmann::json parsed = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    problem = fmt::format("{}: no answer that reads", request.command);
    return fail(EBADMSG, "answer");
  }
  return parsed;
}

}  // namespace kvcachefs
