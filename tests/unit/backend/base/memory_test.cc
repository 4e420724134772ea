#include "backend/base/memory.h"

#include <gtest/gtest.h>
#include <sys/sysinfo.h>

namespace kvcachefs {
namespace {

TEST(Memory, IsWhatTheKernelSays) {
  struct sysinfo info {};
  ASSERT_EQ(0, ::sysinfo(&info));
  const auto total = total_memory();
  ASSERT_TRUE(total.has_value());
  EXPECT_EQ(std::uint64_t{info.totalram} * info.mem_unit / 1024, *total / 1024);
  const auto available = available_memory();
  ASSERT_TRUE(available.has_value());
  EXPECT_LT(*available, *total);
}

}  // namespace
}  // namespace kvcachefs
