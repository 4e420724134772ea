#include "backend/device_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <tuple>
#include <vector>

#include "backend/base/dir_stream.h"
#include "backend/base/file_lock.h"
#include "backend/base/log.h"
#include "backend/base/must_wait.h"
#include "backend/base/proc_status.h"
#include "backend/superblock.h"

namespace kvcachefs {
namespace {

constexpr int kDirFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
// What a caller may ask of open(): no O_CREAT, which would make copies that no record names.
constexpr int kOpenFlags =
    O_ACCMODE | O_PATH | O_TRUNC | O_APPEND | O_DIRECT | O_SYNC | O_DSYNC | O_NOATIME;
constexpr unsigned kSubdirectories = 256;
// What a direct read or write of any disk is aligned to.
constexpr std::size_t kCheckBytes = 4096;

struct ObjectPath {
  std::array<char, 20> text;  // "hh/0123456789abcdef"
  [[nodiscard]] const char* c_str() const noexcept { return text.data(); }
  [[nodiscard]] const char* name() const noexcept { return text.data() + 3; }
};

void put_hex(char* out, std::uint64_t value, int digits) noexcept {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int i = digits - 1; i >= 0; --i) {
    out[i] = kDigits[value & 0x0f];
    value >>= 4;
  }
}

constexpr unsigned subdirectory_of(std::uint64_t object) noexcept {
  return static_cast<unsigned>((object >> 12) & 0xff);
}

ObjectPath object_path(std::uint64_t object) noexcept {
  ObjectPath path;
  put_hex(path.text.data(), subdirectory_of(object), 2);
  path.text[2] = '/';
  put_hex(path.text.data() + 3, object, 16);
  path.text[19] = '\0';
  return path;
}

bool is_object_name(std::string_view name) noexcept {
  return name.size() == 16 && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// The object id of a file name, when it is exactly one that object_path() gives in
// `subdirectory`.
bool object_of(std::string_view name, unsigned subdirectory, std::uint64_t& object) noexcept {
  if (!is_object_name(name)) return false;
  std::from_chars(name.data(), name.data() + name.size(), object, 16);
  return subdirectory_of(object) == subdirectory;
}

std::array<char, 3> subdirectory_name(unsigned subdirectory) noexcept {
  std::array<char, 3> name{};
  put_hex(name.data(), subdirectory, 2);
  return name;
}

DirStream open_stream(int parent, const char* name) noexcept {
  const int fd = ::openat(parent, name, kDirFlags);
  if (fd < 0) return nullptr;
  DIR* stream = ::fdopendir(fd);
  if (stream == nullptr) ::close(fd);
  return DirStream(stream);
}

// Visits the names in a directory but `.` and `..`, with their d_type; false from `visit` ends
// it.
template <class Visit>
Result<void> each_name(int parent, const char* directory, Visit visit) {
  const DirStream stream = open_stream(parent, directory);
  if (!stream) return fail_errno("device: open a directory");
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) return fail_errno("device: read a directory");
      return {};
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    unsigned char type = entry->d_type;
    if (type == DT_UNKNOWN) {
      struct stat status;
      if (::fstatat(::dirfd(stream.get()), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
        type = static_cast<unsigned char>(IFTODT(status.st_mode));
      }
    }
    if (!visit(name, type)) return {};
  }
}

// Whether this process has another descriptor of the file. Others close theirs meanwhile: each
// is looked at by its name.
bool has_another(int fd) {
  const std::string own = std::to_string(fd);
  struct stat mine;
  if (::fstat(fd, &mine) != 0) return false;
  bool found = false;
  const Result<void> listed =
      each_name(AT_FDCWD, "/proc/self/fd", [&](std::string_view name, unsigned char) {
        const std::string path = "/proc/self/fd/" + std::string(name);
        struct stat status;
        found = name != own && ::stat(path.c_str(), &status) == 0 &&
                status.st_ino == mine.st_ino && status.st_dev == mine.st_dev;
        return !found;
      });
  return listed.ok() && found;
}

// Open directories are checked rather than paths, so that what was checked is what is used.
Result<void> check_ours(int fd) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return fail_errno("device: stat");
  if (!S_ISDIR(status.st_mode)) return fail(ENOTDIR, "device: not a directory");
  if (status.st_uid != ::geteuid()) return fail(EPERM, "device: owned by another user");
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_write && (status.st_mode & S_ISVTX) == 0) {
    return fail(EPERM, "device: others may write to it");
  }
  return {};
}

// A directory of ours: made when it is not there, mode 0700 whatever the umask.
Result<void> make_directory(int parent, const char* name) {
  if (::mkdirat(parent, name, 0700) != 0) {
    if (errno == EEXIST) return {};
    return fail_errno("device: make a directory");
  }
  const UniqueFd made(::openat(parent, name, kDirFlags));
  if (!made) return fail_errno("device: open a directory");
  TRY(check_ours(made.get()));
  if (::fchmod(made.get(), 0700) != 0) return fail_errno("device: chmod a directory");
  return {};
}

Result<std::string> read_superblock(int fd) {
  std::string text(kSuperblockLimit, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  if (got < 0) return fail_errno("device: read the superblock");
  text.resize(static_cast<std::size_t>(got));
  return text;
}

// An objects directory without a superblock is what a creation cut short left, as long as no
// file is in it.
Result<void> check_unused(int root) {
  bool used = false;
  const auto in_subdirectory = [&](std::string_view, unsigned char) {
    used = true;
    return false;
  };
  const UniqueFd objects(::openat(root, "objects", kDirFlags));
  if (!objects) {
    if (errno == ENOENT) return {};
    return fail(ENOTEMPTY, "device: objects is not a directory of ours");
  }
  TRY(each_name(objects.get(), ".", [&](std::string_view name, unsigned char type) {
    if (name.size() != 2 || type != DT_DIR ||
        !each_name(objects.get(), std::string(name).c_str(), in_subdirectory).ok()) {
      used = true;
    }
    return !used;
  }));
  if (used) return fail(ENOTEMPTY, "device: objects is in use by something else");
  return {};
}

// Makes a device of the directory. The superblock comes last and whole (by link), so that a
// device with a superblock is complete; when two do this at once, one superblock stands.
Result<void> create_device(int root, const Uuid& catalog) {
  TRY(check_unused(root));
  TRY(make_directory(root, "objects"));
  TRY(make_directory(root, "quarantine"));
  const UniqueFd objects(::openat(root, "objects", kDirFlags));
  if (!objects) return fail_errno("device: open objects");
  for (unsigned i = 0; i < kSubdirectories; ++i) {
    TRY(make_directory(objects.get(), subdirectory_name(i).data()));
  }
  if (::fsync(objects.get()) != 0) return fail_errno("device: fsync objects");

  const Uuid device = random_uuid();
  const std::string temporary = std::string(kSuperblockName) + "." + format_uuid(device);
  const std::string text = encode_superblock({.device = device, .catalog = catalog});
  const UniqueFd file(::openat(root, temporary.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno("device: create the superblock");
  Result<void> result;
  if (::fchmod(file.get(), 0600) != 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0) {
    result = fail_errno("device: write the superblock");
  } else if (::linkat(root, temporary.c_str(), root, kSuperblockName, 0) != 0 &&
             errno != EEXIST) {
    result = fail_errno("device: publish the superblock");
  }
  ::unlinkat(root, temporary.c_str(), 0);
  TRY(result);
  if (::fsync(root) != 0) return fail_errno("device: fsync");
  return {};
}

bool umask_hides_owner() noexcept {
  // umask(2) cannot be read without being set, which other threads would see.
  const std::string mask = proc_status(::getpid(), "Umask");
  return mask.empty() || (std::strtoul(mask.c_str(), nullptr, 8) & 0600) != 0;
}

std::string explain(const Error& error, const std::string& path, pid_t holder) {
  switch (error.code) {
    case EBUSY:
      return holder > 0
                 ? fmt::format("{}: in use by kvcachefs with pid {}: unmount that one first",
                               path, holder)
                 : fmt::format("{}: in use by another kvcachefs: unmount that one first", path);
    case EPERM:
      return fmt::format(
          "{}: must be a directory of user {} that nobody else may write to: chown and "
          "chmod go-w it, or choose another",
          path, ::geteuid());
    case ENOENT:
      return fmt::format(
          "{}: no such directory, or no kvcachefs device in it: create it, or check that its "
          "filesystem is mounted",
          path);
    case ENOTDIR:
      return fmt::format("{}: not a directory", path);
    case ELOOP:
      return fmt::format("{}: something in it is a symbolic link: give the real directory",
                         path);
    case ESTALE:
      return fmt::format(
          "{}: belongs to another state directory: give the state directory that it was made "
          "with, or another device directory",
          path);
    case ENOTEMPTY:
      return fmt::format(
          "{}: holds an 'objects' entry that is not of kvcachefs: choose an empty directory",
          path);
    case EBADMSG:
      return fmt::format(
          "{}/{}: damaged ({}): restore it from a backup, or start anew with an empty "
          "directory",
          path, kSuperblockName, error.what);
    case EPROTONOSUPPORT:
      return fmt::format(
          "{}: made by another version of kvcachefs (this one reads device format {}): use "
          "that version, or an empty directory",
          path, kDeviceFormat);
    case EROFS:
      return fmt::format("{}: on a read-only filesystem: remount it read-write", path);
    case ENOSPC:
      return fmt::format("{}: its filesystem is full: free some space", path);
    default:
      return fmt::format("{}: {}: {}", path, error.what, std::strerror(error.code));
  }
}

}  // namespace

Result<std::unique_ptr<DeviceDir>> DeviceDir::open(const DeviceDirOptions& options,
                                                   bool create_if_missing,
                                                   OpenProblem* problem) {
  pid_t holder = 0;
  const auto attempt = [&]() -> Result<std::unique_ptr<DeviceDir>> {
    // The directory itself may be reached by a symlink: the user named it.
    const UniqueFd root(::open(options.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root) return fail_errno("device: open");
    TRY(check_ours(root.get()));

    std::unique_ptr<DeviceDir> device(new DeviceDir);
    const auto open_superblock = [&] {
      device->superblock_.reset(::openat(root.get(), kSuperblockName,
                                         O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      return device->superblock_.valid();
    };
    if (!open_superblock()) {
      if (errno != ENOENT || !create_if_missing)
        return fail_errno("device: open the superblock");
      TRY(create_device(root.get(), options.catalog));
      if (!open_superblock()) return fail_errno("device: open the superblock");
    }
    if (const Result<void> locked =
            lock_with_patience(device->superblock_.get(), std::chrono::seconds{1});
        !locked) {
      if (locked.error().code == EBUSY) holder = lock_holder(device->superblock_.get());
      return locked.error();
    }
    const std::string text = TRY(read_superblock(device->superblock_.get()));
    const Superblock superblock = TRY(decode_superblock(text));
    if (superblock.catalog != options.catalog) {
      return fail(ESTALE, "device: belongs to another catalog");
    }
    device->info_ = {.kind = "nvme",
                     .path = options.path,
                     .uuid = superblock.device,
                     .size_limit_bytes = options.size_limit_bytes};
    device->umask_hides_owner_ = umask_hides_owner();

    device->objects_.reset(::openat(root.get(), "objects", kDirFlags));
    if (!device->objects_) return fail_errno("device: open objects");
    device->quarantine_.reset(::openat(root.get(), "quarantine", kDirFlags));
    if (!device->quarantine_) return fail_errno("device: open quarantine");
    TRY(check_ours(device->objects_.get()));
    TRY(check_ours(device->quarantine_.get()));
    // A subdirectory that somebody took away is only a loss of its copies: make it again.
    for (unsigned i = 0; i < kSubdirectories; ++i) {
      const auto name = subdirectory_name(i);
      TRY(make_directory(device->objects_.get(), name.data()));
      struct stat status;
      if (::fstatat(device->objects_.get(), name.data(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
        return fail_errno("device: stat a subdirectory");
      }
      if (S_ISLNK(status.st_mode)) return fail(ELOOP, "device: a subdirectory is a symlink");
      if (!S_ISDIR(status.st_mode)) return fail(ENOTDIR, "device: a subdirectory is a file");
    }
    device->set_access_times(options.access_times);
    return device;
  };
  Result<std::unique_ptr<DeviceDir>> result = attempt();
  if (!result && problem != nullptr) {
    problem->text = explain(result.error(), options.path, holder);
    problem->holder = holder;
  }
  return result;
}

void DeviceDir::set_access_times(AccessTimes times) {
  if (times == AccessTimes::kAsBelow) return;
  Result<UniqueFd> ours = open_privately(objects_.get(), times);
  if (ours.ok()) {
    objects_ = std::move(*ours);
    return;
  }
  // A process that may make no mount has no passthrough either: all reads are through our
  // descriptors.
  if (times == AccessTimes::kNever) {
    reads_move_nothing_ = true;
    return;
  }
  log_warn(
      "device event=no_access_times path={} step=\"{}\" errno={} effect=\"its mount says when "
      "reads move access times\"",
      info_.path, ours.error().what, ours.error().code);
}

// RESOLVE_CACHED (Linux 5.12): where the kernel would have to ask the disk for a name or an
// inode, EAGAIN.
Result<UniqueFd> DeviceDir::open_beneath(std::uint64_t object, int flags) {
  static std::atomic<bool> have_openat2{true};
  static std::atomic<bool> have_cached{true};
  const ObjectPath path = object_path(object);
  const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0;
  while (have_openat2.load(std::memory_order_relaxed)) {
    const bool is_cached =
        refuses_to_wait() && !changes && have_cached.load(std::memory_order_relaxed);
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags);
    how.mode = (flags & O_CREAT) != 0 ? 0600 : 0;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV |
                  (is_cached ? RESOLVE_CACHED : 0);
    const long fd = ::syscall(SYS_openat2, objects_.get(), path.c_str(), &how, sizeof how);
    if (fd >= 0) return UniqueFd(static_cast<int>(fd));
    if (is_cached && errno == EAGAIN) return fail(kMustWait, "a disk is to be asked");
    if (is_cached && errno == EINVAL) {
      have_cached.store(false, std::memory_order_relaxed);
      continue;
    }
    if (errno != ENOSYS) return fail_errno("device: open an object");
    have_openat2.store(false, std::memory_order_relaxed);
  }
  const int fd = ::openat(objects_.get(), path.c_str(), flags, 0600);
  if (fd < 0) return fail_errno("device: open an object");
  return UniqueFd(fd);
}

Result<UniqueFd> DeviceDir::create(std::uint64_t object) {
  UniqueFd fd = TRY(
      open_beneath(object, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_LARGEFILE));
  if (umask_hides_owner_ && ::fchmod(fd.get(), 0600) != 0) {
    return fail_errno("device: chmod an object");
  }
  return fd;
}

Result<UniqueFd> DeviceDir::open(std::uint64_t object, int flags) {
  flags &= kOpenFlags;
  if ((flags & O_PATH) != 0) {
    flags = O_PATH;
  } else {
    // Never wait for the other end of a fifo that somebody put there; regular files do not
    // care.
    flags |= O_NONBLOCK;
    if (reads_move_nothing_) flags |= O_NOATIME;
  }
  Result<UniqueFd> fd = open_beneath(object, flags | O_NOFOLLOW | O_CLOEXEC | O_LARGEFILE);
  // is_used() has its lease for a moment; a fifo has none.
  if (!fd.ok() && fd.error().code == EWOULDBLOCK)
    return open_beneath(object, (flags & ~O_NONBLOCK) | O_NOFOLLOW | O_CLOEXEC | O_LARGEFILE);
  return fd;
}

// A write lease is given to who alone has the file open (check_conflicting_open() in
// fs/locks.c), and ends with the descriptor.
Result<bool> DeviceDir::is_used(std::uint64_t object) {
  const UniqueFd fd = TRY(open(object, O_RDONLY));
  const bool is_refused = ::fcntl(fd.get(), F_SETLEASE, F_WRLCK) != 0 && errno == EAGAIN;
  if (is_refused && has_another(fd.get()))
    return fail(EBUSY, "device: this process has it open itself");
  return is_refused;
}

// fstatat(2) cannot be told not to ask the disk.
Result<struct stat> DeviceDir::status(std::uint64_t object) {
  struct stat status;
  if (refuses_to_wait()) {
    const Result<UniqueFd> fd = open_beneath(object, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    // Who may wait needs no descriptor.
    if (!fd.ok() && (fd.error().code == EMFILE || fd.error().code == ENFILE))
      return fail(kMustWait, "no descriptor is free");
    if (!fd.ok()) return fd.error();
    if (::fstat(fd->get(), &status) != 0) return fail_errno("device: stat an object");
  } else if (::fstatat(objects_.get(), object_path(object).c_str(), &status,
                       AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno("device: stat an object");
  }
  if (!S_ISREG(status.st_mode)) return fail(EBADMSG, "device: an object is no regular file");
  return status;
}

Result<void> DeviceDir::remove(std::uint64_t object) {
  if (::unlinkat(objects_.get(), object_path(object).c_str(), 0) != 0 && errno != ENOENT) {
    return fail_errno("device: unlink an object");
  }
  return {};
}

Result<void> DeviceDir::quarantine(std::uint64_t object) {
  const ObjectPath path = object_path(object);
  if (::renameat(objects_.get(), path.c_str(), quarantine_.get(), path.name()) != 0 &&
      errno != ENOENT) {
    return fail_errno("device: quarantine an object");
  }
  return trim_quarantine();
}

// The superblock, from the disk.
Result<void> DeviceDir::check_read() {
  alignas(kCheckBytes) std::array<char, kCheckBytes> bytes;
  const std::string self = fmt::format("/proc/self/fd/{}", superblock_.get());
  UniqueFd fd(::open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  // Where the filesystem has no direct reads, or wants longer ones, or no descriptor is free: perhaps from memory.
  ssize_t got = fd ? ::pread(fd.get(), bytes.data(), bytes.size(), 0) : -1;
  if (!fd || (got < 0 && errno == EINVAL))
    got = ::pread(superblock_.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return fail_errno("device: read the superblock");
  if (got == 0) return fail(EIO, "device: read the superblock: it is empty");
  return {};
}

// A file without a name, which no crash leaves behind.
Result<void> DeviceDir::check_write() {
  alignas(kCheckBytes) std::array<char, kCheckBytes> bytes{};
  constexpr int kFlags = O_TMPFILE | O_RDWR | O_CLOEXEC;
  UniqueFd fd(::openat(quarantine_.get(), ".", kFlags | O_DIRECT, 0600));
  if (!fd && errno == EINVAL) fd.reset(::openat(quarantine_.get(), ".", kFlags, 0600));
  if (!fd && errno == EOPNOTSUPP) return {};
  if (!fd) return fail_errno("device: make a file");
  if (::pwrite(fd.get(), bytes.data(), bytes.size(), 0) < 0)
    return fail_errno("device: write a file");
  if (::fdatasync(fd.get()) != 0) return fail_errno("device: sync a file");
  return {};
}

Result<void> DeviceDir::check(TierCheck how) {
  TRY(check_read());
  if (how == TierCheck::kRead) return {};
  const Result<void> written = check_write();
  if (written.ok() || written.error().code == ENOSPC || written.error().code == EDQUOT)
    return {};
  // A part of the disk that cannot be written is no reason to give up what can be read.
  return fail(EROFS, written.error().what);
}

Result<void> DeviceDir::trim_quarantine() {
  struct Copy {
    timespec since;  // the rename moved its ctime
    std::string name;
    std::uint64_t bytes;
  };
  std::vector<Copy> copies;
  std::uint64_t bytes = 0;
  TRY(each_name(quarantine_.get(), ".", [&](std::string_view name, unsigned char type) {
    struct stat status;
    const std::string text(name);
    // What else a person has put there is his.
    if (type == DT_REG && is_object_name(name) &&
        ::fstatat(quarantine_.get(), text.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
      const auto size = static_cast<std::uint64_t>(status.st_blocks) * 512;
      copies.push_back({.since = status.st_ctim, .name = text, .bytes = size});
      bytes += size;
    }
    return true;
  }));
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) {
    return std::tie(a.since.tv_sec, a.since.tv_nsec, a.name) <
           std::tie(b.since.tv_sec, b.since.tv_nsec, b.name);
  });
  std::uint64_t most = kMostQuarantinedBytes;
  if (info_.size_limit_bytes > 0) most = std::min(most, info_.size_limit_bytes / 16);
  std::size_t left = copies.size();
  for (const Copy& copy : copies) {
    if (left <= kMostQuarantined && bytes <= most) break;
    if (::unlinkat(quarantine_.get(), copy.name.c_str(), 0) != 0 && errno != ENOENT) {
      return fail_errno("device: unlink from quarantine");
    }
    --left;
    bytes -= copy.bytes;
  }
  return {};
}

Result<void> DeviceDir::sync() {
  if (::syncfs(objects_.get()) != 0) return fail_errno("device: syncfs");
  return {};
}

Result<struct statvfs> DeviceDir::space() {
  struct statvfs space;
  if (::fstatvfs(objects_.get(), &space) != 0) return fail_errno("device: statvfs");
  return space;
}

Result<std::string> DeviceDir::mount_identity() {
  // Mount ids are reused, unique ones (kernel 6.8) are not: an unknown bit is ignored by older
  // kernels.
  constexpr unsigned kMountIdUnique = 0x4000;
  struct statx status {};
  // Not of our own mount, which is another one each time.
  if (::statx(quarantine_.get(), "", AT_EMPTY_PATH, STATX_MNT_ID | kMountIdUnique, &status) !=
      0) {
    return fail_errno("device: statx");
  }
  const char* kind = (status.stx_mask & kMountIdUnique) != 0 ? "unique" : "id";
  return fmt::format("{}:{}:{}:{}", kind, static_cast<std::uint64_t>(status.stx_mnt_id),
                     status.stx_dev_major, status.stx_dev_minor);
}

Result<void> DeviceDir::each(const std::function<bool(std::uint64_t object)>& visit,
                             const std::function<void(const std::string& path)>& unknown) {
  bool go_on = true;
  // What stands beside the subdirectories.
  TRY(each_name(objects_.get(), ".", [&](std::string_view name, unsigned char type) {
    unsigned value = 0;
    const auto [end, error] =
        std::from_chars(name.data(), name.data() + name.size(), value, 16);
    const bool ours = error == std::errc{} && end == name.data() + name.size() &&
                      type == DT_DIR && value < kSubdirectories &&
                      name == subdirectory_name(value).data();
    if (!ours) unknown("objects/" + std::string(name));
    return true;
  }));
  for (unsigned i = 0; i < kSubdirectories && go_on; ++i) {
    const auto directory = subdirectory_name(i);
    TRY(each_name(objects_.get(), directory.data(),
                  [&](std::string_view name, unsigned char type) {
                    std::uint64_t object = 0;
                    if (type == DT_REG && object_of(name, i, object)) {
                      go_on = visit(object);
                    } else {
                      unknown(fmt::format("objects/{}/{}", directory.data(), name));
                    }
                    return go_on;
                  }));
  }
  return {};
}

}  // namespace kvcachefs
