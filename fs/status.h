// What `kvcachefs status` shows: collected by the daemon, sent as JSON, shown as JSON or as
// text.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/base/result.h"
#include "backend/pool/pool_service.h"
#include "backend/tier.h"
#include "fs/stats.h"
#include "fs/volume.h"

namespace kvcachefs {

struct TierStatus {
  std::string kind;
  std::string path;
  std::string uuid;
  std::uint64_t size_limit = 0;           // bytes; 0: none was given
  std::string size_limit_text;            // as it was given
  std::optional<std::uint64_t> capacity;  // of the filesystem below; absent: it does not answer
  std::optional<std::uint64_t> free;
  std::optional<std::uint64_t> objects;  // absent: they are being counted
  DeviceRoom room = {};
  DeviceState state = DeviceState::kWell;
  double stalled_s = 0;  // for so long it has taken no writes, without an error; 0: it does
  double silent_s = 0;   // the same of what it was asked for
  // Written to the block device below since it is there, by anybody; absent: it does not say.
  std::optional<std::uint64_t> device_written = {};
};

struct PoolStatusReport {
  std::string uri;
  PoolServiceReport service;
  PoolHealth health;
  PoolCounts counts;
  std::uint64_t most_read =
      0;  // bytes that may be under way from it (backend/pool/pool_governor.h)
  std::uint64_t most_written = 0;
};

struct StatusReport {
  pid_t pid = 0;
  std::string mountpoint;
  std::string state;
  std::optional<std::uint64_t> state_free =
      {};                      // bytes on its filesystem; absent: it does not answer
  double state_stalled_s = 0;  // as TierStatus::stalled_s
  double uptime_s = 0;
  double lease_s = 0;
  bool read_only = false;
  std::string phase;      // serving, or stopping
  std::string data_path;  // passthrough, daemon
  std::string data_path_why;
  std::string transport;  // io_uring, dev_fuse
  std::string transport_why;
  RecoveryReport recovery;
  std::vector<TierStatus> tiers;
  VolumeCounts counts;
  std::vector<OperationStats> operations;
  std::uint64_t refused_calls = 0;           // Refusals::calls
  std::optional<double> refused_ago_s = {};  // since the last one; absent: there was none
  std::vector<Use> uses;
  std::vector<TenantReport> tenants;
  DropCounts drops;
  std::optional<PoolStatusReport> pool = {};  // absent: there is none
};

// One tier, from what it says of itself and of the filesystem below.
[[nodiscard]] TierStatus tier_status(Tier& tier, std::string size_limit_text);

// One line.
[[nodiscard]] std::string status_json(const StatusReport& report);
// For people: is it well, how are the bytes served and why, how full is it, how fast is it. A
// key that the daemon (of another version) did not send is left out. Errors: EBADMSG (not a
// status).
Result<std::string> status_text(std::string_view json);

}  // namespace kvcachefs
