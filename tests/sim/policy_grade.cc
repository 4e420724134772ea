#include "tests/sim/policy_grade.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <vector>

#include "fs/evict/chain_policy.h"
#include "fs/evict/lru_policy.h"
#include "tests/sim/engine.h"
#include "tests/sim/link_grade.h"
#include "tests/sim/true_chain_policy.h"
#include "tests/sim/virtual_executor.h"

namespace kvcachefs::sim {
namespace {

constexpr std::size_t kAfterRestart = 32;

class Cache {
 public:
  explicit Cache(const PolicyRun& run)
      : run_(run),
        learner_(std::make_unique<order::Learner>()),
        policy_(run.policy(*learner_)),
        executor_(run.runtime, run.trace.parents.size(), run.seed, /*entry_timeout_ns=*/0,
                  [this](const Call& call) { see(call); }),
        engine_(run.trace, run.runtime, run.in_flight, run.seed + 1, executor_, run.pace) {}

  PolicyGrade play() {
    engine_.start();
    executor_.run_all();
    const Engine::Served& served = engine_.served();
    grade_.all = {served.blocks, served.usable};
    return grade_;
  }

 private:
  void see(const Call& call) {
    count_requests();
    // It was evicted between its lookup and its load: the open fails.
    if (call.type == CallType::kLoad && !stored_.contains(call.block)) return;
    tell(note_of(call));
    if (call.type != CallType::kPublished) return;
    stored_.insert(call.block);
    while (stored_.size() > run_.capacity && evict_one(call.time_ns)) {
    }
  }

  bool evict_one(std::int64_t now_ns) {
    const std::vector<order::Victim> victims = policy_->victims(0, 1, std::nullopt);
    if (victims.empty()) return false;
    tell({.what = order::Note::What::kRemoved,
          .name = victims[0].name,
          .caller = {},
          .when_ns = now_ns});
    const auto block = static_cast<BlockId>(victims[0].name - 1);
    ++grade_.evicted;
    stored_.erase(block);
    executor_.evicted(block);
    engine_.evicted(block);
    return true;
  }

  void tell(const order::Note& note) {
    order::tell(*learner_, note);
    policy_->observe(note);
  }

  void count_requests() {
    const Engine::Served& served = engine_.served();
    if (!at_restart_ && served.requests >= run_.restart_after) {
      at_restart_ = served;
      restart();
    }
    if (at_restart_ && served.requests <= run_.restart_after + kAfterRestart) {
      grade_.after_restart = {served.blocks - at_restart_->blocks,
                              served.usable - at_restart_->usable};
    }
  }

  void restart() {
    auto learner = std::make_unique<order::Learner>();
    for (const BlockId block : stored_) {
      const auto snapshot = learner_->snapshot(name_of(block));
      if (snapshot) learner->restore(name_of(block), *snapshot, executor_.now_ns());
    }
    learner->restored();
    policy_ = run_.policy(*learner);
    learner_ = std::move(learner);
    // A policy that the learner tells nothing knows what is there, and no more.
    for (const BlockId block : stored_) {
      policy_->observe({.what = order::Note::What::kStored,
                        .name = name_of(block),
                        .caller = {},
                        .when_ns = executor_.now_ns()});
    }
  }

  const PolicyRun& run_;
  std::unique_ptr<order::Learner> learner_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unordered_set<BlockId> stored_;
  std::optional<Engine::Served> at_restart_;
  PolicyGrade grade_;
  VirtualExecutor executor_;
  Engine engine_;
};

}  // namespace

MakePolicy policy_named(const std::string& name, const Trace& trace) {
  if (name == "lru") return [](order::Learner&) { return std::make_unique<LruPolicy>(); };
  if (name == "true")
    return [&trace](order::Learner&) { return std::make_unique<TrueChainPolicy>(trace); };
  return [](order::Learner& learner) { return std::make_unique<ChainPolicy>(learner); };
}

PolicyGrade grade_policy(const PolicyRun& run) { return Cache(run).play(); }

std::size_t distinct_blocks(const Trace& trace) {
  std::unordered_set<BlockId> blocks;
  for (const Request& request : trace.requests)
    blocks.insert(request.blocks.begin(), request.blocks.end());
  return blocks.size();
}

}  // namespace kvcachefs::sim
