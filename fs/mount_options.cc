#include "fs/mount_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fs/config.h"
#include "fs/refuse.h"

namespace kvcachefs {
namespace {

struct KernelFlag {
  std::string_view word;
  bool KernelOptions::*field;
  bool value;
};
constexpr std::array kKernelFlags = {
    KernelFlag{"dev", &KernelOptions::dev, true},
    KernelFlag{"nodev", &KernelOptions::dev, false},
    KernelFlag{"suid", &KernelOptions::suid, true},
    KernelFlag{"nosuid", &KernelOptions::suid, false},
    // mount(8) keeps `dev` and `suid` from its helpers, because they are its own defaults.
    KernelFlag{"allow_dev", &KernelOptions::dev, true},
    KernelFlag{"allow_suid", &KernelOptions::suid, true},
    KernelFlag{"exec", &KernelOptions::exec, true},
    KernelFlag{"noexec", &KernelOptions::exec, false},
    KernelFlag{"ro", &KernelOptions::read_only, true},
    KernelFlag{"rw", &KernelOptions::read_only, false},
    KernelFlag{"nodiratime", &KernelOptions::nodiratime, true},
    KernelFlag{"diratime", &KernelOptions::nodiratime, false},
    KernelFlag{"sync", &KernelOptions::sync, true},
    KernelFlag{"async", &KernelOptions::sync, false},
    KernelFlag{"dirsync", &KernelOptions::dirsync, true},
    KernelFlag{"nosymfollow", &KernelOptions::symfollow, false},
    KernelFlag{"symfollow", &KernelOptions::symfollow, true},
};

struct AccessWord {
  std::string_view word;
  AccessTimes times;
};
constexpr std::array kAccessWords = {
    AccessWord{"noatime", AccessTimes::kNever},
    AccessWord{"relatime", AccessTimes::kRelative},
    AccessWord{"strictatime", AccessTimes::kAlways},
    AccessWord{"atime", AccessTimes::kAsBelow},
    AccessWord{"norelatime", AccessTimes::kAsBelow},
    AccessWord{"nostrictatime", AccessTimes::kAsBelow},
};

// The kernel takes them of any filesystem, and they change nothing of one in FUSE: it has no
// times of its own to put off (lazytime), no version of an inode (iversion), and no kernel has
// mandatory locks since 5.15 (mand).
constexpr std::array<std::string_view, 6> kWithoutEffect = {
    "lazytime", "nolazytime", "iversion", "noiversion", "mand", "nomand"};

// The words by which mount(8) changes a mount that is there.
constexpr std::array<std::string_view, 11> kOperations = {
    "bind",     "rbind", "move",   "shared",     "rshared",    "private",
    "rprivate", "slave", "rslave", "unbindable", "runbindable"};

// `default_permissions` stands here because it is always on.
constexpr std::array<std::string_view, 16> kTableWords = {
    "defaults", "_netdev", "nofail",  "auto",
    "noauto",   "user",    "nouser",  "users",
    "nousers",  "owner",   "noowner", "group",
    "nogroup",  "silent",  "loud",    "default_permissions"};

constexpr std::array<std::string_view, 4> kContexts = {"context", "fscontext", "defcontext",
                                                       "rootcontext"};

template <class Array>
bool contains(const Array& array, std::string_view word) {
  return std::find(array.begin(), array.end(), word) != array.end();
}

// Our names have dashes; fstab writers and libfuse have underscores: both are taken.
std::string with_dashes(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

Result<void> apply_setting_word(std::string_view word, std::string_view name, bool has_value,
                                std::string_view value, std::vector<Assignment>& settings,
                                std::string& problem) {
  const Setting* setting = find_setting(with_dashes(name));
  if (setting == nullptr || !setting->in_option_list) {
    return refuse(problem,
                  fmt::format("-o {}: no such option: see kvcachefs mount --help", word));
  }
  const bool is_flag = setting->kind == SettingKind::kFlag;
  if (is_flag && has_value) {
    return refuse(problem, fmt::format("-o {}: takes no value: write -o {}", word, name));
  }
  if (!is_flag && !has_value) {
    return refuse(problem, fmt::format("-o {}: a value is missing: write -o {}={}", word, name,
                                       setting->value_name));
  }
  settings.push_back({std::string(setting->name), std::string(value)});
  return {};
}

Result<void> apply_word(std::string_view word, KernelOptions& kernel,
                        std::vector<Assignment>& settings, std::string& problem) {
  const std::size_t equals = word.find('=');
  const bool has_value = equals != std::string_view::npos;
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = has_value ? word.substr(equals + 1) : std::string_view{};

  if (is_mount_table_word(name)) return {};
  if (!has_value) {
    if (contains(kWithoutEffect, name)) return {};
    for (const AccessWord& access : kAccessWords) {
      if (access.word == name) {
        kernel.access_times = access.times;
        return {};
      }
    }
    for (const KernelFlag& flag : kKernelFlags) {
      if (flag.word == name) {
        kernel.*flag.field = flag.value;
        return {};
      }
    }
  }
  if (contains(kContexts, name)) {
    if (value.empty()) {
      return refuse(problem,
                    fmt::format("-o {}: a label is missing: write -o {}=LABEL", word, name));
    }
    kernel.contexts.emplace_back(word);
    return {};
  }
  if (name == "remount") {
    return refuse(
        problem,
        "-o remount: a running mount is changed with mount(8): mount -o remount,ro DIR");
  }
  if (contains(kOperations, name)) {
    return refuse(problem,
                  fmt::format("-o {}: mount(8) does that with a mount that is there: see man "
                              "mount, --bind and --make-private",
                              word));
  }
  return apply_setting_word(word, name, has_value, value, settings, problem);
}

}  // namespace

bool is_mount_table_word(std::string_view word) noexcept {
  return word.starts_with("x-") || word.starts_with("X-") || word == "comment" ||
         contains(kTableWords, word);
}

Result<std::vector<std::string>> split_options(std::string_view list) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const char c = list[i];
    if (c == '"') {
      quoted = !quoted;
    } else if (c == '\\' && i + 1 < list.size() &&
               (list[i + 1] == ',' || list[i + 1] == '\\' || list[i + 1] == '"')) {
      word += list[++i];
    } else if (c == ',' && !quoted) {
      if (!word.empty()) words.push_back(std::exchange(word, {}));
    } else {
      word += c;
    }
  }
  if (quoted) return fail(EINVAL, "a quote without an end");
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

Result<void> parse_mount_options(std::string_view list, KernelOptions& kernel,
                                 std::vector<Assignment>& settings, std::string& problem) {
  auto words = split_options(list);
  if (!words) {
    return refuse(problem, fmt::format("-o {}: a quote without an end: close it", list));
  }
  for (const std::string& word : *words) TRY(apply_word(word, kernel, settings, problem));
  return {};
}

std::vector<std::string> kernel_option_words(const KernelOptions& options) {
  std::vector<std::string> words = {options.suid ? "suid" : "nosuid",
                                    options.dev ? "dev" : "nodev",
                                    options.read_only ? "ro" : "rw"};
  if (!options.exec) words.emplace_back("noexec");
  if (options.access_times == AccessTimes::kNever) words.emplace_back("noatime");
  if (options.nodiratime) words.emplace_back("nodiratime");
  if (options.sync) words.emplace_back("sync");
  if (options.dirsync) words.emplace_back("dirsync");
  words.insert(words.end(), options.contexts.begin(), options.contexts.end());
  return words;
}

}  // namespace kvcachefs
