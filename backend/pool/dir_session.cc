#include "backend/pool/dir_session.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "backend/base/dir_stream.h"
#include "backend/base/trusted_path.h"
#include "backend/base/unique_fd.h"
#include "backend/pool/pool_path.h"

namespace kvcachefs {
namespace {

constexpr std::uint64_t kStatBlock = 512;  // stat(2)

PoolStatus from_stat(const struct stat& status) noexcept {
  return {.kind = S_ISREG(status.st_mode)   ? PoolKind::kFile
                  : S_ISDIR(status.st_mode) ? PoolKind::kDirectory
                                            : PoolKind::kOther,
          .fileid = status.st_ino,
          .size = static_cast<std::uint64_t>(status.st_size),
          .taken = static_cast<std::uint64_t>(status.st_blocks) * kStatBlock,
          .mtime = to_nanos(status.st_mtim),
          .ctime = to_nanos(status.st_ctim),
          .atime = to_nanos(status.st_atim),
          .mode = status.st_mode & 07777,
          .nlink = static_cast<std::uint32_t>(status.st_nlink),
          .uid = status.st_uid,
          .gid = status.st_gid};
}

// What leads to a file without its name, open_by_handle_at(2): a peer may rename it. Nothing is kept in the kernel for it.
struct FileHandle {
  int type = 0;
  std::uint32_t size = 0;
  std::array<unsigned char, MAX_HANDLE_SZ> bytes = {};
};

// The kernel's, whose bytes come behind it.
class HandleBuffer {
 public:
  explicit HandleBuffer(const FileHandle& from = {.size = MAX_HANDLE_SZ}) {
    get()->handle_bytes = from.size;
    get()->handle_type = from.type;
    std::memcpy(get()->f_handle, from.bytes.data(), from.size);
  }
  [[nodiscard]] file_handle* get() noexcept {
    return reinterpret_cast<file_handle*>(memory_.data());
  }
  [[nodiscard]] FileHandle value() noexcept {
    FileHandle value{.type = get()->handle_type, .size = get()->handle_bytes};
    std::memcpy(value.bytes.data(), get()->f_handle, value.size);
    return value;
  }

 private:
  alignas(
      file_handle) std::array<unsigned char, sizeof(file_handle) + MAX_HANDLE_SZ> memory_ = {};
};

std::optional<FileHandle> file_handle_of(int fd) noexcept {
  HandleBuffer buffer;
  int mount = 0;
  if (::name_to_handle_at(fd, "", buffer.get(), &mount, AT_EMPTY_PATH) != 0)
    return std::nullopt;
  return buffer.value();
}

UniqueFd open_handle(int root, const FileHandle& handle, int flags) noexcept {
  HandleBuffer buffer(handle);
  return UniqueFd(::open_by_handle_at(root, buffer.get(), flags | O_CLOEXEC));
}

class DirFile : public PoolFile {
 public:
  DirFile(UniqueFd fd, const struct stat& status) : fd_(std::move(fd)) {
    status_ = from_stat(status);
  }
  // Opened when it is used.
  DirFile(const FileHandle& handle, const struct stat& status) : handle_(handle) {
    status_ = from_stat(status);
  }
  // A close may ask the server (NFS writes back, FUSE flushes) and have no end, and whoever lets go of the file last may
  // be somebody who must not wait. Only bytes that nobody has had synced must be there before he goes on.
  ~DirFile() override {
    if (is_unsynced || !fd_) return;
    try {
      std::thread([fd = std::move(fd_)] {}).detach();
    } catch (const std::system_error&) {  // no thread to be had: it was closed here
    }
  }
  DirFile(const DirFile&) = delete;
  DirFile& operator=(const DirFile&) = delete;
  // `root`: the pool's directory. Errors: ESTALE (it is not there any more).
  Result<int> fd(int root) {
    const std::lock_guard lock(mutex_);
    if (!fd_ && handle_) {
      UniqueFd fd = open_handle(root, *handle_, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
      if (!fd) return fail(errno == ENOENT ? ESTALE : errno, "pool: open by handle");
      fd_ = std::move(fd);
    }
    return fd_.get();
  }

  bool is_unsynced = false;  // written, and not meant to be on the disk yet

 private:
  std::mutex mutex_;  // of fd_, until it is open
  UniqueFd fd_;
  const std::optional<FileHandle> handle_ = std::nullopt;
};

DirFile& dir_file(PoolFile& file) noexcept { return static_cast<DirFile&>(file); }

class DirSession : public PoolSession {
  static constexpr int kDirectory = O_PATH | O_DIRECTORY | O_NOFOLLOW;

 public:
  explicit DirSession(UniqueFd root) : root_(std::move(root)) {
    struct stat status {};
    has_links_ = ::fstat(root_.get(), &status) == 0 && status.st_nlink > 0;
    // A FUSE filesystem may forget what it gave one for.
    struct statfs filesystem {};
    const bool is_known = ::fstatfs(root_.get(), &filesystem) == 0;
    const bool lasts = is_known && filesystem.f_type != FUSE_SUPER_MAGIC;
    remembers_ = is_known && filesystem.f_type == NFS_SUPER_MAGIC;
    const std::optional<FileHandle> own = lasts ? file_handle_of(root_.get()) : std::nullopt;
    has_handles_ = own && open_handle(root_.get(), *own, O_RDONLY | O_DIRECTORY);
  }

  // Its directory may have been removed, and another one made in its place.
  [[nodiscard]] bool is_alive() override {
    struct stat status {};
    return ::fstat(root_.get(), &status) == 0 && (status.st_nlink > 0 || !has_links_);
  }

  Result<PoolFound> find(std::string_view path, Deadline /*deadline*/) override {
    if (remembers_) look_anew(split_pool_path(path).first);
    const UniqueFd fd = TRY(open_beneath(path, O_PATH | O_NOFOLLOW));
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) return fail_errno("pool: stat");
    PoolFound found{.status = from_stat(status), .file = nullptr};
    if (!has_handles_ || !S_ISREG(status.st_mode)) return found;
    if (const std::optional<FileHandle> handle = file_handle_of(fd.get()))
      found.file = std::make_shared<DirFile>(*handle, status);
    return found;
  }

  Result<void> find_directory(std::string_view path, Deadline /*deadline*/) override {
    static_cast<void>(TRY(open_beneath(path, kDirectory)));
    return {};
  }

  Result<PoolStatus> status(PoolFile& file, Deadline /*deadline*/) override {
    struct stat status {};
    if (::fstat(TRY(fd_of(file)), &status) != 0) return fail_errno("pool: stat");
    return from_stat(status);
  }

  Result<PoolFilePtr> open(std::string_view path, Deadline /*deadline*/) override {
    // Never waits for the other end of a fifo.
    return file_of(TRY(open_beneath(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW)));
  }

  Result<PoolFilePtr> open_to_write(std::string_view path, Deadline deadline) override {
    TRY(check(deadline));
    return file_of(TRY(open_beneath(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW)));
  }

  Result<PoolRead> read_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                              const PoolSink& sink, PoolPace /*pace*/,
                              Deadline deadline) override {
    std::vector<std::byte> part(
        static_cast<std::size_t>(std::min<std::uint64_t>(size, kMostAtOnce)));
    const int fd = TRY(fd_of(file));
    std::uint64_t done = 0;
    bool is_end_known = !remembers_;
    while (done < size) {
      TRY(check(deadline));
      const auto most =
          static_cast<std::size_t>(std::min<std::uint64_t>(size - done, part.size()));
      const ssize_t got = ::pread(fd, part.data(), most, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail_errno("pool: read");
      if (got == 0 && std::exchange(is_end_known, true)) break;
      // It may have grown: what others append to (a change log) is kept open.
      if (got == 0) static_cast<void>(ask_server(fd));
      const auto count = static_cast<std::size_t>(got);
      if (count > 0) TRY(sink(offset + done, std::span(part.data(), count)));
      done += count;
    }
    return PoolRead{.count = done};
  }

  Result<PoolFilePtr> create(std::string_view path, std::uint32_t mode,
                             Deadline deadline) override {
    TRY(check(deadline));
    UniqueFd fd = TRY(open_beneath(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode & 07777));
    // The umask of a daemon is not the pool's.
    if (::fchmod(fd.get(), mode & 07777) != 0) return fail_errno("pool: chmod");
    return file_of(std::move(fd));
  }

  Result<void> write_parts(PoolFile& file, std::uint64_t offset, std::uint64_t size,
                           const PoolFill& fill, PoolWrite when, Deadline deadline) override {
    if (when == PoolWrite::kAtCommit) dir_file(file).is_unsynced = true;
    std::vector<std::byte> buffer(
        static_cast<std::size_t>(std::min<std::uint64_t>(size, kMostAtOnce)));
    for (std::uint64_t at = 0; at < size; at += buffer.size()) {
      const std::span<std::byte> part(
          buffer.data(),
          static_cast<std::size_t>(std::min<std::uint64_t>(size - at, buffer.size())));
      TRY(fill(offset + at, part));
      TRY(write_whole(file, offset + at, part, deadline));
    }
    if (when == PoolWrite::kNow) return commit(file, deadline);
    return {};
  }

  Result<void> commit(PoolFile& file, Deadline /*deadline*/) override {
    if (::fdatasync(TRY(fd_of(file))) != 0) return fail_errno("pool: fdatasync");
    dir_file(file).is_unsynced = false;
    return {};
  }

  Result<void> link(PoolFile& file, std::string_view to, Deadline deadline) override {
    const Place place = TRY(place_of(to));
    TRY(check(deadline));
    const std::string self = "/proc/self/fd/" + std::to_string(TRY(fd_of(file)));
    if (::linkat(AT_FDCWD, self.c_str(), place.directory.get(), place.name.c_str(),
                 AT_SYMLINK_FOLLOW) == 0)
      return {};
    // Where there are none, filesystems say EPERM (vfat) or EOPNOTSUPP.
    return fail(errno == EPERM ? EOPNOTSUPP : errno, "pool: link");
  }

  Result<void> rename(std::string_view from, std::string_view to, Deadline deadline) override {
    const Place old = TRY(place_of(from));
    const Place place = TRY(place_of(to));
    TRY(check(deadline));
    if (::renameat(old.directory.get(), old.name.c_str(), place.directory.get(),
                   place.name.c_str()) != 0)
      return fail_errno("pool: rename");
    return {};
  }

  Result<void> remove(std::string_view path, Deadline deadline) override {
    const Place place = TRY(place_of(path));
    TRY(check(deadline));
    if (::unlinkat(place.directory.get(), place.name.c_str(), 0) != 0)
      return fail_errno("pool: unlink");
    return {};
  }

  Result<std::uint64_t> make_directory(std::string_view path, std::uint32_t mode,
                                       Deadline deadline) override {
    const Place place = TRY(place_of(path));
    TRY(check(deadline));
    if (::mkdirat(place.directory.get(), place.name.c_str(), mode & 07777) != 0)
      return fail_errno("pool: mkdir");
    // No chmod by name: who else may write there could have put something else in its place.
    struct stat status {};
    if (::fstatat(place.directory.get(), place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return std::uint64_t{0};
    return std::uint64_t{status.st_ino};
  }

  Result<void> remove_directory(std::string_view path, Deadline deadline) override {
    const Place place = TRY(place_of(path));
    TRY(check(deadline));
    if (::unlinkat(place.directory.get(), place.name.c_str(), AT_REMOVEDIR) != 0)
      return fail_errno("pool: rmdir");
    return {};
  }

  Result<void> list(std::string_view path, const std::function<bool(const PoolEntry&)>& visit,
                    Deadline deadline) override {
    return walk(
        path, [&](int /*directory*/, const PoolEntry& entry) { return visit(entry); },
        deadline);
  }

  Result<void> list_statuses(
      std::string_view path,
      const std::function<bool(const PoolEntry&, const PoolStatus&)>& visit,
      Deadline deadline) override {
    std::optional<Error> failed;
    TRY(walk(
        path,
        [&](int directory, const PoolEntry& entry) {
          struct stat status {};
          if (::fstatat(directory, entry.name.data(), &status, AT_SYMLINK_NOFOLLOW) == 0)
            return visit(entry, from_stat(status));
          if (errno == ENOENT || errno == ESTALE) return true;
          failed = fail_errno("pool: stat");
          return false;
        },
        deadline));
    if (failed) return *failed;
    return {};
  }

  Result<void> touch(PoolFile& file, Deadline /*deadline*/) override {
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW},
                               {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
    if (::futimens(TRY(fd_of(file)), times) != 0) return fail_errno("pool: touch");
    return {};
  }

  Result<PoolSpace> space(Deadline /*deadline*/) override {
    struct statvfs space {};
    if (::fstatvfs(root_.get(), &space) != 0) return fail_errno("pool: statvfs");
    return PoolSpace{.total = space.f_blocks * space.f_frsize,
                     .available = space.f_bavail * space.f_frsize};
  }

 private:
  struct Place {
    UniqueFd directory;
    std::string name;
  };

  Result<int> fd_of(PoolFile& file) { return dir_file(file).fd(root_.get()); }

  Result<void> write_whole(PoolFile& file, std::uint64_t offset,
                           std::span<const std::byte> bytes, Deadline deadline) {
    const int fd = TRY(fd_of(file));
    while (!bytes.empty()) {
      TRY(check(deadline));
      const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return fail_errno("pool: write");
      offset += static_cast<std::uint64_t>(put);
      bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return {};
  }

  // The names that `visit` gets end with a NUL.
  Result<void> walk(std::string_view path,
                    const std::function<bool(int directory, const PoolEntry&)>& visit,
                    Deadline deadline) {
    UniqueFd fd = TRY(open_beneath(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (remembers_) static_cast<void>(ask_server(fd.get()));
    const DirStream stream(::fdopendir(fd.get()));
    if (stream == nullptr) return fail_errno("pool: open a directory");
    static_cast<void>(fd.release());
    while (true) {
      TRY(check(deadline));
      errno = 0;
      const dirent* entry = ::readdir(stream.get());
      if (entry == nullptr) {
        if (errno != 0) return fail_errno("pool: read a directory");
        return {};
      }
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (!is_pool_name(name)) return fail(EBADMSG, "pool: a listed name is none");
      const bool is_other =
          entry->d_type != DT_REG && entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN;
      if (!visit(::dirfd(stream.get()),
                 {.name = name, .fileid = entry->d_ino, .is_other = is_other}))
        return {};
    }
  }

  // Before anything is changed, too: a thread that the kernel lets go after its deadline is nobody's any more.
  static Result<void> check(Deadline deadline) {
    if (std::chrono::steady_clock::now() >= deadline) return fail(ETIMEDOUT, "pool: deadline");
    return {};
  }

  Result<UniqueFd> open_beneath(std::string_view path, int flags, std::uint32_t mode = 0) {
    TRY(check_pool_path(path));
    const std::string name(path.empty() ? "." : path);
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
    how.mode = mode;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
    const long fd = ::syscall(SYS_openat2, root_.get(), name.c_str(), &how, sizeof how);
    if (fd < 0) return fail_errno("pool: open");
    return UniqueFd(static_cast<int>(fd));
  }

  // The kernel's NFS client believes for up to a minute (acregmax and acdirmax of nfs(5)) how long a file is, and which names
  // are in a directory, and which are not. It looks again when it hears of a change: fs/nfs/inode.c,
  // nfs_revalidate_mapping(), and fs/nfs/dir.c, nfs_check_verifier(). False: it cannot be asked.
  static bool ask_server(int fd) {
    struct statx status {};
    constexpr int kAsked = AT_EMPTY_PATH | AT_STATX_FORCE_SYNC;
    return ::statx(fd, "", kAsked, STATX_SIZE | STATX_MTIME, &status) == 0;
  }
  // Whether what leads to the directory is there still, and what is in it.
  void look_anew(std::string_view directory) {
    std::optional<std::string_view> last;  // that was looked at
    while (true) {
      // The deepest that is there. What it hears of that may show it the next one.
      std::string_view at = directory;
      Result<UniqueFd> fd = open_beneath(at, kDirectory);
      while (!fd.ok() && !at.empty()) {
        at = split_pool_path(at).first;
        fd = open_beneath(at, kDirectory);
      }
      if (!fd.ok() || at == last) return;
      if (!ask_server(fd->get()) || at == directory) return;
      last = at;
    }
  }

  Result<Place> place_of(std::string_view path) {
    TRY(check_pool_path(path));
    if (path.empty()) return fail(EINVAL, "pool: the root has no name");
    const auto [directory, name] = split_pool_path(path);
    return Place{.directory = TRY(open_beneath(directory, kDirectory)),
                 .name = std::string(name)};
  }

  static Result<PoolFilePtr> file_of(UniqueFd fd) {
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) return fail_errno("pool: stat");
    if (S_ISDIR(status.st_mode)) return fail(EISDIR, "pool: a directory");
    if (!S_ISREG(status.st_mode)) return fail(EBADMSG, "pool: no regular file");
    return PoolFilePtr(std::make_shared<DirFile>(std::move(fd), status));
  }

  const UniqueFd root_;
  bool has_links_ = false;    // its filesystem counts those of directories
  bool has_handles_ = false;  // it gives some that last
  bool remembers_ = false;    // it believes what it has seen for a time: the NFS client
};

}  // namespace

Result<std::unique_ptr<PoolSession>> open_dir_session(const std::string& directory,
                                                      OtherWriters others) {
  // Whoever named it may have named it by a symlink.
  UniqueFd root(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return fail_errno("pool: open");
  if (others == OtherWriters::kRefused && !writable_by_others(root.get()).empty())
    return fail(EPERM, "pool: others may write to its directory");
  return std::unique_ptr<PoolSession>(std::make_unique<DirSession>(std::move(root)));
}

}  // namespace kvcachefs
