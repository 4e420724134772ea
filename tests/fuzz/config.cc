// The configuration file, the `-o` list, the words of mount(8) and the kernel's table of
// mounts: whatever stands in them, reading ends with settings or an error that says why, and
// nothing that a value holds becomes another word.
#include "fs/config.h"

#include <string>
#include <string_view>
#include <vector>

#include "fs/mount_table.h"
#include "tests/fuzz/target.h"
#include "tools/helper_arguments.h"

namespace kvcachefs::fuzz {
namespace {

// The word as a list holds it.
std::string escaped(std::string_view word) {
  std::string out;
  for (const char c : word) {
    if (c == ',' || c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string list_of(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ",") + escaped(word);
  return list;
}

void check_settings(const std::vector<Assignment>& settings, bool of_file) {
  for (const Assignment& one : settings) {
    const Setting* const setting = find_setting(one.name);
    require(setting != nullptr && (setting->in_option_list || (of_file && setting->in_file)));
    require(of_file || setting->kind != SettingKind::kFlag || one.value.empty());
  }
}

bool reads_file(std::string_view text) {
  KernelOptions kernel;
  std::vector<Assignment> settings;
  std::string problem;
  if (!parse_config_file(text, "FILE", kernel, settings, problem).ok()) {
    require(problem.starts_with("FILE: line "));
    return false;
  }
  check_settings(settings, true);
  return true;
}

bool reads_options(std::string_view text) {
  if (const auto words = split_options(text); words.ok())
    require(*split_options(list_of(*words)) == *words);
  KernelOptions kernel;
  std::vector<Assignment> settings;
  std::string problem;
  if (!parse_mount_options(text, kernel, settings, problem).ok()) {
    require(!problem.empty());
    return false;
  }
  check_settings(settings, false);
  KernelOptions again;
  std::vector<Assignment> none;
  require(parse_mount_options(list_of(kernel_option_words(kernel)), again, none, problem).ok());
  require(again == kernel && none.empty());
  return true;
}

bool reads_value(std::string_view text) {
  bool accepted = false;
  for (const Setting& setting : settings()) {
    Config config;
    std::string problem;
    const Result<void> set = setting.set(config, text, problem);
    accepted = accepted || set.ok();
    if (set.ok()) continue;
    require(!problem.empty());
    require(set.error().code == EINVAL || set.error().code == ERANGE);
  }
  return accepted;
}

bool reads_table(std::string_view text) {
  const std::vector<MountEntry> table = parse_mount_table(text);
  for (const MountEntry& entry : table) {
    require(entry.point.size() + entry.source.size() + entry.type.size() < text.size());
    require(mount_on(table, entry.point)->point == entry.point);
    require(mount_of(table, entry.point)->point.size() >= entry.point.size());
    require(path_on_filesystem(table, entry.point).has_value());
  }
  return !table.empty();
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

// A word a line. The source is one value of one option, whatever its name holds.
bool reads_words(std::string_view text) {
  std::string problem;
  const auto words = parse_helper_arguments(lines_of(text), problem);
  if (!words.ok()) {
    require(!problem.empty());
    return false;
  }
  const std::vector<std::string> command = mount_command(*words);
  const bool has_options = !words->options.empty();
  const bool has_source = command.size() == (has_options ? 6U : 4U);
  require(has_source || command.size() == (has_options ? 4U : 2U));
  require(command.front() == "mount" && command.back() == words->directory);
  if (has_options) require(command[command.size() - 2] == words->options);
  if (has_source)
    require(*split_options(command[2]) == std::vector<std::string>{"nvme=" + words->source});
  return true;
}

// The list, and behind a line break the options in force.
bool reads_remount(std::string_view text) {
  const std::size_t end = text.find('\n');
  const std::string options(text.substr(0, end));
  const std::string in_force(end == text.npos ? std::string_view{} : text.substr(end + 1));
  std::string problem;
  const auto remount = parse_remount(options, in_force, problem);
  require(remount.ok() || !problem.empty());
  return remount.ok() && remount->has_value();
}

}  // namespace

bool config(std::string_view input) {
  const auto [reader, unused, rest] = choose(input, 6);
  switch (reader) {
    case 0:
      return reads_file(rest);
    case 1:
      return reads_options(rest);
    case 2:
      return reads_value(rest);
    case 3:
      return reads_table(rest);
    case 4:
      return reads_words(rest);
    default:
      return reads_remount(rest);
  }
}

}  // namespace kvcachefs::fuzz
