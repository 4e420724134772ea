#include "tests/fuzz/target.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "backend/base/crc32c.h"
#include "backend/base/wire.h"

namespace kvcachefs::fuzz {
namespace {

constexpr std::array kTargets = {Target{"acl", acl},
                                 Target{"answers", answers},
                                 Target{"catalog", catalog},
                                 Target{"config", config},
                                 Target{"control_request", control_request},
                                 Target{"layout", layout},
                                 Target{"metrics", metrics},
                                 Target{"nfs_reply", nfs_reply},
                                 Target{"pool", pool},
                                 Target{"record", record},
                                 Target{"text", text},
                                 Target{"units", units}};

std::string current_input;  // one thread replays

std::uint32_t crc_of(std::string_view bytes) {
  return crc32c(0, std::as_bytes(std::span(bytes)));
}

}  // namespace

std::span<const Target> targets() noexcept { return kTargets; }

void replaying(std::string_view input) { current_input = input; }

void require(bool holds, const char* file, int line) noexcept {
  if (holds) return;
  std::fprintf(stderr, "%s:%d: what is required does not hold; input: %s\n", file, line,
               current_input.empty() ? "libFuzzer's" : current_input.c_str());
  std::abort();
}

Choice choose(std::string_view input, unsigned readers) noexcept {
  if (input.empty()) return {.reader = 0, .flag = false, .rest = {}};
  const auto first = static_cast<unsigned char>(input.front());
  return {.reader = first / 2U % readers, .flag = first % 2 != 0, .rest = input.substr(1)};
}

std::string chosen(unsigned reader, bool flag, std::string_view rest) {
  return static_cast<char>(reader * 2 + (flag ? 1 : 0)) + std::string(rest);
}

std::string with_crc_line(std::string_view text) {
  return fmt::format("{}crc32c {:08x}\n", text, crc_of(text));
}

std::string with_crc(std::string_view bytes) {
  std::string out(bytes);
  wire::put_le(out, crc_of(bytes));
  return out;
}

}  // namespace kvcachefs::fuzz
