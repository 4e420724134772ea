// Threads that run what is posted by several parties, so that none holds up another: the tasks
// of a party run in the order of their posting, parties take turns, and one that has work and
// none running gets a thread of its own as long as there may be more.
//
//     post(party, task) ──► the party's queue ──► turn: at most `each` at once, fewer when many parties have work
//
// Threads are made when they are needed, run on the CPUs that the pool's maker may run on, and
// live as long as the pool: work may answer FUSE requests, and an answer from a thread that
// ends loses its ring entry. Any thread may call any method, a worker may post; tasks must not
// throw.
#pragma once

#include <sched.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace kvcachefs {

class FairPool {
 public:
  struct Limits {
    std::size_t each = 8;     // threads that one party may have
    std::size_t most = 32;    // threads of all
    std::size_t queue = 512;  // tasks that wait, of all parties
  };

  // `name` is the threads' name in /proc (15 bytes are kept).
  FairPool(const std::string& name, const Limits& limits);
  // Runs what was posted before it, then ends the threads.
  ~FairPool();
  FairPool(const FairPool&) = delete;
  FairPool& operator=(const FairPool&) = delete;

  // False: too many wait (or the pool is ending), and the task was not taken.
  [[nodiscard]] bool try_post(std::uint64_t party, std::function<void()> task);
  // Returns when no task waits or runs. Not from a worker.
  void drain();
  // Tasks that wait now.
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] std::size_t threads() const;

 private:
  struct Party {
    std::deque<std::function<void()>> queue;
    std::size_t running = 0;
    bool has_turn = false;  // it stands in turns_
  };

  void run();
  // The caller holds the lock, as of the next four.
  [[nodiscard]] bool may_run(const Party& party) const;
  // The party whose turn it is; false: none may run.
  [[nodiscard]] bool take_turn(std::uint64_t& party);
  // For what waits and may run: a thread that rests, or a new one.
  void wake_one();
  void add_thread();

  const std::string name_;
  const Limits limits_;
  cpu_set_t cpus_{};
  bool has_cpus_ =
      false;  // else they are not known, and threads run where whoever needed them may
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable idle_;
  // All under mutex_. Parties that have tasks, waiting or running.
  std::unordered_map<std::uint64_t, Party> parties_;
  std::deque<std::uint64_t> turns_;  // parties with tasks that wait
  std::size_t waiting_ = 0;
  std::size_t running_ = 0;
  std::size_t resting_ = 0;  // threads that wait for a task
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvcachefs
