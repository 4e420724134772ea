// Open files: open, create, release, and the calls on a descriptor.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "fs/life/verify.h"
#include "fs/names/namespace.h"
#include "fs/node/core.h"
#include "fs/node/open_file.h"

namespace kvcachefs {

class Files {
 public:
  Files(Core& core, Namespace& names, Verifier& verifier)
      : core_(core), names_(names), verifier_(verifier) {}

  // As the methods of the same names in fs/volume.h.
  Result<Opened> open(InodeNumber inode, int flags, const Caller& caller, OpenCheck check);
  [[nodiscard]] Result<OpenCost> open_cost(InodeNumber inode, int flags);
  Result<Created> create(InodeNumber parent, std::string_view name, mode_t mode, int flags,
                         const Caller& caller);
  Result<Created> make_tmpfile(InodeNumber parent, mode_t mode, int flags,
                               const Caller& caller);
  Result<std::size_t> read(OpenFile& file, std::span<std::byte> out, std::uint64_t offset);
  Result<std::size_t> write(OpenFile& file, std::span<const std::byte> data,
                            std::uint64_t offset, const Caller& caller);
  Result<void> flush(OpenFile& file, const Caller& caller);
  [[nodiscard]] Result<FlushCost> flush_cost(const OpenFile& file, bool waits_for_room);
  void wait_for_room(const OpenFile& file, std::chrono::steady_clock::time_point called);
  void release(OpenFile& file);
  bool release_at_once(OpenFile& file);
  Result<void> fsync(OpenFile& file, bool data_only, const Caller& caller);
  Result<void> fallocate(OpenFile& file, int mode, std::uint64_t offset, std::uint64_t length,
                         const Caller& caller);
  Result<std::uint64_t> seek(OpenFile& file, std::uint64_t offset, int whence);
  Result<std::uint64_t> copy_range(OpenFile& from, std::uint64_t from_offset, OpenFile& to,
                                   std::uint64_t to_offset, std::uint64_t length,
                                   const Caller& caller);

  // Its bytes are on the pool alone.
  // Error: kMustWait.
  static Result<bool> is_remote(Inode& inode);
  static bool has_no_name(Inode& inode);
  bool is_told_to_keep(Inode& inode);
  // Its name here stood for what the pool has.
  Result<void> let_go_of_remote(Inode& inode);
  Result<void> check_mapped(Inode& inode);
  Result<bool> is_to_be_kept(Inode& inode);
  // sync_change() and fdatasync; where the disk fails, what is not published yet is poisoned.
  Result<void> sync_bytes(Inode& inode, int fd);
  // That, then the sticky marks (kInode...), all durable when it returns. `fd` is of the inode's
  // object.
  Result<void> make_durable(Inode& inode, int fd, std::uint32_t marks);
  // Notes in the inode what is on the disk. `fd` is of `object`; of another one than the inode's, nothing.
  Result<void> bring_to_disk(Inode& inode, int fd, ObjectId object);
  // What policy keep's close, rename and link do before they say that all is well: its bytes go to the disk, and what is
  // published of it is marked kInodeOnDisk. It takes Catalog::sync() to make that durable, too. `fd` is of `object`; of
  // another one than the inode's, nothing.
  Result<void> keep_safe(Inode& inode, int fd, ObjectId object);
  // The same for a file that nobody needs to have open; of what is no file, nothing. Its close waits from now on.
  Result<void> keep_safe(InodeNumber number);
  // Lets go of what is still open: the kernel's side has gone.
  void release_all();

 private:
  // Of the table of open files. Null: it is not there.
  std::unique_ptr<OpenFile> take_out(OpenFile& file);
  Result<struct stat> check_stands(Inode& inode);
  // Errors: EINVAL (O_DIRECT where it is refused).
  Result<void> check_direct_io(InodeNumber directory, int flags);
  // A load of it may be recorded.
  [[nodiscard]] bool may_note_use(const Inode& inode) const;
  void note_use(Inode& inode);
  Result<void> note_first_use(Inode& inode);
  Result<void> check_direct_io_of(InodeNumber file, int flags);  // by its first name
  struct Prepared {
    UniqueFd fd;  // of the backing file, where there is one already
    OpenBytes::Hold hold;
  };
  Result<Opened> open_locked(const InodePtr& inode, int flags, Prepared prepared,
                             const Caller& opener, std::unique_lock<InodeMutex>& lock);
  // Errors: ENOENT to who only reads, else ENOSPC: Budget::hold().
  Result<OpenBytes::Hold> hold(const Inode& inode, const struct stat& backing, int flags,
                               const Caller& caller, bool& has_too_much);
  // `has_too_much`: it failed because its user may not hold so much (Budget::hold()).
  Result<Opened> try_open(InodeNumber inode, int flags, const Caller& caller, OpenCheck check,
                          bool& has_too_much);
  // The caller of both holds the inode's lock.
  void count_opened(const OpenFile& file);
  void count_closed(OpenFile& file);
  Result<Created> finish_create(Namespace::Made&& made, int flags, const Caller& opener);
  // The descriptor of a new object, where it made one.
  Result<UniqueFd> truncate_at_open(Inode& inode, Tier& tier, int flags, const Caller& caller);
  Result<UniqueFd> start_rewrite(Inode& inode, const Caller& caller);
  void make_kernel_ask(Inode& inode);
  void undo_rewrite(Inode& inode);
  Result<void> note_left_open(Inode& inode);
  Result<int> backing_id_of(Inode& inode, Tier& tier, int fd);
  // Keeps OpenFile::is_closing and Inode::closing.
  static void note_closing(OpenFile& file, bool is_closing);
  Result<void> strip_on_write(OpenFile& file, const Caller& caller);
  Result<bool> is_left_behind(OpenFile& file, const Caller& caller);
  // The caller holds the inode's lock.
  Result<bool> is_half_stored(const OpenFile& file);
  Result<bool> is_empty_store(Inode& inode);
  Result<void> check_unfinished(Inode& inode);
  Result<void> check_growth(Inode& inode);
  Result<void> note_growth(Inode& inode, int fd, std::uint64_t length);
  Result<std::optional<Reservation>> take_room(Inode& inode, int fd, std::uint64_t offset,
                                               std::uint64_t length, std::uint64_t most);
  Result<void> check_room(OpenFile& file, int fd, std::uint64_t offset, std::uint64_t length);
  void give_up_store(const OpenFile& file, int code);
  void poison(Inode& inode, int code);
  void drop_torn_file(Inode& inode);
  void drop_abandoned(Inode& inode);
  Result<void> sync_change(Inode& inode);
  void store_done(Inode& inode);
  static Result<std::optional<std::uint32_t>> device_of(Inode& inode);
  // The file's bytes are here when it returns, or, of who only reads, on their way.
  Result<std::optional<Arrival>> bring_bytes(const InodePtr& inode, int flags);
  Result<Opened> open_arriving(const InodePtr& inode, int flags, Prepared prepared,
                               const Caller& opener, Arrival&& arrival,
                               std::unique_lock<InodeMutex>& lock);
  Opened enter(std::unique_ptr<OpenFile> file, std::unique_lock<InodeMutex>& lock);

  Core& core_;
  Namespace& names_;
  Verifier& verifier_;
  std::mutex open_mutex_;
  std::unordered_map<OpenFile*, std::unique_ptr<OpenFile>> open_;  // guarded by open_mutex_
};

}  // namespace kvcachefs
