#include "tools/mount_path.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/base/visible.h"
#include "fs/config.h"
#include "fs/control.h"
#include "tools/answers.h"

namespace kvcachefs {
namespace {

// Takes the last component off; false: nothing is left that could.
bool shorten(std::string& path, std::string& rest) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::size_t slash = path.rfind('/');
  const std::string last = path.substr(slash == std::string::npos ? 0 : slash + 1);
  // What these mean cannot be told without the directory.
  if (last.empty() || last == "." || last == "..") return false;
  rest = rest.empty() ? last : last + '/' + rest;
  path = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  return true;
}

std::string joined(std::string above, const std::string& below) {
  if (!above.empty() && !below.empty() && above.back() != '/') above += '/';
  return above + below;
}

// `rest`: what comes below the directory, there or not.
Result<MountPath> place_in(const std::string& directory, const std::string& rest,
                           std::string& problem) {
  const auto without_slashes = [](std::string text) {
    while (text.starts_with('/')) text.erase(0, 1);
    return text;
  };
  MountPath out;
  out.mount = TRY(find_mount(directory, FindMount::kHolding, problem));
  const MountEntry& entry = out.mount.entry;
  const std::string whole = joined(TRY(canonical_path(directory)), rest);
  const std::string below =
      without_slashes(whole.substr(std::min(whole.size(), entry.point.size())));
  out.path = joined(without_slashes(entry.root), below);
  return out;
}

}  // namespace

Result<MountPath> find_mount_path(const std::string& path, std::string& problem) {
  // The last component is not looked at where that is not needed: to look a block up is to use it.
  std::string directory = path;
  std::string rest;
  std::string said;
  while (shorten(directory, rest)) {
    auto found = place_in(directory, rest, said);
    if (found.ok()) return found;
    if (found.error().code == ETIMEDOUT || found.error().code == ENOTCONN) {
      problem = said;
      return found.error();
    }
    if (found.error().code != ENOENT) break;
  }
  // The mount point itself, or a symlink into the mount.
  return place_in(path, "", problem);
}

Result<nlohmann::json> ask_daemon(const FoundMount& mount, const ControlRequest& request,
                                  std::string& problem) {
  const auto answer = control_request(mount.state, request);
  if (!answer) {
    problem = daemon_problem(mount, answer.error());
    return answer.error();
  }
  nlohmann::json parsed = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object() && !parsed.contains("error")) return parsed;
  const std::string said = text_in(parsed, "error");
  const std::string about = request.path.empty()
                                ? mount.entry.point
                                : joined(mount.entry.point, visible(request.path));
  problem = fmt::format("{}: {}: the daemon says: {}", request.command, about,
                        said.empty() ? *answer : said);
  return fail(EBADMSG, "answer");
}

}  // namespace kvcachefs
