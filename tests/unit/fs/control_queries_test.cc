#include "fs/control_queries.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>
#include <utility>

#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using nlohmann::json;
using testing::must;
using testing::TestVolume;

const std::string kHash(64, 'a');

ControlRequest about(std::string command, std::string word = {}, std::string after = {}) {
  ControlRequest request;
  request.command = std::move(command);
  request.word = std::move(word);
  request.after = std::move(after);
  return request;
}
ControlRequest about_block(std::string command, std::optional<std::uint64_t> block) {
  ControlRequest request = about(std::move(command));
  request.block = block;
  return request;
}

class ControlQueriesTest : public ::testing::Test {
 protected:
  Result<std::string> answer(const ControlRequest& request) {
    LearnerOrder order(volume_.catalog(), volume_->order());
    return answer_query(volume_.catalog(), order, request);
  }
  json ask(const ControlRequest& request) {
    const std::string line = must(answer(request));
    EXPECT_EQ(std::string::npos, line.find('\n'));
    return json::parse(line);
  }

  TestVolume volume_;
};

TEST_F(ControlQueriesTest, AnObjectHasTheKeysOfItsContract) {
  const InodeNumber native = volume_.mkdir(kRootInode, "prefix");
  const InodeNumber inode = volume_.store_file(native, kHash, "1234");
  const json page = ask(about("objects"));
  ASSERT_EQ(1u, page["objects"].size());
  const json& object = page["objects"][0];
  EXPECT_EQ("prefix/" + kHash, object["path"]);
  EXPECT_EQ("native", object["runtime"]);
  EXPECT_EQ(kHash, object["hash"]);
  EXPECT_EQ(4, object["size"]);
  EXPECT_EQ(inode, object["inode"]);
  for (const char* key : {"model", "world", "rank", "group", "part"})
    EXPECT_TRUE(object.contains(key) && object[key].is_null()) << key;
  for (const char* key : {"created", "last_use"}) EXPECT_GT(object[key], 1.6e9) << key;
  const auto block = parse_block(object["block"].get<std::string>());
  ASSERT_TRUE(block);
  const json chain = ask(about_block("chain", block));
  ASSERT_EQ(1u, chain["links"].size());
  EXPECT_EQ(object, chain["links"][0]["object"]);
  EXPECT_TRUE(chain["links"][0]["parent"].is_null());
  EXPECT_TRUE(ask(about_block("children", block))["links"].empty());
  EXPECT_EQ(json{kHash}, ask(about("hashes", "aaaaaaaa"))["hashes"]);
}

// More than a page, in directories and names that JSON and cursors must carry.
TEST_F(ControlQueriesTest, PagesFollowEachOther) {
  std::set<std::string> expected;
  for (int i = 0; i < 700; ++i) {
    const std::string directory = std::string("d\x01\"") + std::to_string(i);
    const InodeNumber inode = volume_.mkdir(kRootInode, directory);
    volume_.store_file(inode, kHash + "_m_0_1.bin", "x");
    expected.insert(directory + "/" + kHash + "_m_0_1.bin");
  }
  for (const char* command : {"objects", "find"}) {
    ControlRequest request = about(command);
    if (request.command == "find") request.word = kHash;
    std::set<std::string> found;
    int pages = 0;
    do {
      const json page = ask(request);
      for (const json& object : page["objects"])
        EXPECT_TRUE(found.insert(object["path"].get<std::string>()).second);
      request.after = page.value("next", "");
      ++pages;
    } while (!request.after.empty());
    EXPECT_EQ(expected, found) << command;
    EXPECT_GE(pages, 2) << command;
  }
}

// As many as were removed a moment ago hide none.
TEST_F(ControlQueriesTest, HashesThatBeginAlikeComeInPages) {
  const InodeNumber native = volume_.mkdir(kRootInode, "prefix");
  std::set<std::string> expected;
  for (int i = 0; i < 1200; ++i) {
    const std::string hash = fmt::format("abcdef01{:08x}", i);
    volume_.store_file(native, hash, "x");
    if (i < 1100) {
      ASSERT_OK(volume_->unlink(native, hash));
    } else {
      expected.insert(hash);
    }
  }
  ControlRequest request = about("hashes", "abcdef01");
  std::set<std::string> found;
  do {
    const json page = ask(request);
    for (const json& hash : page["hashes"])
      EXPECT_TRUE(found.insert(hash.get<std::string>()).second);
    request.after = page.value("next", "");
  } while (!request.after.empty());
  EXPECT_EQ(expected, found);
  request.after = "0123456789";
  EXPECT_ERROR(EINVAL, answer(request));
}

TEST_F(ControlQueriesTest, AnAnswerFitsTheSocketWhateverTheNames) {
  // Each byte of these takes six in JSON.
  InodeNumber at = kRootInode;
  for (int i = 0; i < 14; ++i) at = volume_.mkdir(at, std::string(255, '\x01'));
  for (int i = 0; i < 300; ++i) {
    char hash[65];
    std::snprintf(hash, sizeof hash, "%064x", i);
    volume_.store_file(at, std::string(hash) + "_m_0_1.bin", "x");
  }
  const std::string line = must(answer(about("objects")));
  EXPECT_LT(line.size(), std::size_t{1} << 20);
  EXPECT_TRUE(json::parse(line).contains("next"));
}

TEST_F(ControlQueriesTest, NamesThatAreNoUtf8AreStillAnswered) {
  const InodeNumber directory = volume_.mkdir(kRootInode, "\xff\xfe");
  volume_.store_file(directory, kHash + "_m_0_1.bin", "x");
  EXPECT_EQ(1u, ask(about("objects"))["objects"].size());
}

TEST_F(ControlQueriesTest, WhatMakesNoSenseIsRefused) {
  EXPECT_ERROR(ENOSYS, answer(about("frobnicate")));
  EXPECT_ERROR(ENOSYS, answer(about("")));
  for (const char* after : {"x", "123", "00000000000000zz"}) {
    EXPECT_ERROR(EINVAL, answer(about("objects", "", after)));
    EXPECT_ERROR(EINVAL, answer(about("session", "", after)));
    EXPECT_ERROR(EINVAL, answer(about("sessions", "", after)));
    EXPECT_ERROR(EINVAL, answer(about("find", kHash, after)));
  }
  for (const char* after : {"0000000000000001", "00000000000000010", "0000000000000001zz"})
    EXPECT_ERROR(EINVAL, answer(about("find", kHash, after)));
  EXPECT_ERROR(EINVAL, answer(about("chain")));
  EXPECT_ERROR(EINVAL, answer(about("children")));
  EXPECT_EQ(json::array(), ask(about("find", "/"))["objects"]);
  EXPECT_FALSE(ask(about("session", ".."))["found"]);
}

}  // namespace
}  // namespace kvcachefs
