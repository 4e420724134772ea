// How many requests may be parked: taken off the thread that reads requests, to be answered by
// a worker that waits for a disk or a pool. On a ring each has an entry of the queue that it
// came by until it is answered (struct fuse_ring_ent, fs/fuse/dev_uring_i.h), and requests of
// everybody wait in the kernel when the queue has no entry left. So each queue is counted by
// itself, and the last of its places are for users who have few of the others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace kvcachefs {

// The places of one queue. Any thread.
class Parking : public std::enable_shared_from_this<Parking> {
 public:
  // A place that is taken; it is free again when this ends.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept : parking_(std::move(other.parking_)), user_(other.user_) {}
    Place& operator=(Place&& other) noexcept;
    ~Place() { leave(); }
    void leave() noexcept;
    [[nodiscard]] explicit operator bool() const noexcept { return parking_ != nullptr; }

   private:
    friend class Parking;
    Place(std::shared_ptr<Parking> parking, std::optional<std::uint32_t> user) noexcept
        : parking_(std::move(parking)), user_(user) {}
    std::shared_ptr<Parking> parking_;
    std::optional<std::uint32_t> user_;  // nullopt: one of the further places
  };

  // Of the queue that this thread serves: each reads the requests of one (libfuse has a thread
  // for each queue of a ring).
  static Parking& of_this_thread();

  // `most`: places of the queue; the last eighth of them, one at least, is for users who have
  // none, or less than half of what is taken. A false place: there is none for this user now.
  [[nodiscard]] Place enter(std::uint32_t user, std::size_t most);
  // One of `most` further places, for what is waited for by this thread itself, for a while.
  [[nodiscard]] Place enter_beyond(std::size_t most);
  // How many places have become free so far.
  [[nodiscard]] std::uint64_t leaves() const;
  // Returns when more have than `seen`, or after so long.
  void await_leave(std::uint64_t seen, std::chrono::milliseconds most);

 private:
  // Of nobody: one of the further places.
  void leave(std::optional<std::uint32_t> user) noexcept;

  mutable std::mutex mutex_;  // a leaf
  std::condition_variable left_;
  std::uint64_t leaves_ = 0;
  std::size_t taken_ = 0;
  std::size_t beyond_ = 0;
  std::unordered_map<std::uint32_t, std::size_t> users_;  // places that each has
};

}  // namespace kvcachefs
