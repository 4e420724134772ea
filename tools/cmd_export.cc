// kvcachefs export [--run] [options] MOUNTPOINT
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fs/config.h"
#include "tools/background.h"
#include "tools/commands.h"
#include "tools/export_server.h"
#include "tools/find_mount.h"
#include "tools/ganesha_config.h"

namespace kvcachefs {
namespace {

struct ExportArguments {
  std::string mountpoint;
  std::string name = "/kvcachefs";
  std::string address = "127.0.0.1";
  std::string versions = "3,4";
  std::string squash = "root";
  std::string work;
  std::vector<std::string> clients;
  std::uint16_t port = 2049;
  std::uint16_t mount_port = 20048;
  bool run = false;
};

std::string default_work(std::string_view mountpoint) {
  std::string name(mountpoint);
  for (char& c : name) {
    if (c == '/') c = '-';
  }
  return "/run/kvcachefs-export" + name;
}

CLI::Validator a_port() { return CLI::Range(1, 65535).description(""); }

bool allows_others(const MountEntry& entry) {
  return ("," + entry.super_options + ",").find(",allow_other,") != std::string::npos;
}

int serve_nfs(const ExportArguments& arguments) {
  std::string problem;
  const auto mount = find_mount(arguments.mountpoint, FindMount::kExactly, problem);
  if (!mount) {
    complain("export: " + problem);
    return kExitFailed;
  }
  if (!allows_others(mount->entry)) {
    complain(
        fmt::format("export: {}: clients' users may not use it: mount it with --allow-other",
                    mount->entry.point));
    return kExitFailed;
  }
  GaneshaExport what{.path = mount->entry.point,
                     .name = arguments.name,
                     .address = arguments.address,
                     .port = arguments.port,
                     .mount_port = arguments.mount_port,
                     .v3 = arguments.versions != "4",
                     .v4 = arguments.versions != "3",
                     .clients = arguments.clients,
                     .work = arguments.work};
  what.squash = arguments.squash == "none"  ? Squash::kNone
                : arguments.squash == "all" ? Squash::kAll
                                            : Squash::kRoot;
  if (what.work.empty()) what.work = default_work(what.path);
  const auto work = canonical_path(what.work);
  if (!work) {
    complain(fmt::format("export: --work {}: {}: make its parent directory first",
                         arguments.work, std::strerror(work.error().code)));
    return kExitFailed;
  }
  what.work = *work;
  if (what.work == what.path || what.work.starts_with(what.path + "/")) {
    complain(fmt::format("export: --work {}: is inside the mount: name a directory elsewhere",
                         what.work));
    return kExitUsage;
  }
  const auto config = ganesha_config(what, problem);
  if (!config) {
    complain(problem);
    return kExitUsage;
  }
  if (arguments.run) {
    close_inherited_descriptors();
    return ExportServer(what).run();
  }
  print_out("{}", *config);
  return kExitOk;
}

}  // namespace

void add_export(CLI::App& app, int& exit_code) {
  auto given = std::make_shared<ExportArguments>();
  CLI::App* command = app.add_subcommand(
      "export", "Serves a mount by NFS to machines without FUSE, or prints the configuration");
  command->add_option("MOUNTPOINT", given->mountpoint, "The mount; it needs --allow-other")
      ->required()
      ->type_name("");
  command->add_flag(
      "--run", given->run,
      wrap_help("Starts NFS-Ganesha with it, restarts it when it or the mount has "
                "ended, and ends it with itself. Without: prints it"));
  command
      ->add_option("--listen", given->address,
                   wrap_help("Where it listens; 0.0.0.0: everywhere. Default: 127.0.0.1"))
      ->type_name("ADDRESS");
  command
      ->add_option(
          "--client", given->clients,
          wrap_help("Who may mount it: an address, a network or a host; again for more. "
                    "Default: all that reach it"))
      ->allow_extra_args(false)
      ->type_name("HOST");
  command
      ->add_option("--squash", given->squash,
                   wrap_help("root: a client's root is nobody; all: everybody is; none. "
                             "Default: root"))
      ->check(CLI::IsMember({"root", "none", "all"}))
      ->type_name("WHOM");
  command->add_option("--as", given->name, "Its name for clients. Default: /kvcachefs")
      ->type_name("NAME");
  command->add_option("--nfs", given->versions, "3, 4 or 3,4. 3 needs rpcbind. Default: 3,4")
      ->check(CLI::IsMember({"3", "4", "3,4"}))
      ->type_name("VERSIONS");
  command->add_option("--port", given->port, "Of NFS. Default: 2049")
      ->check(a_port())
      ->type_name("PORT");
  command
      ->add_option("--mount-port", given->mount_port,
                   "Of version 3's mount protocol. Default: 20048")
      ->check(a_port())
      ->type_name("PORT");
  command
      ->add_option(
          "--work", given->work,
          wrap_help("The server's own directory: configuration, log. Default: in /run"))
      ->type_name("DIR");
  command->callback([given, &exit_code] { exit_code = serve_nfs(*given); });
}

}  // namespace kvcachefs
