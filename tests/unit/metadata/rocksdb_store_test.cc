// What RocksdbStore does beyond the contract of stores (tests/contract/store_test.cc): opening,
// crashes, full disks.
#include "metadata/rocksdb_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "backend/base/clock.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/promise.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/tests_dir.h"

namespace kvcachefs {
namespace {

using testing::TempDir;
using testing::TempMount;

class RocksdbStoreTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Store>> open(const std::string& path, bool create = true) {
    problem_.clear();
    return RocksdbStore::open(path, {}, create, &problem_);
  }
  void expect_explained(const std::string& path) {
    EXPECT_NE(std::string::npos, problem_.find(path)) << problem_;
  }
  static Result<void> put(Store& store, const std::string& key, std::string value) {
    WriteBatch batch;
    batch.put(Table::kInodes, key, std::move(value));
    return store.write(batch);
  }

  const TempDir dir_;
  std::string problem_;
};

TEST_F(RocksdbStoreTest, KeepsItsRecords) {
  {
    auto store = open(dir_ / "db");
    ASSERT_OK(store);
    ASSERT_OK(put(**store, "key", "value"));
  }
  const auto again = open(dir_ / "db", false);
  ASSERT_OK(again);
  EXPECT_EQ("value", **(*again)->get(Table::kInodes, "key"));
}

TEST_F(RocksdbStoreTest, KeepsEveryWriteOfAKilledProcess) {
  PROMISE(7);
  int acknowledged[2];
  ASSERT_EQ(0, ::pipe2(acknowledged, O_CLOEXEC));
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = RocksdbStore::open(dir_ / "db", {}, true);
    for (std::uint32_t i = 0;; ++i) {
      if (!store.ok() || !put(**store, std::to_string(i), "value").ok()) ::_exit(1);
      if (::write(acknowledged[1], &i, sizeof i) != sizeof i) ::_exit(1);
    }
  }
  ::close(acknowledged[1]);
  std::uint32_t last = 0;
  while (last < 2000)
    ASSERT_EQ(static_cast<ssize_t>(sizeof last), ::read(acknowledged[0], &last, sizeof last));
  ::kill(child, SIGKILL);
  ASSERT_EQ(child, ::waitpid(child, nullptr, 0));
  while (::read(acknowledged[0], &last, sizeof last) == sizeof last) {
  }
  ::close(acknowledged[0]);
  const auto store = open(dir_ / "db", false);
  ASSERT_OK(store);
  for (std::uint32_t i = 0; i <= last; ++i) {
    ASSERT_TRUE((*store)->get(Table::kInodes, std::to_string(i))->has_value())
        << i << " of " << last;
  }
}

TEST_F(RocksdbStoreTest, ATornLogLosesOnlyItsEnd) {
  const std::string copy = dir_ / "copy";
  {
    auto store = open(dir_ / "db");
    ASSERT_OK(store);
    for (int i = 0; i < 1000; ++i)
      ASSERT_OK(put(**store, std::to_string(i), std::string(100, 'v')));
    // What is on the disk now is what a crash leaves: closing would tidy up.
    std::filesystem::copy(dir_ / "db", copy, std::filesystem::copy_options::recursive);
  }
  std::string log;
  for (const auto& entry : std::filesystem::directory_iterator(copy)) {
    if (entry.path().extension() == ".log" && entry.file_size() > 0) log = entry.path();
  }
  ASSERT_NE("", log);
  std::filesystem::resize_file(log, std::filesystem::file_size(log) / 2);
  const auto store = open(copy, false);
  ASSERT_OK(store);
  bool present = true;
  int kept = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool here = (*store)->get(Table::kInodes, std::to_string(i))->has_value();
    EXPECT_FALSE(here && !present) << "a hole before " << i;
    present = here;
    kept += here;
  }
  EXPECT_GT(kept, 300);
  EXPECT_LT(kept, 700);
}

TEST_F(RocksdbStoreTest, RefusesAMissingDatabase) {
  EXPECT_ERROR(ENOENT, open(dir_ / "db", false));
  expect_explained(dir_ / "db");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "db"));
  std::filesystem::create_directory(dir_ / "db");
  EXPECT_ERROR(ENOENT, open(dir_ / "db", false));
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "db"));
  EXPECT_ERROR(ENOENT, open(dir_ / "no/db", true)) << "the parent must be there";
}

TEST_F(RocksdbStoreTest, RefusesAFile) {
  testing::write_file(dir_ / "db", "a file");
  EXPECT_ERROR(ENOTDIR, open(dir_ / "db"));
  expect_explained(dir_ / "db");
}

TEST_F(RocksdbStoreTest, RefusesASecondUser) {
  const auto first = open(dir_ / "db");
  ASSERT_OK(first);
  EXPECT_ERROR(EBUSY, open(dir_ / "db"));
  expect_explained(dir_ / "db");
}

TEST_F(RocksdbStoreTest, RefusesOptionsOutOfBounds) {
  EXPECT_ERROR(EINVAL, RocksdbStore::open(dir_ / "db", {.cache_bytes = 1}, true));
  EXPECT_ERROR(EINVAL, RocksdbStore::open(dir_ / "db", {.cache_bytes = 1ull << 40}, true));
  EXPECT_ERROR(EINVAL, RocksdbStore::open(dir_ / "db", {.write_buffer_bytes = 1}, true));
  EXPECT_ERROR(EINVAL, RocksdbStore::open(dir_ / "db", {.max_open_files = -1}, true));
}

// The fixture is db-v1 with one table more: `ldb --db=DIR create_column_family prefix_index`.
TEST_F(RocksdbStoreTest, RefusesTablesOfANewerVersion) {
  const std::filesystem::path fixtures =
      std::filesystem::path(testing::tests_dir()) / "fixtures";
  const std::string unpack =
      "tar -xzf '" + (fixtures / "db-newer.tar.gz").string() + "' -C '" + dir_.path() + "'";
  ASSERT_EQ(0, std::system(unpack.c_str()));
  EXPECT_ERROR(EPROTONOSUPPORT, open(dir_ / "db-newer"));
  EXPECT_NE(std::string::npos, problem_.find("prefix_index")) << problem_;
}

TEST_F(RocksdbStoreTest, RefusesADamagedDatabase) {
  { ASSERT_OK(open(dir_ / "db")); }
  const std::string current = testing::read_file(dir_ / "db/CURRENT");
  for (const std::string& garbage :
       {std::string("garbage\n"), std::string("MANIFEST-999999\n"), std::string()}) {
    testing::write_file(dir_ / "db/CURRENT", garbage);
    EXPECT_ERROR(EBADMSG, open(dir_ / "db")) << garbage;
    expect_explained(dir_ / "db");
  }
  testing::write_file(dir_ / "db/CURRENT", current);
  EXPECT_OK(open(dir_ / "db"));
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "db")) {
    if (entry.path().filename().string().starts_with("MANIFEST")) {
      testing::write_file(entry.path(), std::string(1000, 'x'));
    }
  }
  EXPECT_ERROR(EBADMSG, open(dir_ / "db"));
}

TEST_F(RocksdbStoreTest, TheRestOfADatabaseIsNotTakenForNone) {
  {
    auto store = open(dir_ / "db");
    ASSERT_OK(store);
    ASSERT_OK(put(**store, "key", "value"));
  }
  const std::string current = testing::read_file(dir_ / "db/CURRENT");
  std::filesystem::remove(dir_ / "db/CURRENT");
  EXPECT_ERROR(EBADMSG, open(dir_ / "db"));
  expect_explained(dir_ / "db");
  testing::write_file(dir_ / "db/CURRENT", current);
  const auto again = open(dir_ / "db");
  ASSERT_OK(again);
  EXPECT_EQ("value", **(*again)->get(Table::kInodes, "key"));
}

TEST_F(RocksdbStoreTest, ADamagedBlockIsAnErrorNeverAWrongValue) {
  PROMISE(1);
  {
    auto store = open(dir_ / "db");
    ASSERT_OK(store);
    for (int i = 0; i < 1000; ++i)
      ASSERT_OK(put(**store, std::to_string(i), std::string(100, 'v')));
  }
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "db")) {
    if (entry.path().extension() != ".sst") continue;
    std::string bytes = testing::read_file(entry.path());
    // The first blocks hold the records; the index and the footer at the end stay whole.
    for (std::size_t at = 100; at < bytes.size() / 2; at += 64)
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
    testing::write_file(entry.path(), bytes);
  }
  const auto store = open(dir_ / "db");
  ASSERT_OK(store);
  int damaged = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto value = (*store)->get(Table::kInodes, std::to_string(i));
    if (!value.ok()) {
      EXPECT_EQ(EBADMSG, value.error().code);
      ++damaged;
    } else if (value->has_value()) {
      EXPECT_EQ(std::string(100, 'v'), **value);
    }
  }
  EXPECT_GT(damaged, 0);
  EXPECT_ERROR(EBADMSG,
               (*store)->scan(Table::kInodes, "", "",
                              [](std::string_view, std::string_view) { return true; }));
}

TEST_F(RocksdbStoreTest, RefusesAReadOnlyFilesystem) {
  TempMount mount("size=64m");
  { ASSERT_OK(open(mount / "db")); }
  mount.set_read_only(true);
  EXPECT_ERROR(EROFS, open(mount / "db"));
  expect_explained(mount / "db");
  EXPECT_ERROR(EROFS, open(mount / "new"));
}

TEST_F(RocksdbStoreTest, RefusesWithoutPermission) {
  ASSERT_EQ(0, ::geteuid()) << "needs root";
  { ASSERT_OK(open(dir_ / "db")); }
  ASSERT_EQ(0, ::chmod(dir_.path().c_str(), 0755));
  ASSERT_EQ(0, ::seteuid(65534));
  const auto store = open(dir_ / "db");
  ASSERT_EQ(0, ::seteuid(0));
  EXPECT_ERROR(EACCES, store);
  expect_explained(dir_ / "db");
}

TEST_F(RocksdbStoreTest, RefusesAFullDiskAtTheStart) {
  TempMount mount("size=64m,nr_inodes=3");
  EXPECT_ERROR(ENOSPC, open(mount / "db"));
  expect_explained(mount / "db");
}

TEST_F(RocksdbStoreTest, WorksAgainAfterTheDiskWasFull) {
  TempMount mount("size=96m");
  testing::write_file(mount / "ballast", std::string(60 << 20, 'b'));
  auto store = open(mount / "db");
  ASSERT_OK(store);
  ASSERT_OK(put(**store, "before", "value"));

  // Values that do not compress, in numbers that fill the disk and then some.
  int code = 0;
  int written = 0;
  for (int i = 0; i < 100'000 && code == 0; ++i) {
    code = testing::code_of(
        put(**store, "fill" + std::to_string(i), std::string(4096, static_cast<char>(i))));
    if (code == 0) ++written;
  }
  ASSERT_EQ(ENOSPC, code) << "after " << written;
  const bool more = put(**store, "more", std::string(4096, 'm')).ok();
  EXPECT_EQ("value", **(*store)->get(Table::kInodes, "before")) << "reads go on";
  for (int i = 0; i < written; i += 97) {
    ASSERT_TRUE((*store)->get(Table::kInodes, "fill" + std::to_string(i))->has_value()) << i;
  }

  std::filesystem::remove(mount / "ballast");
  const std::int64_t deadline = monotonic_now() + 30 * kNanosPerSecond;
  do {
    code = testing::code_of(put(**store, "after", "value"));
  } while (code == ENOSPC && monotonic_now() < deadline);
  ASSERT_EQ(0, code) << "without opening it anew";
  EXPECT_OK((*store)->sync());
  store->reset();
  const auto again = open(mount / "db", false);
  ASSERT_OK(again);
  EXPECT_TRUE((*again)->get(Table::kInodes, "after")->has_value());
  EXPECT_TRUE((*again)->get(Table::kInodes, "fill" + std::to_string(written - 1))->has_value());
  EXPECT_EQ(more, (*again)->get(Table::kInodes, "more")->has_value())
      << "a failed write stays failed";
}

TEST_F(RocksdbStoreTest, EndsOnAFullDiskAndKeepsWhatItTook) {
  TempMount mount("size=56m");
  auto store = open(mount / "db");
  ASSERT_OK(store);
  // More than a log: the table that a failed opening began to write from one is still there at the
  // next.
  testing::write_file(mount / "ballast", std::string(24 << 20, 'b'));
  int code = 0;
  int written = 0;
  for (int i = 0; i < 100'000 && code == 0; ++i) {
    code = testing::code_of(put(**store, std::to_string(i), std::string(4096, 'v')));
    if (code == 0) ++written;
  }
  ASSERT_EQ(ENOSPC, code);
  const std::int64_t began = monotonic_now();
  store->reset();
  EXPECT_LT(monotonic_now() - began, 20 * kNanosPerSecond);
  std::filesystem::remove(mount / "ballast");
  const auto again = open(mount / "db", false);
  ASSERT_OK(again) << problem_;
  for (int i = 0; i < written; i += 41) {
    ASSERT_TRUE((*again)->get(Table::kInodes, std::to_string(i))->has_value()) << i;
  }
}

TEST_F(RocksdbStoreTest, ItWritesNoLogFileOfItsOwn) {
  auto store = open(dir_ / "db");
  ASSERT_OK(store);
  ASSERT_OK(put(**store, "key", "value"));
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "db")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("LOG")) << entry.path();
  }
}

}  // namespace
}  // namespace kvcachefs
