#include "tests/sim/engine.h"

#include <algorithm>
#include <utility>

namespace kvcachefs::sim {
namespace {

// 8192 tokens of 512 a block.
constexpr std::size_t kPrefillBlocks = 16;
// How far past requests that must wait the engine looks for one that need not.
constexpr std::size_t kHeldBack = 64;

}  // namespace

Engine::Engine(const Trace& trace, Runtime runtime, std::size_t in_flight, std::uint64_t seed,
               Executor& executor, const Pace& pace)
    : trace_(trace),
      runtime_(std::move(runtime)),
      most_in_flight_(in_flight),
      executor_(executor),
      pace_(pace),
      random_(seed),
      done_(trace.requests.size()) {}

// A turn of a conversation comes after the answer to the one before.
bool Engine::may_begin(std::size_t request) const {
  const std::int32_t predecessor = trace_.requests[request].predecessor;
  return predecessor < 0 || done_[static_cast<std::size_t>(predecessor)];
}

void Engine::admit() {
  for (auto held = held_back_.begin();
       held != held_back_.end() && in_flight_ < most_in_flight_;) {
    if (!may_begin(*held)) {
      ++held;
      continue;
    }
    const std::size_t request = *held;
    held = held_back_.erase(held);
    begin(request);
  }
  while (in_flight_ < most_in_flight_ && next_request_ < trace_.requests.size() &&
         held_back_.size() < kHeldBack) {
    const std::size_t request = next_request_++;
    if (may_begin(request)) {
      begin(request);
    } else {
      held_back_.push_back(request);
    }
  }
}

void Engine::begin(std::size_t request) {
  ++in_flight_;
  auto job = std::make_shared<Job>();
  job->request = request;
  const std::int64_t into_step = executor_.now_ns() % pace_.scheduler_step_ns;
  executor_.after(pace_.scheduler_step_ns - into_step, [this, job] { probe(job); });
}

void Engine::probe(const JobPtr& job) {
  std::vector<BlockId> keys;
  for (const BlockId block : trace_.requests[job->request].blocks) {
    if (++wanted_[block] == 1 || !runtime_.skips_in_flight) keys.push_back(block);
  }
  executor_.run(runtime_.probes.pool, cut_into_tasks(runtime_, Op::kProbe, keys),
                [this, job](const std::vector<BlockId>& hits) { load(job, hits); });
}

// What another request in flight wants is in the engine's own memory, or will be.
void Engine::load(const JobPtr& job, const std::vector<BlockId>& hits) {
  const std::unordered_set<BlockId> there(hits.begin(), hits.end());
  const auto& blocks = trace_.requests[job->request].blocks;
  std::size_t prefix = 0;
  std::vector<BlockId> loads;
  for (; prefix < blocks.size(); ++prefix) {
    const BlockId block = blocks[prefix];
    if (there.contains(block)) {
      loads.push_back(block);
    } else if (!(runtime_.skips_in_flight && wanted_[block] > 1)) {
      break;
    }
  }
  ++served_.requests;
  served_.blocks += blocks.size();
  served_.usable += prefix;
  job->missing.assign(blocks.begin() + static_cast<std::ptrdiff_t>(prefix), blocks.end());
  executor_.run(runtime_.loads.pool, cut_into_tasks(runtime_, Op::kLoad, loads),
                [this, job](const std::vector<BlockId>&) { compute(job); });
}

void Engine::compute(const JobPtr& job) {
  if (job->next_missing == job->missing.size()) {
    std::exponential_distribution<double> decode(1 / pace_.decode_seconds);
    executor_.after(static_cast<std::int64_t>(decode(random_) * 1e9), [this, job] {
      job->answered = true;
      finish_if_done(job);
    });
    return;
  }
  executor_.after(pace_.prefill_ns, [this, job] {
    const std::size_t end = std::min(job->missing.size(), job->next_missing + kPrefillBlocks);
    std::vector<BlockId> blocks;
    for (; job->next_missing < end; ++job->next_missing) {
      const BlockId block = job->missing[job->next_missing];
      if (stored_.insert(block).second) blocks.push_back(block);
    }
    store(job, blocks);
    compute(job);
  });
}

void Engine::store(const JobPtr& job, const std::vector<BlockId>& blocks) {
  if (blocks.empty()) return;
  ++job->stores_running;
  executor_.run(runtime_.stores.pool, cut_into_tasks(runtime_, Op::kStore, blocks),
                [this, job](const std::vector<BlockId>&) {
                  --job->stores_running;
                  finish_if_done(job);
                });
}

void Engine::finish_if_done(const JobPtr& job) {
  if (!job->answered || job->stores_running > 0) return;
  for (const BlockId block : trace_.requests[job->request].blocks) {
    const auto wanted = wanted_.find(block);
    if (--wanted->second == 0) wanted_.erase(wanted);
  }
  --in_flight_;
  if (pace_.think_ns == 0) {
    done_[job->request] = true;
  } else {
    executor_.after(pace_.think_ns, [this, job] {
      done_[job->request] = true;
      admit();
    });
  }
  admit();
}

}  // namespace kvcachefs::sim
