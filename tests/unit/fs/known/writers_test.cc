// Which process wrote what, and what becomes of its files when it has ended.
#include "fs/known/writers.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "backend/base/clock.h"
#include "fs/known/file_policy.h"
#include "tests/fakes/test_volume.h"

namespace kvcachefs::testing {
namespace {

// A process that does nothing until it is ended.
class Idle {
 public:
  Idle() {
    std::string program = "/bin/sleep";
    std::string time = "1000";
    char* const arguments[] = {program.data(), time.data(), nullptr};
    // Whoever waits for this test's output does not wait for it.
    posix_spawn_file_actions_t closing{};
    ::posix_spawn_file_actions_init(&closing);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_addopen(&closing, fd, "/dev/null", O_RDWR, 0);
    const int failed =
        ::posix_spawn(&pid_, program.c_str(), &closing, nullptr, arguments, environ);
    ::posix_spawn_file_actions_destroy(&closing);
    if (failed != 0) throw std::runtime_error("cannot start sleep");
  }
  ~Idle() { end(); }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;
  void end(bool reap = true) {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | (reap ? 0 : WNOWAIT));
    if (reap) pid_ = 0;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

TEST(Writers, AreReadFromProc) {
  const std::string tail = " 1 4711 4711 0 -1 4194560 5 0 0 0 1 2 0 0 20 0 ";
  const auto parse = [&](const std::string& name, const std::string& state, int threads) {
    return parse_process("4711 (" + name + ") " + state + tail + std::to_string(threads) +
                             " 0 8765432 9000000 500\n",
                         7);
  };
  const ProcessId id{.boot = 7, .number = 4711, .began = 8765432};
  EXPECT_EQ(id, parse("python3", "S", 1));
  EXPECT_EQ(id, parse("a) Z (b", "R", 1));
  EXPECT_EQ(id, parse("python3", "Z", 9)) << "its first thread has ended, and the others run";
  EXPECT_FALSE(parse("python3", "Z", 1).any());
  EXPECT_FALSE(parse("python3", "X", 1).any());
  for (const char* bad : {"", "4711", "4711 (python3)", "4711 (python3) S 1 2"})
    EXPECT_FALSE(parse_process(bad, 7).any()) << bad;
}

TEST(Writers, AreKnownByBootNumberAndBeginning) {
  Writers writers;
  Idle idle;
  const ProcessId id = writers.identity_of(idle.pid(), 1);
  EXPECT_TRUE(id.any());
  EXPECT_TRUE(writers.is_alive(id));
  ProcessId other = id;
  ++other.began;
  EXPECT_FALSE(writers.is_alive(other)) << "another process had that number";
  other = id;
  ++other.boot;
  EXPECT_FALSE(writers.is_alive(other)) << "before the machine was booted";
  EXPECT_FALSE(writers.is_alive({}));
  EXPECT_FALSE(writers.identity_of(0, 1).any());
  EXPECT_FALSE(writers.look());
  idle.end(/*reap=*/false);
  EXPECT_TRUE(writers.look()) << "a zombie has ended";
  EXPECT_FALSE(writers.look()) << "it was told";
  EXPECT_FALSE(writers.is_alive(id));
}

constexpr std::uint64_t kBudget = 4 * kMiB;
const std::string kBytes(128 * kKiB, 'w');

TestVolumeOptions small() {
  TestVolumeOptions options;
  options.volume.budget.lease = std::chrono::nanoseconds{1};
  options.volume.budget.devices = {
      {.size = kBudget, .min_free = {.bytes = 4096, .percent = 0}}};
  return options;
}

class WriterOf : public ::testing::Test {
 protected:
  void SetUp() override { start(); }
  void start() {
    volume_.start();
    ASSERT_TRUE(TestVolume::wait_for([&] { return volume_->room_on(0).usage.complete; }));
  }
  // As LMCache's disk backend names them: policy process.
  static std::string name(int number) {
    return "meta-llama-Llama-3.1-8B-Instruct@1@0@" + std::to_string(1000 + number) +
           "@bfloat16.pt";
  }
  void store(const std::string& name, pid_t writer) {
    Caller caller = TestVolume::kRoot;
    caller.pid = writer;
    const Created made = must(volume_->create(kRootInode, name, 0644, O_RDWR, caller));
    volume_.write(*made.opened.file, kBytes);
    EXPECT_OK(volume_->flush(*made.opened.file, caller));
    volume_->release(*made.opened.file);
    volume_->forget(made.entry.inode, 1);
    TestVolume::wait_for([&] { return volume_->room_on(0).room.bytes > 0; });
  }
  void fill(const std::string& prefix, int count) {
    for (int i = 0; i < count; ++i) store(prefix + std::to_string(i), 0);
  }
  int there(int count) {
    int found = 0;
    for (int i = 0; i < count; ++i) {
      const auto entry = volume_->lookup(kRootInode, name(i));
      if (!entry.ok()) continue;
      ++found;
      volume_->forget(entry->inode, 1);
    }
    return found;
  }
  TestVolume volume_{small()};
};

TEST_F(WriterOf, KeepsItsFilesWhileItLives) {
  Idle idle;
  for (int i = 0; i < 8; ++i) store(name(i), idle.pid());
  fill("f", 100);
  EXPECT_EQ(8, there(8));
}

TEST_F(WriterOf, LeavesOrphansThatGoFirst) {
  Idle idle;
  fill("old", 8);
  for (int i = 0; i < 8; ++i) store(name(i), idle.pid());
  const std::int64_t stored = monotonic_now();
  idle.end();
  // What was stored within the last second does not go yet, whosever it is.
  ASSERT_TRUE(TestVolume::wait_for([&] {
    return volume_->room_on(0).usage.evictable >= 16 * kBytes.size() &&
           monotonic_now() - stored > kNanosPerSecond * 11 / 10;
  }));
  const auto gone = [&] {
    return volume_->drop_counts()[static_cast<std::size_t>(DropReason::kRoom)].files;
  };
  // They are the newest, and yet go before what is older; what is beyond comes after them.
  for (int i = 0; gone() < 8; ++i) {
    ASSERT_LT(i, 100);
    store("f" + std::to_string(i), 0);
  }
  EXPECT_LE(there(8), 1);
  std::uint64_t old = 0;
  for (int i = 0; i < 8; ++i) old += volume_.resolve("old" + std::to_string(i)).ok() ? 1 : 0;
  EXPECT_GE(old + (gone() - 8), 7U) << "room was made for the last stores, too";
}

TEST_F(WriterOf, IsRememberedOverARestart) {
  Idle lives;
  Idle ends;
  for (int i = 0; i < 4; ++i) store(name(i), lives.pid());
  for (int i = 4; i < 8; ++i) store(name(i), ends.pid());
  volume_.stop_cleanly();
  ends.end();
  volume_.run();
  start();
  fill("f", 100);
  EXPECT_EQ(4, there(4));
  EXPECT_EQ(4, there(8)) << "those of the other have gone";
}

// Its model was used just now.
TEST_F(WriterOf, ThatIsNotVisibleKeepsItsFilesWhileItsModelIsUsed) {
  for (int i = 0; i < 8; ++i) store(name(i), 0);
  fill("f", 100);
  EXPECT_EQ(8, there(8));
}

}  // namespace
}  // namespace kvcachefs::testing
