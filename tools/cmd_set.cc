// kvcachefs set PATH KEY=VALUE..., kvcachefs pin PATH, kvcachefs unpin PATH: what may be done
// with a file, as xattrs of it. They go through the mount, so whoever may write the file, or
// owns the directory, may say so.
#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "backend/base/unique_fd.h"
#include "backend/base/visible.h"
#include "fs/known/file_policy.h"
#include "fs/mount_table.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/mount_path.h"

namespace kvcachefs {
namespace {

struct SetArguments {
  std::string path;
  std::vector<std::string> words;
};

struct Key {
  std::string_view name;
  std::string_view xattr;
  const char* values;
};
constexpr std::array<Key, 6> kKeys{
    {{"policy", kPolicyXattr, "cache, process, keep or pin"},
     {"ttl", kTtlXattr, "1s to 3650d, like 90s, 12h or 7d"},
     {"share", kShareXattr, "a size from 1MiB on, like 200GiB, or 1% to 100% of the budget"},
     {"quota", kQuotaXattr, "a size from 1MiB on, like 500GiB"},
     {"odirect", kDirectIoXattr, "pass or refuse"},
     {"pool-writes", kPoolWritesXattr, "all, reused or off"}}};

bool is_good_value(std::string_view xattr, const std::string& value) {
  if (xattr == kPolicyXattr) return parse_policy(value).has_value();
  if (xattr == kTtlXattr) return parse_ttl(value).ok();
  if (xattr == kShareXattr) return parse_share(value).ok();
  if (xattr == kDirectIoXattr) return parse_direct_io(value).has_value();
  if (xattr == kPoolWritesXattr) return parse_pool_writes(value).has_value();
  return parse_quota(value).ok();
}

struct KeyValue {
  const Key* key = nullptr;
  std::string value;  // empty: what was told is taken back
};

// Checks before anything is set. False: `problem` says why.
bool parse(const std::string& word, KeyValue& out, std::string& problem) {
  const std::size_t equals = word.find('=');
  for (const Key& key : kKeys)
    if (equals != std::string::npos && word.substr(0, equals) == key.name) out.key = &key;
  if (out.key == nullptr) {
    problem = fmt::format(
        "set: {}: write policy=POLICY, ttl=TIME, share=SIZE, quota=SIZE, odirect=HOW or "
        "pool-writes=WHAT",
        visible(word));
    return false;
  }
  out.value = word.substr(equals + 1);
  const bool is_good = out.value.empty() || is_good_value(out.key->xattr, out.value);
  if (!is_good) problem = fmt::format("set: {}: give {}", visible(word), out.key->values);
  return is_good;
}

std::string failure(const char* command, const std::string& path, std::string_view xattr,
                    int error) {
  const char* what = "see setfattr(1)";
  if (error == EACCES || error == EPERM)
    what = is_term(xattr) ? "only root may set this"
                          : "whoever may write a file, or owns a directory, may set this; to "
                            "keep files, where the mount's --keep-by allows it";
  if (error == ENOTDIR)
    what = "shares, quotas, odirect and pool-writes are told to directories";
  if (error == ENOSPC) what = "62 directories have a share or a quota, or the disk is full";
  if (error == EROFS) what = "mounted read-only";
  if (error == ENODATA) what = "it was told none itself: see kvcachefs explain";
  return fmt::format("{}: {}: {}: {}", command, visible(path), std::strerror(error), what);
}

// What a path names, held: who may write into the mount may put a symlink there that leads out of it, or
// change it between a look and an act. Other files' xattrs are not ours to write.
struct Target {
  std::string path;  // as the user said it
  UniqueFd fd;       // O_PATH
  [[nodiscard]] std::string handle() const { return fmt::format("/proc/self/fd/{}", fd.get()); }
};

// nullopt: the reason was said.
std::optional<Target> find_target(const char* command, const std::string& path) {
  std::string problem;
  if (!find_mount_path(path, problem).ok()) {
    complain(problem);
    return std::nullopt;
  }
  Target target{.path = path, .fd = UniqueFd(::open(path.c_str(), O_PATH | O_CLOEXEC))};
  if (!target.fd) {
    complain(fmt::format("{}: {}: {}: name a file or directory of a mount", command,
                         visible(path), std::strerror(errno)));
    return std::nullopt;
  }
  struct stat status {};
  const Result<std::vector<MountEntry>> table = read_mount_table();
  const bool is_ours = ::fstat(target.fd.get(), &status) == 0 && table.ok() &&
                       std::any_of(table->begin(), table->end(), [&](const MountEntry& entry) {
                         return entry.device == status.st_dev && entry.is_ours();
                       });
  if (is_ours) return target;
  complain(fmt::format("{}: {}: leads out of the mount: name the file itself", command,
                       visible(path)));
  return std::nullopt;
}

bool apply(const char* command, const Target& target, const KeyValue& setting) {
  const std::string xattr(setting.key->xattr);
  const std::string handle = target.handle();
  const int done = setting.value.empty()
                       ? ::removexattr(handle.c_str(), xattr.c_str())
                       : ::setxattr(handle.c_str(), xattr.c_str(), setting.value.data(),
                                    setting.value.size(), 0);
  if (done == 0) return true;
  complain(failure(command, target.path, xattr, errno));
  return false;
}

int set(const SetArguments& arguments) {
  std::vector<KeyValue> settings;
  for (const std::string& word : arguments.words) {
    std::string problem;
    KeyValue setting;
    if (!parse(word, setting, problem)) {
      complain(problem);
      return kExitUsage;
    }
    const bool is_twice =
        std::any_of(settings.begin(), settings.end(),
                    [&](const KeyValue& earlier) { return earlier.key == setting.key; });
    if (is_twice) {
      complain(fmt::format("set: {}: {} is given twice", visible(word), setting.key->name));
      return kExitUsage;
    }
    settings.push_back(std::move(setting));
  }
  const std::optional<Target> target = find_target("set", arguments.path);
  if (!target) return kExitFailed;
  for (const KeyValue& setting : settings)
    if (!apply("set", *target, setting)) return kExitFailed;
  return kExitOk;
}

int pin(const std::string& path) {
  const std::optional<Target> target = find_target("pin", path);
  if (!target) return kExitFailed;
  return apply("pin", *target, {.key = &kKeys[0], .value = "pin"}) ? kExitOk : kExitFailed;
}

// Leaves another policy as it is.
int unpin(const std::string& path) {
  const std::optional<Target> target = find_target("unpin", path);
  if (!target) return kExitFailed;
  std::array<char, 16> value{};
  const std::string xattr(kPolicyXattr);
  const ssize_t length =
      ::getxattr(target->handle().c_str(), xattr.c_str(), value.data(), value.size());
  const std::string_view policy(value.data(),
                                length > 0 ? static_cast<std::size_t>(length) : 0);
  if (length >= 0 && policy != "pin") {
    complain(
        fmt::format("unpin: {}: it is not pinned, its policy is {}", visible(path), policy));
    return kExitFailed;
  }
  return apply("unpin", *target, {.key = &kKeys[0], .value = {}}) ? kExitOk : kExitFailed;
}

void add_path(CLI::App& command, std::string& path) {
  command.add_option("PATH", path, "A file or directory in a mount")->required()->type_name("");
}

}  // namespace

void add_set(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<SetArguments>();
  CLI::App* command = app.add_subcommand(
      "set", "Says what may be done with a file, or with all below a directory");
  add_path(*command, arguments->path);
  command
      ->add_option(
          "KEY=VALUE", arguments->words,
          wrap_help(
              "policy=cache, process, keep or pin; ttl=TIME (90s, 12h, 7d) after "
              "which it may go although there is room; share=SIZE or PERCENT of the budget "
              "that a directory has before others, quota=SIZE that it has at most (by "
              "root); odirect=pass or refuse opens with O_DIRECT below a directory; "
              "pool-writes=all, reused or off: what of it is published on the pool. Without a "
              "value it is taken back"))
      ->required()
      ->type_name("");
  command->callback([arguments, &exit_code] { exit_code = set(*arguments); });

  auto pinned = std::make_shared<std::string>();
  CLI::App* pinning =
      app.add_subcommand("pin", "Keeps a file, or all below a directory, in place");
  add_path(*pinning, *pinned);
  pinning->callback([pinned, &exit_code] { exit_code = pin(*pinned); });

  auto unpinned = std::make_shared<std::string>();
  CLI::App* unpinning = app.add_subcommand("unpin", "Takes a pin back");
  add_path(*unpinning, *unpinned);
  unpinning->callback([unpinned, &exit_code] { exit_code = unpin(*unpinned); });
}

}  // namespace kvcachefs
