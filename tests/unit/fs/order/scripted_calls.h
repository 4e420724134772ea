// A learner and a clock for tests: calls by name, each a little after the one before.
#pragma once

#include <initializer_list>
#include <vector>

#include "fs/order/learner.h"

namespace kvcachefs::testing {

inline constexpr std::int64_t kMicrosecond = 1'000;
inline constexpr std::int64_t kMillisecond = 1'000'000;
inline constexpr std::int64_t kSecond = 1'000'000'000;

struct ScriptedCalls {
  order::Learner learner;
  std::int64_t now = 1000 * kSecond;
  order::Caller engine{.tid = 11, .process = 10};

  void wait(std::int64_t nanos) { now += nanos; }

  void probe(std::initializer_list<std::uint64_t> names, order::Lookup result) {
    probe(std::vector<std::uint64_t>(names), result, engine);
  }
  void probe(const std::vector<std::uint64_t>& names, order::Lookup result,
             const order::Caller& caller) {
    for (const std::uint64_t name : names) {
      learner.probe(name, caller, result, now);
      wait(30 * kMicrosecond);
    }
  }
  void hits(std::initializer_list<std::uint64_t> names) { probe(names, order::Lookup::kHit); }
  void misses(std::initializer_list<std::uint64_t> names) {
    probe(names, order::Lookup::kMiss);
  }
  void store(std::initializer_list<std::uint64_t> names) {
    for (const std::uint64_t name : names) {
      learner.store_start(name, engine, now);
      wait(4 * kMillisecond);
      learner.published(name, now);
    }
  }
  // A request that finds nothing: looks everything up, and stores it.
  void first_request(std::initializer_list<std::uint64_t> names) {
    misses(names);
    wait(200 * kMillisecond);
    store(names);
    wait(2 * kSecond);
  }
  // One that finds everything.
  void next_request(std::initializer_list<std::uint64_t> names) {
    hits(names);
    wait(2 * kSecond);
  }

  std::uint64_t parent(std::uint64_t name) const {
    const auto parent = learner.parent(name);
    return parent ? parent->name : 0;
  }
  bool firm(std::uint64_t name) const {
    const auto parent = learner.parent(name);
    return parent && parent->firm;
  }
  order::EvictionKey key(std::uint64_t name) const {
    return learner.eviction_key(name).value_or(order::EvictionKey{});
  }
  std::vector<std::uint64_t> victims(std::size_t limit = 1000) {
    std::vector<std::uint64_t> names;
    for (const order::Victim& victim : learner.victims(limit)) names.push_back(victim.name);
    return names;
  }
};

}  // namespace kvcachefs::testing
