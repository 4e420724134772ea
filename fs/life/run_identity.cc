#include "fs/life/run_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "backend/base/proc_status.h"
#include "backend/base/random.h"

namespace kvcachefs {
namespace {

// "UUID=IDENTITY;" for each device.
Result<std::string> mount_ids(const std::vector<Tier*>& tiers) {
  std::string ids;
  for (Tier* tier : tiers)
    ids += fmt::format("{}={};", format_uuid(tier->info().uuid), TRY(tier->mount_identity()));
  return ids;
}

std::map<std::string_view, std::string_view> identities_in(std::string_view ids) {
  std::map<std::string_view, std::string_view> out;
  while (!ids.empty()) {
    const std::string_view one = ids.substr(0, ids.find(';'));
    ids.remove_prefix(std::min(one.size() + 1, ids.size()));
    const std::size_t at = one.find('=');
    // Of a run of an older version, which did not say whose it is: unlike all.
    if (at != std::string_view::npos) out.emplace(one.substr(0, at), one.substr(at + 1));
  }
  return out;
}

// Whether a filesystem with files of the last run was mounted anew since: a device that is new, or given in
// another place, has none.
bool are_mounted_anew(std::string_view last, std::string_view now) {
  const auto before = identities_in(last);
  if (before.empty()) return last != now;
  const auto current = identities_in(now);
  return std::any_of(before.begin(), before.end(), [&](const auto& one) {
    const auto at = current.find(one.first);
    return at != current.end() && at->second != one.second;
  });
}

}  // namespace

Result<RunMarker> marker_of_now(const std::vector<Tier*>& tiers) {
  return RunMarker{.clean = false, .boot_id = boot_id(), .mount_ids = TRY(mount_ids(tiers))};
}

bool is_of_another_boot(const RunMarker& last, const RunMarker& now) {
  return last.boot_id != now.boot_id || are_mounted_anew(last.mount_ids, now.mount_ids);
}

}  // namespace kvcachefs
