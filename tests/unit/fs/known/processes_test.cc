// Which process a thread belongs to.
#include "fs/known/processes.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <thread>

namespace kvcachefs {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(Processes, KnowAThreadsProcess) {
  const auto processes = std::make_unique<Processes>();
  const auto self = static_cast<std::uint32_t>(::getpid());
  EXPECT_EQ(self, processes->caller(::gettid(), kSecond).process);
  pid_t thread = 0;
  std::thread([&] {
    thread = ::gettid();
    const order::Caller caller = processes->caller(thread, kSecond);
    EXPECT_EQ(static_cast<std::uint32_t>(thread), caller.tid);
    EXPECT_EQ(self, caller.process);
  }).join();
  // Believed for some seconds, and then asked again.
  EXPECT_EQ(self, processes->caller(thread, 5 * kSecond).process);
  EXPECT_EQ(0u, processes->caller(thread, 7 * kSecond).process);
}

TEST(Processes, DoNotKnowWhoIsNotThere) {
  const auto processes = std::make_unique<Processes>();
  EXPECT_EQ(0u, processes->caller(0, kSecond).process);
  EXPECT_EQ(0u, processes->caller(0, kSecond).tid);
  EXPECT_EQ(0u, processes->caller(-1, kSecond).process);
  // Linux gives no number above 4,194,304.
  EXPECT_EQ(0u, processes->caller(5'000'000, kSecond).process);
}

// A process of that name, until it is destroyed.
class Named {
 public:
  explicit Named(const char* name) {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) return;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_NAME, name);
      static_cast<void>(::write(ready[1], "", 1) == 1);
      while (true) ::pause();
    }
    char told = 0;
    static_cast<void>(::read(ready[0], &told, 1) == 1);
    for (const int fd : ready) ::close(fd);
  }
  ~Named() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_ = -1;
};

// Each of its calls may be another machine's: by process they would be one user's, who lists and loads at once.
TEST(Processes, TakeTheThreadsOfAnNfsServerForSomebodyUnknown) {
  const auto processes = std::make_unique<Processes>();
  for (const char* name : {"ganesha.nfsd", "nfsd"}) {
    const Named server(name);
    EXPECT_TRUE(processes->serves_nfs(server.pid(), kSecond));
    const order::Caller caller = processes->caller(server.pid(), kSecond);
    EXPECT_EQ(0u, caller.process);
    EXPECT_EQ(static_cast<std::uint32_t>(server.pid()), caller.tid);
  }
  const Named runtime("nfsd-like");
  EXPECT_FALSE(processes->serves_nfs(runtime.pid(), kSecond));
  EXPECT_EQ(static_cast<std::uint32_t>(runtime.pid()),
            processes->caller(runtime.pid(), kSecond).process);
  EXPECT_FALSE(processes->serves_nfs(0, kSecond));
}

TEST(Processes, TellThreadsOfOneSlotApart) {
  const auto processes = std::make_unique<Processes>();
  const auto self = static_cast<std::uint32_t>(::getpid());
  // 16 shards of 256 slots: these share one.
  const pid_t other = ::gettid() + 16 * 256 * 2000;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(self, processes->caller(::gettid(), kSecond).process);
    EXPECT_EQ(0u, processes->caller(other, kSecond).process);
  }
}

}  // namespace
}  // namespace kvcachefs
