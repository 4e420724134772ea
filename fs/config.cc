#include "fs/config.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/base/unique_fd.h"
#include "fs/config_paths.h"
#include "fs/refuse.h"

namespace kvcachefs {
namespace {

// A configuration file is a few lines; anything longer is the wrong file.
constexpr std::size_t kMaxFileBytes = 1 << 20;

// ---- one setter a setting
// ----------------------------------------------------------------------

Result<void> set_nvme(Config& config, std::string_view value, std::string& problem) {
  DeviceSetting device{.path = std::string(value), .size = std::nullopt, .size_text = {}};
  // A digit after the last colon makes it a size; a directory with such a name takes a slash at
  // its end.
  const std::size_t colon = value.rfind(':');
  if (colon != std::string_view::npos && colon + 1 < value.size() &&
      value.find('/', colon) == std::string_view::npos && value[colon + 1] >= '0' &&
      value[colon + 1] <= '9') {
    const std::string_view size = value.substr(colon + 1);
    const auto limit = parse_size_limit(size, kMinDeviceSize);
    if (!limit) {
      if (limit.error().code == ERANGE) {
        return refuse(
            problem,
            fmt::format("'{}' is out of bounds: give 64MiB to 8EiB, or 1% to 100%; or end a "
                        "directory that is called so with a slash",
                        size),
            ERANGE);
      }
      return refuse(
          problem,
          fmt::format("'{}' is not a size: write DIR:2TiB, DIR:500GB or DIR:80%", size));
    }
    device.path = std::string(value.substr(0, colon));
    device.size = *limit;
    device.size_text = std::string(size);
  }
  if (device.path.empty()) {
    return refuse(problem,
                  fmt::format("'{}' names no directory: write DIR or DIR:SIZE", value));
  }
  if (config.nvme.size() >= kMaxDevices) {
    return refuse(
        problem,
        fmt::format("more than {} devices: join some below one filesystem", kMaxDevices),
        ERANGE);
  }
  config.nvme.push_back(std::move(device));
  return {};
}

Result<void> set_state(Config& config, std::string_view value, std::string& problem) {
  if (value.empty()) return refuse(problem, "'' names no directory: write state=DIR");
  config.state = std::string(value);
  return {};
}

// A flag in a file may be `false`.
template <bool Config::*field>
Result<void> set_flag(Config& config, std::string_view value, std::string& problem) {
  if (!value.empty() && value != "true" && value != "false") {
    return refuse(problem, fmt::format("'{}' is not true or false", value));
  }
  config.*field = value != "false";
  return {};
}

Result<void> set_data_path(Config& config, std::string_view value, std::string& problem) {
  for (const auto choice :
       {DataPathChoice::kAuto, DataPathChoice::kPassthrough, DataPathChoice::kDaemon}) {
    if (value == name_of(choice)) {
      config.data_path = choice;
      return {};
    }
  }
  return refuse(problem,
                fmt::format("'{}' is no data path: say auto, passthrough or daemon", value));
}

Result<void> set_transport(Config& config, std::string_view value, std::string& problem) {
  for (const auto choice :
       {TransportChoice::kAuto, TransportChoice::kUring, TransportChoice::kDev}) {
    if (value == name_of(choice)) {
      config.transport = choice;
      return {};
    }
  }
  return refuse(problem, fmt::format("'{}' is no transport: say auto, uring or dev", value));
}

Result<void> set_policy(Config& config, std::string_view value, std::string& problem) {
  if (value != "cache" && value != "keep") {
    return refuse(problem, fmt::format("'{}' is no policy: say cache or keep", value));
  }
  config.keep_by_default = value == "keep";
  return {};
}

Result<void> set_verify(Config& config, std::string_view value, std::string& problem) {
  constexpr std::array<std::pair<std::string_view, VerifyMode>, 3> kModes{
      {{"open", VerifyMode::kOpen}, {"copy", VerifyMode::kCopy}, {"off", VerifyMode::kOff}}};
  for (const auto& [name, mode] : kModes) {
    if (value == name) {
      config.verify = mode;
      return {};
    }
  }
  return refuse(problem, fmt::format("'{}' is no way to verify: say open, copy or off", value));
}

Result<void> set_log(Config& config, std::string_view value, std::string& problem) {
  if (value.empty())
    return refuse(problem, "'' names no file: write log=FILE, or leave it out");
  config.log_file = std::string(value);
  return {};
}

Result<void> set_log_level(Config& config, std::string_view value, std::string& problem) {
  constexpr std::array<std::pair<std::string_view, LogLevel>, 5> kLevels{
      {{"debug", LogLevel::kDebug},
       {"info", LogLevel::kInfo},
       {"warn", LogLevel::kWarn},
       {"error", LogLevel::kError},
       {"off", LogLevel::kOff}}};
  for (const auto& [name, level] : kLevels) {
    if (value == name) {
      config.log_level = level;
      return {};
    }
  }
  return refuse(problem,
                fmt::format("'{}' is no level: say debug, info, warn, error or off", value));
}

Result<void> set_bytes(std::uint64_t& field, std::string_view value, std::uint64_t min,
                       std::uint64_t max, std::string& problem) {
  const auto size = parse_size(value, min, max);
  if (!size) {
    if (size.error().code == ERANGE) {
      return refuse(problem,
                    fmt::format("'{}' is out of bounds: give {} to {}", value, format_size(min),
                                format_size(max)),
                    ERANGE);
    }
    return refuse(problem, fmt::format("'{}' is not a size: write 256MiB", value));
  }
  field = *size;
  return {};
}

Result<void> set_metadata_memory(Config& config, std::string_view value, std::string& problem) {
  return set_bytes(config.metadata_memory, value, kMinMetadataMemory, kMaxMetadataMemory,
                   problem);
}

Result<void> set_ring_memory(Config& config, std::string_view value, std::string& problem) {
  return set_bytes(config.ring_memory, value, kMinRingMemory, kMaxRingMemory, problem);
}

Result<void> set_scrub(Config& config, std::string_view value, std::string& problem) {
  if (value == "off") {
    config.scrub = 0;
    return {};
  }
  const Result<void> set = set_bytes(config.scrub, value, kMinScrub, kMaxScrub, problem);
  if (!set.ok()) problem += ", or off";
  return set;
}

Result<void> set_stage(Config& config, std::string_view value, std::string& problem) {
  if (value == "off") {
    config.stage.reset();
    return {};
  }
  const auto limit = parse_size_limit(value, kMinStage);
  if (!limit && limit.error().code != ERANGE)
    return refuse(problem, fmt::format("'{}' is not a size: write 4GiB, 5% or off", value));
  if (!limit || limit->percent > kMaxStagePercent) {
    return refuse(
        problem,
        fmt::format("'{}' is out of bounds: give 1MiB to 8EiB, 1% to 50%, or off", value),
        ERANGE);
  }
  config.stage = *limit;
  return {};
}

Result<void> set_direct_io(Config& config, std::string_view value, std::string& problem) {
  const auto direct_io = parse_direct_io(value);
  if (!direct_io)
    return refuse(problem, fmt::format("'{}' is neither: say pass or refuse", value));
  config.direct_io = *direct_io;
  return {};
}

Result<void> set_duration(std::chrono::nanoseconds& field, std::string_view value,
                          std::chrono::nanoseconds min, std::chrono::nanoseconds max,
                          std::string_view bounds, std::string_view example,
                          std::string& problem) {
  const auto duration = parse_duration(value, min, max);
  if (!duration) {
    if (duration.error().code == ERANGE) {
      return refuse(problem, fmt::format("'{}' is out of bounds: give {}", value, bounds),
                    ERANGE);
    }
    return refuse(problem, fmt::format("'{}' is not a duration: write {}", value, example));
  }
  field = *duration;
  return {};
}

Result<void> set_stop_timeout(Config& config, std::string_view value, std::string& problem) {
  return set_duration(config.stop_timeout, value, std::chrono::nanoseconds{0}, kMaxStopTimeout,
                      "0s to 10min", "20s or 1min", problem);
}

Result<void> set_lease(Config& config, std::string_view value, std::string& problem) {
  return set_duration(config.lease, value, kMinLease, kMaxLease, "1s to 1h", "60s or 5min",
                      problem);
}

Result<void> set_min_free(Config& config, std::string_view value, std::string& problem) {
  const auto limit = parse_size_limit(value, 0);
  if (!limit && limit.error().code != ERANGE)
    return refuse(problem, fmt::format("'{}' is not a size: write 50GiB or 5%", value));
  const bool is_few_bytes = limit.ok() && limit->bytes > 0 && limit->bytes < kMiB;
  if (!limit || limit->percent > 50 || is_few_bytes) {
    return refuse(
        problem,
        fmt::format("'{}' is out of bounds: give 0, a size from 1MiB on, or 1% to 50%", value),
        ERANGE);
  }
  config.min_free = *limit;
  return {};
}

Result<void> set_metrics(Config& config, std::string_view value, std::string& problem) {
  config.metrics = parse_metrics_address(value);
  if (config.metrics) return {};
  return refuse(problem,
                fmt::format("'{}' is no address: write metrics=PORT or metrics=HOST:PORT, "
                            "[::1]:9100 for IPv6",
                            value));
}

Result<void> set_pool(Config& config, std::string_view value, std::string& problem) {
  const Result<PoolUri> uri = parse_pool_uri(value);
  if (!uri.ok())
    return refuse(problem, fmt::format("'{}': {}: write dir:///PATH or nfs://HOST/EXPORT",
                                       value, uri.error().what));
  config.pool = *uri;
  config.pool_text = std::string(value);
  return {};
}

Result<void> set_pool_writes(Config& config, std::string_view value, std::string& problem) {
  const std::optional<PoolWrites> writes = parse_pool_writes(value);
  if (!writes)
    return refuse(problem, fmt::format("'{}' is none of them: say all, reused or off", value));
  config.pool_options.writes = *writes;
  return {};
}

Result<void> set_pool_size(Config& config, std::string_view value, std::string& problem) {
  return set_bytes(config.pool_options.size, value, kMinPoolSize, kMaxPoolSize, problem);
}

Result<void> set_pool_queue(Config& config, std::string_view value, std::string& problem) {
  const std::size_t colon = value.find(':');
  const Result<void> sized = set_bytes(config.pool_options.queue_bytes, value.substr(0, colon),
                                       kMinPoolQueue, kMaxPoolSize, problem);
  if (colon == std::string_view::npos) return sized;
  if (!sized.ok())
    return refuse(problem, fmt::format("'{}': {}", value, problem), sized.error().code);
  const std::string_view text = value.substr(colon + 1);
  std::uint64_t files = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), files);
  if (error != std::errc{} || end != text.data() + text.size())
    return refuse(problem,
                  fmt::format("'{}' has no number of files: write 64GiB:100000", value));
  if (files < 1 || files > kMaxPoolQueueFiles)
    return refuse(
        problem,
        fmt::format("'{}' is out of bounds: 1 to {} files may wait", value, kMaxPoolQueueFiles),
        ERANGE);
  config.pool_options.queue_files = files;
  return {};
}

Result<void> set_pool_sync(Config& config, std::string_view value, std::string& problem) {
  if (value != "local" && value != "pool")
    return refuse(problem, fmt::format("'{}' is neither local nor pool", value));
  config.pool_options.syncs = value == "pool";
  return {};
}

Result<void> set_stage_whole(Config& config, std::string_view value, std::string& problem) {
  return set_bytes(config.pool_options.stage_whole, value, kMinStageWhole, kMaxPoolSize,
                   problem);
}

Result<void> set_pool_in_flight(Config& config, std::string_view value, std::string& problem) {
  return set_bytes(config.pool_options.in_flight, value, PoolGovernor::kLeast, kMaxPoolInFlight,
                   problem);
}

Result<void> set_pool_beat(Config& config, std::string_view value, std::string& problem) {
  return set_duration(config.pool_options.beat, value, kMinPoolBeat, kMaxPoolBeat, "50ms to 5s",
                      "500ms or 2s", problem);
}

std::optional<std::uint32_t> parse_id(std::string_view text) noexcept {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc{} || end != text.data() + text.size() || id == UINT32_MAX)
    return std::nullopt;
  return id;
}

Result<void> set_pool_owner(Config& config, std::string_view value, std::string& problem) {
  const std::size_t colon = value.find(':');
  const auto uid = parse_id(value.substr(0, colon));
  const auto gid = colon == std::string_view::npos ? uid : parse_id(value.substr(colon + 1));
  if (!uid || !gid)
    return refuse(problem, fmt::format("'{}' is no owner: write UID:GID in numbers", value));
  config.pool_options.owner_uid = *uid;
  config.pool_options.owner_gid = *gid;
  return {};
}

Result<void> set_keep_by(Config& config, std::string_view value, std::string& problem) {
  constexpr std::string_view kGroup = "group:";
  config.keepers = {.anyone = value == "anyone", .group = {}};
  if (value == "anyone" || value == "root") return {};
  if (!value.starts_with(kGroup))
    return refuse(problem,
                  fmt::format("'{}' is nobody: say anyone, root or group:NAME", value));
  const std::string name(value.substr(kGroup.size()));
  config.keepers.group = parse_id(name);
  if (config.keepers.group) return {};
  std::vector<char> buffer(std::size_t{1} << 16);
  struct group entry {};
  struct group* found = nullptr;
  if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr)
    return refuse(problem, fmt::format("'{}' names no group of this machine", value));
  config.keepers.group = found->gr_gid;
  return {};
}

// The file has been read by then.
Result<void> set_config(Config&, std::string_view value, std::string& problem) {
  if (value.empty())
    return refuse(problem, "'' names no file: write config=FILE, or leave it out");
  return {};
}

constexpr auto kFlag = SettingKind::kFlag;
constexpr auto kValue = SettingKind::kValue;
constexpr auto kList = SettingKind::kList;

// name, value, kind, may stand in -o, in the file, help, setter.
constexpr std::array kSettings = {
    Setting{"nvme", "DIR[:SIZE]", kList, true, true,
            "A directory on ext4 or xfs that holds the files' bytes; once for each device, at "
            "least "
            "one, at most 64. SIZE is how much of it may be used: 64MiB to 8EiB (2TiB, 500GB), "
            "or a "
            "share of the filesystem (80%). Default: 80% of what is free or already ours",
            set_nvme},
    Setting{
        "state", "DIR", kValue, true, true,
        "Where the metadata, the lock and the control socket live; made when it is not there, "
        "mode 0700. Default: state in the first nvme directory",
        set_state},
    Setting{
        "allow-other", "", kFlag, true, true,
        "Lets other users than the one who mounts use the mount; permissions are checked in "
        "either case. Default: off",
        set_flag<&Config::allow_other>},
    Setting{"nonempty", "", kFlag, true, true,
            "Takes a mount point, and nvme directories, that hold other things already. "
            "Default: off, "
            "they are refused",
            set_flag<&Config::nonempty>},
    Setting{"insecure-paths", "", kFlag, true, true,
            "Takes an nvme or state directory that others could replace, for they may write to "
            "one above it, and a directory of "
            "a pool that others may write to: they could read and change everybody's files. "
            "Default: off, such are refused",
            set_flag<&Config::insecure_paths>},
    Setting{
        "idmap", "", kFlag, true, true,
        "Lets the mount be id-mapped: mounted once more with other owners, as containers with "
        "users of their own do. The kernel then does not say who calls, and the daemon asks "
        "/proc. Default: off",
        set_flag<&Config::idmap>},
    Setting{"data-path", "MODE", kValue, true, true,
            "auto, passthrough (the kernel reads and writes local files itself) or daemon. "
            "Default: "
            "auto, which takes passthrough where the kernel has it",
            set_data_path},
    Setting{
        "transport", "MODE", kValue, true, true,
        "auto, uring (FUSE over io_uring) or dev (/dev/fuse). Default: auto, which takes uring "
        "where the kernel has it",
        set_transport},
    Setting{
        "policy", "POLICY", kValue, true, true,
        "What a closed file is: cache (after a power cut it is exact or gone) or keep (each "
        "close waits until the disk has it). Default: cache",
        set_policy},
    Setting{
        "keep-by", "WHO", kValue, true, true,
        "Who may say that a file is never evicted, by fsync, pin or a policy: anyone, root or "
        "group:NAME (its members, and root). Others' files are cache. Default: anyone",
        set_keep_by},
    Setting{"min-free", "SIZE", kValue, true, true,
            "What stays free on the filesystem of each nvme directory, whoever fills it: files "
            "are evicted before. 0, a size, or a share (1% to 50%). Default: 5%",
            set_min_free},
    Setting{"lease", "TIME", kValue, true, true,
            "How long a file that was looked up or opened stays readable at least, 1s to 1h. "
            "Default: 60s",
            set_lease},
    Setting{"pool", "URI", kValue, true, true,
            "A directory that several servers share: dir:///PATH (of any filesystem that is "
            "mounted on each of them) or nfs://HOST/EXPORT[/PATH]. Closed files are published "
            "there in the background, and what others have published is found. Default: none",
            set_pool},
    Setting{
        "pool-writes", "WHAT", kValue, true, true,
        "What is published on the pool: all; reused, of blocks those that are opened once more "
        "after they were stored; or off. Default: all",
        set_pool_writes},
    Setting{
        "pool-size", "SIZE", kValue, true, true,
        "What the files on the pool may add up to: what was used longest ago goes before "
        "that, but what was said to be kept. Say the same on all mounts of a pool. Default: "
        "nothing is evicted there",
        set_pool_size},
    Setting{
        "pool-queue", "SIZE[:FILES]", kValue, true, true,
        "How much may wait to be published, in bytes and in files: of what is beyond it blocks "
        "are skipped. Default: 256GiB:1000000",
        set_pool_queue},
    Setting{
        "pool-sync", "WHERE", kValue, true, true,
        "What fsync waits for: local (the disk) or pool (what was closed is published, too; "
        "of a directory all below it). Default: local",
        set_pool_sync},
    Setting{
        "stage-whole", "SIZE", kValue, true, true,
        "A file on the pool up to this size is fetched whole before an open of it returns; a "
        "larger one is read while it comes. Default: 256MiB",
        set_stage_whole},
    Setting{"pool-in-flight", "SIZE", kValue, true, true,
            "How many bytes may be under way to a pool on NFS, and as many from it, at a time; "
            "where "
            "the link is slow it is less by itself. Default: 32MiB",
            set_pool_in_flight},
    Setting{
        "pool-beat", "TIME", kValue, true, true,
        "How often the mount says on the pool that it lives, and looks which other mounts do: "
        "50ms to 5s. A mount that has begun is known to the others after their next beat. "
        "Default: 2s",
        set_pool_beat},
    Setting{"pool-owner", "UID[:GID]", kValue, true, true,
            "Whose the files on the pool are that kvcachefs did not put there; they get mode "
            "0640. Default: 0:0",
            set_pool_owner},
    Setting{
        "verify", "WHEN", kValue, true, true,
        "When the bytes of a sealed file are compared with their checksums: open (when an "
        "open finds that it is not in memory, and by the scrub), copy (when a copy moves, and "
        "by the scrub) or off. Default: open",
        set_verify},
    Setting{"scrub", "SIZE", kValue, true, true,
            "How much of the sealed files is read and verified in the background, per second: "
            "64KiB to 4GiB, or off. Default: 8MiB",
            set_scrub},
    Setting{"stage", "SIZE", kValue, true, true,
            "How much may be read ahead into memory for those who look blocks up, and not be "
            "loaded yet: a size from 1MiB on, a share of the memory (1% to 50%), or off. "
            "Default: 5%",
            set_stage},
    Setting{"odirect", "HOW", kValue, true, true,
            "Opens with O_DIRECT: pass, or refuse (EINVAL: a runtime that tries it out reads "
            "through the page cache then, where lookups have blocks read ahead). Default: pass",
            set_direct_io},
    Setting{"metadata-memory", "SIZE", kValue, true, true,
            "Memory for the database's caches and tables, 32MiB to 512MiB. Default: 256MiB",
            set_metadata_memory},
    Setting{"ring-memory", "SIZE", kValue, true, true,
            "Memory for the request buffers of the io_uring transport, 4MiB to 4GiB. Default: "
            "256MiB",
            set_ring_memory},
    Setting{"stop-timeout", "TIME", kValue, true, true,
            "How long a stop waits for the users of a busy mount before it ends without them, "
            "0s to "
            "10min. Default: 20s",
            set_stop_timeout},
    Setting{
        "log", "FILE", kValue, true, true,
        "Appends the log to FILE. Default: standard error, which is the journal under systemd; "
        "nowhere in the background",
        set_log},
    Setting{"log-level", "LEVEL", kValue, true, true,
            "debug, info, warn, error or off. Default: info", set_log_level},
    Setting{"metrics", "[HOST:]PORT", kValue, true, true,
            "Serves metrics for Prometheus at http://HOST:PORT/metrics, without encryption or "
            "passwords. "
            "HOST is 127.0.0.1 when only a port is given. Default: none",
            set_metrics},
    Setting{"foreground", "", kFlag, false, false,
            "Stays in the foreground instead of returning when the mount answers. Default: off",
            set_flag<&Config::foreground>},
    Setting{"config", "FILE", kValue, true, false,
            "Reads settings of the same names from a TOML file; -o and the command line win "
            "over it. "
            "Default: none",
            set_config},
};

// ---- merging
// -----------------------------------------------------------------------------------

// Applies one source. A list setting starts anew with its first value there.
Result<void> apply(Config& config, const std::vector<Assignment>& assignments,
                   std::string_view prefix, std::string& problem) {
  bool nvme_seen = false;
  for (const Assignment& assignment : assignments) {
    const Setting* setting = find_setting(assignment.name);
    if (setting == nullptr) {
      return refuse(problem, fmt::format("{}{}: no such option: see kvcachefs mount --help",
                                         prefix, assignment.name));
    }
    if (setting->kind == kList && !std::exchange(nvme_seen, true)) config.nvme.clear();
    std::string text;
    const auto set = setting->set(config, assignment.value, text);
    if (!set) {
      return refuse(problem, fmt::format("{}{}: {}", prefix, assignment.name, text),
                    set.error().code);
    }
  }
  return {};
}

// The value of the last `config` in the assignments; the command line wins over -o.
std::string config_file_of(const std::vector<Assignment>& options,
                           const std::vector<Assignment>& command_line) {
  std::string file;
  for (const auto* source : {&options, &command_line}) {
    for (const Assignment& assignment : *source) {
      if (assignment.name == "config") file = assignment.value;
    }
  }
  return file;
}

Result<std::string> read_file(const std::string& path, std::string& problem) {
  // A FIFO without a writer is opened at once, and refused.
  UniqueFd fd{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  struct stat status;
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    return refuse(
        problem,
        fmt::format("--config: {}: {}: name a readable TOML file", path, std::strerror(errno)),
        errno);
  }
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
    return refuse(
        problem,
        fmt::format("--config: {}: not a regular file: name a readable TOML file", path));
  std::string text;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return refuse(problem,
                    fmt::format("--config: {}: {}: name a readable TOML file", path,
                                std::strerror(errno)),
                    errno);
    }
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxFileBytes) {
      return refuse(problem,
                    fmt::format("--config: {}: longer than 1 MiB: is it the right file?", path),
                    EFBIG);
    }
  }
}

Result<void> finish(Config& config, std::string& problem) {
  if (config.mountpoint.empty()) {
    return refuse(problem, "MOUNTPOINT: is missing: say where to mount");
  }
  if (config.nvme.empty()) {
    return refuse(problem, "--nvme: is missing: name a directory on a local disk: --nvme DIR");
  }
  return finish_paths(config, problem);
}

// What says how a pool is used, without one: who wrote it has forgotten something, or means another mount.
Result<void> refuse_without_pool(const std::vector<Assignment>& assignments,
                                 std::string_view prefix, std::string& problem) {
  for (const Assignment& assignment : assignments) {
    if (!assignment.name.starts_with("pool-")) continue;
    return refuse(problem, fmt::format("{}{}: there is no --pool: name one, or leave it out",
                                       prefix, assignment.name));
  }
  return {};
}

}  // namespace

std::span<const Setting> settings() noexcept { return kSettings; }

const Setting* find_setting(std::string_view name) noexcept {
  for (const Setting& setting : kSettings) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

std::string_view name_of(DataPathChoice choice) noexcept {
  switch (choice) {
    case DataPathChoice::kAuto:
      return "auto";
    case DataPathChoice::kPassthrough:
      return "passthrough";
    case DataPathChoice::kDaemon:
      return "daemon";
  }
  return "";
}

std::string_view name_of(TransportChoice choice) noexcept {
  switch (choice) {
    case TransportChoice::kAuto:
      return "auto";
    case TransportChoice::kUring:
      return "uring";
    case TransportChoice::kDev:
      return "dev";
  }
  return "";
}

Result<std::string> canonical_path(const std::string& path) {
  if (path.empty()) return fail(ENOENT, "an empty path");
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::size_t slash = trimmed.rfind('/');
  const std::string last = slash == std::string::npos ? trimmed : trimmed.substr(slash + 1);
  // `/`, `.` and `..` have no name of their own that could be kept apart.
  const bool whole = trimmed == "/" || last == "." || last == "..";
  const std::string directory =
      whole ? trimmed : (slash == std::string::npos ? "." : trimmed.substr(0, slash + 1));
  std::array<char, PATH_MAX> resolved;
  if (::realpath(directory.c_str(), resolved.data()) == nullptr) return fail_errno("realpath");
  std::string out = resolved.data();
  if (whole) return out;
  if (out != "/") out += '/';
  out += last;
  // readlink(2) asks no mount that may stand there: it must not wait for one that hangs.
  char unused = 0;
  if (::readlink(out.c_str(), &unused, 1) < 0) return out;
  if (::realpath(out.c_str(), resolved.data()) == nullptr) return fail_errno("realpath");
  return std::string(resolved.data());
}

LogTarget log_target(const Config& config) {
  const bool is_silent = !config.foreground && config.log_file.empty();
  return {.file = config.log_file, .level = is_silent ? LogLevel::kOff : config.log_level};
}

Result<Config> read_settings(const ConfigSources& sources, std::string& problem) {
  Config config;
  config.mountpoint = sources.mountpoint;

  KernelOptions of_lists;
  std::vector<Assignment> from_lists;
  for (const std::string& list : sources.option_lists) {
    TRY(parse_mount_options(list, of_lists, from_lists, problem));
  }
  const std::string file = config_file_of(from_lists, sources.command_line);
  std::vector<Assignment> from_file;
  if (!file.empty()) {
    const bool is_relative = file.front() != '/' && !sources.directory.empty();
    const std::string text =
        TRY(read_file(is_relative ? sources.directory + "/" + file : file, problem));
    TRY(parse_config_file(text, file, config.kernel, from_file, problem));
    TRY(apply(config, from_file, file + ": ", problem));
  }
  // Again, now on top of what the file says: a list changes only the flags that it names.
  from_lists.clear();
  for (const std::string& list : sources.option_lists) {
    TRY(parse_mount_options(list, config.kernel, from_lists, problem));
  }
  TRY(apply(config, from_lists, "-o ", problem));
  TRY(apply(config, sources.command_line, "--", problem));
  if (!config.pool) {
    TRY(refuse_without_pool(from_file, file + ": ", problem));
    TRY(refuse_without_pool(from_lists, "-o ", problem));
    TRY(refuse_without_pool(sources.command_line, "--", problem));
  }
  for (auto* source :
       {&std::as_const(from_file), &std::as_const(from_lists), &sources.command_line})
    config.said.insert(config.said.end(), source->begin(), source->end());
  return config;
}

Result<Config> load_config(const ConfigSources& sources, std::string& problem) {
  Config config = TRY(read_settings(sources, problem));
  TRY(finish(config, problem));
  return config;
}

}  // namespace kvcachefs
