// kvcachefs: mounts, shows, checks and unmounts a filesystem for LLM KV cache.
#include <CLI/CLI.hpp>

#include <cstring>

#include "tools/commands.h"

namespace {

// fsck(8) has exit codes of its own.
constexpr int kFsckUsage = 16;

int usage_code(int argc, char** argv) {
  return argc > 1 && std::strcmp(argv[1], "fsck") == 0 ? kFsckUsage : kvcachefs::kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A filesystem for LLM KV cache", "kvcachefs"};
  app.set_version_flag("--version", "kvcachefs " KVCACHEFS_VERSION, "Prints the version");
  app.require_subcommand(1);
  app.get_formatter()->column_width(24);
  int exit_code = kvcachefs::kExitOk;
  kvcachefs::add_mount(app, exit_code);
  kvcachefs::add_umount(app, exit_code);
  kvcachefs::add_status(app, exit_code);
  kvcachefs::add_find(app, exit_code);
  kvcachefs::add_ls(app, exit_code);
  kvcachefs::add_tree(app, exit_code);
  kvcachefs::add_explain(app, exit_code);
  kvcachefs::add_set(app, exit_code);
  kvcachefs::add_evict(app, exit_code);
  kvcachefs::add_flush(app, exit_code);
  kvcachefs::add_fsck(app, exit_code);
  kvcachefs::add_pool(app, exit_code);
  kvcachefs::add_export(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    kvcachefs::complain(std::string(error.what()) + ": see kvcachefs --help");
    return usage_code(argc, argv);
  }
  return exit_code;
}
