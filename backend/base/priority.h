// What a thread takes of CPUs that others want, too.
#pragma once

#include <sys/resource.h>

namespace kvcachefs {

// Of a thread for which nobody waits: it leaves them to those for whom somebody does. Linux has a nice value for each
// thread (setpriority(2), "C library/kernel differences"), which the threads that it starts have as well; lowering it
// needs no privilege.
inline void yield_cpus() noexcept {
  constexpr int kNice = 10;
  static_cast<void>(::setpriority(PRIO_PROCESS, 0, kNice));
}

}  // namespace kvcachefs
