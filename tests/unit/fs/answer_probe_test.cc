#include "fs/answer_probe.h"

#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

constexpr std::chrono::milliseconds kLong = std::chrono::seconds{20};

TEST(AnswerProbe, SaysWhatTheCallsSay) {
  const testing::TempDir dir;
  auto probe = AnswerProbe::prepare();
  ASSERT_OK(probe);
  EXPECT_OK(probe->ask(dir.path(), kLong));
  auto absent = AnswerProbe::prepare();
  ASSERT_OK(absent);
  EXPECT_ERROR(ENOENT, absent->ask(dir / "absent", kLong));
}

TEST(AnswerProbe, HasPatienceWithABound) {
  auto probe = AnswerProbe::prepare();
  ASSERT_OK(probe);
  EXPECT_ERROR(ETIMEDOUT, probe->ask("/", std::chrono::milliseconds{0}));
}

}  // namespace
}  // namespace kvcachefs
