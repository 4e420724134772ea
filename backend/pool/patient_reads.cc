#include "backend/pool/patient_reads.h"

#include <algorithm>

namespace kvcachefs {

std::size_t PatientReads::piece() const {
  const std::lock_guard lock(mutex_);
  const Clock::duration quickest = quickest_.value();
  return quickest != Clock::duration::max() && quickest > kOccupied ? kSmallPiece : kPiece;
}

std::size_t PatientReads::after(std::size_t under_way, std::size_t most, std::size_t size,
                                Clock::duration took, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto of_a_piece =
      took * static_cast<Clock::rep>(kPiece) / static_cast<Clock::rep>(size);
  quickest_.note(of_a_piece, now);
  const bool is_quick = std::chrono::duration<double>(of_a_piece) <
                        kAsQuick * std::chrono::duration<double>(quickest_.value());
  return std::clamp(is_quick ? under_way + 1 : under_way - 1, kFew, std::max(kFew, most));
}

}  // namespace kvcachefs
