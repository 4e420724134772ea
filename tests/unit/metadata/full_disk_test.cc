// A disk that fills up and empties again while RocksdbStore writes to it: what was acknowledged is
// there after the next start, whatever the database met in between.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/base/unique_fd.h"
#include "metadata/rocksdb_store.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/seed.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using namespace std::chrono_literals;

constexpr int kWriters = 2;
constexpr int kWrites = 12'000;  // of each

// Takes all but a little of the disk, gives it back, over and over: faster than anyone can look.
void fill_and_empty(const std::string& dir, unsigned seed, const std::atomic<bool>& stop,
                    std::atomic<int>* times) {
  std::mt19937 random(seed);
  while (!stop) {
    const UniqueFd ballast(
        ::open((dir + "/ballast").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    struct statvfs space {};
    if (!ballast || ::statvfs(dir.c_str(), &space) != 0) return;
    const auto free = static_cast<off_t>(space.f_bavail * space.f_frsize);
    const bool all_but = *times == 0 || random() % 4 != 0;
    const auto leave = static_cast<off_t>(random() % (all_but ? 1'000'000 : 30'000'000));
    if (free > leave && ::fallocate(ballast.get(), 0, 0, free - leave) == 0) ++*times;
    std::this_thread::sleep_for((random() % 100) * 1ms);
    if (::ftruncate(ballast.get(), 0) != 0) return;
    std::this_thread::sleep_for((random() % 200) * 1ms);
  }
}

std::string key_of(int writer, int i) {
  return std::to_string(writer) + "." + std::to_string(i);
}

struct Written {
  std::vector<bool> acknowledged = std::vector<bool>(kWrites);
  int failures = 0;
  int after_failures = 0;
};

void write_all(Store& store, int writer, unsigned seed, Written* written) {
  std::mt19937 random(seed);
  for (int i = 0; i < kWrites; ++i) {
    WriteBatch batch;
    batch.put(Table::kInodes, key_of(writer, i),
              std::string(random() % 4000, static_cast<char>(random())));
    if (random() % 3 == 0) batch.put(Table::kDentries, key_of(writer, i), "x");
    if (store.write(batch).ok()) {
      written->acknowledged[static_cast<std::size_t>(i)] = true;
      if (written->failures != 0) ++written->after_failures;
    } else {
      ++written->failures;
      std::this_thread::sleep_for(200us);
    }
    if (random() % 200 == 0) static_cast<void>(store.sync());
  }
}

TEST(FullDiskTest, KeepsWhatItAcknowledged) {
  const unsigned seed = static_cast<unsigned>(testing::test_seed());
  int failures = 0;
  int after_failures = 0;
  for (unsigned round = 0; round < 4; ++round) {
    testing::TempMount disk("size=120m");
    Written written[kWriters];
    std::atomic<int> times{0};
    {
      auto store = RocksdbStore::open(disk / "db", {}, true);
      ASSERT_OK(store);
      std::atomic<bool> stop{false};
      std::thread filler([&] { fill_and_empty(disk.path(), seed + round, stop, &times); });
      // A fast machine would be done before the disk is full for the first time.
      while (times == 0) std::this_thread::yield();
      std::vector<std::thread> writers;
      for (int w = 0; w < kWriters; ++w) {
        writers.emplace_back([&, w] {
          write_all(**store, w, seed + round + static_cast<unsigned>(w), &written[w]);
        });
      }
      for (std::thread& writer : writers) writer.join();
      stop = true;
      filler.join();
    }
    disk.change("size=1g");
    const auto store = RocksdbStore::open(disk / "db", {}, false);
    ASSERT_OK(store);
    for (int w = 0; w < kWriters; ++w) {
      for (int i = 0; i < kWrites; ++i) {
        const auto value = (*store)->get(Table::kInodes, key_of(w, i));
        ASSERT_OK(value);
        ASSERT_EQ(written[w].acknowledged[static_cast<std::size_t>(i)], value->has_value())
            << "round " << round << ", " << key_of(w, i);
      }
      failures += written[w].failures;
      after_failures += written[w].after_failures;
    }
    ASSERT_GT(times, 0) << "the disk was never full";
  }
  EXPECT_GT(failures, 0) << "no write failed: the test exercised nothing";
  EXPECT_GT(after_failures, 0) << "no write worked after one had failed";
}

}  // namespace
}  // namespace kvcachefs
