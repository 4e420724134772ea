// What callers did, on its way to the learner.
//
// A call only notes what happened; a thread of its own tells the learner, many notes at a time. A cold
// learner costs a lookup two or three microseconds, which is a tenth of it, and a warm one less than half
// of that. The order of the notes is that of the calls. What asks the learner calls settle() first.
//
// Before start(), and after stop(), a note is told at once. Any thread; note() holds a lock for a moment,
// and when the thread is far behind does its work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "fs/order/learner.h"
#include "fs/order/note.h"

namespace kvcachefs {

class OrderFeed {
 public:
  explicit OrderFeed(order::Learner& learner) : learner_(learner) {}
  ~OrderFeed() { stop(); }
  OrderFeed(const OrderFeed&) = delete;
  OrderFeed& operator=(const OrderFeed&) = delete;

  void start();
  // Everything is told when it returns.
  void stop();
  void note(const order::Note& note);
  // Everything that was noted before is told when it returns.
  void settle();

 private:
  void run();

  order::Learner& learner_;
  std::mutex telling_mutex_;  // held by who tells; before mutex_
  std::mutex mutex_;
  std::condition_variable noted_;
  std::vector<order::Note> notes_;  // under mutex_
  std::vector<order::Note> spare_;  // under telling_mutex_: the room of the last round
  bool running_ = false;            // under mutex_
  bool asleep_ = false;             // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
