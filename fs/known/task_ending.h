// Whether a task that closes a file does so because it ends: the kernel closes what a task
// leaves open, and says nothing of that in the FLUSH that it sends.
//
// By proc_pid_stat(5), fields 9 (flags; PF_EXITING of include/linux/sched.h) and 52 (exit_code,
// as of wait(2)). The kernel sets both before it closes the files (do_exit(), kernel/exit.c),
// and waits for the answer to the FLUSH, so that the task is there to be asked.
#pragma once

#include <sys/types.h>

#include <string_view>

namespace kvcachefs {

struct TaskEnding {
  bool is_ending = false;
  int signal = 0;  // that has ended it; 0: it has ended itself
  int status = 0;  // then: what it returned

  // It does not say that it has done what it was to do.
  [[nodiscard]] bool has_failed() const noexcept {
    return is_ending && (signal != 0 || status != 0);
  }
  // Nobody has asked it to end, which programs and pipelines are: it was killed, or has
  // crashed.
  [[nodiscard]] bool was_killed() const noexcept;
};

// Of a thread of the caller's, as FUSE names it; not ending where it is not visible. Some 10
// us.
[[nodiscard]] TaskEnding ending_of(pid_t thread);
// Of what /proc/PID/stat says.
[[nodiscard]] TaskEnding parse_ending(std::string_view stat);

}  // namespace kvcachefs
