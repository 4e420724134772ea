// An open file: what a FUSE file handle stands for.
#pragma once

#include <fcntl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"
#include "backend/tier.h"
#include "fs/budget/open_bytes.h"
#include "fs/node/arriving.h"
#include "fs/node/descriptor_bound.h"
#include "fs/node/inode.h"
#include "fs/volume.h"

namespace kvcachefs {

class OpenFile {
 public:
  // A descriptor of the backing file, for the time of one call.
  class Descriptor {
   public:
    explicit Descriptor(int kept) noexcept : fd_(kept) {}
    explicit Descriptor(UniqueFd own) noexcept : own_(std::move(own)), fd_(own_.get()) {}
    [[nodiscard]] int get() const noexcept { return fd_; }

   private:
    UniqueFd own_;
    int fd_;
  };

  OpenFile(InodePtr its_inode, int its_flags, Tier& its_tier, ObjectId its_object,
           DescriptorBound& descriptors, const Caller& its_opener,
           std::shared_ptr<Arriving> its_arriving = nullptr)
      : inode(std::move(its_inode)),
        flags(its_flags),
        tier(its_tier),
        object(its_object),
        opener(its_opener.pid),
        arriving(std::move(its_arriving)),
        descriptors_(descriptors),
        user_(its_opener.uid) {}
  ~OpenFile() {
    if (fd_) descriptors_.give_back(user_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] bool writable() const noexcept { return (flags & O_ACCMODE) != O_RDONLY; }
  // Nothing is written through it but behind the end, unless O_APPEND is taken back (fcntl(2)).
  [[nodiscard]] bool only_appends() const noexcept {
    return (flags & O_ACCMODE) == O_WRONLY && (flags & O_APPEND) != 0;
  }
  // The flags that it had in the end.
  void had_flags(int last) noexcept {
    if ((flags & O_APPEND) != 0 && (last & O_APPEND) == 0)
      inode->appended_object.store(kNoObject);
  }
  // The daemon's own descriptor of the backing file, opened at the first need (in passthrough
  // mode that is an fsync, a fallocate, a seek) and kept, so that an error of the disk is
  // reported once to this open file; where its user has no more of them, opened for each call.
  // Errors: those of Tier::open(), kMustWait among them. O_DIRECT is left out: the daemon's buffers and the tails of
  // files are not aligned.
  Result<Descriptor> descriptor() {
    std::unique_lock lock(mutex_, std::defer_lock);
    // Whoever has it may wait for the disk.
    if (!refuses_to_wait()) {
      lock.lock();
    } else if (!lock.try_lock()) {
      return fail(kMustWait, "a backing file is being opened");
    }
    if (fd_) return Descriptor(fd_.get());
    UniqueFd fd = TRY(tier.open(
        object, (writable() ? O_RDWR : O_RDONLY) | (flags & (O_SYNC | O_DSYNC | O_NOATIME))));
    if (!descriptors_.take(user_)) return Descriptor(std::move(fd));
    fd_ = std::move(fd);
    return Descriptor(fd_.get());
  }
  // Before anybody calls descriptor(): one that is open already.
  void adopt(UniqueFd fd) {
    if (!descriptors_.take(user_)) return;
    const std::lock_guard lock(mutex_);
    fd_ = std::move(fd);
  }

  const InodePtr inode;
  const int flags;  // of open(2)
  Tier& tier;
  const ObjectId object;
  const pid_t opener;                        // the thread that opened it; 0: invisible to us
  const std::shared_ptr<Arriving> arriving;  // null: its bytes were here when it was opened
  ServeMode mode = ServeMode::kDirect;
  OpenBytes::Hold hold;  // its user's; of nothing where it was made or truncated by this open
  // A descriptor of it was closed, and the daemon has seen no write since: mostly the kernel's RELEASE is under way. Counted in
  // Inode::closing, under the inode's lock.
  std::atomic<bool> is_closing{false};
  // Of one that may write: Inode::write_opens of this open, and whether what it writes was to
  // be published first by its close. Set at the open.
  std::uint64_t write_open = 0;
  bool makes = false;

 private:
  DescriptorBound& descriptors_;
  const uid_t user_;
  std::mutex mutex_;
  UniqueFd fd_;
};

}  // namespace kvcachefs
