// kvcachefs: mounts, shows, checks and unmounts a filesystem for LLM KV cache.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "backend/base/visible.h"
#include "tools/commands.h"

namespace {

struct ExitCodes {
  int usage = kvcachefs::kExitUsage;
  int failed = kvcachefs::kExitFailed;  // what it found could not be written
};

// fsck(8) has exit codes of its own.
ExitCodes codes_of(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "fsck") == 0) return {.usage = 16, .failed = 8};
  return {};
}

// "--policy=" alone: the parser would take the next word for the value. nullptr: there is none.
const char* option_without_value(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word.starts_with("--") && word.find('=') == word.size() - 1) return argv[i];
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  kvcachefs::hold_standard_streams();
  const ExitCodes codes = codes_of(argc, argv);
  if (const char* option = option_without_value(argc, argv)) {
    kvcachefs::complain(fmt::format("{}: a value is missing: see kvcachefs --help",
                                    kvcachefs::visible(option)));
    return codes.usage;
  }
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
    if (error.get_exit_code() == 0) {  // --help, --version
      std::ostringstream text;
      app.exit(error, text, text);
      kvcachefs::print_text(text.str());
      return kvcachefs::finish_output(kvcachefs::kExitOk, codes.failed);
    }
    const auto is_named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
    const bool is_unknown =
        argc > 1 && argv[1][0] != '-' && std::as_const(app).get_subcommands(is_named).empty();
    if (is_unknown) {
      kvcachefs::complain(fmt::format("no such command: {}: see kvcachefs --help",
                                      kvcachefs::visible(argv[1])));
      return codes.usage;
    }
    kvcachefs::complain(std::string(error.what()) + ": see kvcachefs --help");
    return codes.usage;
  }
  return kvcachefs::finish_output(exit_code, codes.failed);
}
