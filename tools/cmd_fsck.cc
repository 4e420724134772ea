// kvcachefs fsck --state DIR [--repair]
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "backend/base/log.h"
#include "fs/fsck.h"
#include "tools/commands.h"

namespace kvcachefs {

void add_fsck(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<FsckOptions>();
  CLI::App* command = app.add_subcommand(
      "fsck", "Checks the metadata of an unmounted filesystem against its files");
  command->add_option("--state", options->state, "The state directory of the mount")
      ->required()
      ->type_name("DIR");
  command->add_flag("--repair", options->repair,
                    wrap_help("Repairs what it finds; without it nothing is changed"));
  command->footer(
      "Exit code: 0 clean, 1 errors were repaired, 4 errors are left, 8 the check itself\n"
      "failed, 16 wrong usage.");
  command->callback([options, &exit_code] {
    // What matters is in the report.
    [[maybe_unused]] const auto opened = log_open({.file = "", .level = LogLevel::kWarn});
    const FsckResult result = run_fsck(*options, stdout);
    if (!result.problem.empty()) complain(fmt::format("fsck: {}", result.problem));
    exit_code = result.exit_code;
  });
}

}  // namespace kvcachefs
