// Nodes on one pool, over each kind of pool.
#include "backend/pool/pool_service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/base/clock.h"
#include "backend/pool/pool_trash.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/faulty_pool_session.h"
#include "tests/fakes/forwarding_pool_session.h"
#include "tests/fakes/pulse.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;

bool comes_true(const std::function<bool()>& what) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < end) {
    if (what()) return true;
    std::this_thread::sleep_for(1ms);  // How often is looked.
  }
  return false;
}

// A node, and what it has heard.
class Node {
 public:
  Node(testing::PoolPlace& place, std::uint8_t number, std::chrono::milliseconds beat = 100ms,
       std::chrono::milliseconds dead_after = 4000ms)
      : Node([&place](Deadline) { return place.open(); }, number, beat, dead_after) {}
  Node(PoolClient::Open open, std::uint8_t number, std::chrono::milliseconds beat = 100ms,
       std::chrono::milliseconds dead_after = 4000ms)
      : service_(std::move(open), {.node = node_number(number),
                                   .lease = 1000ms,
                                   .beat_every = beat,
                                   .dead_after = dead_after}) {
    service_.on_change = [this](const PoolLogRecord& record) {
      const std::lock_guard lock(mutex_);
      heard_.insert(record.path_hash);
    };
    service_.on_gap = [this] {
      const std::lock_guard lock(mutex_);
      ++gaps_;
    };
    service_.start();
  }
  static Uuid node_number(std::uint8_t number) {
    Uuid node = testing::kNode;
    node[0] = number;
    return node;
  }
  PoolService& operator*() { return service_; }
  PoolService* operator->() { return &service_; }
  bool has_heard(std::uint64_t hash) {
    const std::lock_guard lock(mutex_);
    return heard_.count(hash) > 0;
  }
  // How often it may have missed something.
  int gaps() {
    const std::lock_guard lock(mutex_);
    return gaps_;
  }

 private:
  std::mutex mutex_;
  std::set<std::uint64_t> heard_;
  int gaps_ = 0;
  PoolService service_;
};

class PoolServiceContract : public ::testing::TestWithParam<testing::PoolPlaceMaker> {
 protected:
  PoolServiceContract() : place_(GetParam().make()) {}
  const std::unique_ptr<testing::PoolPlace> place_;
};

TEST_P(PoolServiceContract, NodesMeetAndHearOfChanges) {
  Node a(*place_, 1);
  Node b(*place_, 2);
  ASSERT_TRUE(comes_true([&] { return a->living().size() == 2 && b->living().size() == 2; }));
  EXPECT_EQ(a->report().pool, b->report().pool);
  ASSERT_TRUE(comes_true([&] { return b->miss_time() == PoolService::kMissFollowed; }));
  constexpr std::uint64_t kChanges = 500;
  constexpr std::uint64_t kRounds = 4;
  const testing::Pulse pulse;
  int whole = 0;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const int gaps = b.gaps();
    const std::uint64_t first = kChanges * round + 1;
    const std::uint64_t last = first + kChanges - 1;
    for (std::uint64_t hash = first; hash <= last; ++hash) {
      b->misses().missed(hash, b->misses().before_asking(hash), INT64_MAX);
      a->tell({.change = PoolChange::kPublished, .path_hash = hash});
    }
    ASSERT_TRUE(comes_true([&] { return b.has_heard(last) || b.gaps() != gaps; }));
    // Heard or not: what may be there now is a miss no more.
    for (std::uint64_t hash = first; hash <= last; ++hash) {
      ASSERT_TRUE(comes_true([&] { return !b->misses().holds(hash, 0); })) << hash;
    }
    // It doubts everything once it has met the other, and where the machine keeps either from
    // its beats: never else.
    if (b.gaps() != gaps) {
      EXPECT_TRUE(round == 0 || pulse.lost() > 500ms) << "a gap in round " << round;
      continue;
    }
    for (std::uint64_t hash = first; hash <= last; ++hash) {
      EXPECT_TRUE(b.has_heard(hash)) << hash;
    }
    ++whole;
  }
  EXPECT_GT(whole, 0) << "nothing was ever heard without a gap";
  // After a gap nobody has waited for what it was about.
  EXPECT_TRUE(comes_true([&] { return a->report().waiting == 0; }));
  EXPECT_EQ(0u, a->report().untold);
  EXPECT_NEAR(static_cast<double>(a->server_now()), static_cast<double>(b->server_now()),
              static_cast<double>(5 * kNanosPerSecond));
}

TEST_P(PoolServiceContract, ADeadNodeIsNoticedAndMayComeBack) {
  Node a(*place_, 1, 100ms, 1000ms);
  auto b = std::make_unique<Node>(*place_, 2);
  ASSERT_TRUE(comes_true([&] { return a->living().size() == 2; }));
  a->misses().missed(6, a->misses().before_asking(6), INT64_MAX);
  b.reset();
  EXPECT_TRUE(comes_true([&] { return a->living().size() == 1; }));
  // What it told last may not have been read.
  EXPECT_TRUE(comes_true([&] { return !a->misses().holds(6, 0); }));
  a->misses().missed(7, a->misses().before_asking(7), INT64_MAX);
  b = std::make_unique<Node>(*place_, 2);
  // It may have published before it was noticed.
  EXPECT_TRUE(comes_true([&] { return !a->misses().holds(7, 0); }));
  // On a busy machine `a` may take `b` for dead once more, and follows its log from the end on afterwards: it has a gap then.
  std::uint64_t told = 7;
  int gaps = -1;
  EXPECT_TRUE(comes_true([&] {
    if (const int now = a.gaps(); now != gaps) {
      gaps = now;
      (*b)->tell({.path_hash = ++told});
    }
    return a.has_heard(told);
  }));
}

// To a node that looks twenty times a second a node lives that has missed one of the slowest beats.
TEST_P(PoolServiceContract, ANodeWithASlowBeatIsNotDead) {
  Node fast(*place_, 2, 50ms, PoolService::kDeadAfter);
  ASSERT_TRUE(comes_true([&] { return fast->living().size() == 1; }));
  const auto session = place_->open();
  ASSERT_OK(session);
  const Uuid slow = Node::node_number(1);
  ASSERT_OK(beat(**session, {.node = slow, .lease = 1000ms}, testing::soon()));
  const std::string path = place_->root() + "/" + pool_node_path(slow);
  const auto is_last_beat = [&](std::chrono::milliseconds ago) {
    const timespec time = to_timespec(file_clock_now() - std::chrono::nanoseconds(ago).count());
    const timespec times[2] = {time, time};
    return ::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0;
  };
  constexpr std::chrono::milliseconds kSlowest =
      PoolService::kDeadAfter / PoolService::kLeastBeats;
  EXPECT_TRUE(
      comes_true([&] { return is_last_beat(2 * kSlowest) && fast->living().size() == 2; }));
  EXPECT_TRUE(
      comes_true([&] { return is_last_beat(4 * kSlowest) && fast->living().size() == 1; }));
}

// Who may write there gives it any time.
TEST_P(PoolServiceContract, AHeartbeatOfTheFutureIsNoLife) {
  const auto session = place_->open();
  ASSERT_OK(session);
  Node living(*place_, 2, 50ms, 500ms);
  ASSERT_TRUE(comes_true([&] { return living->living().size() == 1; }));
  ASSERT_OK(beat(**session, {.node = Node::node_number(1), .lease = 1000ms}, testing::soon()));
  const std::string path = place_->root() + "/" + pool_node_path(Node::node_number(1));
  const timespec time = to_timespec(file_clock_now() + 86'400 * kNanosPerSecond);
  const timespec times[2] = {time, time};
  ASSERT_EQ(0, ::utimensat(AT_FDCWD, path.c_str(), times, 0));
  ASSERT_TRUE(comes_true([&] { return living->living().size() == 2; }));
  EXPECT_TRUE(comes_true([&] { return living->living().size() == 1; }));
}

TEST_P(PoolServiceContract, WhoEndsHasToldHisLastChanges) {
  Node a(*place_, 1);
  {
    Node b(*place_, 2);
    ASSERT_TRUE(comes_true([&] { return a->living().size() == 2 && b->living().size() == 2; }));
    ASSERT_TRUE(comes_true([&] { return a->miss_time() == PoolService::kMissFollowed; }));
    b->tell({.path_hash = 8});
    b->wait_until_told(std::chrono::steady_clock::now() + 20s);
    EXPECT_EQ(0u, b->report().waiting);
    b->client().give_up();
  }
  EXPECT_TRUE(comes_true([&] { return a.has_heard(8); }));
}

TEST_P(PoolServiceContract, WhatIsNotToldIsAGap) {
  Node a(*place_, 1);
  Node b(*place_, 2);
  ASSERT_TRUE(comes_true([&] { return a->living().size() == 2 && b->living().size() == 2; }));
  b->tell({.path_hash = 1});
  ASSERT_TRUE(comes_true([&] { return a.has_heard(1); }));
  const int gaps = a.gaps();
  for (std::uint64_t hash = 2; b->report().untold == 0; ++hash) b->tell({.path_hash = hash});
  EXPECT_TRUE(comes_true([&] { return a.gaps() > gaps; }));
}

TEST_P(PoolServiceContract, TheFirstTryIsWaitedFor) {
  {
    Node a(*place_, 1);
    a->wait_for_first_try(std::chrono::steady_clock::now() + 20s);
    EXPECT_TRUE(a->is_usable());
  }
  std::filesystem::rename(place_->root(), place_->root() + ".away");
  Node b(*place_, 2);
  b->wait_for_first_try(std::chrono::steady_clock::now() + 20s);
  EXPECT_FALSE(b->is_usable());
  EXPECT_NE(0, b->client().health().last.code);
  std::filesystem::rename(place_->root() + ".away", place_->root());
}

TEST_P(PoolServiceContract, JoinsAsSoonAsThePoolIsThere) {
  const std::string root = place_->root();
  std::filesystem::rename(root, root + ".away");
  Node a(*place_, 1);
  ASSERT_TRUE(comes_true([&] { return a->client().health().last.code != 0; }));
  EXPECT_FALSE(a->report().joined);
  EXPECT_EQ(PoolService::kMissUnfollowed, a->miss_time());
  std::filesystem::rename(root + ".away", root);
  EXPECT_TRUE(comes_true([&] { return a->report().joined; }));
}

TEST_P(PoolServiceContract, APoolOfAnotherFormatIsNotUsed) {
  std::filesystem::create_directory(place_->root() + "/.kvcachefs");
  std::ofstream(place_->root() + "/.kvcachefs/pool") << "kvcachefs pool\nformat 3\n";
  Node a(*place_, 1);
  EXPECT_TRUE(comes_true([&] { return a->report().refused.code == EPROTONOSUPPORT; }));
  EXPECT_FALSE(a->report().joined);
}

TEST_P(PoolServiceContract, AFullPoolKeepsItsNodes) {
  const auto faults = std::make_shared<testing::PoolFaults>();
  const auto open = [&](Deadline) -> Result<std::unique_ptr<PoolSession>> {
    return std::unique_ptr<PoolSession>(
        std::make_unique<testing::FaultyPoolSession>(TRY(place_->open()), faults));
  };
  Node a(open, 1);
  Node b(open, 2);
  ASSERT_TRUE(comes_true([&] { return a->living().size() == 2 && b->living().size() == 2; }));
  ASSERT_TRUE(comes_true(
      [&] { return std::filesystem::exists(place_->root() + "/.kvcachefs/trash/spare"); }));
  faults->set_full();
  const auto session = place_->open();
  ASSERT_OK(session);
  const auto beats = [&] {
    std::map<Uuid, UnixNanos> out;
    const Result<std::vector<PoolMember>> members = list_members(**session, testing::soon());
    EXPECT_OK(members);
    for (const PoolMember& member : *members) out[member.node.node] = member.beaten;
    return out;
  };
  const std::map<Uuid, UnixNanos> before = beats();
  ASSERT_EQ(2U, before.size());
  a->tell({.change = PoolChange::kEvicted, .path_hash = 7});
  EXPECT_TRUE(comes_true([&] {
    const std::map<Uuid, UnixNanos> now = beats();
    return now.size() == 2 && std::all_of(now.begin(), now.end(), [&](const auto& node) {
             return node.second > before.at(node.first);
           });
  }));
  EXPECT_EQ(2U, a->living().size());
  EXPECT_EQ(1U, a->report().waiting);
  faults->clear();
  EXPECT_TRUE(comes_true([&] { return b.has_heard(7) && a->report().waiting == 0; }));
}

TEST_P(PoolServiceContract, AServerThatLiesOnceDoesNotRefuse) {
  const auto faults = std::make_shared<testing::PoolFaults>();
  const auto open = [&](Deadline) -> Result<std::unique_ptr<PoolSession>> {
    return std::unique_ptr<PoolSession>(
        std::make_unique<testing::FaultyPoolSession>(TRY(place_->open()), faults));
  };
  std::atomic<int> lies{0};
  faults->set([&](std::string_view call, std::string_view path) {
    return call == "open" && path == pool_superblock_path() && ++lies <= 2 ? EBADMSG : 0;
  });
  Node a(open, 1);
  EXPECT_TRUE(comes_true([&] { return a->report().joined; }));
  EXPECT_EQ(0, a->report().refused.code);
  EXPECT_GE(lies, 2);
}

class PoolServiceTrash : public PoolServiceContract {
 protected:
  std::uint64_t put(std::size_t bytes) {
    const std::string name = "f" + std::to_string(++number_);
    std::ofstream(place_->root() + "/" + name) << std::string(bytes, 'x');
    // It is not too old as long as the test runs: the lease is a second.
    put_at(name, 50s);
    return number_;
  }
  // So long after what the server takes for the time.
  void put_at(const std::string& name, std::chrono::seconds ahead) {
    const auto session = place_->open();
    std::ofstream(place_->root() + "/" + name, std::ios::app) << "";
    const Result<PoolStatus> status = (*session)->status(name, testing::soon());
    ASSERT_OK(status);
    const UnixNanos when = file_clock_now() + std::chrono::nanoseconds(ahead).count();
    EXPECT_OK(put_into_trash(**session, name, status->fileid, when, Node::node_number(9),
                             ++put_, testing::soon()));
  }
  std::uint64_t files() {
    const auto session = place_->open();
    const auto seen = sweep_trash(**session, TrashRule::all_stays(), 0, testing::soon());
    EXPECT_OK(seen);
    return seen.ok() ? seen->left.files : 0;
  }

 private:
  std::uint64_t number_ = 0;
  std::uint64_t put_ = 0;
};

TEST_P(PoolServiceTrash, IsKnownToAllNodes) {
  Node a(*place_, 1);
  Node b(*place_, 2);
  ASSERT_TRUE(comes_true([&] { return a->living().size() == 2 && b->living().size() == 2; }));
  ASSERT_TRUE(comes_true([&] { return b->miss_time() == PoolService::kMissFollowed; }));
  put(1000);
  a->tell({.change = PoolChange::kEvicted, .path_hash = 1, .size = 1000});
  put(500);
  a->tell({.change = PoolChange::kRemoved, .path_hash = 2, .size = 500});
  // It replaced something, and put nothing there.
  a->tell({.change = PoolChange::kRemoved, .path_hash = 3, .size = 0});
  for (Node* node : {&a, &b}) {
    // A look in between counts a file of which it is told, too, until the next look.
    EXPECT_TRUE(comes_true([&] {
      const PoolTrash trash = (*node)->trash();
      return trash.files == 2 && trash.bytes == 1500;
    }));
  }
}

TEST_P(PoolServiceTrash, GoesWithTheLastMountThatEnds) {
  Node a(*place_, 1);
  Node b(*place_, 2);
  ASSERT_TRUE(comes_true([&] { return a->living().size() == 2 && b->living().size() == 2; }));
  for (int i = 0; i < 3; ++i) put(100);
  const auto begin = std::chrono::steady_clock::now();
  a->leave(begin + 10s);
  EXPECT_EQ(3U, files()) << "b's users may read it";
  EXPECT_FALSE(a->is_usable());
  // Others are told of what is done until the end.
  a->tell({.change = PoolChange::kRemoved, .path_hash = 7});
  EXPECT_TRUE(comes_true([&] { return b.has_heard(7); }));
  b->leave(std::chrono::steady_clock::now() + 10s);
  EXPECT_EQ(0U, files());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 9s);
}

// A server's clock was ahead by a year, and is set right.
TEST_P(PoolServiceTrash, ATimeToComeKeepsNothingThere) {
  put_at("ahead", 365 * 24h);
  Node a(*place_, 1);
  EXPECT_TRUE(comes_true([&] { return files() == 0; }));
}

// What it hears of a server's clock is that time, and so much more.
class ShiftedSession : public testing::ForwardingPoolSession {
 public:
  ShiftedSession(std::unique_ptr<PoolSession> below, const std::atomic<std::int64_t>& shift)
      : ForwardingPoolSession(std::move(below)), shift_(shift) {}
  using PoolSession::status;
  Result<PoolStatus> status(PoolFile& file, Deadline deadline) override {
    PoolStatus status = TRY(below_->status(file, deadline));
    status.mtime += shift_;
    return status;
  }

 private:
  const std::atomic<std::int64_t>& shift_;
};

class PoolServiceClock : public PoolServiceTrash {
 protected:
  PoolClient::Open open() {
    return [this](Deadline) -> Result<std::unique_ptr<PoolSession>> {
      return std::unique_ptr<PoolSession>(
          std::make_unique<ShiftedSession>(TRY(place_->open()), shift_));
    };
  }
  // The server's clock is set forth by an hour, and the node hears of it.
  void set_forth(PoolService& service) {
    ASSERT_TRUE(comes_true([&] { return service.living().size() == 1; }));
    shift_ = 3600 * kNanosPerSecond;
    ASSERT_TRUE(comes_true(
        [&] { return service.server_now() > file_clock_now() + 1800 * kNanosPerSecond; }));
  }

 private:
  std::atomic<std::int64_t> shift_{0};
};

TEST_P(PoolServiceClock, ThatIsSetForthTakesNothingFromTheTrash) {
  PoolService a(open(), {.node = Node::node_number(1), .lease = 60s, .beat_every = 100ms});
  a.found_full();  // It looks at its trash every two seconds.
  a.start();
  set_forth(a);
  put_at("now", 0s);
  put_at("ahead", 365 * 24h);
  const std::string ahead =
      place_->root() + "/" +
      pool_trash_path(file_clock_now() + 365 * 86'400 * kNanosPerSecond, {}, 0);
  const std::string hour = ahead.substr(0, ahead.rfind('/'));
  ASSERT_TRUE(comes_true([&] { return !std::filesystem::exists(hour); }))
      << "it has looked at its trash";
  EXPECT_EQ(2U, files());
}

TEST_P(PoolServiceClock, ThatIsSetForthKillsNobody) {
  Node a(open(), 1, 50ms, 20'000ms);
  set_forth(*a);
  const auto session = place_->open();
  ASSERT_OK(session);
  ASSERT_OK(beat(**session, {.node = Node::node_number(2), .lease = 1000ms}, testing::soon()));
  EXPECT_TRUE(comes_true([&] { return a->living().size() == 2; }));
}

TEST(PoolTrashTime, IsShorterWhereThereIsNoRoom) {
  EXPECT_EQ(120s, PoolService::trash_time(60s, false));
  EXPECT_EQ(75s, PoolService::trash_time(60s, true));
  EXPECT_EQ(2s, PoolService::trash_time(1s, true));
}

INSTANTIATE_TEST_SUITE_P(All, PoolServiceTrash, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });
INSTANTIATE_TEST_SUITE_P(All, PoolServiceClock, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });
INSTANTIATE_TEST_SUITE_P(All, PoolServiceContract, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
