// Makes files durable, and says as what: the step before their checksums are taken.
//
// In this order, for stores through a mapping that outlived its descriptor: status, a tick of the clock, sync. A store before
// the sync becomes durable and part of the checksums, though it may have moved the time before. The sync makes the
// pages read-only again, so that each later one moves the time and is noticed by who compares the status.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fs/node/devices.h"
#include "metadata/record.h"

namespace kvcachefs {

struct FileToSync {
  int fd = -1;
  std::uint32_t device = 0;  // index into the catalog's device table
  // Set by the functions below.
  std::optional<DataStamp> stamp;  // what it was before; nullopt: it is not synced yet
  // errno of the write that failed. It was said to this descriptor, and is not said again.
  int error = 0;
};

// One journal commit and one flush of each device for all of them: a fdatasync(2) each would flush the device each time, also
// where it has nothing to write (ext4_sync_file(), xfs_file_fsync()). What could not be synced so is left without a stamp,
// for sync_alone().
void sync_together(Devices& devices, std::vector<FileToSync>& files);

// Errors: EIO and others of fstat(2).
Result<void> sync_alone(FileToSync& file);

}  // namespace kvcachefs
