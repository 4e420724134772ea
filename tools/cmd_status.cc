// kvcachefs status [--json] PATH
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>

#include "fs/control.h"
#include "fs/status.h"
#include "tools/commands.h"
#include "tools/find_mount.h"

namespace kvcachefs {
namespace {

struct StatusArguments {
  std::string path;
  bool json = false;
};

int status(const StatusArguments& arguments) {
  std::string problem;
  const auto found = find_mount(arguments.path, FindMount::kHolding, problem);
  if (!found) {
    complain(problem);
    return kExitFailed;
  }
  const auto answer = control_request(found->state, "status");
  if (!answer) {
    complain(daemon_problem(*found, answer.error()));
    return kExitFailed;
  }
  if (arguments.json) {
    print_out("{}\n", *answer);
    return kExitOk;
  }
  const auto text = status_text(*answer);
  if (!text) {
    complain(fmt::format("status: {}: the daemon says: {}", found->entry.point, *answer));
    return kExitFailed;
  }
  print_out("{}", *text);
  return kExitOk;
}

}  // namespace

void add_status(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<StatusArguments>();
  CLI::App* command =
      app.add_subcommand("status", "Shows how a mount is: health, data path, tiers, speed");
  command
      ->add_option("MOUNTPOINT", arguments->path, "The mount point, or any path in the mount")
      ->required()
      ->type_name("");
  command->add_flag("--json", arguments->json, "One line of JSON instead of text");
  command->callback([arguments, &exit_code] { exit_code = status(*arguments); });
}

}  // namespace kvcachefs
