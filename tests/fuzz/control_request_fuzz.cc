// Requests of the control socket: any line gives a request within its bounds that reads the same
// when it is written again, or an error that says what is wrong.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fs/control_request.h"

namespace {

using namespace kvcachefs;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  std::string problem;
  const auto request = parse_control_request(line, problem);
  if (!request.ok()) {
    require(!problem.empty());
    return 0;
  }
  require(!request->command.empty());
  for (const std::string* text :
       {&request->command, &request->word, &request->after, &request->model, &request->runtime})
    require(text->size() <= kLongestRequestText);
  const std::string written = encode(*request);
  require(written.find('\n') == std::string::npos);
  const auto again = parse_control_request(written, problem);
  require(again.ok() && *again == *request);
  return 0;
}
