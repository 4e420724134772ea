// The sub-commands of kvcachefs, one file each. Each adds itself to the command line and, when
// chosen, leaves its exit code.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace kvcachefs {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

void add_mount(CLI::App& app, int& exit_code);
void add_umount(CLI::App& app, int& exit_code);
void add_status(CLI::App& app, int& exit_code);
void add_find(CLI::App& app, int& exit_code);
void add_ls(CLI::App& app, int& exit_code);
void add_tree(CLI::App& app, int& exit_code);
void add_explain(CLI::App& app, int& exit_code);
void add_set(CLI::App& app, int& exit_code);  // and pin, unpin
void add_evict(CLI::App& app, int& exit_code);
void add_flush(CLI::App& app, int& exit_code);
void add_fsck(CLI::App& app, int& exit_code);
void add_pool(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);

// The one line that says why a command failed.
inline void complain(std::string_view problem) {
  fmt::print(stderr, "kvcachefs: {}\n", problem);
  std::fflush(stderr);
}

// Of records that a listing has passed over.
inline void complain_damaged(std::uint64_t records) {
  if (records == 0) return;
  complain(
      fmt::format("{} damaged records are not shown: unmount, then kvcachefs fsck", records));
}

// Breaks a help text into lines that fit beside the option column.
[[nodiscard]] std::string wrap_help(std::string_view text);

}  // namespace kvcachefs
