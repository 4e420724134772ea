// SEAM: the operations on the files of a pool, a directory that several servers share: of an NFS server
// (nfs_session) or of any filesystem that the kernel has mounted (dir_session).
//
// One thread at a time uses a session; a file that one session opened may be used through any other of the same
// pool. Nothing is retried here and nothing is cached but handles of directories: what a caller does again may
// have been done already, and then answers EEXIST or ENOENT.
//
// Paths are relative to the pool's directory, "a/b/c"; the root is "". An empty component, ".", "..", one of more
// than 255 bytes or one with a NUL is EINVAL. Symlinks are never followed.
//
// Every call takes a deadline. On NFS it ends by then with ETIMEDOUT, and the session is dead: every later call is
// ENOTCONN, and its owner opens another. In a directory the kernel may hold the calling thread for longer: who
// owns the thread gives it up, and what it still does changes nothing, beside the one call that the kernel held.
//
// Errors that each call may give: ETIMEDOUT, ENOTCONN (as above), EIO, ESTALE (the file or its directory is not
// there any more), EACCES, EBUSY (the server asks for patience), EBADMSG (the server said what it may not say; nothing
// of it is used). Others are named with the call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/base/clock.h"
#include "backend/base/result.h"

namespace kvcachefs {

using Deadline = std::chrono::steady_clock::time_point;

enum class PoolKind : std::uint8_t { kFile, kDirectory, kOther };

struct PoolStatus {
  PoolKind kind = PoolKind::kOther;
  std::uint64_t fileid = 0;  // the server's inode number
  std::uint64_t size = 0;    // bytes, INT64_MAX at most
  std::uint64_t taken = 0;   // bytes of the pool's disk; not every pool's filesystem tells
  UnixNanos mtime = 0;       // by the server's clock
  UnixNanos ctime = 0;
  UnixNanos atime = 0;     // touch()
  std::uint32_t mode = 0;  // permission bits
  std::uint32_t nlink = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

struct PoolEntry {
  std::string_view name;  // one component, checked as paths are; never "." or ".."
  std::uint64_t fileid = 0;
  bool is_other = false;  // known to be neither a file nor a directory; not every server tells
};

struct PoolSpace {
  std::uint64_t total = 0;  // bytes
  std::uint64_t available = 0;
};

// Whether it is one file, and nobody has written to it in between.
[[nodiscard]] inline bool is_same_file(const PoolStatus& one,
                                       const PoolStatus& other) noexcept {
  return one.fileid == other.fileid && one.size == other.size && one.mtime == other.mtime;
}

// A regular file of a pool, open by its handle: renaming it does not matter, removing it does (ESTALE).
class PoolFile {
 public:
  virtual ~PoolFile() = default;
  // Of the moment at which it was opened or made.
  [[nodiscard]] const PoolStatus& status() const noexcept { return status_; }

 protected:
  PoolStatus status_;
};
using PoolFilePtr = std::shared_ptr<PoolFile>;

// Takes bytes of a file, those from `at` on; they are the caller's again when it returns. While it works, more are on
// their way. An error ends the call that reads, with this error.
using PoolSink =
    std::function<Result<void>(std::uint64_t at, std::span<const std::byte> bytes)>;
// Fills `out` with a file's bytes from `at` on. It may be asked for the same bytes once more. An error ends the call
// that writes, with this error.
using PoolFill = std::function<Result<void>(std::uint64_t at, std::span<std::byte> out)>;

// What stands at a path.
struct PoolFound {
  PoolStatus status;
  // As open() gives it, of a regular file where having it asks nobody and keeps nothing on the server; or null.
  PoolFilePtr file;
};

struct PoolRead {
  std::uint64_t count = 0;  // bytes
  // With each of them the server has said that the file is what its status() says.
  bool is_as_opened = false;
};

// Whether somebody waits for what is read. Where nobody does yet it is read so that others' requests need not wait for it.
enum class PoolPace : std::uint8_t { kPrompt, kPatient };

// When written bytes must be on the server's disk.
enum class PoolWrite : std::uint8_t { kAtCommit, kNow };

class PoolSession {
 public:
  // One request's bytes at most; what is larger is cut, and the pieces are under way together.
  static constexpr std::size_t kMostAtOnce = std::size_t{1} << 20;

  virtual ~PoolSession() = default;

  // Asked before it is used again; it asks nobody. False: it leads nowhere any more, as one whose connection was closed
  // while nobody used it. True promises nothing.
  [[nodiscard]] virtual bool is_alive() { return true; }

  // Errors: ENOENT, ENOTDIR, ENAMETOOLONG (the server's own limit).
  virtual Result<PoolFound> find(std::string_view path, Deadline deadline) = 0;
  Result<PoolStatus> status(std::string_view path, Deadline deadline) {
    return TRY(find(path, deadline)).status;
  }
  virtual Result<PoolStatus> status(PoolFile& file, Deadline deadline) = 0;
  // Whether it is a directory: ok, or ENOTDIR. What was known of it a moment ago may be the answer.
  virtual Result<void> find_directory(std::string_view path, Deadline deadline);
  // For reading. Errors: as status(); EISDIR, ELOOP (a symlink), EBADMSG (no regular file).
  virtual Result<PoolFilePtr> open(std::string_view path, Deadline deadline) = 0;
  // One that stands there, for writing over it. Errors: as open(); EROFS.
  virtual Result<PoolFilePtr> open_to_write(std::string_view path, Deadline deadline) {
    return open(path, deadline);
  }
  // Gives `sink` the `size` bytes from `offset` on, in parts of kMostAtOnce at most, in any order, each byte once. How
  // many there were: less only where the file ends.
  virtual Result<PoolRead> read_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                                      const PoolSink& sink, PoolPace pace,
                                      Deadline deadline) = 0;
  // The same into memory.
  Result<std::size_t> read(PoolFile& file, std::uint64_t offset, std::span<std::byte> out,
                           Deadline deadline);
  // A new, empty file, open for writing. Errors: EEXIST (somebody's, or the caller's of a try whose answer was
  // lost), ENOENT (its directory), ENOSPC, EDQUOT, EROFS.
  virtual Result<PoolFilePtr> create(std::string_view path, std::uint32_t mode,
                                     Deadline deadline) = 0;
  // `size` bytes from `offset` on, in parts as read_parts(). Errors: ENOSPC, EDQUOT, EROFS, EFBIG.
  virtual Result<void> write_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                                   const PoolFill& fill, PoolWrite when, Deadline deadline) = 0;
  // The same from memory.
  Result<void> write(PoolFile& file, std::uint64_t offset, std::span<const std::byte> bytes,
                     PoolWrite when, Deadline deadline);
  // What was written is on the server's disk. Errors: EAGAIN (the server started anew since, and may have lost
  // some of it: write everything again), ENOSPC.
  virtual Result<void> commit(PoolFile& file, Deadline deadline) = 0;
  // All bytes of a new file, on the server's disk; what it is then. Errors: as write_parts() and commit().
  virtual Result<PoolStatus> store(PoolFile& file, std::uint64_t size, const PoolFill& fill,
                                   Deadline deadline);

  // Gives a file that this or another session made one more name. Errors: EEXIST (the name is taken; by this very
  // file when an answer was lost), ENOENT, EMLINK, ENOSPC, EOPNOTSUPP (the filesystem has no hard links).
  virtual Result<void> link(PoolFile& file, std::string_view to, Deadline deadline) = 0;
  // Replaces what stands there. Errors: ENOENT, EEXIST, ENOTEMPTY, EISDIR, ENOTDIR, ENOSPC.
  virtual Result<void> rename(std::string_view from, std::string_view to,
                              Deadline deadline) = 0;
  // A file. Errors: ENOENT, EISDIR, EROFS.
  virtual Result<void> remove(std::string_view path, Deadline deadline) = 0;
  // The number of what was made; 0: the server does not say. Errors: EEXIST, ENOENT, ENOSPC, EROFS.
  virtual Result<std::uint64_t> make_directory(std::string_view path, std::uint32_t mode,
                                               Deadline deadline) = 0;
  // Errors: ENOENT, ENOTEMPTY, ENOTDIR.
  virtual Result<void> remove_directory(std::string_view path, Deadline deadline) = 0;
  // Visits what is in a directory, in no order; false from `visit` ends it. What is made or removed meanwhile may
  // be among it or not. Errors: ENOENT, ENOTDIR; EBADMSG (a name that is none: what was visited before stands).
  virtual Result<void> list(std::string_view path,
                            const std::function<bool(const PoolEntry&)>& visit,
                            Deadline deadline) = 0;
  // The same with what each name stands for; without those that went meanwhile.
  virtual Result<void> list_statuses(
      std::string_view path,
      const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit,
      Deadline deadline) = 0;
  // A file was used: its atime becomes the server's time. Errors: EPERM, EROFS.
  virtual Result<void> touch(PoolFile& file, Deadline deadline) = 0;
  virtual Result<PoolSpace> space(Deadline deadline) = 0;
};

}  // namespace kvcachefs
