#include "backend/base/log_writer.h"

#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <utility>

namespace kvcachefs {
namespace {

using Clock = std::chrono::steady_clock;

// A thread that is started meanwhile gets no signals: these are for threads that wait for them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

struct LogWriter::State {
  Write write;
  Lost lost;
  std::mutex mutex;  // a leaf
  std::condition_variable changed;
  std::condition_variable written;
  // Under mutex.
  std::deque<std::string> lines;
  std::uint64_t put = 0;
  std::uint64_t done = 0;
  std::uint64_t lost_lines = 0;
  std::uint64_t lost_after = 0;  // which line, by `put`
  bool is_writing = false;
  Clock::time_point writing_since{};
  bool is_ending = false;
  bool has_ended = false;

  [[nodiscard]] bool is_late() const {
    return is_writing && Clock::now() - writing_since > kPatience;
  }
};

LogWriter::LogWriter(Write write, Lost lost) : state_(std::make_shared<State>()) {
  state_->write = std::move(write);
  state_->lost = std::move(lost);
  const SignalsBlocked blocked;
  thread_ = std::thread([state = state_] { run(state); });
  ::pthread_setname_np(thread_.native_handle(), "kv-log");
}

LogWriter::~LogWriter() {
  bool has_ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->is_ending = true;
    state_->changed.notify_one();
    has_ended =
        state_->written.wait_for(lock, kLongestFlush, [this] { return state_->has_ended; });
  }
  // Its write ends when the disk takes it.
  has_ended ? thread_.join() : thread_.detach();
}

void LogWriter::put(std::string line) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.lines.size() >= kMost) {
    ++state.lost_lines;
    state.lost_after = state.put;
    return;
  }
  state.lines.push_back(std::move(line));
  const std::uint64_t mine = ++state.put;
  state.changed.notify_one();
  if (state.is_late()) return;
  state.written.wait_for(lock, kPatience, [&] { return state.done >= mine; });
}

void LogWriter::flush() {
  std::unique_lock lock(state_->mutex);
  const std::uint64_t last = state_->put;
  state_->written.wait_for(lock, kLongestFlush, [&] { return state_->done >= last; });
}

void LogWriter::run(const std::shared_ptr<State>& shared) {
  State& state = *shared;
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return !state.lines.empty() || state.is_ending; });
    if (state.lines.empty()) break;
    const std::string line = std::move(state.lines.front());
    state.lines.pop_front();
    const bool is_last = state.lost_lines > 0 && state.done + 1 == state.lost_after;
    const std::uint64_t lost = is_last ? std::exchange(state.lost_lines, 0) : 0;
    state.is_writing = true;
    state.writing_since = Clock::now();
    lock.unlock();
    state.write(line);
    if (lost > 0) state.write(state.lost(lost));
    lock.lock();
    state.is_writing = false;
    ++state.done;
    state.written.notify_all();
  }
  state.has_ended = true;
  state.written.notify_all();
}

}  // namespace kvcachefs
