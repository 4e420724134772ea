// Whether a directory that is to be ours holds other things.
#pragma once

#include <functional>
#include <string>

namespace kvcachefs {

// The name of an entry of the directory that `is_own` does not take for ours. Empty: there is
// none, or the directory does not read, of which its opening says why.
[[nodiscard]] std::string foreign_entry(
    const std::string& directory, const std::function<bool(const std::string& name)>& is_own);

}  // namespace kvcachefs
