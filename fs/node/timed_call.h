// A call into a disk that may not come back, with a deadline: nothing can end a thread that
// waits in the kernel for a disk that does not answer, but its caller can go on without it.
#pragma once

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

// Runs `call()` on a thread of `threads`, in the name of `party`, and waits for it. Errors, if
// not its own: ETIMEDOUT, it has not come back within `patience`, and what it comes back with
// will be handed to `late`, on that thread; EAGAIN, its turn has not come by then, or too many
// wait, and it is never made.
template <class T>
Result<T> call_within(FairPool& threads, std::uint64_t party, std::chrono::nanoseconds patience,
                      std::function<Result<T>()> call, std::function<void(Result<T>)> late) {
  struct State {
    std::mutex mutex;  // a leaf
    std::condition_variable done;
    std::optional<Result<T>> result;
    bool has_begun = false;
    bool is_given_up = false;
  };
  const auto state = std::make_shared<State>();
  const auto task = [state, call = std::move(call), late = std::move(late)] {
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
  if (!threads.try_post(party, task)) return fail(EAGAIN, "too many calls wait for a disk");
  std::unique_lock lock(state->mutex);
  state->done.wait_for(lock, patience, [&] { return state->result.has_value(); });
  if (state->result) return std::move(*state->result);
  state->is_given_up = true;
  return fail(state->has_begun ? ETIMEDOUT : EAGAIN, "the disk does not answer");
}

}  // namespace kvcachefs
