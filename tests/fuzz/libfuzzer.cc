// One target as a program of libFuzzer; the build says which.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static_cast<void>(kvcachefs::fuzz::KVCACHEFS_FUZZ_TARGET(
      std::string_view(reinterpret_cast<const char*>(data), size)));
  return 0;
}
