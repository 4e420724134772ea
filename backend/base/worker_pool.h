// A fixed number of threads that run what is posted, in order of posting, from a bounded queue.
//
// The threads live as long as the pool: work may answer FUSE requests, and an answer from a
// thread that ends loses its ring entry. Any thread may call any method, a worker may post;
// tasks must not throw.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace kvcachefs {

class WorkerPool {
 public:
  // `name` is the threads' name in /proc (15 bytes are kept). `queue_limit` counts tasks that
  // wait, not those that run.
  WorkerPool(const std::string& name, std::size_t threads, std::size_t queue_limit);
  // Runs what was posted before it, then ends the threads.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: the queue is full (or the pool is ending), and the task was not taken.
  [[nodiscard]] bool try_post(std::function<void()> task);
  // Returns when no task waits or runs. Not from a worker.
  void drain();
  // Tasks that wait now.
  [[nodiscard]] std::size_t waiting() const;

 private:
  void run();

  const std::size_t queue_limit_;
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> queue_;
  std::size_t running_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kvcachefs
