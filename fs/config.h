// Every setting of a mount: one name, default, unit and bound each, and the sources they come
// from.
//
// Sources, the later ones win: the TOML file (--config), `-o` lists, the command line. A
// setting that is a list (nvme) is replaced as a whole by the later source.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/log.h"
#include "backend/base/result.h"
#include "backend/base/units.h"
#include "backend/pool/pool_uri.h"
#include "fs/known/direct_io.h"
#include "fs/known/keepers.h"
#include "fs/metrics_address.h"
#include "fs/mount_options.h"
#include "fs/pool/pool_options.h"
#include "fs/verify_mode.h"

namespace kvcachefs {

// How the bytes of local files reach their readers.
enum class DataPathChoice : std::uint8_t { kAuto, kPassthrough, kDaemon };
// How requests reach the daemon.
enum class TransportChoice : std::uint8_t { kAuto, kUring, kDev };

struct DeviceSetting {
  std::string path;
  std::optional<SizeLimit> size;  // nullopt: 80 % of what is free or ours (fs/budget/room.h)
  // As the user wrote it, for `status`.
  std::string size_text;
};

// Bounds and defaults. Why each bound is where it is stands in settings().
inline constexpr std::size_t kMaxDevices = 64;
inline constexpr std::uint64_t kMinDeviceSize = 64 * kMiB;
inline constexpr std::uint64_t kMinMetadataMemory = 32 * kMiB;
inline constexpr std::uint64_t kMaxMetadataMemory = 512 * kMiB;
inline constexpr std::uint64_t kMinRingMemory = 4 * kMiB;
inline constexpr std::uint64_t kMaxRingMemory = 4 * kGiB;
inline constexpr std::chrono::seconds kMaxStopTimeout{600};
inline constexpr std::chrono::seconds kMinLease{1};
inline constexpr std::chrono::seconds kMaxLease{3600};
// Slower, a pass takes years; faster, it is no background.
inline constexpr std::uint64_t kMinScrub = 64 * kKiB;
inline constexpr std::uint64_t kMaxScrub = 4 * kGiB;
// Less holds no block; more of the memory than half is for the runtimes.
inline constexpr std::uint64_t kMinStage = kMiB;
inline constexpr std::uint32_t kMaxStagePercent = 50;

struct Config {
  std::vector<DeviceSetting> nvme;
  std::string state;  // empty until finish_config(): `<first nvme>/state`
  bool state_is_default = true;
  bool allow_other = false;
  bool nonempty = false;        // takes directories that hold other things
  bool insecure_paths = false;  // takes directories that others can write to or replace
  bool idmap = false;           // can be mounted once more with other ids
  DataPathChoice data_path = DataPathChoice::kAuto;
  TransportChoice transport = TransportChoice::kAuto;
  bool keep_by_default = false;  // policy keep
  Keepers keepers;               // keep-by
  VerifyMode verify = VerifyMode::kOpen;
  std::uint64_t scrub = 8 * kMiB;  // bytes a second; 0: off
  // Most that is read ahead for lookups, of this machine's memory; nullopt: nothing is.
  std::optional<SizeLimit> stage = SizeLimit{.bytes = 0, .percent = 5};
  DirectIo direct_io = DirectIo::kPass;
  std::string log_file;  // empty: standard error
  LogLevel log_level = LogLevel::kInfo;
  bool foreground = false;
  std::optional<MetricsAddress> metrics;  // nullopt: none are served
  std::uint64_t metadata_memory = 256 * kMiB;
  std::uint64_t ring_memory = 256 * kMiB;
  // How long a stop waits for the users of a busy mount.
  std::chrono::nanoseconds stop_timeout = std::chrono::seconds{20};
  // Of each device's filesystem, whoever fills it.
  SizeLimit min_free{.bytes = 0, .percent = 5};
  // How long what was found stays readable.
  std::chrono::nanoseconds lease = std::chrono::seconds{60};
  std::optional<PoolUri> pool;  // nullopt: none
  std::string pool_text;        // as the user wrote it, for `status`
  PoolOptions pool_options;
  KernelOptions kernel;
  std::string mountpoint;
  // The assignments of all sources that count, in their order.
  std::vector<Assignment> said;
  // What --insecure-paths has let through: a line each, to be said at the start.
  std::vector<std::string> warnings;
};

enum class SettingKind : std::uint8_t { kFlag, kValue, kList };

struct Setting {
  std::string_view name;        // with dashes; `-o` and TOML also take underscores
  std::string_view value_name;  // for help; empty for a flag
  SettingKind kind;
  bool in_option_list;  // may stand in -o
  bool in_file;         // may stand in the TOML file
  std::string_view help;
  // Errors: EINVAL, ERANGE; `problem` holds the bad value and what to write instead.
  Result<void> (*set)(Config& config, std::string_view value, std::string& problem);
};

[[nodiscard]] std::span<const Setting> settings() noexcept;
[[nodiscard]] const Setting* find_setting(std::string_view name) noexcept;

// The assignments in a TOML document; `file` is for messages. A key `options` holds a list as
// `-o` takes it (a string, or an array of them); a setting with a key of its own wins over it.
// Errors: EINVAL (syntax, an unknown key, a wrong type).
Result<void> parse_config_file(std::string_view text, const std::string& file,
                               KernelOptions& kernel, std::vector<Assignment>& out,
                               std::string& problem);

struct ConfigSources {
  std::string directory;  // where a relative name of a file begins; empty: the process' own
  std::vector<std::string> option_lists;  // each -o, in order
  std::vector<Assignment> command_line;   // in order
  std::string mountpoint;
};

// Merges all sources, reads the file that one of them names, and checks the whole: at least one
// device, absolute paths that go together (config_paths.h). Changes nothing. Errors: EINVAL,
// ERANGE, and what reading the file gives. `problem` names the option, the value and the fix.
Result<Config> load_config(const ConfigSources& sources, std::string& problem);

// The same without a look at the paths: they are as they were written. For a daemon that runs,
// whose paths do not change.
Result<Config> read_settings(const ConfigSources& sources, std::string& problem);

// Where the log goes, and from which level on: in the background without a file nowhere.
[[nodiscard]] LogTarget log_target(const Config& config);

// The path without symlinks, `.`, `..` and slashes at its end. The last component need not be
// there, and a mount that stands on it is not asked: a dead or hung mount point can be named.
// Errors: as realpath(3).
Result<std::string> canonical_path(const std::string& path);

[[nodiscard]] std::string_view name_of(DataPathChoice choice) noexcept;
[[nodiscard]] std::string_view name_of(TransportChoice choice) noexcept;

}  // namespace kvcachefs
