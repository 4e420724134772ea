// SEAM: a place where copies of objects live as local files: a device directory on ext4/xfs
// (device_dir).
//
// Any thread may call any method. For one that refuses to wait (backend/base/must_wait.h)
// open() and status() end with kMustWait where the disk would have to be asked. A copy's
// backing file is named by its object id alone. Of its own accord the product only ever creates
// and unlinks backing files: mappings outlive what the daemon can see.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

struct TierInfo {
  std::string kind;  // "nvme"
  std::string path;
  std::array<std::uint8_t, 16> uuid{};
  std::uint64_t size_limit_bytes = 0;  // 0: none was given
};

// What Tier::check() tries.
enum class TierCheck : std::uint8_t { kRead, kWriteAndRead };

// An open of a copy that the daemon reads for a purpose of its own: nobody has used the file.
inline constexpr int kOwnRead = O_RDONLY | O_NOATIME;

class Tier {
 public:
  static constexpr std::size_t kMostQuarantined = 64;
  static constexpr std::uint64_t kMostQuarantinedBytes = std::uint64_t{1} << 30;

  virtual ~Tier() = default;
  [[nodiscard]] virtual const TierInfo& info() const noexcept = 0;

  // A new, empty backing file, open O_RDWR; owner root, mode 0600. Errors: EEXIST (that id has
  // a file), ENOSPC, EDQUOT, EIO, EROFS.
  virtual Result<UniqueFd> create(std::uint64_t object) = 0;
  // `flags` are of open(2): an access mode, O_PATH, O_TRUNC, O_APPEND, O_DIRECT; symlinks are
  // never followed. Errors: ENOENT (the copy is lost), EIO, EMFILE.
  virtual Result<UniqueFd> open(std::uint64_t object, int flags) = 0;
  // Errors: ENOENT (the copy is lost), EIO; EBADMSG (something else than a regular file stands
  // there).
  virtual Result<struct stat> status(std::uint64_t object) = 0;
  // Whether anybody else has its backing file open, or mapped: a mapping outlives the
  // descriptor it was made of. False where the filesystem cannot tell. Who opens it at this
  // moment waits for some microseconds. Errors: EBUSY, it is not known as long as this process
  // has a descriptor of it; those of open().
  virtual Result<bool> is_used(std::uint64_t object) = 0;
  // Absent is success. Errors: EIO, EROFS, EBUSY.
  virtual Result<void> remove(std::uint64_t object) = 0;
  // Takes a damaged copy out of use and keeps it aside for a person to look at, at most
  // kMostQuarantined of them, kMostQuarantinedBytes and a sixteenth of the size that was given: the oldest go
  // first, and one that is larger
  // than that at once. Absent is success. Errors: as remove().
  virtual Result<void> quarantine(std::uint64_t object) = 0;
  // Writes all data of the device's filesystem that is dirty now. Waits for the disk. Errors:
  // EIO, ENOSPC.
  virtual Result<void> sync() = 0;
  // Whether the device still gives bytes, and takes them: past the page cache, where the filesystem can.
  // Waits for the disk. A full device is well. Errors: EROFS (it takes none, for whatever reason, but gives
  // them), else it is lost: EIO, ENODEV and whatever a dead disk comes up with.
  virtual Result<void> check(TierCheck how) = 0;
  // Limits and free space of the filesystem below.
  virtual Result<struct statvfs> space() = 0;
  // Names this mount of the backing filesystem (it changes when the filesystem is mounted
  // anew).
  virtual Result<std::string> mount_identity() = 0;
  // Every object id that has a backing file, for fsck and the collection of strays; `visit`
  // returns false to end. Anything else found in objects/ is passed as `unknown` (path below
  // the device).
  virtual Result<void> each(const std::function<bool(std::uint64_t object)>& visit,
                            const std::function<void(const std::string& path)>& unknown) = 0;
};

}  // namespace kvcachefs
