// Large files of a pool that are read while they come, over each kind of pool.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <random>
#include <string>

#include "backend/base/units.h"
#include "tests/fakes/gated_pool_session.h"
#include "tests/fakes/seed.h"
#include "tests/servers/pool_places.h"
#include "tests/servers/volume_on_pool.h"

namespace kvcachefs {
namespace {

using testing::must;
using testing::Server;
using testing::TestVolume;

constexpr PoolOptions kOptions = {.stage_whole = kMiB};

std::string random_bytes(std::size_t size) {
  std::mt19937_64 random(testing::test_seed());
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at + 8 <= size; at += 8) {
    const std::uint64_t next = random();
    std::memcpy(bytes.data() + at, &next, sizeof next);
  }
  return bytes;
}

class LargeFiles : public ::testing::TestWithParam<testing::PoolPlaceMaker> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TestVolume::wait_for([&] {
      return a_.is_joined() && b_.is_joined() && a_.nodes() == 2 && b_.nodes() == 2;
    }));
    a_->store_file(kRootInode, "f", bytes_);
    ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("f"); }));
    file_ = must(b_->resolve("f"));
    ASSERT_EQ(DataState::kRemote, b_->state_of(file_));
  }

  Result<std::string> read(OpenFile& file, std::uint64_t offset, std::size_t size) {
    std::string out(size, '\0');
    const std::size_t got =
        TRY((*b_)->read(file, std::as_writable_bytes(std::span(out)), offset));
    out.resize(got);
    return out;
  }
  [[nodiscard]] bool is_whole() { return b_->state_of(file_) != DataState::kRemote; }

  const std::string bytes_ = random_bytes(40 * kMiB + 12'345);
  const std::unique_ptr<testing::PoolPlace> place_ = GetParam().make();
  const std::shared_ptr<testing::ReadGate> gate_ = std::make_shared<testing::ReadGate>();
  Server a_{*place_, 1};
  Server b_{*place_, 2, kOptions, gate_};
  InodeNumber file_ = 0;
};

TEST_P(LargeFiles, AnOpenDoesNotWaitForTheWholeOfIt) {
  gate_->close_at(4 * kMiB);
  OpenFile& file = b_->open(file_, O_RDONLY);
  EXPECT_TRUE(bytes_.substr(0, 100) == must(read(file, 0, 100)));
  EXPECT_EQ(1U, b_.counts().arriving);
  EXPECT_FALSE(is_whole());
  EXPECT_EQ(bytes_.size(), static_cast<std::size_t>(b_->stat_of(file_).st_size));
  // What does not come is an error in time, and no zeros.
  EXPECT_TRUE((*b_)->read_waits(file, 100, 30 * kMiB));
  EXPECT_EQ(EIO, read(file, 30 * kMiB, 100).error().code);
  // A program that looks for holes finds none.
  EXPECT_EQ(30 * kMiB, must((*b_)->seek(file, 30 * kMiB, SEEK_DATA)));
  EXPECT_EQ(bytes_.size(), must((*b_)->seek(file, 0, SEEK_HOLE)));
  gate_->open();
  EXPECT_TRUE(bytes_.substr(30 * kMiB - 7, 2 * kMiB) ==
              must(read(file, 30 * kMiB - 7, 2 * kMiB)));
  ASSERT_TRUE(TestVolume::wait_for([&] { return is_whole(); }));
  // It is counted a moment after it is whole.
  EXPECT_TRUE(TestVolume::wait_for(
      [&] { return b_.counts().arriving == 0 && b_.counts().loaded == 1; }));
  EXPECT_FALSE((*b_)->read_waits(file, UINT64_MAX, 0));
  EXPECT_TRUE(bytes_ == must(read(file, 0, bytes_.size() + 1)));
  (*b_)->release(file);
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_->state_of(file_) == DataState::kSealed; }));
  EXPECT_TRUE(bytes_.substr(0, kMiB) == b_.read("f"));
  EXPECT_EQ(1U, b_->objects());
}

// Who opens it takes a miss for what it is; an error would be one of his storage.
TEST_P(LargeFiles, OfAPoolThatDoesNotAnswerAnOpenIsAMiss) {
  gate_->close_at(0);
  EXPECT_ERROR(ENOENT, (*b_)->open(file_, O_RDONLY, TestVolume::kRoot));
  gate_->open();
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.read("f") == bytes_.substr(0, kMiB); }));
}

TEST_P(LargeFiles, WhatIsReadComesFirst) {
  gate_->close_at(2 * kMiB);
  gate_->let_through(25 * kMiB);
  OpenFile& file = b_->open(file_, O_RDONLY);
  EXPECT_TRUE(bytes_.substr(25 * kMiB + 5, 1000) == must(read(file, 25 * kMiB + 5, 1000)));
  (*b_)->release(file);
}

TEST_P(LargeFiles, WhatNobodyReadsIsForgotten) {
  gate_->close_at(4 * kMiB);
  OpenFile& file = b_->open(file_, O_RDONLY);
  EXPECT_TRUE(bytes_.substr(0, 100) == must(read(file, 0, 100)));
  EXPECT_EQ(1U, b_->objects());
  (*b_)->release(file);
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.counts().arriving == 0; }));
  EXPECT_FALSE(is_whole());
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_->objects() == 0; }));
  // It can be had again.
  gate_->open();
  EXPECT_TRUE(bytes_.substr(0, kMiB) == b_.read("f"));
}

TEST_P(LargeFiles, OfWhatHasComeMostlyTheRestComes) {
  // What is read ahead doubles, from the begin or from the frame behind the first: a range ends
  // at 30 or at 31 MiB.
  gate_->close_at(31 * kMiB);
  OpenFile& file = b_->open(file_, O_RDONLY);
  ASSERT_TRUE(TestVolume::wait_for([&] { return gate_->bytes() >= 22 * kMiB; }));
  EXPECT_TRUE(bytes_.substr(15 * kMiB, kMiB) == must(read(file, 15 * kMiB, kMiB)));
  gate_->open();
  EXPECT_TRUE(bytes_.substr(25 * kMiB, kMiB) == must(read(file, 25 * kMiB, kMiB)));
  (*b_)->release(file);
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_whole(); }));
}

// A call that fails once, as on a machine that is busy, costs nobody what has come.
TEST_P(LargeFiles, OfWhatHasComeMostlyTheRestComesAfterAFailure) {
  gate_->close_at(31 * kMiB);
  OpenFile& file = b_->open(file_, O_RDONLY);
  ASSERT_TRUE(TestVolume::wait_for([&] { return gate_->bytes() >= 22 * kMiB; }));
  // More than half is here.
  EXPECT_TRUE(bytes_.substr(0, 26 * kMiB) == must(read(file, 0, 26 * kMiB)));
  (*b_)->release(file);
  gate_->fail_at(31 * kMiB, ETIMEDOUT);
  ASSERT_TRUE(TestVolume::wait_for([&] { return gate_->failures() > 0; }));
  gate_->open();
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_whole(); }));
}

// As beside many other readers, or on a busy machine: the bytes come, though not for long enough.
TEST_P(LargeFiles, AReadWaitsAsLongAsTheFileComes) {
  OpenFile& file = b_->open(file_, O_RDONLY);
  gate_->slow_down(8'000'000);
  const Result<std::string> got = read(file, 5 * kMiB, 30 * kMiB);
  ASSERT_TRUE(got.ok()) << got.error().what;
  EXPECT_TRUE(bytes_.substr(5 * kMiB, 30 * kMiB) == *got);
  (*b_)->release(file);
}

TEST_P(LargeFiles, ManyReadItAtOnce) {
  std::vector<std::future<std::string>> readers;
  for (std::size_t reader = 0; reader < 8; ++reader) {
    readers.push_back(std::async(std::launch::async, [&, reader] {
      OpenFile& file = b_->open(file_, O_RDONLY);
      std::string all(bytes_.size(), '\0');
      constexpr std::size_t kStep = 700'001;
      const std::size_t steps = bytes_.size() / kStep + 1;
      for (std::size_t step = 0; step < steps; ++step) {
        const std::size_t at = (step + reader * 7) % steps * kStep;
        const std::string part = must(read(file, at, kStep));
        all.replace(at, part.size(), part);
      }
      (*b_)->release(file);
      return all;
    }));
  }
  for (auto& reader : readers) EXPECT_TRUE(bytes_ == reader.get());
  EXPECT_TRUE(TestVolume::wait_for([&] { return is_whole(); }));
  EXPECT_EQ(1U, b_.counts().loaded);
  EXPECT_EQ(1U, b_->objects());
}

TEST_P(LargeFiles, ADamagedPieceIsAnErrorAndThenAMiss) {
  {
    std::fstream there(place_->root() + "/f", std::ios::in | std::ios::out | std::ios::binary);
    const auto before = std::filesystem::last_write_time(place_->root() + "/f");
    there.seekp(20 * kMiB + 17);
    there.put(static_cast<char>(bytes_[20 * kMiB + 17] ^ 1));
    there.close();
    std::filesystem::last_write_time(place_->root() + "/f", before);
  }
  gate_->close_at(2 * kMiB);
  OpenFile& file = b_->open(file_, O_RDONLY);
  EXPECT_TRUE(bytes_.substr(0, 100) == must(read(file, 0, 100)));
  gate_->open();
  EXPECT_EQ(EIO, read(file, 20 * kMiB, 100).error().code);
  // What came is what was stored.
  EXPECT_TRUE(bytes_.substr(0, 100) == must(read(file, 0, 100)));
  (*b_)->release(file);
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_.counts().arriving == 0; }));
  EXPECT_FALSE(is_whole());
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_->objects() == 0; }));
}

TEST_P(LargeFiles, APoolThatComesBackIsReadOn) {
  gate_->fail_at(4 * kMiB, ENOTCONN);
  OpenFile& file = b_->open(file_, O_RDONLY);
  EXPECT_TRUE(bytes_.substr(0, 100) == must(read(file, 0, 100)));
  EXPECT_EQ(EIO, read(file, 30 * kMiB, 100).error().code);
  gate_->open();
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.health().up; }));
  const auto reads_on = [&] {
    const Result<std::string> got = read(file, 30 * kMiB, 100);
    return got.ok() && *got == bytes_.substr(30 * kMiB, 100);
  };
  EXPECT_TRUE(TestVolume::wait_for(reads_on));
  (*b_)->release(file);
}

TEST_P(LargeFiles, WhoWritesItWaitsForTheWhole) {
  OpenFile& reader = b_->open(file_, O_RDONLY);
  OpenFile& writer = b_->open(file_, O_RDWR);
  EXPECT_TRUE(is_whole());
  b_->write(writer, "changed", 0);
  b_->close(writer);
  EXPECT_EQ("changed", must(read(reader, 0, 7)));
  (*b_)->release(reader);
}

TEST_P(LargeFiles, WhoHasItOpenKeepsItWhenItIsRemoved) {
  gate_->close_at(4 * kMiB);
  OpenFile& file = b_->open(file_, O_RDONLY);
  EXPECT_TRUE(bytes_.substr(0, 100) == must(read(file, 0, 100)));
  must((*a_)->unlink(kRootInode, "f"));
  ASSERT_TRUE(TestVolume::wait_for([&] { return !b_.finds("f"); }));
  gate_->open();
  // The pool's trash has it.
  EXPECT_TRUE(bytes_.substr(30 * kMiB, 100) == must(read(file, 30 * kMiB, 100)));
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.counts().arriving == 0; }));
  EXPECT_TRUE(bytes_ == must(read(file, 0, bytes_.size())));
  (*b_)->release(file);
  EXPECT_TRUE(TestVolume::wait_for([&] { return b_->objects() == 0; }));
}

// A block that was found is kept for a lease: its handle leads to it in the pool's trash.
TEST_P(LargeFiles, ABlockThatWasFoundOutlivesItsEviction) {
  const std::string name = testing::block_name(0);
  const std::string path = place_->root() + "/" + name;
  const InodeNumber stored = a_->store_file(kRootInode, name, bytes_);
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return b_.finds(name) && must(a_->catalog().find_pool_copy(stored)).has_value();
  }));
  const PoolCopy copy = *must(a_->catalog().find_pool_copy(stored));
  std::filesystem::rename(path, place_->root() + "/.kvcachefs/evicted");
  a_.tell({.change = PoolChange::kEvicted,
           .path_hash = copy.path_hash,
           .fileid = copy.fileid,
           .size = copy.size});
  a_->store_file(kRootInode, "after", "");
  ASSERT_TRUE(TestVolume::wait_for([&] { return b_.finds("after"); }));
  EXPECT_TRUE(bytes_.substr(0, kMiB) == b_.read(name));
}

TEST_P(LargeFiles, AnEndedMountLeavesNothingHalf) {
  gate_->close_at(4 * kMiB);
  OpenFile& file = b_->open(file_, O_RDONLY);
  EXPECT_TRUE(bytes_.substr(0, 100) == must(read(file, 0, 100)));
  gate_->open();
  (*b_)->release(file);
  b_.stop();
  gate_->close_at(0);
  b_.run();
  EXPECT_EQ(0U, b_->objects());
}

INSTANTIATE_TEST_SUITE_P(Pools, LargeFiles, ::testing::ValuesIn(testing::pool_places()),
                         [](const auto& place) { return place.param.name; });

}  // namespace
}  // namespace kvcachefs
