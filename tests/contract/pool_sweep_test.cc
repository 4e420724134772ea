// What goes from a pool, over each kind of pool.
#include "backend/pool/pool_sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/pool/pool_members.h"
#include "backend/pool/pool_transfer.h"
#include "tests/fakes/expect_result.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using testing::soon;

const Uuid kNode = *parse_uuid("01234567-89ab-cdef-0123-456789abcdef");
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
  Result<Swept> swept = sweep_trash(*session_, before, 7, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(7u, swept->files);
  EXPECT_FALSE(swept->all);
  swept = sweep_trash(*session_, before, 1000, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(kFiles * 2 / 3 - 7u, swept->files);
  EXPECT_TRUE(swept->all);
  EXPECT_EQ(kFiles / 3 + 1u, files_below(".kvcachefs/trash"));
  EXPECT_EQ(kFiles / 3 + 0u, files_below(".kvcachefs/sums"));
}

TEST_P(PoolSweep, WhatADeadNodeLeftGoes) {
  const std::string directory = ".kvcachefs/tmp/" + format_uuid(kNode);
  ASSERT_OK(make_directories(*session_, directory, soon()));
  for (std::uint64_t i = 1; i <= 10; ++i) make(pool_temporary_path(kNode, i));
  Result<Swept> swept = sweep_temporaries(*session_, kNode, 4, soon());
  ASSERT_OK(swept);
  EXPECT_FALSE(swept->all);
  swept = sweep_temporaries(*session_, kNode, 100, soon());
  ASSERT_OK(swept);
  EXPECT_EQ(6u, swept->files);
  EXPECT_EQ(0u, files_below(".kvcachefs/tmp"));
  EXPECT_OK(sweep_temporaries(*session_, kNode, 100, soon()));
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
