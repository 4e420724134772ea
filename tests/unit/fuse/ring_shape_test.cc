#include "fs/fuse/ring_shape.h"

#include <gtest/gtest.h>

#include "backend/base/units.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kLimit = 256 * kMiB;

TEST(RingShape, SmallMachinesGetWhatWasAskedFor) {
  EXPECT_EQ(ring_shape(2, 64, kMiB, kLimit), (RingShape{64, kMiB}));
  EXPECT_EQ(ring_shape(4, 64, kMiB, kLimit), (RingShape{64, kMiB}));
}

TEST(RingShape, ThePayloadShrinksBeforeTheDepth) {
  EXPECT_EQ(ring_shape(8, 64, kMiB, kLimit), (RingShape{64, kMiB / 2}));
  EXPECT_EQ(ring_shape(32, 64, kMiB, kLimit), (RingShape{64, kLeastPayload}));
  EXPECT_EQ(ring_shape(192, 64, kMiB, kLimit), (RingShape{10, kLeastPayload}));
}

TEST(RingShape, NoShapeForTooManyProcessors) {
  EXPECT_EQ(ring_shape(1025, 64, kMiB, kLimit).depth, 0u);
  EXPECT_EQ(ring_shape(100'000, 64, kMiB, kLimit).depth, 0u);
}

TEST(RingShape, NeverExceedsTheMemory) {
  for (std::size_t cpus = 1; cpus <= 4096; ++cpus) {
    const RingShape shape = ring_shape(cpus, 64, kMiB, kLimit);
    EXPECT_LE(cpus * shape.depth * shape.payload_bytes, kLimit) << cpus << " CPUs";
  }
}

}  // namespace
}  // namespace kvcachefs
