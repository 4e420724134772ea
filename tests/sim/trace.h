// A recorded trace of requests: which blocks each one's prompt consists of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcachefs::sim {

// An id stands for a block and everything before it, so it has one predecessor in all requests.
using BlockId = std::uint32_t;

struct Request {
  std::int64_t arrival_ns = 0;
  std::vector<BlockId> blocks;
  // The request whose answer it waits for: the one whose whole prompt it continues; -1: none.
  std::int32_t predecessor = -1;
};

struct Trace {
  std::vector<Request> requests;
  // By block: the one before it in its prefix, or itself when it is the first.
  std::vector<BlockId> parents;

  [[nodiscard]] bool is_root(BlockId block) const noexcept { return parents[block] == block; }
};

// Of a trace, the requests that share more than their first block with another one: less to store
// for as many second sightings.
Trace reused_part(const Trace& trace);

// Reads a .jsonl.gz of tests/data/traces, at most `requests` of it. An empty trace: it cannot be
// read, and the reason is printed.
Trace read_trace(const std::string& path, std::size_t requests);

}  // namespace kvcachefs::sim
