// A call into a disk that may not come back, with a deadline: nothing can end a thread that
// waits in the kernel for a disk that does not answer, but its caller can go on without it.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/base/fair_pool.h"
#include "backend/base/result.h"

namespace kvcachefs {

// A call that runs on a thread of a pool, in the name of a party of it. One thread begins it and
// waits for it.
template <class T>
class TimedCall {
 public:
  // Begins it. A result that comes after until() has given up is handed to `late`, on the pool's
  // thread.
  TimedCall(FairPool& threads, std::uint64_t party, std::function<Result<T>()> call,
            std::function<void(Result<T>)> late)
      : state_(std::make_shared<State>()) {
    const auto task = [state = state_, call = std::move(call), late = std::move(late)] {
      {
        const std::lock_guard lock(state->mutex);
        if (state->is_given_up) return;
        state->has_begun = true;
      }
      Result<T> result = call();
      {
        const std::lock_guard lock(state->mutex);
        if (!state->is_given_up) {
          state->result.emplace(std::move(result));
          state->done.notify_one();
          return;
        }
      }
      late(std::move(result));
    };
    if (!threads.try_post(party, task))
      state_->result.emplace(fail(EAGAIN, "too many calls wait for a disk"));
  }

  // Waits for the call and returns its result; to be called once. `is_vain`, asked while it
  // waits, with nothing held: true ends the waiting. Errors, if not its own: ETIMEDOUT, it has
  // begun and not come back by then; EAGAIN, its turn has not come by then, or too many wait,
  // and it is never made.
  Result<T> until(std::chrono::steady_clock::time_point deadline,
                  const std::function<bool()>& is_vain = {}) {
    constexpr std::chrono::milliseconds kBetweenLooks{50};
    std::unique_lock lock(state_->mutex);
    while (true) {
      const auto now = std::chrono::steady_clock::now();
      const auto next = is_vain ? std::min(deadline, now + kBetweenLooks) : deadline;
      if (state_->done.wait_until(lock, next, [this] { return state_->result.has_value(); }) ||
          next == deadline)
        break;
      lock.unlock();
      const bool ends = is_vain();
      lock.lock();
      if (ends) break;
    }
    if (state_->result) return std::move(*state_->result);
    state_->is_given_up = true;
    return fail(state_->has_begun ? ETIMEDOUT : EAGAIN, "the disk does not answer");
  }

 private:
  struct State {
    std::mutex mutex;  // a leaf
    std::condition_variable done;
    std::optional<Result<T>> result;
    bool has_begun = false;
    bool is_given_up = false;
  };
  std::shared_ptr<State> state_;
};

// Begins a TimedCall and waits for it, for `patience` at most; is_vain: as until().
template <class T>
Result<T> call_within(FairPool& threads, std::uint64_t party, std::chrono::nanoseconds patience,
                      std::function<Result<T>()> call, std::function<void(Result<T>)> late,
                      const std::function<bool()>& is_vain = {}) {
  TimedCall<T> made(threads, party, std::move(call), std::move(late));
  return made.until(std::chrono::steady_clock::now() + patience, is_vain);
}

}  // namespace kvcachefs
