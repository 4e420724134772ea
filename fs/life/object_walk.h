// Counts the objects of each device once, beside the mount's work: ObjectCount keeps the count.
#pragma once

#include <atomic>
#include <thread>

#include "metadata/catalog.h"

namespace kvcachefs {

class ObjectWalk {
 public:
  explicit ObjectWalk(Catalog& catalog) : catalog_(catalog) {}
  ~ObjectWalk() { stop(); }
  ObjectWalk(const ObjectWalk&) = delete;
  ObjectWalk& operator=(const ObjectWalk&) = delete;

  // Before any call of a user. 10 million objects take some ten seconds.
  void start();
  // What is not counted by then stays so.
  void stop();

 private:
  void run();

  Catalog& catalog_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace kvcachefs
