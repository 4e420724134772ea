// The seed of a random test: printed, and set by KVCACHEFS_SEED to run the same again.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace kvcachefs::testing {

inline std::uint64_t test_seed() {
  const char* given = std::getenv("KVCACHEFS_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  std::printf("KVCACHEFS_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace kvcachefs::testing
