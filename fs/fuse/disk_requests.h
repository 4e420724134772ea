// The reads and writes that are under way at each disk, or wait to be.
//
// Of most of them the kernel has max_background on their way at a time, for the whole mount
// (fuse_request_queue_background(), fs/fuse/dev.c). Those for a disk that does not answer must
// leave some of these for the other disks, and nothing can end one that waits in the kernel.
// So of a disk only so many are begun at a time, and of those that are not begun yet some are
// refused when it does not answer and too many are on their way.
//
//     enter() ──► queued ──► begun ──► ended
//                   │ └► held ─┘ by the thread that ends another
//                   └─┴──► refused
//
// Users take turns: whose fewest are begun has the next, of whom most wait the last to come is
// refused, and the last quarter of those that may be begun is for users who have few.
//
// Any thread, but for the end. One thread of its own refuses what was queued before its disk
// fell silent.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace kvcachefs {

class DiskRequests {
 public:
  struct Bounds {
    std::size_t begun = 1;   // of one disk at a time
    std::size_t on_way = 2;  // of one that does not answer: queued, held and begun
    // A disk does not answer when it has ended no read, or no write, for so long, and one has
    // been on its way for so long. (A write may end in memory.)
    std::chrono::nanoseconds patience{0};
  };
  // For a mount with so many disks whose requests the kernel sends `background` of at a time:
  // the begun ones of all disks are half of these, but eight of each disk, and those on their
  // way three quarters.
  [[nodiscard]] static Bounds bounds(std::size_t disks, std::size_t background) noexcept;

  explicit DiskRequests(std::size_t disks);
  // No request is there any more.
  ~DiskRequests();
  DiskRequests(const DiskRequests&) = delete;
  DiskRequests& operator=(const DiskRequests&) = delete;

  // Before the first request.
  void set(const Bounds& bounds);

  // `index`: of Volume::disk_of(); those that came later than this are as of none.
  struct Of {
    std::optional<std::uint32_t> index;
    std::uint32_t user = 0;
    bool writes = false;
  };
  class Request;
  // Takes a request in, of which either `work` or `refuse` is called, once. `refuse` must not
  // wait; it may be called by any thread, and here: then null is returned.
  [[nodiscard]] std::shared_ptr<Request> enter(Of disk, std::function<void()> work,
                                               std::function<void()> refuse);
  // Begins it, if it is not refused and the disk may have one more; then those that are held.
  void run(const std::shared_ptr<Request>& request);
  // Does `work` at once, and then those that are held. False: too many are begun at the disk,
  // and nothing was done.
  [[nodiscard]] bool run_at_once(Of disk, const std::function<void()>& work);

  // Of all disks.
  [[nodiscard]] std::size_t on_way() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Waiting = std::list<std::shared_ptr<Request>>;
  struct Begun {
    Clock::time_point since;
    std::uint32_t user;
    bool writes;
  };
  struct Disk {
    Waiting waiting;              // queued and held ones, in the order of their coming
    std::list<Begun> begun;       // in the order of their beginning
    Clock::time_point last_read;  // when the last one of each kind ended
    Clock::time_point last_write;
  };

  // In disks_.
  [[nodiscard]] std::size_t place_of(std::optional<std::uint32_t> index) const noexcept;
  // The caller holds the lock, as of what follows.
  [[nodiscard]] static std::size_t begun_of(const Disk& disk, std::uint32_t user);
  [[nodiscard]] bool may_begin(const Disk& disk, std::uint32_t user) const;
  [[nodiscard]] bool is_over(const Disk& disk) const;
  [[nodiscard]] bool answers(const Disk& disk) const;
  // Of those that wait, where too many are on their way to a disk that does not answer.
  void take_refused(Disk& disk, Waiting& refused) const;
  void look_again();
  [[nodiscard]] static std::list<Begun>::iterator begin(Disk& disk, std::uint32_t user,
                                                        bool writes);
  [[nodiscard]] static std::list<Begun>::iterator begin(Disk& disk, Request& request);
  // Null: none is held that may begin.
  [[nodiscard]] std::shared_ptr<Request> next_held(const Disk& disk) const;

  // Without the lock. Does `work`, which is begun, and goes on with those that are held.
  void work_on(Disk& disk, std::list<Begun>::iterator begun, const std::function<void()>& work);
  void watch();

  mutable std::mutex mutex_;  // a leaf
  std::condition_variable changed_;
  Bounds bounds_;            // under mutex_, as what follows
  std::vector<Disk> disks_;  // the last: of no disk
  bool is_resting_ = false;  // the watcher: nothing was too much when it looked
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace kvcachefs
