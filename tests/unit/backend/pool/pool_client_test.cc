#include "backend/pool/pool_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/fake_pool_session.h"

namespace kvcachefs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

Deadline in(Clock::duration time) { return Clock::now() + time; }

bool comes_true(const std::function<bool()>& what) {
  for (const auto end = in(seconds{20}); Clock::now() < end; std::this_thread::yield())
    if (what()) return true;
  return false;
}

class PoolClientTest : public ::testing::Test {
 protected:
  PoolClientTest() : client_(std::make_unique<PoolClient>("kv-pool", opener())) {}
  // Threads that are stuck outlive the test otherwise.
  ~PoolClientTest() override { pool_->hang(false); }

  PoolClient::Open opener() {
    return [pool = pool_](Deadline) -> Result<std::unique_ptr<PoolSession>> {
      return std::unique_ptr<PoolSession>(std::make_unique<testing::FakePoolSession>(pool));
    };
  }
  static Result<PoolStatus> ask(PoolSession& session, Deadline deadline) {
    return session.status("", deadline);
  }
  Result<PoolStatus> call(Clock::duration time, PoolClass group = PoolClass::kDemand) {
    return client_->call<PoolStatus>(group, in(time), ask);
  }
  void wait_up() {
    ASSERT_TRUE(comes_true([&] { return client_->health().up; }));
  }

  const std::shared_ptr<testing::FakePool> pool_ = std::make_shared<testing::FakePool>();
  std::unique_ptr<PoolClient> client_;
};

TEST_F(PoolClientTest, AnswersWithWhatTheWorkSays) {
  wait_up();
  EXPECT_OK(call(seconds{20}));
  EXPECT_OK(call(seconds{20}, PoolClass::kBackground));
  const Result<int> seven =
      client_->call<int>(PoolClass::kDemand, in(seconds{20}),
                         [](PoolSession&, Deadline) -> Result<int> { return 7; });
  ASSERT_OK(seven);
  EXPECT_EQ(7, *seven);
  pool_->set_error(ENOENT);
  for (int i = 0; i < 10; ++i) EXPECT_ERROR(ENOENT, call(seconds{20}));
  EXPECT_TRUE(client_->health().up) << "an answer is an answer";
  EXPECT_EQ(0u, client_->health().failed);
}

TEST_F(PoolClientTest, ADeadlineHoldsWhateverHangs) {
  wait_up();
  pool_->hang(true);
  const auto begin = Clock::now();
  EXPECT_ERROR(ETIMEDOUT, call(milliseconds{50}));
  EXPECT_GE(Clock::now() - begin, milliseconds{50});
  EXPECT_LT(Clock::now() - begin, milliseconds{50} + seconds{5});
  EXPECT_EQ(1u, client_->health().failed);
  // Its thread is given up, and another does its work.
  EXPECT_TRUE(comes_true([&] { return client_->health().stuck == 1; }));
  pool_->hang(false);
  EXPECT_TRUE(comes_true([&] { return client_->health().stuck == 0; }));
  for (int i = 0; i < 20; ++i) EXPECT_OK(call(seconds{20}));
}

TEST_F(PoolClientTest, AFewFailuresTakeItDownAndAProbeBringsItBack) {
  wait_up();
  pool_->set_error(ETIMEDOUT);
  for (int i = 0; i < PoolClient::kFailures; ++i) EXPECT_ERROR(ETIMEDOUT, call(seconds{20}));
  EXPECT_FALSE(client_->health().up);
  EXPECT_EQ(ETIMEDOUT, client_->health().last.code);
  const auto begin = Clock::now();
  for (int i = 0; i < 1000; ++i) EXPECT_ERROR(ENOTCONN, call(seconds{20}));
  EXPECT_LT(Clock::now() - begin, seconds{10}) << "nobody waits for what is down";
  pool_->set_error(0);
  wait_up();
  EXPECT_OK(call(seconds{20}));
}

TEST_F(PoolClientTest, AConnectionThatWasClosedWhileItWasIdleIsNoFailure) {
  wait_up();
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < 4 * PoolClient::kThreads; ++i) EXPECT_OK(call(seconds{20}));
    pool_->cut();
  }
  EXPECT_OK(call(seconds{20}));
  EXPECT_EQ(0u, client_->health().failed);
  EXPECT_EQ(0, client_->health().last.code);
}

TEST_F(PoolClientTest, OneAnswerAmongFailuresKeepsItUp) {
  wait_up();
  for (int round = 0; round < 5; ++round) {
    pool_->set_error(ENOTCONN);
    for (int i = 0; i < PoolClient::kFailures - 1; ++i)
      EXPECT_ERROR(ENOTCONN, call(seconds{20}));
    pool_->set_error(0);
    EXPECT_OK(call(seconds{20}));
  }
  EXPECT_TRUE(client_->health().up);
}

TEST_F(PoolClientTest, StuckThreadsAreBoundedAndComeBack) {
  wait_up();
  pool_->hang(true);
  // The pool goes down at the third; probes go on to get stuck.
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(call(milliseconds{20}).ok());
  EXPECT_FALSE(client_->health().up);
  std::atomic<int> answered{0};
  for (int i = 0; i < 100; ++i)
    client_->submit<PoolStatus>(PoolClass::kBackground, in(milliseconds{20}), ask,
                                [&](const Result<PoolStatus>&) { ++answered; });
  EXPECT_TRUE(comes_true([&] { return answered == 100; }));
  EXPECT_LE(client_->health().stuck, PoolClient::kMostStuck);
  EXPECT_LE(pool_->hanging(), PoolClient::kMostStuck + 2 * PoolClient::kThreads);
  pool_->hang(false);
  wait_up();
  EXPECT_TRUE(comes_true([&] { return client_->health().stuck == 0; }));
  EXPECT_OK(call(seconds{20}));
}

TEST_F(PoolClientTest, CallsThatWaitAreAnsweredWhenItGoesDown) {
  wait_up();
  pool_->hang(true);
  std::atomic<int> answered{0};
  std::atomic<int> refused{0};
  for (std::size_t i = 0; i < PoolClient::kMostWaiting + 2 * PoolClient::kThreads; ++i)
    client_->submit<PoolStatus>(PoolClass::kDemand, in(seconds{1}), ask,
                                [&](const Result<PoolStatus>& result) {
                                  if (!result.ok() && result.error().code == EBUSY) ++refused;
                                  ++answered;
                                });
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(comes_true(
      [&] { return answered == PoolClient::kMostWaiting + 2 * PoolClient::kThreads; }));
  pool_->hang(false);
}

TEST_F(PoolClientTest, AnswersOnceFromManyThreads) {
  wait_up();
  std::atomic<int> answers{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        // Deadlines that the work just makes, or just does not.
        client_->submit<PoolStatus>(i % 2 == 0 ? PoolClass::kDemand : PoolClass::kBackground,
                                    in(milliseconds{i % 5}), ask,
                                    [&](const Result<PoolStatus>&) { ++answers; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(comes_true([&] { return answers == 2000; }));
}

TEST_F(PoolClientTest, EndsThoughSomethingHangs) {
  wait_up();
  pool_->hang(true);
  std::atomic<bool> answered{false};
  client_->submit<PoolStatus>(PoolClass::kDemand, in(milliseconds{100}), ask,
                              [&](const Result<PoolStatus>&) { answered = true; });
  ASSERT_TRUE(comes_true([&] { return pool_->hanging() == 1; }));
  const auto begin = Clock::now();
  client_.reset();
  EXPECT_LT(Clock::now() - begin, seconds{5});
  EXPECT_TRUE(answered);
  pool_->hang(false);
  EXPECT_TRUE(comes_true([&] { return pool_->hanging() == 0; }));
}

TEST_F(PoolClientTest, NobodyWaitsWhenItIsGivenUp) {
  wait_up();
  pool_->hang(true);
  std::atomic<int> answered{0};
  for (std::size_t i = 0; i < 3 * PoolClient::kThreads; ++i)
    client_->submit<PoolStatus>(PoolClass::kLoad, in(seconds{600}), ask,
                                [&](const Result<PoolStatus>& result) {
                                  EXPECT_ERROR(ENOTCONN, result);
                                  ++answered;
                                });
  ASSERT_TRUE(comes_true([&] { return pool_->hanging() == PoolClient::kThreads; }));
  const auto begin = Clock::now();
  client_->give_up();
  EXPECT_EQ(12, answered);
  EXPECT_ERROR(ENOTCONN, call(seconds{20}));
  client_.reset();
  EXPECT_LT(Clock::now() - begin, seconds{10});
  pool_->hang(false);
  EXPECT_TRUE(comes_true([&] { return pool_->hanging() == 0; }));
}

TEST_F(PoolClientTest, StartsWithoutAPool) {
  client_.reset();
  pool_->set_error(ENOTCONN);
  client_ = std::make_unique<PoolClient>("kv-pool", opener());
  EXPECT_ERROR(ENOTCONN, call(seconds{20}));
  EXPECT_TRUE(comes_true([&] { return client_->health().last.code == ENOTCONN; }));
  pool_->set_error(0);
  wait_up();
  EXPECT_OK(call(seconds{20}));
}

}  // namespace
}  // namespace kvcachefs
