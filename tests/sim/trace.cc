#include "tests/sim/trace.h"

#include <nlohmann/json.hpp>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <unordered_map>

namespace kvcachefs::sim {
namespace {

std::string read_compressed(const std::string& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) {
    std::fprintf(stderr, "%s cannot be opened\n", path.c_str());
    return text;
  }
  char buffer[65536];
  for (int got = 0; (got = gzread(file, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  gzclose(file);
  return text;
}

Request parse(const std::string& line) {
  Request request;
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return request;
  request.arrival_ns = json.value("timestamp", std::int64_t{0}) * 1'000'000;
  if (json.contains("hash_ids")) {
    request.blocks = json["hash_ids"].get<std::vector<BlockId>>();
    return request;
  }
  for (const auto& run : json["hash_runs"]) {
    const auto first = run[0].get<BlockId>();
    const auto count = run[1].get<BlockId>();
    for (BlockId i = 0; i < count; ++i) request.blocks.push_back(first + i);
  }
  return request;
}

// The last block is mostly a partly filled one that a continuation does not contain.
void find_predecessors(Trace& trace) {
  std::unordered_map<BlockId, std::int32_t> ends;
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    Request& request = trace.requests[i];
    const auto& blocks = request.blocks;
    for (std::size_t depth = blocks.size(); depth > 1 && request.predecessor < 0; --depth) {
      const auto found = ends.find(blocks[depth - 1]);
      if (found != ends.end()) request.predecessor = found->second;
    }
    if (blocks.empty()) continue;
    ends[blocks.back()] = static_cast<std::int32_t>(i);
    if (blocks.size() > 1) ends[blocks[blocks.size() - 2]] = static_cast<std::int32_t>(i);
  }
}

}  // namespace

Trace reused_part(const Trace& trace) {
  std::unordered_map<BlockId, std::size_t> uses;
  for (const Request& request : trace.requests) {
    for (const BlockId block : request.blocks) ++uses[block];
  }
  Trace part{.requests = {}, .parents = trace.parents};
  for (const Request& request : trace.requests) {
    const bool reused =
        std::any_of(request.blocks.begin(), request.blocks.end(),
                    [&](BlockId block) { return !trace.is_root(block) && uses[block] > 1; });
    if (reused) part.requests.push_back({request.arrival_ns, request.blocks});
  }
  find_predecessors(part);
  return part;
}

Trace read_trace(const std::string& path, std::size_t requests) {
  Trace trace;
  const std::string text = read_compressed(path);
  for (std::size_t begin = 0; begin < text.size() && trace.requests.size() < requests;) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    Request request = parse(text.substr(begin, end - begin));
    begin = end + 1;
    if (request.blocks.empty()) continue;
    for (std::size_t i = 0; i < request.blocks.size(); ++i) {
      const BlockId block = request.blocks[i];
      if (block >= trace.parents.size()) trace.parents.resize(block + 1, 0);
      trace.parents[block] = i > 0 ? request.blocks[i - 1] : block;
    }
    trace.requests.push_back(std::move(request));
  }
  find_predecessors(trace);
  return trace;
}

}  // namespace kvcachefs::sim
