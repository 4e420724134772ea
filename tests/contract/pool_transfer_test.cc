// Publication and loads, over each kind of pool.
#include "backend/pool/pool_transfer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/base/crc32c.h"
#include "backend/base/unique_fd.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/promise.h"
#include "tests/fakes/seed.h"
#include "tests/servers/pool_places.h"

namespace kvcachefs {
namespace {

using testing::kNode;
using testing::soon;

const Uuid kOther = *parse_uuid("01234567-89ab-cdef-0123-456789abcd00");

// A local copy: a file without a name.
class Local {
 public:
  explicit Local(std::string bytes = {}) : fd_(::open("/var/tmp", O_TMPFILE | O_RDWR, 0600)) {
    EXPECT_TRUE(fd_.valid());
    EXPECT_EQ(static_cast<ssize_t>(bytes.size()),
              ::pwrite(fd_.get(), bytes.data(), bytes.size(), 0));
    for (std::size_t at = 0; at < bytes.size(); at += kPoolChunk)
      sums_.push_back(
          crc32c(0, std::as_bytes(std::span(bytes).subspan(
                        at, std::min<std::size_t>(kPoolChunk, bytes.size() - at)))));
    size_ = bytes.size();
  }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::vector<std::uint32_t>& sums() const noexcept { return sums_; }
  [[nodiscard]] PoolSource as(std::string path) const {
    return {.path = std::move(path),
            .fd = fd(),
            .size = size_,
            .chunk_crc32c = sums_,
            .uid = 1000,
            .gid = 1001,
            .mode = 0640};
  }
  [[nodiscard]] std::string bytes() const {
    struct stat status {};
    EXPECT_EQ(0, ::fstat(fd(), &status));
    std::string read(static_cast<std::size_t>(status.st_size), '\0');
    EXPECT_EQ(status.st_size, ::pread(fd(), read.data(), read.size(), 0));
    return read;
  }

 private:
  UniqueFd fd_;
  std::vector<std::uint32_t> sums_;
  std::uint64_t size_ = 0;
};

class PoolTransfer : public testing::PoolTest {
 protected:
  static std::string random_bytes(std::size_t size) {
    std::mt19937_64 chance(testing::test_seed());
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(chance());
    return bytes;
  }
  Result<Published> put(const Local& local, const std::string& path, std::uint64_t number,
                        const Uuid& node = kNode) {
    return publish(*session_, local.as(path), node, number, soon());
  }
  Result<Fetched> get(const std::string& path, const Local& local) {
    return fetch(*session_, path, std::nullopt, local.fd(), soon());
  }
  // Regular files below the service directory's tmp.
  std::size_t temporaries() const {
    std::size_t files = 0;
    const std::filesystem::path tmp = place_->root() + "/.kvcachefs/tmp";
    if (std::filesystem::exists(tmp))
      for (const auto& entry : std::filesystem::recursive_directory_iterator(tmp))
        files += entry.is_regular_file() ? 1 : 0;
    return files;
  }
};

TEST_P(PoolTransfer, WhatWasPublishedIsFetched) {
  std::uint64_t number = 0;
  for (const std::size_t size : {0UL, 5UL, kPoolChunk, 8 * PoolSession::kMostAtOnce + 1,
                                 20 * PoolSession::kMostAtOnce}) {
    const Local local(random_bytes(size));
    const std::string path = "model/ab/" + std::to_string(size) + ".bin";
    const Result<Published> published = put(local, path, ++number);
    ASSERT_OK(published);
    EXPECT_FALSE(published->is_duplicate);
    std::ifstream plain(below(path), std::ios::binary);
    const std::string there((std::istreambuf_iterator<char>(plain)), {});
    EXPECT_TRUE(there == local.bytes()) << "the pool is readable without us";

    const Local copy;
    const Result<Fetched> fetched = get(path, copy);
    ASSERT_OK(fetched);
    EXPECT_TRUE(copy.bytes() == local.bytes());
    EXPECT_EQ(local.sums(), fetched->chunk_crc32c);
    ASSERT_TRUE(fetched->sums.has_value());
    EXPECT_EQ(1000u, fetched->sums->uid);
    EXPECT_EQ(1001u, fetched->sums->gid);
    EXPECT_EQ(0640u, fetched->sums->mode);
  }
  EXPECT_EQ(0u, temporaries());
}

TEST_P(PoolTransfer, TheFirstOfTwoStays) {
  const Local first(random_bytes(300'000));
  const Local second(random_bytes(400'000));
  ASSERT_OK(put(first, "block", 1));
  const Result<Published> published = put(second, "block", 1, kOther);
  ASSERT_OK(published);
  EXPECT_TRUE(published->is_duplicate);
  EXPECT_EQ(300'000u, published->status.size);
  const Local copy;
  ASSERT_OK(get("block", copy));
  EXPECT_TRUE(copy.bytes() == first.bytes());
  EXPECT_EQ(0u, temporaries());
}

TEST_P(PoolTransfer, ManyNodesPublishOneName) {
  PROMISE(5);
  std::vector<std::thread> threads;
  std::atomic<int> first{0};
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const Result<std::unique_ptr<PoolSession>> session = place_->open();
      ASSERT_OK(session);
      Uuid node = kNode;
      node[0] = static_cast<std::uint8_t>(i);
      for (int n = 0; n < 20; ++n) {
        const Local local(std::string(100'000, static_cast<char>('a' + i)));
        const Result<Published> published =
            publish(**session, local.as("d/" + std::to_string(n)), node,
                    static_cast<std::uint64_t>(n), soon());
        ASSERT_OK(published);
        if (!published->is_duplicate) ++first;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(20, first);
  for (int n = 0; n < 20; ++n) {
    const Local copy;
    const Result<Fetched> fetched = get("d/" + std::to_string(n), copy);
    ASSERT_OK(fetched);
    EXPECT_TRUE(fetched->sums.has_value());
    const std::string bytes = copy.bytes();
    ASSERT_EQ(100'000u, bytes.size());
    EXPECT_EQ(bytes.npos, bytes.find_first_not_of(bytes.front()));
  }
  EXPECT_EQ(0u, temporaries());
}

TEST_P(PoolTransfer, ATryWhoseAnswerWasLostIsRecognised) {
  const Local local(random_bytes(1000));
  // As it is left when the LINK was made and its answer never came, and when all was done.
  for (const bool is_cut_short : {true, false}) {
    PoolSource source = local.as(is_cut_short ? "block" : "other");
    const Result<Prepared> prepared = prepare_publication(*session_, source, kNode, 7, soon());
    ASSERT_OK(prepared);
    if (is_cut_short) {
      ASSERT_OK(session_->link(*prepared->file, source.path, soon()));
    } else {
      ASSERT_OK(finish_publication(*session_, source, *prepared, kNode, 7, soon()));
    }
    source.earlier_tries = {7};
    source.earlier_files = {prepared->status.fileid};
    const Result<Published> published = publish(*session_, source, kNode, 8, soon());
    ASSERT_OK(published);
    EXPECT_FALSE(published->is_duplicate);
    EXPECT_EQ(prepared->status.fileid, published->status.fileid);
    EXPECT_EQ(0u, published->replaced);
    EXPECT_EQ(0u, temporaries());
  }
}

TEST_P(PoolTransfer, ALateTryDoesNotTouchTheNextOne) {
  const Local old(random_bytes(500));
  const Local local(random_bytes(300'000));
  for (const bool replaces : {false, true}) {
    const std::string path = replaces ? "config.json" : "block";
    PoolSource source = local.as(path);
    source.replaces = replaces;
    if (replaces) {
      ASSERT_OK(put(old, path, 1));
    }
    // One has come so far when its time is over; the next one begins.
    const Result<Prepared> first = prepare_publication(*session_, source, kNode, 7, soon());
    ASSERT_OK(first);
    source.earlier_tries = {7};
    source.earlier_files = {first->status.fileid};
    const Result<Prepared> second = prepare_publication(*session_, source, kNode, 8, soon());
    ASSERT_OK(second);
    EXPECT_GE(2u, temporaries()) << "its bytes and their checksums";
    EXPECT_ERROR(ENOENT, session_->status(pool_temporary_path(kNode, 7), soon()));
    // What was still to come of the first one.
    EXPECT_FALSE(finish_publication(*session_, source, *first, kNode, 7, soon()).ok());
    const Result<PoolStatus> standing = session_->status(path, soon());
    if (replaces) {
      ASSERT_OK(standing);
      EXPECT_EQ(500u, standing->size);
    } else {
      EXPECT_ERROR(ENOENT, standing);
    }
    const Result<Published> published =
        finish_publication(*session_, source, *second, kNode, 8, soon());
    ASSERT_OK(published);
    EXPECT_FALSE(published->is_duplicate);
    EXPECT_EQ(second->status.fileid, published->status.fileid);
    const Local copy;
    const Result<Fetched> fetched = get(path, copy);
    ASSERT_OK(fetched);
    EXPECT_TRUE(fetched->sums.has_value());
    EXPECT_TRUE(copy.bytes() == local.bytes());
    clear_publication(*session_, kNode, 8, soon());
    EXPECT_EQ(0u, temporaries());
  }
}

TEST_P(PoolTransfer, AnOlderFileIsNoEarlierTry) {
  const Local old(random_bytes(1000));
  const Local local(old.bytes() + "and more");
  const Result<Published> before = put(old, "config.json", 1);
  ASSERT_OK(before);
  PoolSource source = local.as("config.json");
  source.replaces = true;
  source.earlier_files = {before->status.fileid};
  const Result<Published> published = publish(*session_, source, kNode, 2, soon());
  ASSERT_OK(published);
  EXPECT_EQ(before->status.fileid, published->replaced);
  const Local copy;
  ASSERT_OK(get("config.json", copy));
  EXPECT_TRUE(copy.bytes() == local.bytes());
}

TEST_P(PoolTransfer, AnUnfinishedTryGoesWithTheNext) {
  const std::string temporary = pool_temporary_path(kNode, 7);
  ASSERT_OK(make_directories(*session_, temporary.substr(0, temporary.rfind('/')), soon()));
  for (const char* suffix : {"", ".sums"})
    ASSERT_OK(session_->create(temporary + suffix, 0600, soon()));
  const Local local(random_bytes(1000));
  PoolSource source = local.as("block");
  source.earlier_tries = {6, 7};
  ASSERT_OK(publish(*session_, source, kNode, 8, soon()));
  const Local copy;
  ASSERT_OK(get("block", copy));
  EXPECT_TRUE(copy.bytes() == local.bytes());
  EXPECT_EQ(0u, temporaries());
}

TEST_P(PoolTransfer, ADamagedLocalCopyIsNotPublished) {
  const Local local(random_bytes(kPoolChunk + 10));
  const char other = static_cast<char>(local.bytes().back() ^ 1);
  ASSERT_EQ(1, ::pwrite(local.fd(), &other, 1, kPoolChunk + 9));
  EXPECT_ERROR(EILSEQ, put(local, "block", 1));
  EXPECT_ERROR(ENOENT, session_->status("block", soon()));
  EXPECT_EQ(0u, temporaries());
}

TEST_P(PoolTransfer, DamageOnThePoolIsNoticed) {
  PROMISE(1);
  const Local local(random_bytes(kPoolChunk + 10));
  ASSERT_OK(put(local, "block", 1));
  // Bytes that change without their file's times, as a disk's do.
  testing::damage_unseen(below("block"), 100);
  const Local copy;
  EXPECT_ERROR(EILSEQ, get("block", copy));
}

TEST_P(PoolTransfer, AnAdoptedFileHasNoChecksums) {
  std::ofstream(below("adopted")) << "put there by hand";
  const Local copy;
  const Result<Fetched> fetched = get("adopted", copy);
  ASSERT_OK(fetched);
  EXPECT_FALSE(fetched->sums.has_value());
  EXPECT_EQ("put there by hand", copy.bytes());
  EXPECT_EQ(1u, fetched->chunk_crc32c.size());
}

TEST_P(PoolTransfer, ChecksumsOfAChangedFileAreNotItsOwn) {
  const Local local(random_bytes(1000));
  const Result<Published> published = put(local, "block", 1);
  ASSERT_OK(published);
  std::ofstream(below("block")) << "another file";
  const Local copy;
  const Result<Fetched> fetched = get("block", copy);
  ASSERT_OK(fetched);
  EXPECT_FALSE(fetched->sums.has_value());
  EXPECT_EQ("another file", copy.bytes());
}

TEST_P(PoolTransfer, AnOwnerIsChangedAndNothingElse) {
  const Local local(random_bytes(kPoolChunk + 10));
  ASSERT_OK(put(local, "d/block", 1));
  std::ofstream(below("d/adopted")) << "theirs";
  ASSERT_OK(describe_directory(*session_, {.path = "d", .uid = 1, .gid = 2, .mode = 0755},
                               kNode, soon()));
  std::uint64_t number = 10;
  for (const std::string path : {"d/block", "d/adopted", "d"}) {
    const Result<PoolStatus> status = session_->status(path, soon());
    ASSERT_OK(status);
    PoolOwner owner{.path = path,
                    .fileid = status->fileid,
                    .uid = 5,
                    .gid = 6,
                    .mode = 0700,
                    .number = ++number};
    const auto said = [&] {
      return status->kind == PoolKind::kDirectory
                 ? find_directory_owner(*session_, path, *status, soon())
                 : find_sums(*session_, *status, soon());
    };
    const Result<std::optional<PoolSums>> before = said();
    ASSERT_OK(before);
    // Twice: the first may have been answered to nobody.
    for (int i = 0; i < 2; ++i) {
      const Result<std::optional<PoolSums>> changed =
          change_owner(*session_, owner, kNode, soon());
      ASSERT_OK(changed);
      const Result<std::optional<PoolSums>> after = said();
      ASSERT_OK(after);
      ASSERT_TRUE(after->has_value()) << path;
      EXPECT_EQ(*after, *changed);
      EXPECT_EQ(5u, (*after)->uid);
      EXPECT_EQ(6u, (*after)->gid);
      EXPECT_EQ(0700u, (*after)->mode);
      EXPECT_TRUE(!*before || (*before)->chunk_crc32c == (*after)->chunk_crc32c);
    }
    // Another one has the path by now.
    ++owner.fileid;
    owner.uid = 9;
    const Result<std::optional<PoolSums>> other = change_owner(*session_, owner, kNode, soon());
    ASSERT_OK(other);
    EXPECT_FALSE(other->has_value());
    owner.path = "d/gone";
    const Result<std::optional<PoolSums>> gone = change_owner(*session_, owner, kNode, soon());
    ASSERT_OK(gone);
    EXPECT_FALSE(gone->has_value());
    // What is not given is as it was.
    const Result<std::optional<PoolSums>> group = change_owner(
        *session_, {.path = path, .fileid = status->fileid, .gid = 8, .number = ++number},
        kNode, soon());
    ASSERT_OK(group);
    EXPECT_EQ(5u, (*said())->uid);
    EXPECT_EQ(8u, (*said())->gid);
    EXPECT_EQ(0700u, (*said())->mode);
  }
  EXPECT_EQ(0u, temporaries());
  const Local copy;
  const Local theirs;
  EXPECT_OK(get("d/block", copy));
  EXPECT_TRUE(copy.bytes() == local.bytes());
  const Result<Fetched> fetched = get("d/adopted", theirs);
  ASSERT_OK(fetched);
  EXPECT_EQ("theirs", theirs.bytes());
  EXPECT_EQ(5u, fetched->sums->uid);
}

TEST_P(PoolTransfer, OfWhatHasNoRecordTheRestIsWhatMountsTakeItFor) {
  std::ofstream(below("adopted")) << "theirs";
  const Result<PoolStatus> status = session_->status("adopted", soon());
  ASSERT_OK(status);
  const Result<std::optional<PoolSums>> said = change_owner(*session_,
                                                            {.path = "adopted",
                                                             .fileid = status->fileid,
                                                             .mode = 0600,
                                                             .other_uid = 3,
                                                             .other_gid = 4,
                                                             .other_file_mode = 0640,
                                                             .other_directory_mode = 0750,
                                                             .number = 1},
                                                            kNode, soon());
  ASSERT_OK(said);
  EXPECT_EQ(3u, (*said)->uid);
  EXPECT_EQ(4u, (*said)->gid);
  EXPECT_EQ(0600u, (*said)->mode);
}

TEST_P(PoolTransfer, AFileWithDamagedChecksumsIsNotReadAndIsReplaced) {
  const Local local(random_bytes(1000));
  ASSERT_OK(put(local, "block", 1));
  const Result<PoolStatus> status = session_->status("block", soon());
  ASSERT_OK(status);
  const std::string sums = below(pool_sums_path(status->fileid));
  const std::string whole = [&] {
    std::ifstream file(sums, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  const Local copy;
  // A flipped byte, a cut, another file's, nothing, far too much.
  std::string flipped = whole;
  flipped[70] = static_cast<char>(flipped[70] ^ 1);
  const std::string others = encode_pool_sums({.fileid = status->fileid + 1,
                                               .path_hash = 0,
                                               .size = status->size,
                                               .mtime = status->mtime,
                                               .chunk_crc32c = {1}});
  for (const std::string& bytes : {flipped, whole.substr(0, whole.size() - 1), others,
                                   std::string(), std::string(kMostPoolSums + 1, 'x')}) {
    std::ofstream(sums, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_ERROR(EILSEQ, find_sums(*session_, *status, soon()));
    EXPECT_ERROR(EILSEQ, get("block", copy));
  }
  // Of a block the first stays, but not if it is of no use.
  const Result<Published> again = put(local, "block", 2);
  ASSERT_OK(again);
  EXPECT_FALSE(again->is_duplicate);
  EXPECT_OK(get("block", copy));
  EXPECT_TRUE(copy.bytes() == local.bytes());
}

// The record of what stands there is that of the same bytes, and an earlier try may have put it there: it is damaged all the same.
TEST_P(PoolTransfer, ADamagedBlockIsReplacedByWhoKnowsIt) {
  const Local local(random_bytes(400'000));
  const Result<Published> first = put(local, "block", 1);
  ASSERT_OK(first);
  testing::damage_unseen(below("block"), 300'000);
  PoolSource source = local.as("block");
  source.earlier_files = {first->status.fileid};
  source.damaged = first->status.fileid;
  const Result<Published> again = publish(*session_, source, kNode, 2, soon());
  ASSERT_OK(again);
  EXPECT_EQ(first->status.fileid, again->replaced);
  const Local copy;
  EXPECT_OK(get("block", copy));
  EXPECT_TRUE(copy.bytes() == local.bytes());
}

// Its size is not the record's, and nobody wrote to it: it is not one that somebody has put there.
TEST_P(PoolTransfer, WhatIsNotAsLongAsItWasIsDamaged) {
  const Local local(random_bytes(400'000));
  const Local copy;
  std::uint64_t number = 0;
  for (const off_t size : {399'999, 0, 400'001}) {
    SCOPED_TRACE(size);
    // It replaces the damaged one.
    const Result<Published> published = put(local, "block", ++number);
    ASSERT_OK(published);
    EXPECT_FALSE(published->is_duplicate);
    testing::change_unseen(below("block"),
                           [&] { ASSERT_EQ(0, ::truncate(below("block").c_str(), size)); });
    EXPECT_ERROR(EILSEQ, get("block", copy));
  }
  // Who writes it anew says so by its time.
  std::ofstream(below("block")) << "theirs";
  const Local theirs;
  EXPECT_OK(get("block", theirs));
  EXPECT_EQ("theirs", theirs.bytes());
}

TEST_P(PoolTransfer, WhatWasFoundIsFetchedWithoutAnotherLook) {
  const Local local(random_bytes(3 * PoolSession::kMostAtOnce));
  ASSERT_OK(put(local, "block", 1));
  const Result<PoolKnown> known = find_known(*session_, "block", soon());
  ASSERT_OK(known);
  ASSERT_TRUE(known->sums.has_value());
  EXPECT_EQ(local.sums(), known->sums->chunk_crc32c);
  // Where a file can be had without a call, its name does not matter any more.
  const std::string path = known->file != nullptr ? "elsewhere" : "block";
  const Local copy;
  const Result<Fetched> fetched = fetch(*session_, path, *known, copy.fd(), soon());
  ASSERT_OK(fetched);
  EXPECT_TRUE(copy.bytes() == local.bytes());
  EXPECT_EQ(local.sums(), fetched->chunk_crc32c);

  // What has gone since then is not there, whatever was known of it.
  std::ofstream(below("other")) << "bytes";
  const Result<PoolKnown> before = find_known(*session_, "other", soon());
  ASSERT_OK(before);
  ASSERT_OK(session_->remove("other", soon()));
  const Result<Fetched> gone = fetch(*session_, "other", *before, Local().fd(), soon());
  ASSERT_FALSE(gone.ok());
  EXPECT_TRUE(gone.error().code == ESTALE || gone.error().code == ENOENT) << gone.error().code;
}

// A server that moves less than it is asked to: parts of odd sizes, the last ones first.
class OddParts : public PoolSession {
 public:
  explicit OddParts(PoolSession& session) : session_(session) {}

  Result<PoolRead> read_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                              const PoolSink& sink, PoolPace pace, Deadline deadline) override {
    return session_.read_parts(
        file, offset, size,
        [&](std::uint64_t at, std::span<const std::byte> bytes) -> Result<void> {
          while (!bytes.empty()) {
            const std::size_t part = std::min<std::size_t>(bytes.size(), 99'991);
            TRY(sink(at + bytes.size() - part, bytes.last(part)));
            bytes = bytes.first(bytes.size() - part);
          }
          return {};
        },
        pace, deadline);
  }
  Result<void> write_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                           const PoolFill& fill, PoolWrite when, Deadline deadline) override {
    return session_.write_parts(
        file, offset, size,
        [&](std::uint64_t at, std::span<std::byte> out) -> Result<void> {
          while (!out.empty()) {
            const std::size_t part = std::min<std::size_t>(out.size(), 300'007);
            TRY(fill(at + out.size() - part, out.last(part)));
            out = out.first(out.size() - part);
          }
          return {};
        },
        when, deadline);
  }
  Result<PoolFound> find(std::string_view path, Deadline deadline) override {
    return session_.find(path, deadline);
  }
  Result<PoolStatus> status(PoolFile& file, Deadline deadline) override {
    return session_.status(file, deadline);
  }
  Result<PoolFilePtr> open(std::string_view path, Deadline deadline) override {
    return session_.open(path, deadline);
  }
  Result<PoolFilePtr> create(std::string_view path, std::uint32_t mode,
                             Deadline deadline) override {
    return session_.create(path, mode, deadline);
  }
  Result<void> commit(PoolFile& file, Deadline deadline) override {
    return session_.commit(file, deadline);
  }
  Result<void> link(PoolFile& file, std::string_view to, Deadline deadline) override {
    return session_.link(file, to, deadline);
  }
  Result<void> rename(std::string_view from, std::string_view to, Deadline deadline) override {
    return session_.rename(from, to, deadline);
  }
  Result<void> remove(std::string_view path, Deadline deadline) override {
    return session_.remove(path, deadline);
  }
  Result<std::uint64_t> make_directory(std::string_view path, std::uint32_t mode,
                                       Deadline deadline) override {
    return session_.make_directory(path, mode, deadline);
  }
  Result<void> remove_directory(std::string_view path, Deadline deadline) override {
    return session_.remove_directory(path, deadline);
  }
  Result<void> list(std::string_view path, const std::function<bool(const PoolEntry&)>& visit,
                    Deadline deadline) override {
    return session_.list(path, visit, deadline);
  }
  Result<void> list_statuses(
      std::string_view path,
      const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit,
      Deadline deadline) override {
    return session_.list_statuses(path, visit, deadline);
  }
  Result<void> touch(PoolFile& file, Deadline deadline) override {
    return session_.touch(file, deadline);
  }
  Result<PoolSpace> space(Deadline deadline) override { return session_.space(deadline); }

 private:
  PoolSession& session_;
};

TEST_P(PoolTransfer, PartsOfAnySize) {
  OddParts odd(*session_);
  const Local local(random_bytes(5 * PoolSession::kMostAtOnce + 12'345));
  ASSERT_OK(publish(odd, local.as("block"), kNode, 1, soon()));
  const Local copy;
  const Result<Fetched> fetched = fetch(odd, "block", std::nullopt, copy.fd(), soon());
  ASSERT_OK(fetched);
  EXPECT_TRUE(copy.bytes() == local.bytes());
  EXPECT_EQ(local.sums(), fetched->chunk_crc32c);

  // A wrong byte anywhere is found.
  std::mt19937_64 chance(testing::test_seed());
  std::fstream there(below("block"), std::ios::binary | std::ios::in | std::ios::out);
  const std::size_t at = chance() % local.bytes().size();
  there.seekp(static_cast<std::streamoff>(at));
  there.put(static_cast<char>(local.bytes()[at] + 1));
  there.close();
  const Result<PoolKnown> known = find_known(*session_, "block", soon());
  ASSERT_OK(known);
  EXPECT_FALSE(known->sums.has_value()) << "they say nothing of a file with another mtime";
  PoolKnown wrong = *known;
  wrong.sums = fetched->sums;
  wrong.file = *session_->open("block", soon());
  EXPECT_ERROR(EILSEQ, fetch(odd, "block", wrong, Local().fd(), soon()));
  // Nor is a local byte published that was not sealed.
  const Local changed(
      local.bytes().replace(at, 1, 1, static_cast<char>(local.bytes()[at] + 1)));
  PoolSource source = local.as("other");
  source.fd = changed.fd();
  EXPECT_ERROR(EILSEQ, publish(odd, source, kNode, 2, soon()));
  EXPECT_ERROR(ENOENT, session_->status("other", soon()));
}

INSTANTIATE_TEST_SUITE_P(All, PoolTransfer, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace kvcachefs
