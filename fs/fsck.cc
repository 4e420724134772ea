// Opens what is to be checked, runs the check, and sums up.
#include "fs/fsck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/base/random.h"
#include "backend/device_dir.h"
#include "fs/check/check.h"
#include "fs/check/overlay_store.h"
#include "fs/device_list.h"
#include "fs/state_dir.h"
#include "metadata/rocksdb_store.h"

namespace kvcachefs {
namespace {

// Of fsck(8).
constexpr int kClean = 0;
constexpr int kRepaired = 1;
constexpr int kErrorsLeft = 4;
constexpr int kFailed = 8;

// What is checked, in the order of its making; it is taken apart the other way round.
struct OpenedState {
  std::unique_ptr<StateDir> state;
  Store* store = nullptr;  // the catalog's
  std::unique_ptr<Catalog> catalog;
  std::vector<std::unique_ptr<Tier>> tiers;
  std::vector<Tier*> by_index;
};

// The directories that the last mount was given; without a list the one that the state
// directory lies in, as by default.
std::vector<std::string> device_paths(const std::string& state) {
  Result<std::vector<std::string>> listed = read_device_list(state);
  if (listed.ok()) return std::move(*listed);
  return {state + "/.."};
}

Result<void> open_catalog(OpenedState& opened, bool repair, std::string& problem) {
  const std::string shown = opened.state->shown_database_path();
  std::unique_ptr<Store> store =
      TRY(RocksdbStore::open(opened.state->database_path(), RocksdbOptions{.shown_as = shown},
                             /*create=*/false, &problem));
  if (!repair) store = std::make_unique<OverlayStore>(std::move(store));
  opened.store = store.get();
  std::string why;
  Result<std::unique_ptr<Catalog>> catalog = Catalog::create(std::move(store), &why);
  if (!catalog.ok()) {
    problem = fmt::format("{}: {}", shown, why);
    return catalog.error();
  }
  opened.catalog = std::move(*catalog);
  return {};
}

Result<void> open_devices(OpenedState& opened, std::string& problem) {
  problem = fmt::format("{}: the database's own records do not read",
                        opened.state->shown_database_path());
  const DeviceUuid owner = TRY(opened.catalog->uuid());
  const std::vector<DeviceUuid> known = TRY(opened.catalog->devices());
  std::string refused;
  for (const std::string& path : device_paths(opened.state->path())) {
    OpenProblem why;
    auto device = DeviceDir::open({.path = path, .size_limit_bytes = 0, .catalog = owner},
                                  /*create_if_missing=*/false, &why);
    if (device.ok()) {
      opened.tiers.push_back(std::move(*device));
    } else {
      refused = why.text;
    }
  }
  for (const DeviceUuid& uuid : known) {
    const auto at = std::find_if(opened.tiers.begin(), opened.tiers.end(),
                                 [&](const auto& tier) { return tier->info().uuid == uuid; });
    if (at == opened.tiers.end()) {
      problem = refused.empty()
                    ? fmt::format(
                          "device {}: none of the directories that were mounted last "
                          "is it: mount once with all of them",
                          format_uuid(uuid))
                    : refused;
      return fail(ENODEV, "a device is missing");
    }
    opened.by_index.push_back(at->get());
  }
  return {};
}

Result<void> open_all(const FsckOptions& options, OpenedState& opened, std::string& problem) {
  opened.state = std::make_unique<StateDir>(
      TRY(StateDir::open(options.state, StateDir::IfMissing::kFail, problem)));
  opened.state->keep();  // whatever is in it
  TRY(open_catalog(opened, options.repair, problem));
  return open_devices(opened, problem);
}

int sum_up(const CheckSummary& summary, bool repair, std::FILE* out) {
  const auto plural = [](std::uint64_t count) { return count == 1 ? "" : "s"; };
  if (summary.problems == 0) {
    std::fprintf(out, "clean: %llu inode%s, %llu object%s\n",
                 static_cast<unsigned long long>(summary.inodes), plural(summary.inodes),
                 static_cast<unsigned long long>(summary.objects), plural(summary.objects));
    return kClean;
  }
  const std::string outcome = !repair             ? "nothing was changed"
                              : summary.left == 0 ? "all repaired"
                                                  : fmt::format("{} left", summary.left);
  std::fprintf(out, "%llu problem%s: %s\n", static_cast<unsigned long long>(summary.problems),
               plural(summary.problems), outcome.c_str());
  return summary.left == 0 ? kRepaired : kErrorsLeft;
}

}  // namespace

FsckResult run_fsck(const FsckOptions& options, std::FILE* out) {
  OpenedState opened;
  std::string problem;
  if (const Result<void> done = open_all(options, opened, problem); !done.ok()) {
    return {.exit_code = kFailed, .problem = problem};
  }
  Check check({.store = *opened.store,
               .catalog = *opened.catalog,
               .devices = opened.by_index,
               .repair = options.repair,
               .out = out});
  const Result<CheckSummary> summary = check.run();
  if (!summary.ok()) {
    return {.exit_code = kFailed,
            .problem = fmt::format("{}: {}: {}: see whether its disk is well, and run it again",
                                   options.state, summary.error().what,
                                   std::strerror(summary.error().code))};
  }
  return {.exit_code = sum_up(*summary, options.repair, out), .problem = {}};
}

}  // namespace kvcachefs
