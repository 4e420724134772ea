// How a session reads what nobody waits for yet: in pieces so small, and so few of them at a time, that what somebody does wait
// for is not held up by them on the way. Two are enough to keep the way busy, unless it is long: then answers do not take
// longer when there are more of them.
//
// One for all sessions to a pool. Any thread; the lock is a leaf.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>

#include "backend/pool/quickest.h"

namespace kvcachefs {

class PatientReads {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kPiece = std::size_t{256} << 10;
  // Where one of those is on its way for longer than kOccupied.
  static constexpr std::size_t kSmallPiece = std::size_t{128} << 10;
  static constexpr std::chrono::microseconds kOccupied{600};
  static constexpr std::size_t kFew = 2;

  // Bytes of the next transfer's pieces.
  [[nodiscard]] std::size_t piece() const;
  // How many may be under way, kFew to `most`, after a piece of that size took so long to come with so many.
  std::size_t after(std::size_t under_way, std::size_t most, std::size_t size,
                    Clock::duration took, Clock::time_point now = Clock::now());

 private:
  static constexpr double kAsQuick = 1.5;

  mutable std::mutex mutex_;
  Quickest quickest_;  // of kPiece
};

}  // namespace kvcachefs
