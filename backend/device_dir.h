// A tier on a directory of a local filesystem (ext4, xfs): one file an object.
//
//   <path>/kvcachefs-device    superblock: format, UUID, whose catalog it is; locked while open
//   <path>/objects/<hh>/<id>   hh: bits 12-19 of the id, two hex digits; id: sixteen
//   <path>/quarantine/<id>     the damaged copies found last, for a person to look at
//
// The layout is written down in metadata/FORMAT.md. Every call on an object is one system call,
// relative to a held descriptor of objects/; opens are confined by openat2(2) to the tree and
// the filesystem they started in. Ids 4096 in a row share a subdirectory, so that files made
// together lie together on the disk.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/base/random.h"
#include "backend/base/result.h"
#include "backend/base/unique_fd.h"
#include "backend/private_mount.h"
#include "backend/tier.h"

namespace kvcachefs {

struct DeviceDirOptions {
  std::string path;                    // exists, is ours, and nobody else may write to it
  std::uint64_t size_limit_bytes = 0;  // 0: none
  Uuid catalog{};  // of the database that this device's objects are recorded in
  // When a read of an object moves its access time. Where the kernel gives this process no
  // mount of its own, it is as below, which is logged, unless it is to move nothing.
  AccessTimes access_times = AccessTimes::kAsBelow;
};

// Why open() failed, for the person who called: what, on what, and what to do.
struct OpenProblem {
  std::string text;
  pid_t holder = 0;  // EBUSY: who has it, when known
};

class DeviceDir : public Tier {
 public:
  // Takes the directory into use; makes a device of it when it is none and `create_if_missing`.
  // Errors: ENOENT (no such directory; or no device and it is not to be made), ENOTDIR, EPERM
  // (not ours, or others may write to it), EBUSY (another process has it open), ESTALE (another
  // catalog's device), ENOTEMPTY (no device, and has an objects directory of someone else's),
  // EBADMSG (the superblock does not read), EPROTONOSUPPORT (written by a newer version),
  // EROFS, EACCES, EIO, ENOSPC.
  static Result<std::unique_ptr<DeviceDir>> open(const DeviceDirOptions& options,
                                                 bool create_if_missing,
                                                 OpenProblem* problem = nullptr);

  [[nodiscard]] const TierInfo& info() const noexcept override { return info_; }
  Result<UniqueFd> create(std::uint64_t object) override;
  Result<UniqueFd> open(std::uint64_t object, int flags) override;
  Result<struct stat> status(std::uint64_t object) override;
  Result<bool> is_used(std::uint64_t object) override;
  Result<void> remove(std::uint64_t object) override;
  Result<void> quarantine(std::uint64_t object) override;
  Result<void> sync() override;
  Result<void> check(TierCheck how) override;
  Result<struct statvfs> space() override;
  Result<std::string> mount_identity() override;
  Result<void> each(const std::function<bool(std::uint64_t object)>& visit,
                    const std::function<void(const std::string& path)>& unknown) override;

 private:
  DeviceDir() = default;
  Result<UniqueFd> open_beneath(std::uint64_t object, int flags);
  void set_access_times(AccessTimes times);
  Result<void> trim_quarantine();
  Result<void> check_read();
  Result<void> check_write();

  TierInfo info_;
  UniqueFd superblock_;  // holds the lock
  UniqueFd objects_;     // of a mount of our own, where it has access times of its own
  UniqueFd quarantine_;
  bool reads_move_nothing_ = false;  // opens are O_NOATIME
  bool umask_hides_owner_ = false;   // the process's umask takes owner bits: set modes by hand
};

}  // namespace kvcachefs
