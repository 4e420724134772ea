// Sizes, shares, durations and UUIDs as users write them: every text gives a value in its
// bounds, or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "backend/base/random.h"
#include "backend/base/units.h"

namespace {

using namespace kvcachefs;

void require(bool holds) {
  if (!holds) std::abort();
}

void read_all(std::string_view text) {
  using namespace std::chrono_literals;
  if (const auto size = parse_size(text, 10, kTiB); size.ok()) {
    require(*size >= 10 && *size <= kTiB);
    require(!format_size(*size).empty());
    // What was read reads the same as a plain number.
    const auto again = parse_size(std::to_string(*size), 10, kTiB);
    require(again.ok() && *again == *size);
  }
  if (const auto limit = parse_size_limit(text, 1, kTiB); limit.ok()) {
    require((limit->percent == 0) != (limit->bytes == 0));
    require(limit->percent <= 100);
    require(limit->percent == 0 || limit->of(UINT64_MAX) > 0);
  }
  if (const auto duration = parse_duration(text, 1ms, 1h); duration.ok()) {
    require(*duration >= 1ms && *duration <= 1h);
    require(!format_duration(*duration).empty());
  }
  if (const auto uuid = parse_uuid(text)) require(parse_uuid(format_uuid(*uuid)) == uuid);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_all(text);
  // A number before the input reaches the units without luck.
  read_all("1.5" + std::string(text));
  read_all("123" + std::string(text));
  return 0;
}
