// From a path, whose file may be gone, to the mount that it lies in and its place there.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "backend/base/result.h"
#include "fs/control_request.h"
#include "tools/find_mount.h"

namespace kvcachefs {

struct MountPath {
  FoundMount mount;
  std::string path;  // relative to the root of the filesystem, also through a bind mount
};

// Directories at the end of the path may be gone, too. Errors: those of find_mount(); `problem` has the
// line for the user.
Result<MountPath> find_mount_path(const std::string& path, std::string& problem);

// Asks the daemon of a mount: an object, never an {"error":…}. `problem` as above. Errors: those of
// control_request(), and EBADMSG (the answer is an error, or none).
Result<nlohmann::json> ask_daemon(const FoundMount& mount, const ControlRequest& request,
                                  std::string& problem);

}  // namespace kvcachefs
