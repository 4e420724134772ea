// Tells whether the machine went down since a run: its page cache is gone then.
#pragma once

#include <vector>

#include "backend/tier.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// This boot of the machine, and these mounts of the devices' filesystems; not clean. Errors: those of
// Tier::mount_identity().
Result<RunMarker> marker_of_now(const std::vector<Tier*>& tiers);

// Another boot, or a filesystem with files of the last run was mounted anew since.
[[nodiscard]] bool is_of_another_boot(const RunMarker& last, const RunMarker& now);

}  // namespace kvcachefs
