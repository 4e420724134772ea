// The configuration file and the `-o` list: whatever stands in them, reading ends with settings
// or an error that says why.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fs/config.h"
#include "fs/mount_table.h"
#include "fs/status.h"

using namespace kvcachefs;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  KernelOptions kernel;
  std::vector<Assignment> settings;
  std::string problem;
  Config config;
  bool good = true;
  switch (data[0] % 5) {
    case 0:
      good = parse_config_file(text, "fuzz", kernel, settings, problem).ok();
      break;
    case 1:
      good = parse_mount_options(text, kernel, settings, problem).ok();
      break;
    case 2:
      for (const Setting& setting : kvcachefs::settings()) {
        std::string why;
        if (!setting.set(config, text, why).ok() && why.empty()) std::abort();
      }
      break;
    case 3:
      static_cast<void>(parse_mount_table(text));
      break;
    default:
      static_cast<void>(status_text(text));
      break;
  }
  if (!good && problem.empty()) std::abort();
  return 0;
}
