// kvcachefs mount [options] MOUNTPOINT
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "backend/base/log.h"
#include "backend/base/privileges.h"
#include "fs/capabilities.h"
#include "fs/config.h"
#include "fs/mount.h"
#include "tools/background.h"
#include "tools/commands.h"

namespace kvcachefs {
namespace {

struct MountArguments {
  std::string mountpoint;
  std::vector<std::string> option_lists;
  std::map<std::string_view, std::string> values;  // by setting that has one value
  std::map<std::string_view, std::vector<std::string>>
      lists;  // by setting that may be repeated
  std::vector<std::pair<std::string_view, const CLI::Option*>> options;
};

ConfigSources sources_of(const MountArguments& arguments) {
  std::error_code error;
  ConfigSources sources{.directory = std::filesystem::current_path(error).string(),
                        .option_lists = arguments.option_lists,
                        .command_line = {},
                        .mountpoint = arguments.mountpoint};
  for (const auto& [name, option] : arguments.options) {
    for (const std::string& value : option->results()) {
      sources.command_line.push_back({std::string(name), value});
    }
  }
  return sources;
}

// The daemon: from here to its end.
int serve(const Config& config, const ConfigSources& sources, StartReport& report) {
  // Before there is another thread: each has its own.
  const Result<void> dropped = drop_capabilities(kMountCapabilities);
  const auto opened = log_open(log_target(config));
  if (!opened) {
    report.failed(fmt::format("--log: {}: {}: name a file that can be written", config.log_file,
                              std::strerror(opened.error().code)));
    return kExitFailed;
  }
  if (!dropped.ok())
    log_warn("mount event=capabilities_not_dropped step=\"{}\" errno={}", dropped.error().what,
             dropped.error().code);
  Mount::prepare_process();
  std::string problem;
  auto mount = Mount::start(
      config, [&](const std::string& text) { report.note(text); }, problem);
  if (!mount) {
    if (!config.log_file.empty()) log_error("mount event=failed reason=\"{}\"", problem);
    log_flush();
    report.failed(problem);
    return kExitFailed;
  }
  const bool wanted = report.ready().ok();
  if (!wanted) (*mount)->ask_to_stop();
  (*mount)->on_hang_up([&](std::string& text) { return read_settings(sources, text); });
  const int code = (*mount)->run();
  mount->reset();
  log_flush();
  return code;
}

int mount(const MountArguments& arguments) {
  std::string problem;
  const ConfigSources sources = sources_of(arguments);
  const auto config = load_config(sources, problem);
  if (!config) {
    complain(problem);
    const int code = config.error().code;
    return code == EINVAL || code == ERANGE ? kExitUsage : kExitFailed;
  }
  close_inherited_descriptors();
  if (config->foreground) {
    StartReport report;
    return serve(*config, sources, report);
  }
  return run_in_background(
      [&](StartReport& report) { return serve(*config, sources, report); });
}

}  // namespace

void add_mount(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<MountArguments>();
  CLI::App* command = app.add_subcommand("mount", "Mounts; returns when the mount answers");
  command->add_option("MOUNTPOINT", arguments->mountpoint, "The directory to mount on")
      ->required()
      ->type_name("");
  for (const Setting& setting : settings()) {
    const std::string name = "--" + std::string(setting.name);
    const std::string help = wrap_help(setting.help);
    if (setting.kind == SettingKind::kFlag) {
      // As it is written: --allow-other=false takes back what a file says.
      arguments->options.emplace_back(setting.name, command->add_flag(name, help));
    } else {
      // A list takes one word each time it is given; of a single value the last counts.
      CLI::Option* option =
          setting.kind == SettingKind::kList
              ? command->add_option(name, arguments->lists[setting.name], help)
                    ->allow_extra_args(false)
              : command->add_option(name, arguments->values[setting.name], help)->take_last();
      option->type_name(std::string(setting.value_name));
      arguments->options.emplace_back(setting.name, option);
    }
  }
  command
      ->add_option(
          "-o,--options", arguments->option_lists,
          wrap_help("A list as in fstab: the names above (nvme=DIR), and dev, nodev, suid, "
                    "nosuid, exec, noexec, ro, rw, noatime, relatime, sync, dirsync, "
                    "context=LABEL. Default: nosuid,nodev"))
      ->type_name("OPTS")
      ->allow_extra_args(false);
  command->callback([arguments, &exit_code] { exit_code = mount(*arguments); });
}

}  // namespace kvcachefs
