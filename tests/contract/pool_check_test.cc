// What a person asks of a whole pool, over each kind of pool.
#include "backend/pool/pool_check.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "backend/base/crc32c.h"
#include "backend/base/unique_fd.h"
#include "backend/pool/pool_members.h"
#include "backend/pool/pool_sweep.h"
#include "backend/pool/pool_transfer.h"
#include "backend/pool/pool_trash.h"
#include "tests/fakes/faulty_pool_session.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using testing::soon;

constexpr std::chrono::milliseconds kEach = std::chrono::seconds{20};
constexpr std::int64_t kHour = 3'600'000'000'000;

class PoolCheckContract : public testing::PoolTest {
 protected:
  void SetUp() override {
    PoolTest::SetUp();
    ASSERT_OK(join_pool(*session_, node_, soon()));
  }
  PoolStatus store(const std::string& path, const std::string& bytes) {
    const std::string local = below("../local");
    std::ofstream(local, std::ios::binary) << bytes;
    const UniqueFd fd(::open(local.c_str(), O_RDONLY));
    const std::vector<std::uint32_t> sums = {crc32c(0, std::as_bytes(std::span(bytes)))};
    const Result<Published> published = publish(*session_,
                                                {.path = path,
                                                 .fd = fd.get(),
                                                 .size = bytes.size(),
                                                 .chunk_crc32c = sums,
                                                 .mode = 0640},
                                                node_, ++number_, soon());
    EXPECT_OK(published);
    return published->status;
  }
  Result<PoolCheck> check(bool read) {
    findings_.clear();
    return check_pool_files(
        *session_, read,
        [this](std::string_view path, std::string_view) { findings_.emplace_back(path); },
        kEach);
  }

  const Uuid node_ = random_uuid();
  std::uint64_t number_ = 0;
  std::vector<std::string> findings_;
};

TEST_P(PoolCheckContract, CountsAndComparesTheFiles) {
  store("a/b/one", "1");
  store("a/two", "22");
  std::ofstream(below("theirs")) << "333";
  std::filesystem::create_symlink("theirs", below("link"));
  Result<PoolCheck> seen = check(true);
  ASSERT_OK(seen);
  EXPECT_EQ(2U, seen->directories);
  EXPECT_EQ(3U, seen->files);
  EXPECT_EQ(6U, seen->bytes);
  EXPECT_EQ(2U, seen->described);
  EXPECT_EQ(0U, seen->damaged);
  EXPECT_EQ(1U, seen->others);
  EXPECT_TRUE(findings_.empty());

  testing::change_unseen(below("a/two"), [&] {
    std::ofstream(below("a/two"), std::ios::in | std::ios::binary) << "2x";
  });
  EXPECT_EQ(0U, check(false)->damaged);
  EXPECT_EQ(1U, check(true)->damaged);
  EXPECT_EQ(std::vector<std::string>{"a/two"}, findings_);

  // A length is seen without reading.
  testing::change_unseen(below("a/two"),
                         [&] { std::filesystem::resize_file(below("a/two"), 1); });
  seen = check(false);
  ASSERT_OK(seen);
  EXPECT_EQ(2U, seen->described);
  EXPECT_EQ(1U, seen->damaged);
  EXPECT_EQ(std::vector<std::string>{"a/two"}, findings_);
}

TEST_P(PoolCheckContract, RemovesWhatNobodyNeeds) {
  const PoolStatus kept = store("kept", "1");
  const PoolStatus removed = store("removed", "2");
  const PoolStatus trashed = store("trashed", "3");
  EXPECT_OK(session_->remove("removed", soon()));
  const Result<UnixNanos> now = pool_time(*session_, soon());
  ASSERT_OK(now);
  EXPECT_OK(put_into_trash(*session_, "trashed", trashed.fileid, *now, node_, 1, soon()));
  ASSERT_OK(beat(*session_, {.node = node_, .lease = std::chrono::milliseconds(1000)}, soon()));
  ASSERT_OK(write_anew(*session_, pool_temporary_path(node_, 99), "unfinished", PoolWrite::kNow,
                       soon()));

  // All of it is young, and may be somebody's.
  Result<PoolGarbage> gone = collect_pool_garbage(*session_, *now, kEach);
  ASSERT_OK(gone);
  EXPECT_EQ(0U, gone->nodes + gone->temporaries + gone->trash.files + gone->records);
  EXPECT_EQ(1U, gone->living);
  EXPECT_EQ(1U, gone->trash_left.files);
  EXPECT_TRUE(std::filesystem::exists(below(pool_sums_path(removed.fileid))));

  gone = collect_pool_garbage(*session_, *now + 2 * kHour, kEach);
  ASSERT_OK(gone);
  EXPECT_EQ(1U, gone->nodes);
  EXPECT_EQ(1U, gone->temporaries);
  EXPECT_EQ(1U, gone->trash.files);
  EXPECT_EQ(1U, gone->trash.bytes);
  EXPECT_EQ(0U, gone->trash_left.files);
  EXPECT_EQ(1U, gone->records);
  EXPECT_FALSE(std::filesystem::exists(below(pool_sums_path(removed.fileid))));
  EXPECT_FALSE(std::filesystem::exists(below(pool_sums_path(trashed.fileid))));
  EXPECT_TRUE(std::filesystem::exists(below(pool_sums_path(kept.fileid))));
  EXPECT_TRUE(list_members(*session_, soon())->empty());
  EXPECT_EQ(1U, check(true)->described);
}

// The leases of a mount end with it, in whatever way it ends.
TEST_P(PoolCheckContract, TheTrashOfMountsThatHaveEndedGoesAtOnce) {
  const Result<UnixNanos> now = pool_time(*session_, soon());
  ASSERT_OK(now);
  PoolNode node{.node = node_, .lease = std::chrono::hours(1)};
  std::uint64_t number = 0;
  const auto collected = [&](UnixNanos when) {
    const std::string name = "f" + std::to_string(++number);
    const PoolStatus file = store(name, "1");
    EXPECT_OK(put_into_trash(*session_, name, file.fileid, *now, node_, number, soon()));
    const Result<PoolGarbage> gone = collect_pool_garbage(*session_, when, kEach);
    EXPECT_OK(gone);
    EXPECT_EQ(number, gone->trash.files + gone->trash_left.files);
    number = gone->trash_left.files;
    return gone->trash.files > 0;
  };
  ASSERT_OK(beat(*session_, node, soon()));
  EXPECT_FALSE(collected(*now));
  EXPECT_FALSE(collected(*now + 10 * kNanosPerSecond));
  // One that was killed says nothing.
  EXPECT_TRUE(collected(*now + 20 * kNanosPerSecond));
  // Nor has one that beat in the future by the server's clock beaten since that was set back.
  ASSERT_OK(beat(*session_, node, soon()));
  EXPECT_TRUE(collected(*now - 60 * kNanosPerSecond));
  // One that has ended in order says so.
  ASSERT_OK(beat(*session_, node, soon()));
  EXPECT_FALSE(collected(*now));
  node.lease = std::chrono::milliseconds(0);
  ASSERT_OK(beat(*session_, node, soon()));
  EXPECT_TRUE(collected(*now));
}

TEST_P(PoolCheckContract, ChecksumsOfWhatWasNotSeenStay) {
  const PoolStatus hidden = store("private/file", "1");
  const PoolStatus removed = store("removed", "2");
  EXPECT_OK(session_->remove("removed", soon()));
  const auto faults = std::make_shared<testing::PoolFaults>();
  testing::FaultyPoolSession session(*place_->open(), faults);
  const Result<UnixNanos> now = pool_time(session, soon());
  ASSERT_OK(now);
  // A directory that cannot be read at all, one of which a part cannot, and a file that cannot be looked at.
  struct Fault {
    const char* call;
    const char* path;
    int code;
  };
  for (const Fault& fault :
       {Fault{"list", "private", EACCES}, Fault{"list", "private", EBADMSG},
        Fault{"find", "private/file", EACCES}}) {
    faults->set([fault](std::string_view call, std::string_view path) {
      return call == fault.call && path == fault.path ? fault.code : 0;
    });
    const Result<PoolGarbage> gone = collect_pool_garbage(session, *now + 2 * kHour, kEach);
    ASSERT_OK(gone);
    EXPECT_FALSE(gone->all_seen);
    EXPECT_EQ(0U, gone->records);
    EXPECT_TRUE(std::filesystem::exists(below(pool_sums_path(hidden.fileid))));
  }
  faults->set([](std::string_view call, std::string_view) { return call == "list" ? EIO : 0; });
  EXPECT_ERROR(EIO, collect_pool_garbage(session, *now + 2 * kHour, kEach));
  faults->clear();
  const Result<PoolGarbage> gone = collect_pool_garbage(session, *now + 2 * kHour, kEach);
  ASSERT_OK(gone);
  EXPECT_TRUE(gone->all_seen);
  EXPECT_EQ(1U, gone->records);
  EXPECT_TRUE(std::filesystem::exists(below(pool_sums_path(hidden.fileid))));
  EXPECT_FALSE(std::filesystem::exists(below(pool_sums_path(removed.fileid))));
}

INSTANTIATE_TEST_SUITE_P(All, PoolCheckContract, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
