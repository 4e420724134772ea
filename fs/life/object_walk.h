// Counts what the last run has left, once, beside the mount's work: the objects of each device
// (ObjectCount keeps their number) and the bytes of the sealed ones (Usage keeps these), and tells the
// order of eviction of files that are no blocks.
#pragma once

#include <atomic>
#include <span>
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
  // What is not counted by then stays so.
  void stop();

 private:
  void run();
  void look_at(const ObjectPlace& place);
  // Files of the last run that are not sealed.
  Result<void> take_unsealed();

  Core& core_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace kvcachefs
