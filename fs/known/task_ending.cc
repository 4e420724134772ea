#include "fs/known/task_ending.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>

#include "backend/base/proc_status.h"

namespace kvcachefs {
namespace {

constexpr std::uint64_t kExiting = 0x4;  // PF_EXITING
constexpr std::uint64_t kSignal = 0x7f;  // of an exit code (WTERMSIG)
constexpr int kFlagsField = 9;
constexpr int kCodeField = 52;

}  // namespace

bool TaskEnding::was_killed() const noexcept {
  return is_ending && signal != 0 && signal != SIGTERM && signal != SIGINT &&
         signal != SIGHUP && signal != SIGPIPE;
}

TaskEnding parse_ending(std::string_view stat) {
  // The second field is the program's name in parentheses, with whatever it has in it.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return {};
  TaskEnding ending;
  int field = 2;
  std::size_t at = name_end + 1;
  while (at < stat.size()) {
    if (stat[at] == ' ') {
      ++at;
      continue;
    }
    const std::size_t end = std::min(stat.find_first_of(" \n", at), stat.size());
    ++field;
    std::uint64_t value = 0;
    std::from_chars(stat.data() + at, stat.data() + end, value);
    if (field == kFlagsField) ending.is_ending = (value & kExiting) != 0;
    if (field == kCodeField) {
      ending.signal = static_cast<int>(value & kSignal);
      ending.status = static_cast<int>(value >> 8 & 0xff);
    }
    at = end + 1;
  }
  return ending.is_ending ? ending : TaskEnding{};
}

TaskEnding ending_of(pid_t thread) {
  if (thread <= 0) return {};
  return parse_ending(first_line(fmt::format("/proc/{}/stat", thread)));
}

}  // namespace kvcachefs
