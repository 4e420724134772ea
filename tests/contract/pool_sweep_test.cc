// What goes from a pool, over each kind of pool.
#include "backend/pool/pool_sweep.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/pool/pool_members.h"
#include "backend/pool/pool_path.h"
#include "backend/pool/pool_transfer.h"
#include "backend/pool/pool_trash.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/faulty_pool_session.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using testing::kNode;
using testing::soon;

constexpr UnixNanos kNow = 1'764'000'000 * kNanosPerSecond;

class PoolSweep : public testing::PoolTest {
 protected:
  void SetUp() override {
    testing::PoolTest::SetUp();
    ASSERT_OK(join_pool(*session_, kNode, soon()));
  }
  PoolFilePtr make(const std::string& path) {
    const Result<PoolFilePtr> file = session_->create(path, 0644, soon());
    EXPECT_OK(file);
    return file.ok() ? *file : nullptr;
  }
  [[nodiscard]] std::size_t files_below(const std::string& path) const {
    std::size_t files = 0;
    const std::filesystem::path root = place_->root() + "/" + path;
    if (!std::filesystem::exists(root)) return 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
      files += entry.is_regular_file() ? 1 : 0;
    return files;
  }
};

TEST_P(PoolSweep, ReadersKeepWhatIsInTheTrash) {
  const PoolFilePtr file = make("block");
  const std::string bytes = "its bytes";
  ASSERT_OK(
      session_->write(*file, 0, std::as_bytes(std::span(bytes)), PoolWrite::kNow, soon()));
  ASSERT_OK(put_into_trash(*session_, "block", file->status().fileid, kNow, kNode, 1, soon()));
  EXPECT_ERROR(ENOENT, session_->status("block", soon()));
  std::string read(bytes.size(), '\0');
  EXPECT_OK(session_->read(*file, 0, std::as_writable_bytes(std::span(read)), soon()));
  EXPECT_EQ(bytes, read);
}

TEST_P(PoolSweep, AnotherFileOfTheNameStays) {
  const PoolFilePtr old = make("block");
  ASSERT_OK(session_->rename("block", "elsewhere", soon()));
  make("block");
  EXPECT_ERROR(
      ESTALE, put_into_trash(*session_, "block", old->status().fileid, kNow, kNode, 1, soon()));
  EXPECT_OK(session_->status("block", soon()));
  EXPECT_ERROR(ENOENT, put_into_trash(*session_, "absent", 1, kNow, kNode, 1, soon()));
}

TEST_P(PoolSweep, TheTrashIsEmptiedWhenItsTimeIsOver) {
  constexpr int kFiles = 30;
  for (int i = 0; i < kFiles; ++i) {
    const std::string name = "f" + std::to_string(i);
    const PoolFilePtr file = make(name);
    const std::string sums = pool_sums_path(file->status().fileid);
    ASSERT_OK(make_directories(*session_, sums.substr(0, sums.rfind('/')), soon()));
    make(sums);
    // A third each: long ago, an hour ago, now.
    const UnixNanos when = kNow - (i % 3) * 3700 * kNanosPerSecond;
    ASSERT_OK(put_into_trash(*session_, name, file->status().fileid, when, kNode,
                             static_cast<std::uint64_t>(i), soon()));
  }
  std::ofstream(place_->root() + "/.kvcachefs/trash/by-hand") << "x";
  const UnixNanos before = kNow - 120 * kNanosPerSecond;
  Result<TrashSwept> swept = sweep_trash(*session_, {.before = before}, 7, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(7u, swept->removed.files);
  EXPECT_FALSE(swept->all);
  swept = sweep_trash(*session_, {.before = before}, 1000, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(kFiles * 2 / 3 - 7u, swept->removed.files);
  EXPECT_EQ(kFiles / 3 + 0u, swept->left.files);
  EXPECT_TRUE(swept->all);
  EXPECT_EQ(kFiles / 3 + 1u, files_below(".kvcachefs/trash"));
  EXPECT_EQ(kFiles / 3 + 0u, files_below(".kvcachefs/sums"));
}

// Eleven files of a KiB, the later in the alphabet the later in the trash; by what is left.
TEST_P(PoolSweep, TheOldestOfTheTrashGoesWhenThereIsTooMuchOfIt) {
  std::vector<PoolFilePtr> files;
  const std::string bytes(4096, 'x');
  for (std::uint64_t i = 0; i < 11; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    files.push_back(make(name));
    ASSERT_OK(session_->write(*files.back(), 0, std::as_bytes(std::span(bytes)),
                              PoolWrite::kNow, soon()));
    // Over the turn of an hour; the last three within one second.
    const UnixNanos when =
        kNow - (i < 8 ? 8 - static_cast<std::int64_t>(i) : 0) * 1000 * kNanosPerSecond;
    ASSERT_OK(
        put_into_trash(*session_, name, files.back()->status().fileid, when, kNode, i, soon()));
  }
  const auto is_there = [&](std::size_t i) {
    const Result<PoolStatus> status = session_->status(*files[i], soon());
    return status.ok() && status->nlink > 0;
  };
  Result<TrashSwept> swept = sweep_trash(*session_, TrashRule::all_stays(), 0, soon());
  ASSERT_OK(swept);
  EXPECT_TRUE(swept->all);
  EXPECT_EQ(11u, swept->left.files);
  EXPECT_EQ(11u * 4096, swept->left.bytes);
  swept = sweep_trash(*session_, {.most = {.files = 100, .bytes = 7 * 4096 + 1}}, 3, soon());
  ASSERT_OK(swept);
  EXPECT_FALSE(swept->all);
  EXPECT_EQ(3u, swept->removed.files);
  swept = sweep_trash(*session_, {.most = {.files = 100, .bytes = 7 * 4096 + 1}}, 3, soon());
  ASSERT_OK(swept);
  EXPECT_TRUE(swept->all);
  EXPECT_EQ(1u, swept->removed.files);
  EXPECT_EQ(7u * 4096, swept->left.bytes);
  EXPECT_FALSE(is_there(3));
  EXPECT_TRUE(is_there(4));
  swept = sweep_trash(*session_, {.most = {.files = 2, .bytes = UINT64_MAX}}, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(2u, swept->left.files);
  // The numbers 8, 9 and 10 of one second.
  EXPECT_FALSE(is_there(8));
  EXPECT_TRUE(is_there(9));
  EXPECT_TRUE(is_there(10));
  swept = sweep_trash(*session_, TrashRule::nothing_stays(), 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(0u, swept->left.files);
  EXPECT_EQ(0u, files_below(".kvcachefs/trash"));
}

constexpr std::int64_t kYear = 365 * 86'400 * kNanosPerSecond;

// The server's clock was ahead, and is set right.
TEST_P(PoolSweep, ATimeToComeInATrashNameCountsAsNow) {
  std::vector<PoolFilePtr> files;
  const auto put = [&](UnixNanos when) {
    const std::string name = "f" + std::to_string(files.size());
    files.push_back(make(name));
    ASSERT_OK(put_into_trash(*session_, name, files.back()->status().fileid, when, kNode,
                             files.size(), soon()));
  };
  for (int i = 0; i < 5; ++i) put(kNow + kYear + i * kNanosPerSecond);
  put(kNow);
  const TrashRule rule{.before = kNow - 120 * kNanosPerSecond, .now = kNow, .renames = true};
  Result<TrashSwept> swept = sweep_trash(*session_, rule, 3, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(3u, swept->renamed);
  EXPECT_FALSE(swept->all);
  swept = sweep_trash(*session_, rule, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(2u, swept->renamed);
  EXPECT_TRUE(swept->all);
  swept = sweep_trash(*session_, rule, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(0u, swept->renamed);
  EXPECT_EQ(0u, swept->removed.files);
  EXPECT_EQ(6u, swept->left.files);
  for (const PoolFilePtr& file : files)
    EXPECT_OK(session_->status(*file, soon())) << "a reader has it";
  EXPECT_FALSE(std::filesystem::exists(
      below(std::string(split_pool_path(pool_trash_path(kNow + kYear, kNode, 0)).first))));
  swept = sweep_trash(*session_, {.before = kNow + kNanosPerSecond}, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(6u, swept->removed.files);
  EXPECT_EQ(0u, files_below(".kvcachefs/trash"));
}

TEST_P(PoolSweep, SeveralNodesRenameATrashThatIsAheadAndLoseNothing) {
  constexpr std::uint64_t kFiles = 40;
  for (std::uint64_t i = 0; i < kFiles; ++i) {
    const std::string name = "f" + std::to_string(i);
    // Of many runs of one node: by its seconds alone each has a name of its own.
    ASSERT_OK(put_into_trash(*session_, name, make(name)->status().fileid,
                             kNow + kYear + static_cast<std::int64_t>(i) * kNanosPerSecond,
                             kNode, 1, soon()));
  }
  std::atomic<std::uint64_t> renamed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Result<std::unique_ptr<PoolSession>> session = place_->open();
      ASSERT_OK(session);
      for (bool all = false; !all;) {
        const Result<TrashSwept> swept =
            sweep_trash(**session, {.now = kNow, .renames = true}, 7, soon());
        ASSERT_OK(swept);
        renamed += swept->renamed;
        all = swept->all;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(kFiles, renamed);
  EXPECT_EQ(kFiles, files_below(".kvcachefs/trash"));
  const Result<TrashSwept> swept =
      sweep_trash(*session_, {.before = kNow + kNanosPerSecond}, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(kFiles, swept->removed.files);
}

// A name of a year ahead would have it stay longer than all that was put there since.
TEST_P(PoolSweep, WhatSaidATimeToComeGoesBeforeWhatCameLater) {
  const PoolFilePtr ahead = make("ahead");
  ASSERT_OK(put_into_trash(*session_, "ahead", ahead->status().fileid, kNow + kYear, kNode, 1,
                           soon()));
  ASSERT_OK(sweep_trash(*session_, {.now = kNow, .renames = true}, 100, soon()));
  const PoolFilePtr later = make("later");
  ASSERT_OK(put_into_trash(*session_, "later", later->status().fileid,
                           kNow + 5 * kNanosPerSecond, kNode, 2, soon()));
  ASSERT_OK(sweep_trash(*session_, {.most = {.files = 1, .bytes = UINT64_MAX}}, 100, soon()));
  EXPECT_OK(session_->status(*later, soon()));
  EXPECT_EQ(1u, files_below(".kvcachefs/trash"));
}

TEST_P(PoolSweep, WhatADeadNodeLeftGoes) {
  const std::string directory = ".kvcachefs/tmp/" + format_uuid(kNode);
  ASSERT_OK(make_directories(*session_, directory, soon()));
  for (std::uint64_t i = 1; i <= 10; ++i) make(pool_temporary_path(kNode, i));
  const std::string young = pool_temporary_path(kNode, 11);
  const UnixNanos made = make(young)->status().mtime;
  const timespec later[2] = {{.tv_sec = 2'000'000'000, .tv_nsec = 0},
                             {.tv_sec = 2'000'000'000, .tv_nsec = 0}};
  ASSERT_EQ(0, ::utimensat(AT_FDCWD, below(young).c_str(), later, 0));
  Result<Swept> swept = sweep_temporaries(*session_, kNode, {.before = made + 1}, 4, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(4u, swept->files);
  EXPECT_FALSE(swept->all);
  swept = sweep_temporaries(*session_, kNode, {.before = made + 1}, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(6u, swept->files);
  EXPECT_TRUE(swept->all);
  EXPECT_EQ(1u, files_below(".kvcachefs/tmp")) << "somebody may still be writing it";
  // Nobody is by whose clock that time is yet to come.
  swept = sweep_temporaries(*session_, kNode,
                            {.before = made + 1, .after = made + 3600 * kNanosPerSecond}, 100,
                            soon());
  ASSERT_OK(swept);
  EXPECT_EQ(1u, swept->files);
  EXPECT_OK(sweep_temporaries(*session_, kNode, TimesThatGo::all(), 100, soon()));
}

TEST_P(PoolSweep, ADeadNodeGoesWithAllThatIsItsOwn) {
  const Result<PoolBeat> beaten = beat(*session_, {.node = kNode}, soon());
  ASSERT_OK(beaten);
  ASSERT_OK(make_directories(*session_, ".kvcachefs/tmp/" + format_uuid(kNode), soon()));
  for (std::uint64_t i = 1; i <= 30; ++i) {
    make(pool_temporary_path(kNode, i));
    make(pool_log_path(kNode, i));
  }
  // It has beaten since it was looked at: it lives.
  ASSERT_OK(sweep_node(*session_, kNode, beaten->at - 1, 100, soon()));
  EXPECT_EQ(30u, files_below(".kvcachefs/tmp"));
  EXPECT_EQ(30u, files_below(".kvcachefs/log"));
  EXPECT_EQ(1u, files_below(".kvcachefs/nodes"));
  // Several do it at once, and find what is gone already.
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const Result<std::unique_ptr<PoolSession>> session = place_->open();
      ASSERT_OK(session);
      for (bool all = false; !all;) {
        const Result<Swept> swept = sweep_node(**session, kNode, beaten->at, 7, soon());
        ASSERT_OK(swept);
        all = swept->all;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char* directory : {"tmp", "log", "nodes"})
    EXPECT_EQ(0u, files_below(std::string(".kvcachefs/") + directory)) << directory;
}

TEST_P(PoolSweep, ChecksumsOfAnotherFileStay) {
  const auto describe = [&](const PoolStatus& status) {
    const std::string path = pool_sums_path(status.fileid);
    ASSERT_OK(make_directories(*session_, path.substr(0, path.rfind('/')), soon()));
    ASSERT_OK(write_anew(
        *session_, path,
        encode_pool_sums({.fileid = status.fileid, .mtime = status.mtime, .chunk_crc32c = {}}),
        PoolWrite::kNow, soon()));
  };
  const auto has_sums = [&](const PoolStatus& status) {
    return std::filesystem::exists(below(pool_sums_path(status.fileid)));
  };
  // Its own; those of another file that has its number by now; and of one that has another name.
  const PoolStatus own = make("own")->status();
  describe(own);
  const PoolStatus reused = make("reused")->status();
  PoolStatus other = reused;
  ++other.mtime;
  describe(other);
  const PoolFilePtr file = make("linked");
  describe(file->status());
  ASSERT_OK(session_->link(*file, "still-there", soon()));
  std::uint64_t number = 0;
  for (const auto& [name, status] :
       {std::pair{"own", own}, {"reused", reused}, {"linked", file->status()}})
    ASSERT_OK(put_into_trash(*session_, name, status.fileid, kNow, kNode, ++number, soon()));
  const Result<TrashSwept> swept =
      sweep_trash(*session_, {.before = kNow + kNanosPerSecond}, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(3u, swept->removed.files);
  EXPECT_FALSE(has_sums(own));
  EXPECT_TRUE(has_sums(reused));
  EXPECT_TRUE(has_sums(file->status()));
}

TEST_P(PoolSweep, WhatCannotBeRemovedDoesNotKeepTheRest) {
  const auto faults = std::make_shared<testing::PoolFaults>();
  testing::FaultyPoolSession session(*place_->open(), faults);
  for (std::uint64_t i = 1; i <= 5; ++i)
    ASSERT_OK(
        put_into_trash(*session_, "f", make("f")->status().fileid, kNow, kNode, i, soon()));
  const std::string stays = pool_trash_path(kNow, kNode, 3);
  faults->set([&](std::string_view call, std::string_view path) {
    return call == "remove" && path == stays ? EACCES : 0;
  });
  const Result<TrashSwept> swept =
      sweep_trash(session, {.before = kNow + kNanosPerSecond}, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(4u, swept->removed.files);
  EXPECT_EQ(1u, swept->left.files);
  EXPECT_EQ(1u, files_below(".kvcachefs/trash"));
}

TEST_P(PoolSweep, AFullPoolHasTrashAllTheSame) {
  const auto faults = std::make_shared<testing::PoolFaults>();
  testing::FaultyPoolSession session(*place_->open(), faults);
  constexpr std::int64_t kHours = 3600 * kNanosPerSecond;
  make_trash_directories(session, kNow, soon());
  // Empty ones stay for who needs them.
  ASSERT_OK(sweep_trash(session, {.before = kNow - 120 * kNanosPerSecond}, 100, soon()));
  std::vector<PoolFilePtr> files;
  for (int i = 0; i < 3; ++i) files.push_back(make("f" + std::to_string(i)));
  faults->set_full();
  for (std::size_t i = 0; i < files.size(); ++i)
    EXPECT_OK(put_into_trash(session, "f" + std::to_string(i), files[i]->status().fileid,
                             kNow + static_cast<std::int64_t>(i) * kHours, kNode, i, soon()));
  EXPECT_EQ(3u, files_below(".kvcachefs/trash"));
  EXPECT_EQ(1u, files_below(".kvcachefs/trash/spare"));
  const Result<TrashSwept> swept =
      sweep_trash(session, {.before = kNow + 3 * kHours - 120 * kNanosPerSecond}, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(3u, swept->removed.files);
  EXPECT_TRUE(std::filesystem::exists(below(".kvcachefs/trash/spare")));
}

INSTANTIATE_TEST_SUITE_P(All, PoolSweep, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

TEST(PoolOwner, IsSharedEvenlyAndMovesLittle) {
  std::vector<Uuid> nodes;
  for (int i = 0; i < 8; ++i) {
    Uuid node = kNode;
    node[3] = static_cast<std::uint8_t>(i);
    nodes.push_back(node);
  }
  std::vector<Uuid> fewer(nodes.begin(), nodes.end() - 1);
  std::vector<Uuid> turned(nodes.rbegin(), nodes.rend());
  std::map<Uuid, int> share;
  int moved = 0;
  constexpr int kDirectories = 8000;
  for (int i = 0; i < kDirectories; ++i) {
    const std::string top = "model-" + std::to_string(i);
    const Uuid& owner = owner_of(top, nodes);
    ++share[owner];
    EXPECT_EQ(owner, owner_of(top, turned));
    if (owner != owner_of(top, fewer)) {
      ++moved;
      EXPECT_EQ(nodes.back(), owner);
    }
  }
  for (const auto& [node, directories] : share) EXPECT_NEAR(kDirectories / 8, directories, 150);
  EXPECT_EQ(share[nodes.back()], moved);
}

}  // namespace
}  // namespace kvcachefs
