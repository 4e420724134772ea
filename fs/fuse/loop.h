// The threads that read requests from /dev/fuse. (Requests of the io_uring transport come to
// libfuse's own threads; what the kernel still sends this way then are FORGETs.)
#pragma once

#include <semaphore.h>
#include <signal.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

struct fuse_session;

namespace kvcachefs {

// Blocks every signal for the calling thread and those that it makes, while it lives.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Our own instead of libfuse's: its threads end without being cancelled, and have ended before
// the rings are torn down, so that whoever still answers a request can be waited for in
// between. Each does what it reads, and a change waits as long as its disk takes no writes:
// where none is left that reads, there is one more.
class ReadLoop {
 public:
  explicit ReadLoop(fuse_session* session) noexcept;
  ~ReadLoop();
  ReadLoop(const ReadLoop&) = delete;
  ReadLoop& operator=(const ReadLoop&) = delete;

  // Returns when the connection has ended (unmounted or aborted) or after stop(). 0, or the
  // errno of a read that failed. `most`: threads that there may be, `threads` of them from the
  // start.
  int run(unsigned threads, unsigned most);
  // Async-signal-safe. May be called before run(), which then returns at once.
  void stop() noexcept;

 private:
  void serve() noexcept;
  // The caller holds the lock.
  void add_reader();
  // After a request was read.
  void keep_one_reading() noexcept;

  fuse_session* session_;
  sem_t changed_;
  std::atomic<unsigned> serving_{0};
  std::atomic<unsigned> reading_{0};  // threads that wait for a request
  std::mutex mutex_;
  std::vector<std::thread> readers_;  // under mutex_, as the next
  unsigned most_ = 0;                 // 0: it is ending, no more are made
  std::atomic<int> failure_{0};
};

}  // namespace kvcachefs
