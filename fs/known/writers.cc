#include "fs/known/writers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "backend/base/crc32c.h"
#include "backend/base/proc_status.h"

namespace kvcachefs {
namespace {

std::uint32_t this_boot() {
  const std::string id = boot_id();
  return crc32c(0, std::as_bytes(std::span(id)));
}

}  // namespace

Writers::Writers() : boot_(this_boot()) {}

ProcessId parse_process(std::string_view stat, std::uint32_t boot) {
  // The name of the program stands in brackets, and may hold brackets and blanks itself.
  std::size_t at = stat.rfind(')');
  if (at == std::string_view::npos) return {};
  constexpr int kName = 2;
  constexpr int kState = 3;
  constexpr int kThreads = 20;
  constexpr int kBegan = 22;
  std::array<std::string_view, kBegan + 1> fields;
  for (int field = kName + 1; field <= kBegan; ++field) {
    const std::size_t begin = stat.find(' ', at);
    if (begin == std::string_view::npos) return {};
    at = std::min(stat.find(' ', begin + 1), stat.size());
    fields[static_cast<std::size_t>(field)] = stat.substr(begin + 1, at - begin - 1);
  }
  const auto number = [&fields](int field) {
    return std::strtoull(std::string(fields[static_cast<std::size_t>(field)]).c_str(), nullptr,
                         10);
  };
  // Who is dead and only waits for its parent writes nothing any more; but the first of many threads may
  // have ended alone.
  const std::string_view state = fields[kState];
  if (state == "X" || (state == "Z" && number(kThreads) <= 1)) return {};
  return {.boot = boot,
          .number = static_cast<std::uint32_t>(
              std::strtoul(std::string(stat.substr(0, stat.find(' '))).c_str(), nullptr, 10)),
          .began = number(kBegan)};
}

ProcessId Writers::read(std::uint32_t process) const {
  return parse_process(first_line("/proc/" + std::to_string(process) + "/stat"), boot_);
}

ProcessId Writers::identity_of(pid_t process, std::int64_t now_ns) {
  if (process <= 0) return {};
  const auto number = static_cast<std::uint32_t>(process);
  {
    const std::lock_guard lock(mutex_);
    const auto at = known_.find(number);
    if (at != known_.end() && now_ns - at->second.read_ns < kTrustNanos) return at->second.id;
  }
  const ProcessId id = read(number);
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kMostKept) known_.clear();
  known_[number] = {.id = id, .read_ns = now_ns};
  return id;
}

bool Writers::is_alive(const ProcessId& writer) {
  if (!writer.any() || writer.boot != boot_) return false;
  {
    const std::lock_guard lock(mutex_);
    if (watched_.count(writer) > 0) return true;
  }
  if (read(writer.number) != writer) return false;
  const std::lock_guard lock(mutex_);
  if (watched_.size() < kMostKept) watched_.insert(writer);
  return true;
}

bool Writers::look() {
  std::vector<ProcessId> watched;
  {
    const std::lock_guard lock(mutex_);
    watched.assign(watched_.begin(), watched_.end());
  }
  bool any_gone = false;
  for (const ProcessId& writer : watched) {
    if (read(writer.number) == writer) continue;
    any_gone = true;
    const std::lock_guard lock(mutex_);
    watched_.erase(writer);
  }
  return any_gone;
}

}  // namespace kvcachefs
