#include "tests/sim/link_grade.h"

#include <utility>

namespace kvcachefs::sim {

using What = order::Note::What;

namespace {

std::optional<BlockId> link_in(const order::Learner& learner, BlockId block) {
  const auto parent = learner.parent(name_of(block));
  if (!parent) return std::nullopt;
  return static_cast<BlockId>(parent->name - 1);
}

class Grader {
 public:
  explicit Grader(const Trace& trace) : truth_(trace), sightings_(trace.parents.size()) {}

  void see(const Call& call) {
    ++grades_.calls;
    const bool probe = call.type == CallType::kHit || call.type == CallType::kMiss;
    std::uint8_t& sightings = sightings_[call.block];
    const bool sighting = probe || (call.type == CallType::kStoreStart && sightings == 0);
    order::tell(learner_, note_of(call));
    if (!sighting || sightings >= 2 || truth_.is_root(call.block)) return;
    ++sightings;
    truth_.grade(call.block, link_in(learner_, call.block),
                 sightings == 1 ? grades_.first : grades_.second);
  }

  [[nodiscard]] const Grades& grades() const noexcept { return grades_; }

 private:
  const Truth truth_;
  order::Learner learner_;
  std::vector<std::uint8_t> sightings_;
  Grades grades_;
};

}  // namespace

Truth::Truth(const Trace& trace) : trace_(trace), depths_(trace.parents.size()) {
  for (const Request& request : trace.requests) {
    for (std::size_t i = 0; i < request.blocks.size(); ++i)
      depths_[request.blocks[i]] = static_cast<std::uint32_t>(i);
  }
}

void Truth::grade(BlockId block, std::optional<BlockId> linked, Grade& grade) const {
  ++grade.blocks;
  if (!linked) return;
  ++grade.linked;
  if (*linked == trace_.parents[block]) {
    ++grade.exact;
  } else if (!is_above(*linked, block) && !is_above(block, *linked)) {
    ++grade.wrong_chain;
  }
}

bool Truth::is_above(BlockId ancestor, BlockId block) const {
  while (depths_[block] > depths_[ancestor]) block = trace_.parents[block];
  return block == ancestor;
}

SecondSights::SecondSights(const Trace& trace, LinkOf link_of)
    : truth_(trace), link_of_(std::move(link_of)), states_(trace.parents.size()) {}

void SecondSights::looked_up(BlockId block) {
  std::unique_lock lock(mutex_);
  std::uint8_t& sightings = states_[block].sightings;
  if (sightings < 2) ++sightings;
  grade_if_due(block, lock);
}

void SecondSights::published(BlockId block) {
  std::unique_lock lock(mutex_);
  State& state = states_[block];
  state.stored = true;
  if (state.sightings == 0) state.sightings = 1;
  grade_if_due(block, lock);
}

void SecondSights::grade_if_due(BlockId block, std::unique_lock<std::mutex>& lock) {
  State& state = states_[block];
  if (truth_.is_root(block) || state.graded || !state.stored || state.sightings < 2) return;
  state.graded = true;
  lock.unlock();
  const std::optional<BlockId> linked = link_of_(block);
  lock.lock();
  truth_.grade(block, linked, grade_);
}

bool SecondSights::is_stored(BlockId block) {
  const std::lock_guard lock(mutex_);
  return states_[block].stored;
}

Grade SecondSights::grade() {
  const std::lock_guard lock(mutex_);
  return grade_;
}

order::Note note_of(const Call& call) {
  constexpr What kWhats[] = {What::kHit, What::kMiss, What::kLoaded, What::kStoreBegan,
                             What::kStored};
  return {.what = kWhats[static_cast<std::size_t>(call.type)],
          .name = name_of(call.block),
          .caller = {.tid = call.tid, .process = call.process},
          .when_ns = call.time_ns};
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

Grade grade_second_sights(const Trace& trace, const Runtime& runtime, std::size_t in_flight,
                          std::uint64_t seed, std::int64_t entry_timeout_ns, const Pace& pace) {
  order::Learner learner;
  SecondSights* stored = nullptr;
  SecondSights sights(trace, [&](BlockId block) {
    const std::optional<BlockId> linked = link_in(learner, block);
    return linked && stored->is_stored(*linked) ? linked : std::nullopt;
  });
  stored = &sights;
  VirtualExecutor executor(
      runtime, trace.parents.size(), seed, entry_timeout_ns, [&](const Call& call) {
        order::tell(learner, note_of(call));
        const bool probe = call.type == CallType::kHit || call.type == CallType::kMiss;
        if (probe) sights.looked_up(call.block);
        if (call.type == CallType::kPublished) sights.published(call.block);
      });
  Engine engine(trace, runtime, in_flight, seed + 1, executor, pace);
  engine.start();
  executor.run_all();
  return sights.grade();
}

}  // namespace kvcachefs::sim
