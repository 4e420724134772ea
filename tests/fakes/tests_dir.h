// The folder tests/, where their data and servers lie.
#pragma once

namespace kvcachefs::testing {

[[nodiscard]] const char* tests_dir() noexcept;

}  // namespace kvcachefs::testing
