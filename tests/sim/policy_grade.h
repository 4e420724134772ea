// What a trace finds in a cache of a given size under an eviction policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fs/evict/policy.h"
#include "tests/sim/engine.h"
#include "tests/sim/runtime.h"

namespace kvcachefs::sim {

// The policy that a cache is to have; the learner is told of every call before the policy is.
using MakePolicy = std::function<std::unique_ptr<EvictionPolicy>(order::Learner& learner)>;

// "lru", "chain", or "true": the order that the chain policy strives for, by what the trace says of
// its chains. The trace must outlive the policy.
MakePolicy policy_named(const std::string& name, const Trace& trace);

struct PolicyRun {
  const Trace& trace;
  Runtime runtime;
  std::size_t in_flight = 4;
  std::size_t capacity = 0;  // blocks; one is evicted when one more is published
  MakePolicy policy;
  std::uint64_t seed = 1;
  Pace pace = {};
  // After so many requests what the learner knows is lost, but for its snapshots of what is stored,
  // and the policy begins anew.
  std::size_t restart_after = SIZE_MAX;
};

// Of the blocks of prompts, how many were in a prefix that was there.
struct Usable {
  std::size_t blocks = 0;
  std::size_t usable = 0;

  [[nodiscard]] double ratio() const noexcept {
    return blocks == 0 ? 0 : static_cast<double>(usable) / static_cast<double>(blocks);
  }
};

struct PolicyGrade {
  Usable all;
  Usable after_restart;  // of the first 32 requests
  std::size_t evicted = 0;
};

// Plays the trace in virtual time.
PolicyGrade grade_policy(const PolicyRun& run);

// Blocks that are different in the trace.
std::size_t distinct_blocks(const Trace& trace);

}  // namespace kvcachefs::sim
