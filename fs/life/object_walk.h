// Counts what the last run has left, once, beside the mount's work: the objects of each device
// (ObjectCount keeps their number) and the bytes of the sealed ones (Usage keeps these), and tells the
// order of eviction of files that are no blocks. When directories are told something, walks again.
//
// What is counted is written down every some seconds and at the stop, for the next start: until it has
// counted itself, it believes that.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "fs/node/core.h"

namespace kvcachefs {

class ObjectWalk {
 public:
  explicit ObjectWalk(Core& core) : core_(core) {}
  ~ObjectWalk() { stop(); }
  ObjectWalk(const ObjectWalk&) = delete;
  ObjectWalk& operator=(const ObjectWalk&) = delete;

  // Before anything goes that the last run has left. Errors: EIO.
  Result<void> restore_metadata();
  // Before the budget is asked anything. Errors: EIO, EBADMSG.
  Result<void> believe_last_run();
  // Before any call of a user. A million objects take a minute or two. `was_cut`: the last run did
  // not come to its end.
  void start(bool was_cut);
  // A directory was told a policy: what it means is noted of all files beside the mount's work. Any
  // thread; never waits.
  void again();
  // What is not counted by then stays so.
  void stop();
  // What is counted, for the next start; after stop(), and when nothing is sealed any more.
  void write_down();

 private:
  void run();
  void recount_metadata();
  // Goes on where the last one failed.
  Result<void> pass();
  void count(const ObjectPlace& place);
  void judge(Inode& inode);
  // Tells the order of eviction of files whose bytes are on the pool alone: they have no objects.
  Result<void> order_remote();
  // Files of the last run that are not sealed.
  Result<void> take_unsealed();

  Core& core_;
  int passes_ = 0;             // that have ended; of the thread
  bool is_all_judged_ = true;  // of what was there when the machine went down; of the thread
  ObjectId last_ = kNoObject;  // that this pass has met; of the thread
  // By device, what is written down; nullopt: nothing. Of the thread, and of who has ended it.
  std::vector<std::optional<std::uint64_t>> written_;
  Catalog::BytesByUser metadata_;  // the same
  // Else nothing is written down of it, upon which the next start counts.
  std::atomic<bool> is_metadata_known_{true};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> ending_{false};  // changed under mutex_
  bool again_ = false;               // under mutex_
  std::thread thread_;
};

}  // namespace kvcachefs
