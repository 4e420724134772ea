#include "tests/sim/link_grade.h"

#include "tests/sim/engine.h"

namespace kvcachefs::sim {
namespace {

class Grader {
 public:
  explicit Grader(const Trace& trace)
      : trace_(trace), depths_(trace.parents.size()), sightings_(trace.parents.size()) {
    for (const Request& request : trace.requests) {
      for (std::size_t i = 0; i < request.blocks.size(); ++i)
        depths_[request.blocks[i]] = static_cast<std::uint32_t>(i);
    }
  }

  void see(const Call& call) {
    ++grades_.calls;
    const bool probe = call.type == CallType::kHit || call.type == CallType::kMiss;
    std::uint8_t& sightings = sightings_[call.block];
    const bool sighting = probe || (call.type == CallType::kStoreStart && sightings == 0);
    tell(learner_, call);
    if (!sighting || sightings >= 2 || trace_.is_root(call.block)) return;
    ++sightings;
    grade(call.block, sightings == 1 ? grades_.first : grades_.second);
  }

  [[nodiscard]] const Grades& grades() const noexcept { return grades_; }

 private:
  void grade(BlockId block, Grade& grade) const {
    ++grade.blocks;
    const auto parent = learner_.parent(name_of(block));
    if (!parent) return;
    ++grade.linked;
    const auto linked = static_cast<BlockId>(parent->name - 1);
    if (linked == trace_.parents[block]) {
      ++grade.exact;
    } else if (!is_above(linked, block) && !is_above(block, linked)) {
      ++grade.wrong_chain;
    }
  }

  [[nodiscard]] bool is_above(BlockId ancestor, BlockId block) const {
    while (depths_[block] > depths_[ancestor]) block = trace_.parents[block];
    return block == ancestor;
  }

  const Trace& trace_;
  order::Learner learner_;
  std::vector<std::uint32_t> depths_;
  std::vector<std::uint8_t> sightings_;
  Grades grades_;
};

}  // namespace

void tell(order::Learner& learner, const Call& call) {
  const order::Caller caller{call.tid, call.process};
  const std::uint64_t name = name_of(call.block);
  switch (call.type) {
    case CallType::kHit:
      return learner.probe(name, caller, order::Lookup::kHit, call.time_ns);
    case CallType::kMiss:
      return learner.probe(name, caller, order::Lookup::kMiss, call.time_ns);
    case CallType::kLoad:
      return learner.load(name, caller, call.time_ns);
    case CallType::kStoreStart:
      return learner.store_start(name, caller, call.time_ns);
    case CallType::kPublished:
      return learner.published(name, call.time_ns);
  }
}

Grades grade_links(const Trace& trace, const Runtime& runtime, std::size_t in_flight,
                   std::uint64_t seed, std::int64_t entry_timeout_ns) {
  Grader grader(trace);
  VirtualExecutor executor(runtime, trace.parents.size(), seed, entry_timeout_ns,
                           [&grader](const Call& call) { grader.see(call); });
  Engine engine(trace, runtime, in_flight, seed + 1, executor);
  engine.start();
  executor.run_all();
  return grader.grades();
}

}  // namespace kvcachefs::sim
