// Who uses a pool and what changes on it, over each kind of pool.
#include "backend/pool/pool_members.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/faulty_pool_session.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using testing::soon;

Uuid node_number(std::uint8_t number) {
  Uuid node = testing::kNode;
  node[0] = number;
  return node;
}

class PoolMembers : public testing::PoolTest {
 protected:
  static std::vector<PoolLogRecord> records(std::uint64_t first, std::uint64_t count) {
    std::vector<PoolLogRecord> out;
    for (std::uint64_t i = 0; i < count; ++i) out.push_back({.path_hash = first + i});
    return out;
  }
  // Hashes that were read; nullopt: something was missed.
  std::optional<std::vector<std::uint64_t>> read(PoolLogReader& reader, std::uint64_t log) {
    std::vector<std::uint64_t> hashes;
    const Result<bool> whole = reader.read(
        *session_, log,
        [&](const PoolLogRecord& record) { hashes.push_back(record.path_hash); }, soon());
    EXPECT_OK(whole);
    if (!whole.ok() || !*whole) return std::nullopt;
    return hashes;
  }
  using Hashes = std::vector<std::uint64_t>;
};

TEST_P(PoolMembers, AllJoinOnePool) {
  std::vector<std::thread> threads;
  std::vector<Uuid> pools(6);
  for (std::size_t i = 0; i < pools.size(); ++i) {
    threads.emplace_back([&, i] {
      const Result<std::unique_ptr<PoolSession>> session = place_->open();
      ASSERT_OK(session);
      const Result<PoolSuperblock> joined =
          join_pool(**session, node_number(static_cast<std::uint8_t>(i)), soon());
      ASSERT_OK(joined);
      pools[i] = joined->pool;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Uuid& pool : pools) EXPECT_EQ(pools.front(), pool);
  const Result<PoolSuperblock> again = join_pool(*session_, node_number(1), soon());
  ASSERT_OK(again);
  EXPECT_EQ(pools.front(), again->pool);
}

TEST_P(PoolMembers, AnotherFormatIsRefused) {
  ASSERT_OK(join_pool(*session_, node_number(1), soon()));
  std::ofstream(below(pool_superblock_path())) << "kvcachefs pool\nformat 99\n";
  EXPECT_ERROR(EPROTONOSUPPORT, join_pool(*session_, node_number(1), soon()));
  std::ofstream(below(pool_superblock_path())) << "something else";
  EXPECT_ERROR(EBADMSG, join_pool(*session_, node_number(1), soon()));
}

TEST_P(PoolMembers, AJoinThatWasCutShortIsMadeAnew) {
  std::filesystem::create_directories(below(".kvcachefs/tmp/" + format_uuid(node_number(1))));
  std::ofstream(below(pool_temporary_path(node_number(1), 0))) << "half";
  EXPECT_OK(join_pool(*session_, node_number(1), soon()));
}

TEST_P(PoolMembers, HeartbeatsAreListed) {
  ASSERT_OK(join_pool(*session_, node_number(1), soon()));
  UnixNanos last = 0;
  for (std::uint64_t log = 1; log < 4; ++log) {
    const Result<PoolBeat> beaten =
        beat(*session_, {.node = node_number(1), .lease = std::chrono::minutes{1}, .log = log},
             soon());
    ASSERT_OK(beaten);
    EXPECT_GE(beaten->at, last);
    EXPECT_FALSE(beaten->is_full);
    last = beaten->at;
  }
  ASSERT_OK(beat(*session_, {.node = node_number(2)}, soon()));
  std::ofstream(below(".kvcachefs/nodes/not-a-node")) << "x";
  std::ofstream(below(pool_node_path(node_number(3)))) << "damaged";
  std::ofstream(below(pool_node_path(node_number(4))))
      << encode_pool_node({.node = node_number(5)});
  const Result<std::vector<PoolMember>> members = list_members(*session_, soon());
  ASSERT_OK(members);
  ASSERT_EQ(2u, members->size());
  const PoolMember& first =
      members->front().node.node == node_number(1) ? members->front() : members->back();
  EXPECT_EQ(3u, first.node.log);
  EXPECT_EQ(last, first.beaten);
  EXPECT_EQ(std::chrono::minutes{1}, first.node.lease);
}

TEST_P(PoolMembers, ALogIsFollowed) {
  ASSERT_OK(join_pool(*session_, node_number(1), soon()));
  PoolLogWriter writer(node_number(1), 1);
  ASSERT_OK(writer.append(*session_, records(100, 5), soon()));
  PoolLogReader reader(node_number(1));
  EXPECT_EQ(Hashes{}, read(reader, writer.log())) << "from its end on";
  ASSERT_OK(writer.append(*session_, records(1, 2), soon()));
  EXPECT_EQ((Hashes{1, 2}), read(reader, writer.log()));
  EXPECT_EQ(Hashes{}, read(reader, writer.log()));
  ASSERT_OK(writer.append(*session_, records(3, 3000), soon()));
  const auto many = read(reader, writer.log());
  ASSERT_TRUE(many.has_value());
  ASSERT_EQ(3000u, many->size());
  EXPECT_EQ(3002u, many->back());
}

TEST_P(PoolMembers, WhatIsHalfWrittenIsReadLater) {
  ASSERT_OK(join_pool(*session_, node_number(1), soon()));
  PoolLogReader reader(node_number(1));
  EXPECT_EQ(Hashes{}, read(reader, 1));
  const std::string record = encode_pool_log_record({.path_hash = 7, .sequence = 1});
  const Result<PoolFilePtr> file =
      session_->create(pool_log_path(node_number(1), 1), 0644, soon());
  ASSERT_OK(file);
  const auto bytes = std::as_bytes(std::span(record));
  ASSERT_OK(session_->write(**file, 0, bytes.first(40), PoolWrite::kNow, soon()));
  EXPECT_EQ(Hashes{}, read(reader, 1));
  // A file whose size comes before its bytes.
  const std::string zeros(kPoolLogRecordBytes - 40, '\0');
  ASSERT_OK(
      session_->write(**file, 40, std::as_bytes(std::span(zeros)), PoolWrite::kNow, soon()));
  EXPECT_EQ(Hashes{}, read(reader, 1));
  ASSERT_OK(session_->write(**file, 0, bytes, PoolWrite::kNow, soon()));
  EXPECT_EQ(Hashes{7}, read(reader, 1));
}

TEST_P(PoolMembers, WhatWasMissedIsNoticed) {
  ASSERT_OK(join_pool(*session_, node_number(1), soon()));
  PoolLogReader reader(node_number(1));
  EXPECT_EQ(Hashes{}, read(reader, 1));
  PoolLogWriter first(node_number(1), 1);
  ASSERT_OK(first.append(*session_, records(1, 2), soon()));
  EXPECT_EQ((Hashes{1, 2}), read(reader, 1));
  // Another run of the node, whose records begin anew.
  const Result<std::uint64_t> next = next_pool_log(*session_, node_number(1), soon());
  ASSERT_OK(next);
  EXPECT_EQ(2u, *next);
  PoolLogWriter second(node_number(1), *next);
  ASSERT_OK(second.append(*session_, records(8, 1), soon()));
  EXPECT_EQ(std::nullopt, read(reader, 2));
  ASSERT_OK(second.append(*session_, records(9, 1), soon()));
  EXPECT_EQ(Hashes{9}, read(reader, 2));
  // A damaged record in the middle.
  ASSERT_OK(second.append(*session_, records(10, 3), soon()));
  {
    std::fstream file(below(pool_log_path(node_number(1), 2)),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2 * kPoolLogRecordBytes + 20);
    file.put('x');
  }
  EXPECT_EQ(std::nullopt, read(reader, 2));
}

TEST_P(PoolMembers, AFullPoolIsToldOfWhoLives) {
  ASSERT_OK(join_pool(*session_, node_number(1), soon()));
  const auto faults = std::make_shared<testing::PoolFaults>();
  testing::FaultyPoolSession session(*place_->open(), faults);
  ASSERT_OK(beat(session, {.node = node_number(1), .log = 1}, soon()));
  faults->set_full();
  const Result<PoolBeat> beaten = beat(
      session, {.node = node_number(1), .log = kMostPoolLogs, .used = kMostPoolBytes}, soon());
  ASSERT_OK(beaten);
  EXPECT_TRUE(beaten->is_full);
  Result<std::vector<PoolMember>> members = list_members(*session_, soon());
  ASSERT_OK(members);
  ASSERT_EQ(1u, members->size());
  EXPECT_EQ(kMostPoolLogs, members->front().node.log);
  EXPECT_EQ(beaten->at, members->front().beaten);
  EXPECT_ERROR(ENOENT, beat(session, {.node = node_number(2)}, soon()));
  faults->clear();
  const Result<PoolBeat> again = beat(session, {.node = node_number(1), .log = 3}, soon());
  ASSERT_OK(again);
  EXPECT_FALSE(again->is_full);
  EXPECT_EQ(3u, list_members(*session_, soon())->front().node.log);
}

TEST_P(PoolMembers, ALogThatFoundNoRoomGoesOnWhereItWas) {
  ASSERT_OK(join_pool(*session_, node_number(1), soon()));
  const auto faults = std::make_shared<testing::PoolFaults>();
  testing::FaultyPoolSession session(*place_->open(), faults);
  PoolLogReader reader(node_number(1));
  EXPECT_EQ(Hashes{}, read(reader, 1));
  PoolLogWriter writer(node_number(1), 1);
  for (const bool is_begun : {false, true}) {
    faults->set_full();
    for (int i = 0; i < 3; ++i) {
      EXPECT_ERROR(ENOSPC, writer.append(session, records(1, 2), soon()));
      EXPECT_EQ(1u, writer.log());
    }
    faults->clear();
    ASSERT_OK(writer.append(session, records(1, 3), soon()));
    EXPECT_EQ((Hashes{1, 2, 3}), read(reader, writer.log())) << is_begun;
  }
}

TEST_P(PoolMembers, ALogThatOthersHaveRemovedIsNotWrittenAnyMore) {
  ASSERT_OK(join_pool(*session_, node_number(1), soon()));
  PoolLogReader reader(node_number(1));
  EXPECT_EQ(Hashes{}, read(reader, 1));
  PoolLogWriter writer(node_number(1), 1);
  ASSERT_OK(writer.append(*session_, records(1, 2), soon()));
  EXPECT_EQ((Hashes{1, 2}), read(reader, writer.log()));
  ASSERT_OK((*place_->open())->remove(pool_log_path(node_number(1), 1), soon()));
  EXPECT_ERROR(ESTALE, writer.append(*session_, records(3, 2), soon()));
  EXPECT_EQ(2u, writer.log());
  ASSERT_OK(writer.append(*session_, records(3, 2), soon()));
  // Who has the removed one open may have read from it what was appended there.
  const auto told = read(reader, writer.log());
  EXPECT_TRUE(told == std::nullopt || *told == (Hashes{3, 4, 3, 4}));
  ASSERT_OK(writer.append(*session_, records(5, 1), soon()));
  EXPECT_EQ(Hashes{5}, read(reader, writer.log()));
}

INSTANTIATE_TEST_SUITE_P(All, PoolMembers, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
