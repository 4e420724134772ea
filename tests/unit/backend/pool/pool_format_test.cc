#include "backend/pool/pool_format.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "backend/pool/pool_path.h"
#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

const Uuid kNode = *parse_uuid("01234567-89ab-cdef-0123-456789abcdef");

TEST(PoolFormat, SuperblocksAndHeartbeatsComeBack) {
  const std::string text = encode_pool_superblock({.pool = kNode});
  EXPECT_EQ(text.substr(0, 24), "kvcachefs pool\nformat 2\n");
  const Result<PoolSuperblock> pool = decode_pool_superblock(text);
  ASSERT_OK(pool);
  EXPECT_EQ(kNode, pool->pool);

  const Result<PoolNode> node = decode_pool_node(encode_pool_node(
      {.node = kNode, .incarnation = kNode, .lease = std::chrono::minutes{1}, .log = 7}));
  ASSERT_OK(node);
  EXPECT_EQ(std::chrono::minutes{1}, node->lease);
  EXPECT_EQ(7u, node->log);
}

TEST(PoolFormat, AnotherFormatIsNotTakenForDamage) {
  std::string text = encode_pool_superblock({.pool = kNode});
  EXPECT_ERROR(EBADMSG, decode_pool_node(text));
  text.replace(text.find("format 2"), 8, "format 3");
  EXPECT_ERROR(EPROTONOSUPPORT, decode_pool_superblock(text));
  std::string sums = encode_pool_sums({});
  sums[8] = 3;
  EXPECT_ERROR(EPROTONOSUPPORT, decode_pool_sums(sums));
}

TEST(PoolFormat, LogRecordsComeBack) {
  const PoolLogRecord record{.change = PoolChange::kEvicted,
                             .path_hash = pool_path_hash("a/b.bin"),
                             .fileid = UINT64_MAX,
                             .size = 1,
                             .sequence = 2};
  const std::string bytes = encode_pool_log_record(record);
  EXPECT_EQ(kPoolLogRecordBytes, bytes.size());
  const Result<PoolLogRecord> back = decode_pool_log_record(bytes);
  ASSERT_OK(back);
  EXPECT_EQ(record, *back);
}

// Their checksums are right: another node may say anything.
TEST(PoolFormat, NumbersThatNoNodeSaysAreRefused) {
  const PoolNode most{.node = kNode,
                      .incarnation = kNode,
                      .lease = kMostPoolLease,
                      .log = kMostPoolLogs,
                      .size = kMostPoolBytes,
                      .used = kMostPoolBytes,
                      .share = UINT64_MAX};
  EXPECT_OK(decode_pool_node(encode_pool_node(most)));
  PoolNode node = most;
  node.lease += std::chrono::milliseconds{1};
  EXPECT_ERROR(EBADMSG, decode_pool_node(encode_pool_node(node)));
  for (std::uint64_t PoolNode::*const number :
       {&PoolNode::log, &PoolNode::size, &PoolNode::used}) {
    node = most;
    ++(node.*number);
    EXPECT_ERROR(EBADMSG, decode_pool_node(encode_pool_node(node)));
  }
  constexpr std::uint64_t kMostFile = kMostPoolChunks * kPoolChunk;
  for (const PoolChange change :
       {PoolChange::kPublished, PoolChange::kRemoved, PoolChange::kEvicted}) {
    const std::uint64_t size = change == PoolChange::kPublished ? kMostFile : INT64_MAX;
    EXPECT_OK(decode_pool_log_record(encode_pool_log_record({.change = change, .size = size})));
    EXPECT_ERROR(EBADMSG, decode_pool_log_record(
                              encode_pool_log_record({.change = change, .size = size + 1})));
  }
}

TEST(PoolFormat, ChecksumsComeBack) {
  for (const std::uint64_t size : {0ul, 1ul, kPoolChunk, kPoolChunk + 1, 64ul << 20}) {
    PoolSums sums{.fileid = 1,
                  .path_hash = 2,
                  .size = size,
                  .mtime = -3,
                  .uid = 4,
                  .gid = 5,
                  .mode = 0640,
                  .keep = size == 1,
                  .chunk_crc32c = {}};
    sums.chunk_crc32c.assign((size + kPoolChunk - 1) / kPoolChunk, 0xdeadbeef);
    const std::string bytes = encode_pool_sums(sums);
    EXPECT_EQ(pool_sums_bytes(size), bytes.size());
    const Result<PoolSums> back = decode_pool_sums(bytes);
    ASSERT_OK(back);
    EXPECT_EQ(sums, *back);
  }
}

TEST(PoolFormat, ARecordMaySpeakOfTheOwnerAlone) {
  PoolSums sums{.fileid = 1,
                .path_hash = 2,
                .size = 3 * kPoolChunk,
                .mtime = 3,
                .uid = 4,
                .gid = 5,
                .mode = 0640,
                .keep = true,
                .chunk_crc32c = {}};
  EXPECT_FALSE(sums.speaks_of_bytes());
  const std::string bytes = encode_pool_sums(sums);
  const Result<PoolSums> back = decode_pool_sums(bytes);
  ASSERT_OK(back);
  EXPECT_EQ(sums, *back);
  // With the checksums of some chunks it is neither.
  sums.chunk_crc32c = {1, 2};
  EXPECT_TRUE(sums.speaks_of_bytes());
  EXPECT_EQ(EBADMSG, decode_pool_sums(encode_pool_sums(sums)).error().code);
}

TEST(PoolFormat, AnyFlippedBitAndAnyCutIsNoticed) {
  const auto check = [](std::string bytes, const auto& decode) {
    ASSERT_TRUE(decode(bytes).ok());
    for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
      bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ (1 << i % 8));
      EXPECT_FALSE(decode(bytes).ok()) << "bit " << i;
      bytes[i / 8] = static_cast<char>(bytes[i / 8] ^ (1 << i % 8));
    }
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(decode(bytes.substr(0, size)).ok()) << size << " bytes";
    EXPECT_FALSE(decode(bytes + '\0').ok());
  };
  check(encode_pool_superblock({.pool = kNode}), decode_pool_superblock);
  check(encode_pool_node({.node = kNode, .incarnation = kNode}), decode_pool_node);
  check(encode_pool_log_record({.sequence = 1}), decode_pool_log_record);
  check(encode_pool_sums({.size = 300'000, .mode = 0600, .keep = true, .chunk_crc32c = {1, 2}}),
        decode_pool_sums);
  check(encode_pool_told(
            {.fileid = 3, .path_hash = 4, .words = {{"layout", "vllm"}, {"ttl", "-"}}}),
        decode_pool_told);
}

TEST(PoolFormat, WhatADirectoryWasToldComesBack) {
  const PoolTold told{.fileid = 1311,
                      .path_hash = UINT64_MAX,
                      .words = {{"policy", "keep"}, {"colour", "blue"}, {"ttl", "-"}}};
  const std::string text = encode_pool_told(told);
  EXPECT_EQ("kvcachefs told\nformat 2\ndirectory 1311\n", text.substr(0, 39));
  const Result<PoolTold> back = decode_pool_told(text);
  ASSERT_OK(back);
  EXPECT_EQ(told, *back);
  EXPECT_EQ("blue", *back->find("colour"));
  EXPECT_EQ(nullptr, back->find("layout"));
  EXPECT_OK(decode_pool_told(encode_pool_told({})));
}

// Their checksums are right: another node may say anything.
TEST(PoolFormat, WordsThatNoNodeSaysAreRefused) {
  const auto refused = [](std::vector<PoolWord> words) {
    EXPECT_ERROR(EBADMSG, decode_pool_told(encode_pool_told({.words = std::move(words)})));
  };
  refused({{"ttl", "1d"}, {"ttl", "2d"}});
  refused({{"ttl", ""}});
  refused({{"ttl", "1 d"}});
  refused({{"ttl", "1\td"}});
  refused({{"ttl\x7f", "1d"}});
  refused({{"ttl", std::string("\xc3\xa9")}});
  refused({{"ttl", "1d\nlayout vllm\n"}});
  refused({{"ttl", std::string(kLongestPoolWord + 1, '1')}});
  refused({{std::string(kLongestPoolWord + 1, 'k'), "1d"}});
  std::vector<PoolWord> most;
  const std::string longest(kLongestPoolWord, 'v');
  for (std::size_t i = 0; i < kMostPoolWords; ++i)
    most.push_back({.key = std::string(kLongestPoolWord - 1, 'k') + static_cast<char>('a' + i),
                    .value = longest});
  const std::string text =
      encode_pool_told({.fileid = UINT64_MAX, .path_hash = UINT64_MAX, .words = most});
  EXPECT_LE(text.size(), kPoolTextLimit);
  EXPECT_OK(decode_pool_told(text));
  most.push_back({.key = "one", .value = "more"});
  refused(most);
}

TEST(PoolFormat, PathsAreOfAPool) {
  EXPECT_EQ(0xef46db3751d8e999u, pool_path_hash(""));
  EXPECT_EQ(".kvcachefs/sums/cd/00000000000abccd", pool_sums_path(0xabccd));
  EXPECT_EQ(".kvcachefs/told/cd/00000000000abccd", pool_told_path(0xabccd));
  const std::string trash = pool_trash_path(490'000 * 3600 * kNanosPerSecond + 5, kNode, 3);
  EXPECT_EQ(".kvcachefs/trash/490000/1764000000-01234567-89ab-cdef-0123-456789abcdef-3", trash);
  EXPECT_EQ(1'764'000'000u, parse_pool_trash_name(trash.substr(trash.rfind('/') + 1)));
  for (const char* name : {"", "-", "x-", "1", "12x-node"})
    EXPECT_EQ(std::nullopt, parse_pool_trash_name(name)) << name;
  for (const std::string& path :
       {pool_superblock_path(), pool_node_path(kNode), pool_temporary_path(kNode, 1),
        pool_log_path(kNode, 1), pool_sums_path(1), pool_trash_path(0, kNode, 1)})
    EXPECT_OK(check_pool_path(path)) << path;
}

}  // namespace
}  // namespace kvcachefs
