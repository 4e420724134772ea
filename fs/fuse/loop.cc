#include "fs/fuse/loop.h"

#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <system_error>
#include <utility>

#include "fs/fuse/libfuse.h"

namespace kvcachefs {

namespace {

// Ends a blocked read of /dev/fuse. Its handler does nothing; being handled is what interrupts.
const int kWakeSignal = SIGRTMAX - 3;

void install_wake_handler() noexcept {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigemptyset(&action.sa_mask);
  ::sigaction(kWakeSignal, &action, nullptr);
}

void let_through_wake_signal() noexcept {
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, kWakeSignal);
  ::pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
}

}  // namespace

SignalsBlocked::SignalsBlocked() noexcept {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

ReadLoop::ReadLoop(fuse_session* session) noexcept : session_(session) {
  sem_init(&changed_, 0, 0);
}

ReadLoop::~ReadLoop() { sem_destroy(&changed_); }

void ReadLoop::serve() noexcept {
  let_through_wake_signal();
  fuse_buf buffer{};
  while (fuse_session_exited(session_) == 0) {
    reading_.fetch_add(1);
    const int size = fuse_session_receive_buf(session_, &buffer);
    const bool was_last = reading_.fetch_sub(1) == 1;
    if (was_last && size > 0) keep_one_reading();
    if (size == -EINTR || size == -EAGAIN) continue;
    if (size <= 0) {
      // The connection's end that met a request on its way (fuse_dev_do_read(), fs/fuse/dev.c
      // of the kernel) is no other than ENODEV, of which libfuse makes 0.
      if (size < 0 && size != -ECONNABORTED) failure_.store(-size, std::memory_order_relaxed);
      fuse_session_exit(session_);
      break;
    }
    fuse_session_process_buf(session_, &buffer);
  }
  std::free(buffer.mem);
  serving_.fetch_sub(1, std::memory_order_release);
  sem_post(&changed_);
}

void ReadLoop::add_reader() {
  const SignalsBlocked blocked;
  serving_.fetch_add(1, std::memory_order_relaxed);
  readers_.emplace_back([this] { serve(); });
  pthread_setname_np(readers_.back().native_handle(), "kv-fuse-dev");
}

void ReadLoop::keep_one_reading() noexcept {
  const std::lock_guard lock(mutex_);
  if (readers_.size() >= most_ || reading_.load() > 0) return;
  try {
    add_reader();
  } catch (const std::system_error&) {  // those that are there do
    serving_.fetch_sub(1, std::memory_order_release);
  }
}

int ReadLoop::run(unsigned threads, unsigned most) {
  install_wake_handler();
  {
    const std::lock_guard lock(mutex_);
    most_ = most;
    for (unsigned i = 0; i < threads; ++i) add_reader();
  }
  while (fuse_session_exited(session_) == 0) {
    while (sem_wait(&changed_) != 0 && errno == EINTR) {
    }
  }
  std::vector<std::thread> readers;
  {
    const std::lock_guard lock(mutex_);
    most_ = 0;
    readers = std::move(readers_);
  }
  // A wake-up is lost on a thread that is just about to read, so it is repeated.
  while (serving_.load(std::memory_order_acquire) > 0) {
    for (auto& reader : readers) ::pthread_kill(reader.native_handle(), kWakeSignal);
    timespec soon{};
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 10'000'000;
    if (soon.tv_nsec >= 1'000'000'000) {
      soon.tv_nsec -= 1'000'000'000;
      ++soon.tv_sec;
    }
    sem_timedwait(&changed_, &soon);
  }
  for (auto& reader : readers) reader.join();
  return failure_.load(std::memory_order_relaxed);
}

void ReadLoop::stop() noexcept {
  fuse_session_exit(session_);
  sem_post(&changed_);
}

}  // namespace kvcachefs
