// The device directories of a state directory, by path: what the last mount was given, so that
// the offline check finds them without being told.
//
//   <state>/devices    an absolute path a line; a backslash in one is doubled, and a newline is
//                      written as a backslash and an n
//
// It is a hint: devices are known by their UUIDs, and the check refuses to run without one of
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/base/result.h"

namespace kvcachefs {

[[nodiscard]] std::string encode_device_list(const std::vector<std::string>& paths);
// Errors: EBADMSG (not such a list).
Result<std::vector<std::string>> decode_device_list(std::string_view text);

// Replaces the list, durably. The caller holds the state directory's lock. Errors: ENOENT (a
// path does not exist), EACCES, ENOSPC, EROFS, EIO.
Result<void> write_device_list(const std::string& state, const std::vector<std::string>& paths);

// Errors: ENOENT (no mount has written one), EACCES, EIO, EBADMSG (not such a list).
Result<std::vector<std::string>> read_device_list(const std::string& state);

}  // namespace kvcachefs
