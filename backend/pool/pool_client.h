// Who uses a pool: threads with a session each, deadlines that hold whatever the pool does, and a breaker that
// keeps callers from waiting for a pool that is down.
//
// A call is answered once: by its work, or at its deadline, whatever the work does then. Work of which the kernel
// does not let go (a mount whose server is gone) keeps its thread; that one is counted as stuck, and another takes
// its place, as long as there are not too many of them. Nobody ever waits for a stuck thread, its end included.
//
// The pool is down at first, and after kFailures calls in a row that did not reach it: calls fail at once then,
// those that wait included, and every kProbeEvery somebody looks whether it is back.
//
// Any thread may call any method, but the destructor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backend/pool/pool_session.h"

namespace kvcachefs {

// Somebody waits for an answer, or for a file's bytes, or nobody does. Each has its own threads and its own queue.
enum class PoolClass : std::uint8_t { kDemand, kLoad, kBackground };
inline constexpr std::size_t kPoolClasses = 3;

struct PoolHealth {
  bool up = false;
  std::int64_t since_ns = 0;  // monotonic; when it came or went
  Error last{};               // the last failure to reach it; code 0: none yet
  std::size_t stuck = 0;      // threads
  std::size_t waiting = 0;    // calls
  std::uint64_t failed = 0;   // calls that did not reach it, or were not tried
};

class PoolClient {
 public:
  using Open = std::function<Result<std::unique_ptr<PoolSession>>(Deadline)>;
  static constexpr std::size_t kThreads = 4;  // of each class that somebody waits for
  // What a publication asks is one thing after another: as many at a time hide the way to the server.
  static constexpr std::size_t kBackgroundThreads = 8;
  static constexpr std::size_t kMostStuck = 16;
  static constexpr std::size_t kMostWaiting = 4096;  // calls, of each class
  static constexpr int kFailures = 3;
  static constexpr std::chrono::milliseconds kProbeEvery{500};
  static constexpr std::chrono::milliseconds kProbeDeadline{2000};
  // Past its deadline by this, a call that still runs is taken for stuck.
  static constexpr std::chrono::milliseconds kGrace{250};
  // The same of one that nobody waits for, at the end.
  static constexpr std::chrono::milliseconds kEnd{1000};

  // `open` opens a session; called from several threads. `thread_name`: 9 bytes of it.
  PoolClient(const std::string& thread_name, Open open);
  // give_up(). Returns when the threads have ended, or are stuck: kEnd and kGrace later.
  ~PoolClient();
  PoolClient(const PoolClient&) = delete;
  PoolClient& operator=(const PoolClient&) = delete;

  // Has `work` done with a session, and calls `done` with what came of it, from another thread or this one; it
  // must not wait. What `work` refers to must live as long as it runs, which may be longer than the call: let it
  // own it. Errors beside those of `work`: ETIMEDOUT, ENOTCONN (the pool is down), EBUSY (too many wait).
  template <class T>
  void submit(PoolClass group, Deadline deadline,
              std::function<Result<T>(PoolSession&, Deadline)> work,
              std::function<void(Result<T>)> done) {
    auto job = std::make_shared<Job>();
    job->deadline = deadline;
    job->run = [work = std::move(work), done, own = job.get()](PoolSession& session,
                                                               const Count& count) {
      Result<T> result = work(session, own->deadline);
      const Error error = result.ok() ? Error{0, ""} : result.error();
      own->worked = own->claim();
      if (!own->worked) return error;
      count(error);
      done(std::move(result));
      return error;
    };
    job->fail = [done = std::move(done)](Error error) { done(Result<T>(error)); };
    take(group, std::move(job));
  }

  // The same, waited for.
  template <class T>
  Result<T> call(PoolClass group, Deadline deadline,
                 std::function<Result<T>(PoolSession&, Deadline)> work) {
    struct Answer {
      std::mutex mutex;
      std::condition_variable changed;
      std::optional<Result<T>> result;
    };
    const auto answer = std::make_shared<Answer>();
    submit<T>(group, deadline, std::move(work), [answer](Result<T> result) {
      const std::lock_guard lock(answer->mutex);
      answer->result.emplace(std::move(result));
      answer->changed.notify_one();
    });
    std::unique_lock lock(answer->mutex);
    answer->changed.wait(lock, [&] { return answer->result.has_value(); });
    return std::move(*answer->result);
  }

  // For good: calls fail at once from now on, those that wait or run included (ENOTCONN).
  void give_up();
  [[nodiscard]] PoolHealth health() const;
  // The same as health().up, for who asks with each call.
  [[nodiscard]] bool is_up() const noexcept;

 private:
  // Of what came of a call, for the breaker: before the caller has his answer, so that what he asks next is not
  // counted before it.
  using Count = std::function<void(Error)>;
  struct Job {
    Deadline deadline;
    std::function<Error(PoolSession&, const Count&)> run;  // code 0: it went well
    std::function<void(Error)> fail;
    std::atomic<bool> answered{false};
    bool worked = false;  // it was its work that answered; of the worker's thread
    // Whether the caller of this is the one who answers.
    bool claim() { return !answered.exchange(true); }
  };
  struct State;

  void take(PoolClass group, std::shared_ptr<Job> job);

  const std::shared_ptr<State> state_;  // threads that are stuck outlive this
};

}  // namespace kvcachefs
