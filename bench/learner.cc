// What a call costs that tells the learner of prefix order something:
//
//   kvcachefs_learner [NAMES]
//
// One line for each kind of call: what, and nanoseconds a call.
#include "fs/order/learner.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

using kvcachefs::order::Caller;
using kvcachefs::order::Learner;
using kvcachefs::order::Lookup;

constexpr std::uint64_t kNames = 1'000'000;
// Chains of 100 names, looked up and stored in order, as a runtime does.
constexpr std::uint64_t kChain = 100;
constexpr std::int64_t kMicrosecond = 1'000;
constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr Caller kCaller{.tid = 11, .process = 10};

// Prints the time since it was made, divided by the calls.
class Timer {
 public:
  explicit Timer(const char* what) : what_(what) {}
  void print(std::uint64_t calls) const {
    const std::chrono::duration<double, std::nano> took =
        std::chrono::steady_clock::now() - begin_;
    std::printf("%-44s %6.0f ns\n", what_, took.count() / static_cast<double>(calls));
    std::fflush(stdout);
  }

 private:
  const char* what_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

template <typename Each>
void time_each(const char* what, std::uint64_t names, std::int64_t& now, Each each) {
  const Timer timer(what);
  for (std::uint64_t first = 1; first <= names; first += kChain) {
    for (std::uint64_t name = first; name < first + kChain; ++name) {
      now += 20 * kMicrosecond;
      each(name);
    }
    now += 1100 * kMillisecond;  // or the next chain would look like this one's continuation
  }
  timer.print(names);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t asked = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : kNames;
  const std::uint64_t names = asked / kChain * kChain;
  if (names == 0) {
    std::fprintf(stderr, "kvcachefs_learner: %llu names at least\n",
                 static_cast<unsigned long long>(kChain));
    return 2;
  }
  Learner learner;
  std::int64_t now = kSecond;
  time_each("miss, store and publication of a new name", names, now, [&](std::uint64_t name) {
    learner.probe(name, kCaller, Lookup::kMiss, now);
    learner.store_start(name, kCaller, now);
    learner.published(name, now);
  });
  now += 100 * kSecond;
  for (const char* what : {"second lookup", "third lookup"}) {
    time_each(what, names, now,
              [&](std::uint64_t name) { learner.probe(name, kCaller, Lookup::kHit, now); });
  }
  time_each("load", names, now, [&](std::uint64_t name) { learner.load(name, kCaller, now); });
  const Timer timer("one of 64 victims, and its removal");
  std::uint64_t gone = 0;
  while (gone < names / 2) {
    for (const kvcachefs::order::Victim& victim : learner.victims(64)) {
      learner.forget(victim.name);
      ++gone;
    }
  }
  timer.print(gone);
  return 0;
}
