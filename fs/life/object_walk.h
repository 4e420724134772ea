// Counts what the last run has left, once, beside the mount's work: the objects of each device
// (ObjectCount keeps their number) and the bytes of the sealed ones (Usage keeps these), and tells the
// order of eviction of files that are no blocks. When directories are told something, walks again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "fs/node/core.h"

namespace kvcachefs {

class ObjectWalk {
 public:
  explicit ObjectWalk(Core& core) : core_(core) {}
  ~ObjectWalk() { stop(); }
  ObjectWalk(const ObjectWalk&) = delete;
  ObjectWalk& operator=(const ObjectWalk&) = delete;

  // Before any call of a user. A million objects take some ten seconds.
  void start();
  // A directory was told a policy: what it means is noted of all files beside the mount's work. Any
  // thread; never waits.
  void again();
  // What is not counted by then stays so.
  void stop();

 private:
  void run();
  Result<void> pass();
  void count(const ObjectPlace& place);
  // Files of the last run that are not sealed.
  Result<void> take_unsealed();

  Core& core_;
  int passes_ = 0;  // that have ended; of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> ending_{false};  // changed under mutex_
  bool again_ = false;               // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
