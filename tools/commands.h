// The sub-commands of kvcachefs, one file each. Each adds itself to the command line and, when
// chosen, leaves its exit code.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

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

// The one line that says why a command failed; what a terminal would obey is escaped
// (visible_message()).
void complain(std::string_view problem);

// Text for standard output. What cannot be written there is said by finish_output(), once.
void print_text(std::string_view text);
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  print_text(fmt::format(format, std::forward<Args>(args)...));
}
// Whether something could not be written: who has much more to say may stop.
[[nodiscard]] bool output_failed();
// The exit code of a command that would end with `code`: `failed` instead of kExitOk when not all of standard output
// was written. Says so, unless its reader had gone: that one wanted no more.
[[nodiscard]] int finish_output(int code, int failed = kExitFailed);
// Opens descriptors 0 to 2 if they are not, so that nothing else becomes one of them. What is written there fails.
void hold_standard_streams();

// Of records that a listing has passed over.
inline void complain_damaged(std::uint64_t records) {
  if (records == 0) return;
  complain(
      fmt::format("{} damaged records are not shown: unmount, then kvcachefs fsck", records));
}

// Breaks a help text into lines that fit beside the option column.
[[nodiscard]] std::string wrap_help(std::string_view text);

}  // namespace kvcachefs
