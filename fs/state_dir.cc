#include "fs/state_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "backend/base/log.h"
#include "backend/base/units.h"
#include "fs/foreign_entry.h"
#include "fs/refuse.h"
#include "metadata/rocksdb_store.h"

namespace kvcachefs {
namespace {

// For the database's logs and tables to begin with.
constexpr std::uint64_t kLeastFreeSpace = 16 * kMiB;

const char* fix_for(int code) {
  switch (code) {
    case ENOENT:
      return "make its parent directory first";
    case EROFS:
      return "its filesystem is read-only: name another with --state";
    case ENOSPC:
    case EDQUOT:
      return "its filesystem is full: free space, or name another with --state";
    case EACCES:
    case EPERM:
      return "run as its owner";
    default:
      return "name another with --state";
  }
}

Error refuse_call(std::string& problem, int code, const std::string& path) {
  return refuse(
      problem,
      fmt::format("state directory: {}: {}: {}", path, std::strerror(code), fix_for(code)),
      code);
}

// Looks at the open directory, so that what was checked is what is used.
Result<void> check(int fd, const std::string& path, std::string& problem) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return refuse_call(problem, errno, path);
  if (status.st_uid != ::geteuid()) {
    return refuse(
        problem,
        fmt::format("state directory: {}: belongs to uid {}: chown {} it, or name another "
                    "with --state",
                    path, status.st_uid, ::geteuid()),
        EPERM);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refuse(
        problem,
        fmt::format("state directory: {}: other users may write to it (mode {:04o}), so "
                    "it cannot be trusted: look at what is in it, then chmod 0700 it",
                    path, status.st_mode & 07777),
        EPERM);
  }
  return {};
}

// Names of files are private to their directories; the database repeats them.
Result<void> close_to_others(int fd, const std::string& path, std::string& problem) {
  struct stat status;
  if (::fstat(fd, &status) == 0 && (status.st_mode & 0077) == 0) return {};
  if (::fchmod(fd, 0700) != 0) return refuse_call(problem, errno, path);
  return {};
}

// Whether a mount has put it into its state directory.
bool is_own(const std::string& name) {
  return name == "lock" || name == "control.sock" || name == "devices" || name == "db" ||
         name == "lost+found";
}

// umount(8) returns when the kernel has let go, and the daemon then seals what was stored last.
Result<FileLock> acquire_lock(const std::string& lock_path, const std::string& state,
                              pid_t* holder, const StateDir::Say& say) {
  auto lock = FileLock::acquire(lock_path, holder);
  if (lock.ok() || lock.error().code != EBUSY || !FileLock::is_ending(lock_path)) return lock;
  log_info("state event=waiting_for_the_last path={} pid={}", state, *holder);
  if (say)
    say(fmt::format(
        "state directory: {}: kvcachefs with pid {} is ending: waiting for it, {} s "
        "at most",
        state, *holder, StateDir::kLongestEnd.count()));
  return FileLock::acquire(lock_path, holder, StateDir::kLongestEnd);
}

}  // namespace

std::string lock_path_of(const std::string& state) { return state + "/lock"; }
std::string control_path_of(const std::string& state) { return state + "/control.sock"; }

StateDir::StateDir(StateDir&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      created_(std::exchange(other.created_, false)),
      fresh_(std::exchange(other.fresh_, false)),
      lock_(std::move(other.lock_)) {}

void StateDir::mark_ending() noexcept {
  if (!lock_) return;
  if (const Result<void> marked = lock_->mark_ending(); !marked.ok())
    log_warn("state event=end_not_said path={} errno={}", path_, marked.error().code);
}

StateDir::~StateDir() {
  std::error_code ignored;
  // Who has the lock in its place uses it.
  if (lock_ && (created_ || fresh_)) std::filesystem::remove_all(database_path(), ignored);
  if (lock_ && created_)
    for (const char* name : {"devices", "control.sock", "lock"}) ::unlinkat(fd_.get(), name, 0);
  // Only if it is empty: something else may have its path by now.
  if (created_) std::filesystem::remove(path_, ignored);
}

Result<StateDir> StateDir::open(const std::string& path, IfMissing if_missing,
                                std::string& problem, const Say& say) {
  bool created = false;
  if (if_missing == IfMissing::kCreate) {
    if (::mkdir(path.c_str(), 0700) == 0) {
      created = true;
    } else if (errno != EEXIST) {
      return refuse_call(problem, errno, path);
    }
  }
  // From here on a failure takes a directory that we made with it.
  StateDir state(path, created);
  // A mount has resolved its path by now; others take a link to the directory as well.
  const int links = if_missing == IfMissing::kCreate ? O_NOFOLLOW : 0;
  state.fd_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | links | O_CLOEXEC));
  const UniqueFd& fd = state.fd_;
  if (!fd) {
    const int code = errno;
    if (code == ENOENT) {
      return refuse(
          problem,
          fmt::format("state directory: {}: there is none: name the one that the mount "
                      "was given",
                      path),
          ENOENT);
    }
    if (code == ENOTDIR || code == ELOOP) {
      return refuse(problem,
                    fmt::format("state directory: {}: not a directory: name another "
                                "with --state",
                                path),
                    code);
    }
    return refuse_call(problem, code, path);
  }
  TRY(check(fd.get(), path, problem));

  // Nothing is changed, or left behind, in a directory that is none of ours.
  if (::faccessat(fd.get(), "db", F_OK, 0) != 0) {
    if (if_missing == IfMissing::kFail) {
      return refuse(problem,
                    fmt::format("state directory: {}: no metadata database in it: name the "
                                "one that the mount was given",
                                path),
                    ENOENT);
    }
    if (const std::string other = foreign_entry(state.held(), is_own); !other.empty()) {
      return refuse(problem,
                    fmt::format("state directory: {}: holds other things ({:?}): name one that "
                                "is empty, or not there yet",
                                path, other),
                    ENOTEMPTY);
    }
  }
  if (if_missing == IfMissing::kCreate) TRY(close_to_others(fd.get(), path, problem));

  // Before anything is made. A database that is there sees for itself (FreeSpace).
  struct statvfs space;
  if (if_missing == IfMissing::kCreate && !RocksdbStore::exists(state.database_path()) &&
      ::fstatvfs(fd.get(), &space) == 0 && space.f_bavail * space.f_frsize < kLeastFreeSpace) {
    return refuse(
        problem,
        fmt::format("state directory: {}: No space left: free at least {}, or name another "
                    "with --state",
                    path, format_size(kLeastFreeSpace)),
        ENOSPC);
  }
  pid_t holder = 0;
  auto lock = acquire_lock(lock_path_of(state.held()), path, &holder, say);
  if (!lock) {
    if (lock.error().code == EBUSY && FileLock::is_ending(lock_path_of(state.held()))) {
      return refuse(
          problem,
          fmt::format("state directory: {}: kvcachefs with pid {} has been ending for "
                      "{} s: its log says what it waits for; kill -9 it, and try again",
                      path, holder, kLongestEnd.count()),
          EBUSY);
    }
    if (lock.error().code == EBUSY) {
      return refuse(
          problem,
          fmt::format("state directory: {}: in use by kvcachefs with pid {}: unmount that "
                      "one first, or name another with --state",
                      path, holder),
          EBUSY);
    }
    return refuse_call(problem, lock.error().code, path);
  }
  state.lock_.emplace(std::move(*lock));
  // What looks like the beginning of a database is not ours to take away.
  struct stat status;
  state.fresh_ = ::lstat(state.database_path().c_str(), &status) != 0 && errno == ENOENT;
  return state;
}

}  // namespace kvcachefs
