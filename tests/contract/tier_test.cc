// The contract of Tier, for every implementation.
#include "backend/tier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backend/device_dir.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using Make = std::function<std::unique_ptr<Tier>(const std::string& directory)>;
struct TierImplementation {
  std::string name;
  Make make;
};

class TierContract : public ::testing::TestWithParam<TierImplementation> {
 protected:
  TierContract() : tier_(GetParam().make(dir_.path())) {}
  void SetUp() override { ASSERT_NE(nullptr, tier_); }

  void put(std::uint64_t object, std::string_view bytes) {
    const Result<UniqueFd> fd = tier_->create(object);
    ASSERT_OK(fd);
    ASSERT_EQ(static_cast<ssize_t>(bytes.size()),
              ::write(fd->get(), bytes.data(), bytes.size()));
  }
  std::string get(std::uint64_t object) {
    const Result<UniqueFd> fd = tier_->open(object, O_RDONLY);
    EXPECT_OK(fd);
    std::string bytes(100, '\0');
    const ssize_t got = fd.ok() ? ::read(fd->get(), bytes.data(), bytes.size()) : -1;
    EXPECT_GE(got, 0);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
  }
  std::set<std::uint64_t> all() {
    std::set<std::uint64_t> objects;
    EXPECT_OK(tier_->each([&](std::uint64_t object) { return objects.insert(object).second; },
                          [](const std::string& path) { ADD_FAILURE() << path; }));
    return objects;
  }

  const testing::TempDir dir_;
  const std::unique_ptr<Tier> tier_;
};

TEST_P(TierContract, KeepsWhatWasWritten) {
  put(1, "one");
  put(UINT64_MAX, "last");
  EXPECT_EQ("one", get(1));
  EXPECT_EQ("last", get(UINT64_MAX));
  const Result<struct stat> status = tier_->status(1);
  ASSERT_OK(status);
  EXPECT_EQ(3, status->st_size);
  EXPECT_TRUE(S_ISREG(status->st_mode));
  EXPECT_EQ(0600u, status->st_mode & 07777);
}

TEST_P(TierContract, CreatesAnObjectOnce) {
  put(1, "one");
  EXPECT_ERROR(EEXIST, tier_->create(1));
  EXPECT_EQ("one", get(1));
}

TEST_P(TierContract, ALostCopyIsEnoent) {
  EXPECT_ERROR(ENOENT, tier_->open(1, O_RDONLY));
  EXPECT_ERROR(ENOENT, tier_->open(1, O_RDWR | O_CREAT)) << "open never makes a copy";
  EXPECT_ERROR(ENOENT, tier_->status(1));
}

TEST_P(TierContract, OpensAsAsked) {
  put(1, "one");
  EXPECT_OK(tier_->open(1, O_RDWR | O_DIRECT));
  const Result<UniqueFd> path = tier_->open(1, O_PATH);
  ASSERT_OK(path);
  char byte;
  EXPECT_EQ(-1, ::read(path->get(), &byte, 1));
  EXPECT_NE(0, ::fcntl(path->get(), F_GETFD) & FD_CLOEXEC);
  ASSERT_OK(tier_->open(1, O_WRONLY | O_APPEND));
  ASSERT_OK(tier_->open(1, O_WRONLY | O_TRUNC));
  EXPECT_EQ("", get(1));
}

TEST_P(TierContract, RemovesOnceAndAgain) {
  put(1, "one");
  const Result<UniqueFd> reader = tier_->open(1, O_RDONLY);
  ASSERT_OK(reader);
  EXPECT_OK(tier_->remove(1));
  EXPECT_ERROR(ENOENT, tier_->status(1));
  EXPECT_OK(tier_->remove(1)) << "absent is success";
  char bytes[3];
  EXPECT_EQ(3, ::read(reader->get(), bytes, 3)) << "an open reader keeps its bytes";
}

// As another process has it: a child whose descriptors are its own.
class Other {
 public:
  Other(Tier& tier, std::uint64_t object, int flags, bool maps) {
    int ready[2];
    int end[2];
    if (::pipe2(ready, O_CLOEXEC) != 0 || ::pipe2(end, O_CLOEXEC) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) {
      ::close(end[1]);
      UniqueFd fd(tier.open(object, flags).value().release());
      if (maps && ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), 0) == MAP_FAILED)
        ::_exit(1);
      if (maps) fd = UniqueFd();
      char byte = 0;
      if (::write(ready[1], &byte, 1) == 1 && ::read(end[0], &byte, 1) >= 0) ::_exit(0);
      ::_exit(1);
    }
    ::close(ready[1]);
    ::close(end[0]);
    end_ = UniqueFd(end[1]);
    char byte = 0;
    EXPECT_EQ(1, ::read(ready[0], &byte, 1));
    ::close(ready[0]);
  }
  ~Other() {
    end_ = UniqueFd();
    int status = -1;
    EXPECT_EQ(child_, ::waitpid(child_, &status, 0));
    EXPECT_EQ(0, status);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

 private:
  pid_t child_ = -1;
  UniqueFd end_;
};

TEST_P(TierContract, SaysWhatOthersHaveOpenOrMapped) {
  put(1, "one");
  EXPECT_FALSE(tier_->is_used(1).value());
  for (const int flags : {O_RDONLY, O_RDWR}) {
    const Other other(*tier_, 1, flags, false);
    EXPECT_TRUE(tier_->is_used(1).value());
    // Who has it open himself cannot tell.
    const UniqueFd own = tier_->open(1, O_RDONLY).value();
    EXPECT_ERROR(EBUSY, tier_->is_used(1));
  }
  {
    const Other other(*tier_, 1, O_PATH, false);
    EXPECT_FALSE(tier_->is_used(1).value());
  }
  {
    const Other other(*tier_, 1, O_RDONLY, true);
    EXPECT_TRUE(tier_->is_used(1).value());
  }
  EXPECT_FALSE(tier_->is_used(1).value());
  EXPECT_ERROR(ENOENT, tier_->is_used(2));
}

TEST_P(TierContract, QuarantineTakesACopyOutOfUse) {
  put(1, "bad");
  put(2, "good");
  EXPECT_OK(tier_->quarantine(1));
  EXPECT_ERROR(ENOENT, tier_->open(1, O_RDONLY));
  EXPECT_EQ(std::set<std::uint64_t>{2}, all());
  EXPECT_OK(tier_->quarantine(1)) << "absent is success";
}

TEST_P(TierContract, QuarantineKeepsTheLastOnes) {
  for (std::uint64_t object = 1; object <= Tier::kMostQuarantined + 6; ++object) {
    put(object, "bad");
    EXPECT_OK(tier_->quarantine(object));
  }
  std::set<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "quarantine"))
    kept.insert(entry.path().filename().string());
  EXPECT_EQ(Tier::kMostQuarantined, kept.size());
  EXPECT_EQ(0u, kept.count("0000000000000006"));
  EXPECT_EQ(1u, kept.count("0000000000000007"));
}

TEST_P(TierContract, QuarantineIsBoundedInBytes) {
  constexpr std::uint64_t kShare = Tier::kMostQuarantinedBytes / 4;
  for (std::uint64_t object = 1; object <= 6; ++object) {
    const Result<UniqueFd> fd = tier_->create(object);
    ASSERT_OK(fd);
    ASSERT_EQ(0, ::fallocate(fd->get(), 0, 0, static_cast<off_t>(kShare)));
    EXPECT_OK(tier_->quarantine(object));
  }
  std::set<std::string> kept;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "quarantine"))
    kept.insert(entry.path().filename().string());
  // What the filesystem needs to know of the blocks counts, too.
  EXPECT_GE(kept.size(), 3u);
  EXPECT_LE(kept.size(), 4u);
  EXPECT_EQ(1u, kept.count("0000000000000006"));
}

TEST_P(TierContract, ListsEveryObjectAndEndsWhenAsked) {
  std::set<std::uint64_t> made;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const std::uint64_t object = 1 + i * 4099;
    put(object, "");
    made.insert(object);
  }
  EXPECT_EQ(made, all());
  int visited = 0;
  EXPECT_OK(
      tier_->each([&](std::uint64_t) { return ++visited < 10; }, [](const std::string&) {}));
  EXPECT_EQ(10, visited);
}

TEST_P(TierContract, SaysHowMuchSpaceThereIs) {
  const Result<struct statvfs> space = tier_->space();
  ASSERT_OK(space);
  EXPECT_GT(space->f_blocks, 0u);
  EXPECT_GT(space->f_frsize, 0u);
  EXPECT_OK(tier_->sync());
  const Result<std::string> identity = tier_->mount_identity();
  ASSERT_OK(identity);
  EXPECT_FALSE(identity->empty());
}

TEST_P(TierContract, ACheckOfAWellDeviceLeavesNothing) {
  put(7, "bytes");
  EXPECT_OK(tier_->check(TierCheck::kRead));
  EXPECT_OK(tier_->check(TierCheck::kWriteAndRead));
  EXPECT_EQ((std::set<std::uint64_t>{7}), all());
}

TEST_P(TierContract, SaysWhenDescriptorsRunOut) {
  put(1, "one");
  rlimit before;
  ASSERT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &before));
  const int next = ::dup(0);
  ASSERT_GE(next, 0);
  ::close(next);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &none));
  const int opened = testing::code_of(tier_->open(1, O_RDONLY));
  const bool status_works = tier_->status(1).ok();
  ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &before));
  EXPECT_EQ(EMFILE, opened);
  EXPECT_TRUE(status_works) << "asking takes no descriptor";
}

TEST_P(TierContract, ManyThreadsMayUseItAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> made{0};
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t id = 1; id <= 200; ++id) {
        // Each id is made by exactly one of the threads.
        if (tier_->create(id * 4096).ok()) ++made;
        EXPECT_TRUE(tier_->status(id * 4096).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(200, made);
  EXPECT_EQ(200u, all().size());
}

std::unique_ptr<Tier> make_device_dir(const std::string& directory) {
  Result<std::unique_ptr<DeviceDir>> device =
      DeviceDir::open({.path = directory, .catalog = {}}, true);
  EXPECT_OK(device);
  return device.ok() ? std::move(*device) : nullptr;
}

INSTANTIATE_TEST_SUITE_P(All, TierContract,
                         ::testing::Values(TierImplementation{"DeviceDir", make_device_dir}),
                         [](const auto& instance) { return instance.param.name; });

// What stands in a device directory beside objects is for fsck to name.
TEST(DeviceDirEach, PassesWhatItDoesNotKnow) {
  const testing::TempDir dir;
  const std::unique_ptr<Tier> tier = make_device_dir(dir.path());
  ASSERT_NE(nullptr, tier);
  ASSERT_OK(tier->create(0x1000));
  testing::write_file(dir / "objects/readme", "");
  testing::write_file(dir / "objects/01/0000000000002000", "in the wrong subdirectory");
  testing::write_file(dir / "objects/01/000000000000100G", "");
  testing::write_file(dir / "objects/01/1000", "");
  std::set<std::string> unknown;
  std::set<std::uint64_t> objects;
  ASSERT_OK(tier->each([&](std::uint64_t object) { return objects.insert(object).second; },
                       [&](const std::string& path) { unknown.insert(path); }));
  EXPECT_EQ(std::set<std::uint64_t>{0x1000}, objects);
  EXPECT_EQ((std::set<std::string>{"objects/readme", "objects/01/0000000000002000",
                                   "objects/01/000000000000100G", "objects/01/1000"}),
            unknown);
}

}  // namespace
}  // namespace kvcachefs
