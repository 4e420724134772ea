#include "tools/find_mount.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "backend/base/file_lock.h"
#include "fs/answer_probe.h"
#include "fs/config.h"
#include "fs/state_dir.h"

namespace kvcachefs {
namespace {

FoundMount found(const MountEntry& entry) {
  const std::string state = state_of(entry);
  return {.entry = entry, .state = state, .daemon = FileLock::holder(lock_path_of(state))};
}

// Whether the mount that the path leads into, as it is written, answers: whoever follows a path into one that
// does not hangs with it. Errors: ETIMEDOUT, ENOTCONN, with `problem` said.
Result<void> ask_before(const std::string& path, std::string& problem) {
  std::error_code error;
  const std::string written =
      std::filesystem::absolute(path, error).lexically_normal().string();
  const auto table = read_mount_table();
  if (error || !table.ok()) return {};
  const auto entry = mount_of(*table, written);
  // Of the mount point itself nobody is asked.
  if (!entry || !entry->is_ours() || written == entry->point || written == entry->point + "/")
    return {};
  problem = "no process can be started: end some";
  AnswerProbe probe = TRY(AnswerProbe::prepare());
  problem.clear();
  const auto answers = probe.ask(entry->point, kAnswerPatience);
  if (answers.ok()) return {};
  const int code = answers.error().code;
  if (code != ETIMEDOUT && code != ENOTCONN && code != ECONNABORTED) return {};
  problem = daemon_problem(found(*entry),
                           fail(code == ETIMEDOUT ? ETIMEDOUT : ECONNREFUSED, "the mount"));
  return fail(code == ETIMEDOUT ? ETIMEDOUT : ENOTCONN, "the mount");
}

}  // namespace

Result<FoundMount> find_mount(const std::string& path, FindMount how, std::string& problem) {
  if (how == FindMount::kHolding) TRY(ask_before(path, problem));
  const auto canonical = canonical_path(path);
  if (!canonical) {
    problem =
        fmt::format("{}: {}: name a mount point", path, std::strerror(canonical.error().code));
    return canonical.error();
  }
  const auto table = read_mount_table();
  if (!table) {
    problem = "/proc/self/mountinfo: does not read: mount /proc";
    return table.error();
  }
  const auto entry =
      how == FindMount::kExactly ? mount_on(*table, *canonical) : mount_of(*table, *canonical);
  if (!entry || !entry->is_ours()) {
    problem = fmt::format("{}: no kvcachefs is mounted there: see findmnt -t {}", *canonical,
                          kFilesystemType);
    return fail(EINVAL, "not a mount of ours");
  }
  return found(*entry);
}

std::string daemon_problem(const FoundMount& mount, const Error& error) {
  const std::string& point = mount.entry.point;
  switch (error.code) {
    case ENOENT:
    case ECONNREFUSED:
    case ECONNRESET:
      if (mount.daemon == 0) {
        return fmt::format("{}: its daemon has died: mount it again, or kvcachefs umount {}",
                           point, point);
      }
      return fmt::format("{}: pid {} is starting or stopping: ask again in a moment", point,
                         mount.daemon);
    case EACCES:
    case EPERM:
      return fmt::format("{}: only root and the daemon's user may ask: run as root", point);
    case ETIMEDOUT:
      return fmt::format("{}: its daemon (pid {}) does not answer: see its log", point,
                         mount.daemon);
    default:
      return fmt::format("{}: {}: {}: see the daemon's log", point, error.what,
                         std::strerror(error.code));
  }
}

}  // namespace kvcachefs
