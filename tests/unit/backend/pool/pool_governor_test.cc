// How many bytes are under way to a pool: as many as the way carries without a queue.
#include "backend/pool/pool_governor.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "backend/base/units.h"

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;
using Clock = PoolGovernor::Clock;

// A way that carries so many bytes a second, one request after the other, and takes so long for each beside.
class Line {
 public:
  Line(PoolGovernor& governor, double rate, Clock::duration delay)
      : governor_(governor), rate_(rate), delay_(delay) {}

  // `sessions` that have `depth` requests of 1 MiB under way each, if they are let, carry `bytes`. How long the last answers
  // took.
  Clock::duration carry(std::uint64_t bytes, std::size_t sessions, std::size_t depth) {
    std::uint64_t left = bytes / kMiB;
    Clock::duration took{};
    std::vector<std::size_t> own(sessions, 0);
    std::size_t under_way = 0;
    while (left > 0 || under_way > 0) {
      for (std::size_t session = 0; session < sessions; ++session) {
        while (left > 0 && own[session] < depth) {
          auto request = governor_.admit(PoolWay::kRead, kMiB, own[session] == 0, now_);
          if (request == nullptr) break;
          const auto begins = std::max(free_, now_ + delay_);
          free_ = begins + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(kMiB / rate_));
          queue_.push_back({std::move(request), session, now_, free_});
          ++own[session];
          ++under_way;
          --left;
        }
      }
      Sent& first = queue_.front();
      now_ = std::max(now_, first.arrives);
      took = now_ - first.sent;
      first.request->answered(true, now_);
      --own[first.session];
      --under_way;
      queue_.pop_front();
    }
    return took;
  }

 private:
  struct Sent {
    std::shared_ptr<PoolGovernor::Request> request;
    std::size_t session;
    Clock::time_point sent;
    Clock::time_point arrives;
  };
  PoolGovernor& governor_;
  const double rate_;
  const Clock::duration delay_;
  Clock::time_point now_{1h};
  Clock::time_point free_{};
  std::deque<Sent> queue_;
};

TEST(PoolGovernor, ASlowLinkIsNotFilledUp) {
  const auto governor = std::make_shared<PoolGovernor>();
  Line line(*governor, 25e6, 1ms);
  // One request alone takes 43 ms.
  EXPECT_LT(line.carry(2000 * kMiB, 4, 8), 200ms);
  EXPECT_LE(governor->limit(PoolWay::kRead), 6 * kMiB);
  EXPECT_EQ(PoolGovernor::kDefaultMost, governor->limit(PoolWay::kWrite));
}

TEST(PoolGovernor, AFastOneIs) {
  const auto governor = std::make_shared<PoolGovernor>();
  Line(*governor, 1.2e9, 200us).carry(20'000 * kMiB, 4, 8);
  EXPECT_EQ(PoolGovernor::kDefaultMost, governor->limit(PoolWay::kRead));
}

TEST(PoolGovernor, ALinkThatGetsFasterIsUsed) {
  const auto governor = std::make_shared<PoolGovernor>();
  Line(*governor, 25e6, 1ms).carry(2000 * kMiB, 4, 8);
  ASSERT_LE(governor->limit(PoolWay::kRead), 6 * kMiB);
  Line(*governor, 1.2e9, 200us).carry(20'000 * kMiB, 4, 8);
  EXPECT_GE(governor->limit(PoolWay::kRead), 24 * kMiB);
}

TEST(PoolGovernor, TheFirstRequestOfASessionAlwaysGoes) {
  const auto governor = std::make_shared<PoolGovernor>(PoolGovernor::kLeast);
  std::vector<std::shared_ptr<PoolGovernor::Request>> requests;
  for (int session = 0; session < 10; ++session) {
    requests.push_back(governor->admit(PoolWay::kWrite, kMiB, true));
    ASSERT_NE(nullptr, requests.back());
  }
  EXPECT_EQ(nullptr, governor->admit(PoolWay::kWrite, kMiB, false));
  EXPECT_NE(nullptr, governor->admit(PoolWay::kRead, kMiB, false));
  // What ends without an answer is not under way any more.
  requests.clear();
  EXPECT_NE(nullptr, governor->admit(PoolWay::kWrite, kMiB, false));
}

}  // namespace
}  // namespace kvcachefs
