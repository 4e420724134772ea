#include "tests/fakes/tests_dir.h"

namespace kvcachefs::testing {

const char* tests_dir() noexcept { return KVCACHEFS_TESTS; }

}  // namespace kvcachefs::testing
