// How far the predecessor that a kind of call shows can be trusted, measured per process.
//
// A *class* is what a sighting looks like: the kind of the call before, the kind of this call, how
// long it took compared with that stream's usual gap, and whether "before" means the same thread
// or the same process. Each class is scored whenever it becomes known whether what it showed was
// the parent (exact) or at least near it on the same chain (soft).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace kvcachefs::order {

// A call as the next one sees it.
enum class CallBefore : std::uint8_t { kProbeHit, kProbeMiss, kLoad, kStore };
// A call as it is seen; a load is a hit.
enum class CallNow : std::uint8_t { kHit, kMiss, kStore };
enum class EvidenceSource : std::uint8_t { kThread, kProcess };

using EvidenceClass = std::uint8_t;
inline constexpr unsigned kEvidenceClasses = 4 * 3 * 3 * 2;

// The usual time between two calls of a stream, so that "soon after" needs no constant in us.
class UsualGap {
 public:
  // 0: as usual, 1: longer, 2: much longer.
  [[nodiscard]] unsigned bucket(std::int64_t gap_ns) const noexcept {
    const auto gap = static_cast<float>(gap_ns);
    if (usual_ns_ == 0 || gap < 4 * usual_ns_) return 0;
    return gap < 64 * usual_ns_ ? 1 : 2;
  }
  void add(std::int64_t gap_ns) noexcept {
    const auto gap = static_cast<float>(gap_ns);
    if (usual_ns_ == 0) {
      usual_ns_ = std::max(gap, 1.0F);
      return;
    }
    usual_ns_ = std::max(1.0F, usual_ns_ + (std::min(gap, 8 * usual_ns_) - usual_ns_) / 20);
  }

 private:
  float usual_ns_ = 0;
};

[[nodiscard]] constexpr EvidenceClass evidence_class(CallBefore before, CallNow now,
                                                     unsigned gap_bucket,
                                                     EvidenceSource source) noexcept {
  return static_cast<EvidenceClass>(
      ((static_cast<unsigned>(before) * 3 + static_cast<unsigned>(now)) * 3 + gap_bucket) * 2 +
      static_cast<unsigned>(source));
}

class Reliability {
 public:
  // Shares of sightings, 0..1. A class never seen is between: worth a guess, not worth trust.
  [[nodiscard]] float exact(EvidenceClass c) const noexcept {
    return scores_[c].exact / scores_[c].count;
  }
  [[nodiscard]] float soft(EvidenceClass c) const noexcept {
    return scores_[c].soft / scores_[c].count;
  }
  // What makes one of two predecessors the better one.
  [[nodiscard]] float value(EvidenceClass c) const noexcept {
    return exact(c) >= 0.5F ? 1 + exact(c) : soft(c);
  }
  void score(EvidenceClass c, bool was_exact, bool was_near) noexcept {
    Score& score = scores_[c];
    score.exact += was_exact ? 1.0F : 0.0F;
    score.soft += was_exact || was_near ? 1.0F : 0.0F;
    score.count += 1;
    // An engine that is set up anew is believed after a few hundred sightings.
    if (score.count > 256) {
      score.exact /= 2;
      score.soft /= 2;
      score.count /= 2;
    }
  }

 private:
  struct Score {
    float exact = 1;
    float soft = 1.5F;
    float count = 2;
  };
  std::array<Score, kEvidenceClasses> scores_;
};

}  // namespace kvcachefs::order
