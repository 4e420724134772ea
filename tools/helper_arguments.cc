#include "tools/helper_arguments.h"

#include <fmt/format.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "fs/mount_options.h"
#include "fs/refuse.h"

namespace kvcachefs {
namespace {

struct Flag {
  std::string_view word;
  unsigned long set;
  unsigned long clear;
};
constexpr std::array kFlags = {
    Flag{"ro", MS_RDONLY, 0},
    Flag{"rw", 0, MS_RDONLY},
    Flag{"nosuid", MS_NOSUID, 0},
    Flag{"suid", 0, MS_NOSUID},
    Flag{"nodev", MS_NODEV, 0},
    Flag{"dev", 0, MS_NODEV},
    Flag{"noexec", MS_NOEXEC, 0},
    Flag{"exec", 0, MS_NOEXEC},
    Flag{"noatime", MS_NOATIME, 0},
    Flag{"atime", 0, MS_NOATIME},
    Flag{"relatime", MS_RELATIME, MS_NOATIME},
    Flag{"strictatime", MS_STRICTATIME, MS_NOATIME | MS_RELATIME},
    Flag{"nosymfollow", MS_NOSYMFOLLOW, 0},
    Flag{"symfollow", 0, MS_NOSYMFOLLOW},
    Flag{"nodiratime", MS_NODIRATIME, 0},
    Flag{"diratime", 0, MS_NODIRATIME},
    Flag{"sync", MS_SYNCHRONOUS, 0},
    Flag{"async", 0, MS_SYNCHRONOUS},
    Flag{"dirsync", MS_DIRSYNC, 0},
};

bool apply_flag(std::string_view word, unsigned long& flags) {
  for (const Flag& flag : kFlags) {
    if (flag.word == word) {
      flags = (flags & ~flag.clear) | flag.set;
      return true;
    }
  }
  return false;
}

// What FUSE itself shows among a mount's options, and mount(8) repeats at a remount.
constexpr std::array<std::string_view, 4> kShownByFuse = {"user_id", "group_id", "max_read",
                                                          "blksize"};

bool is_shown_by_fuse(std::string_view name) {
  return std::find(kShownByFuse.begin(), kShownByFuse.end(), name) != kShownByFuse.end();
}

bool says_nothing(std::string_view source) {
  return source.empty() || source == "none" || source == "kvcachefs" || source == "fuse";
}

}  // namespace

Result<HelperArguments> parse_helper_arguments(const std::vector<std::string>& words,
                                               std::string& problem) {
  HelperArguments out;
  std::vector<std::string> positional;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || word[0] != '-') {
      positional.push_back(word);
      continue;
    }
    for (std::size_t at = 1; at < word.size(); ++at) {
      const char letter = word[at];
      if (letter == 'o' || letter == 'N' || letter == 't') {
        std::string value = word.substr(at + 1);
        if (value.empty()) {
          if (++i >= words.size()) {
            return refuse(
                problem,
                fmt::format("-{}: a value is missing: see man mount.kvcachefs", letter));
          }
          value = words[i];
        }
        if (letter == 'o') {
          if (!out.options.empty()) out.options += ',';
          out.options += value;
        } else if (letter == 'N') {
          out.mount_namespace = value;
        }
        break;
      }
      switch (letter) {
        case 'f':
          out.fake = true;
          break;
        case 'v':
          out.verbose = true;
          break;
        case 's':  // sloppy: unknown options are refused all the same, they would be typing
                   // errors
        case 'n':  // no /etc/mtab: there is none
        case 'r':
        case 'w':
          if (letter == 'r') out.options += out.options.empty() ? "ro" : ",ro";
          break;
        default:
          return refuse(problem,
                        fmt::format("-{}: no such option: see man mount.kvcachefs", letter));
      }
    }
  }
  if (positional.size() != 2) {
    return refuse(problem,
                  "usage: mount.kvcachefs DIR MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] "
                  "[-t TYPE]");
  }
  out.source = positional[0];
  out.directory = positional[1];
  return out;
}

std::vector<std::string> mount_command(const HelperArguments& arguments) {
  std::vector<std::string> command = {"mount"};
  if (!arguments.options.empty()) {
    command.emplace_back("-o");
    command.push_back(arguments.options);
  }
  if (!says_nothing(arguments.source)) {
    // Before what the options name: the source is the first device.
    std::string list = "nvme=";
    for (const char c : arguments.source) {
      if (c == ',' || c == '\\' || c == '"') list += '\\';
      list += c;
    }
    command.insert(command.begin() + 1, {"-o", list});
  }
  command.push_back(arguments.directory);
  return command;
}

Result<std::optional<Remount>> parse_remount(const std::string& options,
                                             const std::string& in_force,
                                             std::string& problem) {
  const auto words = split_options(options);
  if (!words) return refuse(problem, fmt::format("-o {}: a quote without an end", options));
  if (std::find(words->begin(), words->end(), "remount") == words->end()) {
    return std::optional<Remount>{};
  }
  Remount out{.flags = MS_REMOUNT};
  const auto current = split_options(in_force);
  if (current) {
    for (const std::string& word : *current) apply_flag(word, out.flags);
  }
  const unsigned long before = out.flags;
  for (const std::string& word : *words) {
    const std::string name = word.substr(0, word.find('='));
    if (word == "remount" || is_mount_table_word(name) || is_shown_by_fuse(name)) continue;
    if (word == "rw") out.asks_write = true;
    if (apply_flag(word, out.flags)) continue;
    // mount(8) repeats the settings of the fstab line; they stay what they are.
    KernelOptions unused;
    std::vector<Assignment> settings;
    TRY(parse_mount_options(word, unused, settings, problem));
  }
  // The files' own were opened with the mount, and would stay as they are.
  constexpr unsigned long kAccessTimes = MS_NOATIME | MS_NODIRATIME | MS_STRICTATIME;
  if (!in_force.empty() && ((before ^ out.flags) & kAccessTimes) != 0) {
    return refuse(problem, fmt::format("-o {}: a running mount keeps its access times: unmount "
                                       "it, and mount it with these options",
                                       options));
  }
  return std::optional<Remount>{out};
}

}  // namespace kvcachefs
