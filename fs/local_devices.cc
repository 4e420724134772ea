#include "fs/local_devices.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "backend/base/log.h"
#include "backend/base/random.h"
#include "backend/base/units.h"
#include "backend/device_dir.h"
#include "backend/superblock.h"
#include "fs/foreign_entry.h"

namespace kvcachefs {
namespace {

bool is_device(const std::string& path) {
  struct stat status;
  // A superblock that cannot be looked at counts as one: opening it says why.
  return ::lstat((path + "/" + kSuperblockName).c_str(), &status) == 0 || errno != ENOENT;
}

std::uint64_t limit_of(const DeviceSetting& setting) {
  if (!setting.size) return 0;
  struct statvfs space;
  if (::statvfs(setting.path.c_str(), &space) != 0) return setting.size->of(0);
  return setting.size->of(space.f_blocks * space.f_frsize);
}

// Removes what makes an unused directory a device. A directory that holds a file stays, and so
// does then the superblock that says whose it is.
void unmake(const std::string& path) {
  for (unsigned i = 0; i < 256; ++i) {
    ::rmdir(fmt::format("{}/objects/{:02x}", path, i).c_str());
  }
  const bool empty = ::rmdir((path + "/objects").c_str()) == 0;
  const bool clean = ::rmdir((path + "/quarantine").c_str()) == 0;
  if (empty && clean) ::unlink((path + "/" + kSuperblockName).c_str());
}

// A read moves nothing of a filesystem that is mounted read-only.
AccessTimes access_times_of(const KernelOptions& kernel) {
  return kernel.read_only ? AccessTimes::kNever : kernel.access_times;
}

Result<std::unique_ptr<Tier>> open_one(const DeviceSetting& setting, const Config& config,
                                       const DeviceUuid& catalog, std::string& problem) {
  OpenProblem why;
  auto device = DeviceDir::open({.path = setting.path,
                                 .size_limit_bytes = limit_of(setting),
                                 .catalog = catalog,
                                 .access_times = access_times_of(config.kernel)},
                                /*create_if_missing=*/true, &why);
  if (!device) {
    problem = std::move(why.text);
    return device.error();
  }
  return std::unique_ptr<Tier>(std::move(*device));
}

// Nothing could be stored there, ever.
Result<void> refuse_min_free(const DeviceSetting& setting, const SizeLimit& min_free,
                             std::string& problem) {
  struct statvfs space {};
  if (::statvfs(setting.path.c_str(), &space) != 0) return {};  // opening it says why
  const std::uint64_t total = space.f_blocks * space.f_frsize;
  if (min_free.of(total) < total) return {};
  problem = fmt::format("--min-free: {} has {} in all: give less, or 1% to 50%", setting.path,
                        format_size(total));
  return fail(EINVAL, "nothing would be left");
}

Result<void> refuse_missing(const std::vector<std::unique_ptr<Tier>>& found,
                            const std::vector<DeviceSetting>& settings, Catalog& catalog,
                            std::string& problem) {
  for (const DeviceUuid& uuid : TRY(catalog.devices())) {
    const bool here = std::any_of(found.begin(), found.end(), [&](const auto& tier) {
      return tier && tier->info().uuid == uuid;
    });
    if (here) continue;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i]) continue;
      problem = fmt::format(
          "--nvme: {}: is no device, and device {} of this state directory is missing: mount "
          "its "
          "disk there",
          settings[i].path, format_uuid(uuid));
      return fail(ENODEV, "a known device is missing");
    }
    problem = fmt::format(
        "--nvme: device {} of this state directory is missing: name its directory, too",
        format_uuid(uuid));
    return fail(ENODEV, "a known device is missing");
  }
  return {};
}

// Whether something in the directory is of this mount: what an earlier start has left, or on
// the way to one of its paths.
bool is_own(const std::string& directory, const std::string& name, const Config& config) {
  if (name == "objects" || name == "quarantine" || name == "lost+found" ||
      name.starts_with(kSuperblockName))
    return true;
  const std::string path = directory == "/" ? "/" + name : directory + "/" + name;
  const std::array own{&config.mountpoint, &config.state, &config.log_file};
  return std::any_of(own.begin(), own.end(), [&](const std::string* each) {
    return *each == path || each->starts_with(path + "/");
  });
}

// A directory of somebody's files, or of a whole system, is none to strew ours over.
Result<void> refuse_foreign(const std::string& directory, const Config& config,
                            std::string& problem) {
  const std::string other = foreign_entry(
      directory, [&](const std::string& name) { return is_own(directory, name, config); });
  if (other.empty()) return {};
  problem = fmt::format(
      "--nvme: {}: holds other things ({:?}): name an empty directory, or give --nonempty",
      directory, other);
  return fail(ENOTEMPTY, "a directory holds other things");
}

}  // namespace

LocalDevices::~LocalDevices() {
  for (const std::string& path : made_) unmake(path);
}

Result<std::vector<std::unique_ptr<Tier>>> LocalDevices::open(const Config& config,
                                                              Catalog& catalog,
                                                              std::string& problem) {
  const std::vector<DeviceSetting>& settings = config.nvme;
  for (const DeviceSetting& setting : settings)
    TRY(refuse_min_free(setting, config.min_free, problem));
  problem = "database: its identity does not read: run kvcachefs fsck";
  const DeviceUuid uuid = TRY(catalog.uuid());
  std::vector<std::unique_ptr<Tier>> devices(settings.size());
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (is_device(settings[i].path))
      devices[i] = TRY(open_one(settings[i], config, uuid, problem));
  }
  TRY(refuse_missing(devices, settings, catalog, problem));
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (devices[i]) continue;
    if (!config.nonempty) TRY(refuse_foreign(settings[i].path, config, problem));
    made_.push_back(settings[i].path);
    devices[i] = TRY(open_one(settings[i], config, uuid, problem));
    log_info("device event=made path={} uuid={}", settings[i].path,
             format_uuid(devices[i]->info().uuid));
  }
  return devices;
}

}  // namespace kvcachefs
