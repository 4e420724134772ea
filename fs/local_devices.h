// Opens the device directories of a mount: those the catalog knows and those that are new to
// it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/base/result.h"
#include "backend/tier.h"
#include "fs/config.h"
#include "metadata/catalog.h"

namespace kvcachefs {

class LocalDevices {
 public:
  LocalDevices() = default;
  LocalDevices(const LocalDevices&) = delete;
  LocalDevices& operator=(const LocalDevices&) = delete;
  // Takes the device structure off directories that open() made into devices, unless keep() was
  // called: a start that failed leaves them as they were.
  ~LocalDevices();
  void keep() noexcept { made_.clear(); }

  // In the order of the setting. A directory that is no device yet becomes one, but only when
  // all devices that the catalog knows are there: an empty directory in the place of a known
  // device is a disk that is not mounted; and only one that holds nothing else, unless the
  // settings say otherwise. `problem` says what is wrong, with what, and what to do. Errors:
  // ENODEV (a known device is missing), EINVAL (--min-free is all of a filesystem), ENOTEMPTY
  // (it holds other things), and those of DeviceDir::open().
  Result<std::vector<std::unique_ptr<Tier>>> open(const Config& config, Catalog& catalog,
                                                  std::string& problem);

 private:
  std::vector<std::string> made_;
};

}  // namespace kvcachefs
