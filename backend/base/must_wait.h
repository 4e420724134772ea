// A thread that serves everybody does not wait for a disk, or for who does.
//
// A commit takes as long as the disk of the state directory takes no writes, and so do the
// locks that are held across it. The thread of a ring (fs/fuse/ops.h) therefore begins to look
// at something as one that refuses to wait: where such a lock is not free (lock_to_look(),
// fs/node/inode.h), or something would be written, the call ends with kMustWait, and is made
// once more, from its beginning, by a worker that may wait. So nothing must have happened by
// then that a second beginning does not bear: who begins to change something in memory ends the
// refusal first.
#pragma once

#include <utility>

namespace kvcachefs {

// As an error's code; no errno. It ends where the refusal began, and is nobody's answer.
inline constexpr int kMustWait = 0x4000;

[[nodiscard]] inline bool& refuses_to_wait() noexcept {
  thread_local bool own = false;
  return own;
}

// While one lives its thread refuses to wait, unless stop_refusing() was called since. Not
// nested.
class RefusesToWait {
 public:
  RefusesToWait() noexcept { refuses_to_wait() = true; }
  ~RefusesToWait() { refuses_to_wait() = false; }
  RefusesToWait(const RefusesToWait&) = delete;
  RefusesToWait& operator=(const RefusesToWait&) = delete;
};

// While one lives its thread may wait all the same: for what is known to be at hand.
class MayWait {
 public:
  MayWait() noexcept : before_(std::exchange(refuses_to_wait(), false)) {}
  ~MayWait() { refuses_to_wait() = before_; }
  MayWait(const MayWait&) = delete;
  MayWait& operator=(const MayWait&) = delete;

 private:
  const bool before_;
};

// From here on the call goes to its end on this thread.
inline void stop_refusing() noexcept { refuses_to_wait() = false; }

}  // namespace kvcachefs
