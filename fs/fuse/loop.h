// The threads that read requests from /dev/fuse. (Requests of the io_uring transport come to
// libfuse's own threads; what the kernel still sends this way then are FORGETs.)
#pragma once

#include <semaphore.h>
#include <signal.h>

#include <atomic>
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

// Our own instead of libfuse's: its threads are of a fixed number, end without being cancelled,
// and have ended before the rings are torn down, so that whoever still answers a request can be
// waited for in between.
class ReadLoop {
 public:
  explicit ReadLoop(fuse_session* session) noexcept;
  ~ReadLoop();
  ReadLoop(const ReadLoop&) = delete;
  ReadLoop& operator=(const ReadLoop&) = delete;

  // Returns when the connection has ended (unmounted or aborted) or after stop(). 0, or the
  // errno of a read that failed.
  int run(unsigned threads);
  // Async-signal-safe. May be called before run(), which then returns at once.
  void stop() noexcept;

 private:
  void serve() noexcept;

  fuse_session* session_;
  sem_t changed_;
  std::atomic<unsigned> serving_{0};
  std::atomic<int> failure_{0};
};

}  // namespace kvcachefs
