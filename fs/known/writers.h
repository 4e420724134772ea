// Which process wrote a file, and whether it lives: what policy `process` goes by.
//
// A process is known by the boot it runs in, its number and when it began (proc_pid_stat(5), field 22), so
// that another one with the same number is not taken for it. Numbers are those of the daemon's pid
// namespace: a daemon that is started again in another one finds all writers gone.
//
// Any thread; the locks are leaves.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "metadata/record.h"

namespace kvcachefs {

// Of what /proc/PID/stat says; none: it has ended, or that is no such line.
[[nodiscard]] ProcessId parse_process(std::string_view stat, std::uint32_t boot);

class Writers {
 public:
  Writers();
  // Of a process that runs now; none: there is no such process. Reads /proc once in some seconds for each.
  ProcessId identity_of(pid_t process, std::int64_t now_ns);
  // Whether it runs. One that does is watched from then on.
  bool is_alive(const ProcessId& writer);
  // Whether one of those watched has ended since the last look.
  bool look();

 private:
  // A number may be another process's after that time.
  static constexpr std::int64_t kTrustNanos = 5'000'000'000;
  // Of processes that write at the same time; more are read from /proc each time.
  static constexpr std::size_t kMostKept = 1024;

  struct Known {
    ProcessId id;
    std::int64_t read_ns = 0;
  };
  struct Hash {
    std::size_t operator()(const ProcessId& id) const noexcept {
      return static_cast<std::size_t>(id.began * 0x9E3779B97F4A7C15 ^ id.number);
    }
  };
  // None: it has ended.
  [[nodiscard]] ProcessId read(std::uint32_t process) const;

  const std::uint32_t boot_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, Known> known_;  // by number; under mutex_
  std::unordered_set<ProcessId, Hash> watched_;     // under mutex_
};

}  // namespace kvcachefs
