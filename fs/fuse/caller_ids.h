// The caller of a request of a mount that may be id-mapped: there the kernel says it of no
// request but those that make an inode (FUSE_INVALID_UIDGID, include/uapi/linux/fuse.h), for it
// does not know through which mount the others come. What the process is said to be in /proc
// stands in for it: whose it is outside of its user namespace, and not what an id-mapped mount
// makes of that.
//
// The kernel checks permissions in every case. The ids are for what the daemon shares out among
// users, and for who may tell a file or directory something.
//
// Any thread; the lock is a leaf, and not held while /proc is read. Memory: some 100 bytes a
// thread that has called lately, kMost of them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <unordered_map>

namespace kvcachefs {

class CallerIds {
 public:
  static constexpr std::size_t kMost = 4096;
  // A thread may become somebody else.
  static constexpr std::chrono::milliseconds kTrusted{100};
  static constexpr uid_t kNobody = 65'534;

  struct Ids {
    uid_t uid = kNobody;
    gid_t gid = kNobody;
    bool operator==(const Ids&) const = default;
  };
  using Clock = std::chrono::steady_clock;
  using Ask = std::function<Ids(pid_t thread)>;

  // `ask`: what /proc says.
  CallerIds() : CallerIds(&CallerIds::of_process) {}
  explicit CallerIds(Ask ask) : ask_(std::move(ask)) {}

  // Of a caller that is not visible from here, 0, or has ended: nobody's.
  Ids of(pid_t thread, Clock::time_point now = Clock::now());
  // By its fsuid and fsgid (proc_pid_status(5)).
  static Ids of_process(pid_t thread);

 private:
  struct Known {
    Ids ids;
    Clock::time_point until;
  };

  const Ask ask_;
  std::mutex mutex_;
  std::unordered_map<pid_t, Known> known_;  // under mutex_
};

}  // namespace kvcachefs
