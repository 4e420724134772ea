// The calls that wait for a disk that does not answer, and since when: of a frozen filesystem,
// which takes no writes, or a controller that is being reset, which gives nothing either. Such
// a disk gives no error, and its caller waits in the kernel, where nothing can end the wait.
//
// Any thread; no locks, no I/O. At most kMostWaits calls are seen at a time, further ones are
// not.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace kvcachefs {

class StallWatch {
 public:
  // A call that has been under way for so long is one to a disk that does not answer: longer
  // than a busy one takes for bytes that go to memory, or come from it in a piece.
  static constexpr std::int64_t kStalled = 1'000'000'000;  // ns
  // After this it is said to people.
  static constexpr std::int64_t kTold = 2'000'000'000;  // ns
  static constexpr std::size_t kMostWaits = 256;

  // A call that is under way, from its making to its end. Disks are told apart by a number that
  // their owner gives.
  class Wait {
   public:
    Wait(StallWatch& watch, std::uint32_t disk) noexcept;
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    StallWatch& watch_;
    std::size_t slot_;  // kMostWaits: none was free
  };

  // For how long the oldest call to it has been under way, if that is kStalled or more, in
  // nanoseconds; else 0.
  [[nodiscard]] std::int64_t stalled(std::uint32_t disk) const noexcept;
  [[nodiscard]] bool any() const noexcept;

 private:
  struct Slot {
    std::atomic<std::int64_t> since{0};  // monotonic ns; 0: free
    std::atomic<std::uint32_t> disk{0};
  };
  template <class Visit>
  void each_stalled(Visit visit) const noexcept;

  std::array<Slot, kMostWaits> slots_;
  std::atomic<std::size_t> waits_{0};  // slots that are taken: mostly none is looked at
};

}  // namespace kvcachefs
