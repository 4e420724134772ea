// Whether a task ends, from what /proc says of it.
#include "fs/known/task_ending.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace kvcachefs {
namespace {

// As of Linux 6.18: 52 fields, of which the 9th and the last count.
std::string stat_of(const std::string& name, unsigned flags, int code) {
  std::string text = "4711 (" + name + ") R 1 4711 4711 0 -1 " + std::to_string(flags);
  for (int field = 10; field < 52; ++field) text += " " + std::to_string(field);
  return text + " " + std::to_string(code) + "\n";
}

TEST(TaskEnding, IsAFlagAndAnExitCode) {
  for (const char* name : {"kv", "a b", "x) S 1 (y", ")"}) {
    EXPECT_FALSE(parse_ending(stat_of(name, 0x400100, SIGKILL)).is_ending) << name;
    const TaskEnding killed = parse_ending(stat_of(name, 0x400104, SIGKILL));
    EXPECT_TRUE(killed.is_ending) << name;
    EXPECT_EQ(SIGKILL, killed.signal) << name;
    EXPECT_TRUE(killed.was_killed());
  }
  EXPECT_TRUE(parse_ending(stat_of("x", 4, SIGSEGV | 0x80)).was_killed()) << "with a core";
  const TaskEnding failed = parse_ending(stat_of("x", 4, 3 << 8));
  EXPECT_FALSE(failed.was_killed()) << "it returned 3";
  EXPECT_EQ(3, failed.status);
  EXPECT_TRUE(failed.has_failed());
  EXPECT_FALSE(parse_ending(stat_of("x", 4, 0)).has_failed());
  for (const int asked : {SIGTERM, SIGINT, SIGHUP, SIGPIPE})
    EXPECT_FALSE(parse_ending(stat_of("x", 4, asked)).was_killed()) << asked;
}

TEST(TaskEnding, OfWhatIsNoSuchLineIsNone) {
  for (const char* text :
       {"", "4711", "4711 (kv", "4711 (kv)", "4711 (kv) R 1 2 3 4 5", ") ) ) )"})
    EXPECT_FALSE(parse_ending(text).is_ending) << text;
  EXPECT_FALSE(ending_of(0).is_ending);
  EXPECT_FALSE(ending_of(-1).is_ending);
  EXPECT_FALSE(ending_of(::getpid()).is_ending);
}

// A zombie has both still.
TEST(TaskEnding, OfAProcessThatWasKilled) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  ::kill(child, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(0, ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT));
  const TaskEnding ending = ending_of(child);
  EXPECT_TRUE(ending.was_killed());
  EXPECT_EQ(SIGKILL, ending.signal);
  ASSERT_EQ(0, ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED));
}

}  // namespace
}  // namespace kvcachefs
