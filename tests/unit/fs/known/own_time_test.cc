#include "fs/known/own_time.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

namespace kvcachefs {
namespace {

constexpr std::int64_t kOneSecond = kNanosPerSecond;
constexpr std::int64_t kOneDay = 86'400 * kOneSecond;
constexpr UnixNanos k2026 = 1'770'000'000 * kOneSecond;
constexpr UnixNanos k1970 = 100 * kOneSecond;
constexpr UnixNanos k2040 = 2'210'000'000 * kOneSecond;

// A machine that is up since `up`, and one run of the daemon after the other on it.
class Machine {
 public:
  OwnTime& start() {
    time_ = std::make_unique<OwnTime>(
        Clocks{.monotonic = [this] { return up_; }, .files = [this] { return wall_; }});
    time_->begin(record_, boot_, next_);
    return *time_;
  }
  // In order, or not: what it has written before is what the next run finds.
  void keep() { record_ = time_->record(next_); }
  void set_wall(UnixNanos wall) { wall_ = wall; }
  void pass(std::int64_t time) {
    up_ += time;
    wall_ += time;
  }
  void boot_after(std::int64_t off) {
    boot_ += "+";
    up_ = 0;
    wall_ += off;
  }
  std::uint64_t make_object() { return next_++; }
  [[nodiscard]] UnixNanos wall() const { return wall_; }
  OwnTime& time() { return *time_; }
  std::int64_t age(UnixNanos written, std::uint64_t object) {
    return time_->now() - time_->of_wall(written, object);
  }
  std::optional<ClockRecord>& record() { return record_; }

 private:
  std::int64_t up_ = kOneDay;
  UnixNanos wall_ = k2026;
  std::string boot_ = "boot";
  std::uint64_t next_ = 1;
  std::optional<ClockRecord> record_;
  std::unique_ptr<OwnTime> time_;
};

TEST(OwnTime, IsThatOfTheWallClockAtFirst) {
  Machine machine;
  EXPECT_EQ(k2026, machine.start().now());
  machine.pass(kOneDay);
  machine.set_wall(k2040);
  EXPECT_EQ(k2026 + kOneDay, machine.time().now());
  EXPECT_EQ(k2040, machine.time().to_wall(machine.time().now()));
}

TEST(OwnTime, GoesOnByTheMonotonicClockWhileNoDaemonRuns) {
  Machine machine;
  machine.start();
  machine.keep();
  // A day without one, of which its last minute was not written down.
  machine.pass(kOneDay);
  machine.set_wall(k1970);
  EXPECT_EQ(k2026 + kOneDay, machine.start().now());
}

TEST(OwnTime, DoesNotCountTheTimeInWhichTheMachineWasOff) {
  Machine machine;
  machine.start();
  const std::uint64_t object = machine.make_object();
  const UnixNanos written = machine.wall();
  machine.pass(kOneDay);
  machine.keep();
  machine.boot_after(100 * kOneDay);
  machine.pass(5 * kOneSecond);
  machine.start();
  EXPECT_EQ(k2026 + kOneDay + 5 * kOneSecond, machine.time().now());
  EXPECT_EQ(kOneDay + 5 * kOneSecond, machine.age(written, object));
}

class OwnTimeWrong : public ::testing::TestWithParam<UnixNanos> {};
INSTANTIATE_TEST_SUITE_P(Years, OwnTimeWrong, ::testing::Values(k1970, k2040));

TEST_P(OwnTimeWrong, AClockThatIsSetRightMakesNoFileOld) {
  Machine machine;
  machine.set_wall(GetParam());
  machine.start();
  const std::uint64_t early = machine.make_object();
  const UnixNanos written_early = machine.wall();
  machine.pass(100 * kOneSecond);
  machine.keep();
  machine.set_wall(k2026);
  machine.start();
  const std::uint64_t late = machine.make_object();
  const UnixNanos written_late = machine.wall();
  machine.pass(50 * kOneSecond);
  EXPECT_EQ(150 * kOneSecond, machine.age(written_early, early));
  EXPECT_EQ(50 * kOneSecond, machine.age(written_late, late));
  // What was written anew since then in the place of what was there.
  EXPECT_EQ(50 * kOneSecond, machine.age(written_late, early));
}

TEST_P(OwnTimeWrong, AClockThatIsWrongAfterAStartMakesNoFileOld) {
  Machine machine;
  machine.start();
  const std::uint64_t object = machine.make_object();
  const UnixNanos written = machine.wall();
  machine.pass(100 * kOneSecond);
  machine.keep();
  machine.boot_after(0);
  machine.set_wall(GetParam());
  machine.start();
  EXPECT_EQ(100 * kOneSecond, machine.age(written, object));
  // It is set right while the daemon runs, which looks a minute later.
  const std::uint64_t before = machine.make_object();
  const UnixNanos wrong = machine.wall();
  machine.pass(10 * kOneSecond);
  machine.set_wall(k2026 + kOneDay);
  const std::uint64_t after = machine.make_object();
  const UnixNanos right = machine.wall();
  machine.pass(60 * kOneSecond);
  EXPECT_EQ(60 * kOneSecond, machine.age(right, after));
  EXPECT_TRUE(machine.time().was_set(99));
  EXPECT_FALSE(machine.time().was_set(99));
  EXPECT_EQ(70 * kOneSecond, machine.age(wrong, before));
  EXPECT_EQ(60 * kOneSecond, machine.age(right, after));
  EXPECT_EQ(170 * kOneSecond, machine.age(written, object));
}

// As `touch -d` says, or `cp -p`.
TEST(OwnTime, BelievesUsersWhoDateTheirFilesBack) {
  Machine machine;
  machine.start();
  const std::uint64_t object = machine.make_object();
  EXPECT_EQ(2 * kOneDay, machine.age(machine.wall() - 2 * kOneDay, object));
  EXPECT_EQ(0, machine.age(machine.wall() + 2 * kOneDay, object));
  EXPECT_EQ(0, machine.age(INT64_MAX, object));
  EXPECT_EQ(machine.time().now() - 1, machine.age(INT64_MIN, object));
}

TEST(OwnTime, RemembersTheLastTimesAtWhichTheClockWasSet) {
  Machine machine;
  machine.start();
  for (std::size_t i = 0; i < 3 * ClockRecord::kMostSpans; ++i) {
    machine.set_wall(machine.wall() + kOneDay);
    machine.make_object();
    machine.keep();
  }
  EXPECT_EQ(ClockRecord::kMostSpans, machine.record()->spans.size());
  EXPECT_EQ(k2026, machine.time().now());
}

}  // namespace
}  // namespace kvcachefs
