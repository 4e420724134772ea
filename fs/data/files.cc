// Opening and closing; the calls that move bytes are in file_calls.cc.
#include "fs/data/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/base/log.h"
#include "fs/life/checked_status.h"
#include "fs/life/drop.h"
#include "fs/life/is_mapped.h"
#include "fs/life/states.h"
#include "fs/life/torn.h"
#include "fs/names/attrs.h"
#include "fs/node/attributes.h"

namespace kvcachefs {

// Without passthrough, the first reader of a file of this size gets it past the kernel's page
// cache: two to three times faster than filling it (bench/README.md), and most of a cache is read
// once. Who comes again finds it worth keeping.
constexpr std::uint64_t kStreamedFirst = 1u << 20;

// The attributes of a file that is being created: the kernel asks for them once more before its
// create(2) returns, unless they last until then.
constexpr double kFreshTimeout = 0.01;

namespace {

// By the flags of an open.
bool only_reads(int flags) { return (flags & O_ACCMODE) == O_RDONLY && (flags & O_TRUNC) == 0; }

// Some milliseconds, of an open that is refused otherwise.
constexpr int kMostLooks = 16;

bool is_direct_writer(const OpenFile& file) {
  return file.mode == ServeMode::kDirect && file.writable();
}

}  // namespace

void Files::count_opened(const OpenFile& file) {
  Inode& inode = *file.inode;
  ++inode.opens;
  if (file.mode == ServeMode::kCached) ++inode.cached_opens;
  if (is_direct_writer(file)) ++inode.direct_writers;
  core_.budget.held(inode, file.hold.bytes());
}

void Files::count_closed(OpenFile& file) {
  Inode& inode = *file.inode;
  --inode.opens;
  if (file.mode == ServeMode::kCached) --inode.cached_opens;
  if (is_direct_writer(file)) --inode.direct_writers;
  if (inode.opens > 0) return;
  core_.budget.let_go(inode);
  // The kernel's own descriptor may be there for some microseconds yet: whether it is mapped is
  // seen later.
  const InodeRecord& record = inode.record;
  const bool may_be_mapped = core_.passthrough() && file.hold.bytes() > 0 &&
                             record.state == DataState::kSealed && record.nlink > 0;
  if (may_be_mapped)
    core_.budget.mapped().add(
        {.user = file.hold.user(), .inode = inode.number, .object = record.object},
        std::move(file.hold));
}

// Who only reads can do without: it is a miss to him.
Result<OpenBytes::Hold> Files::hold(const Inode& inode, const struct stat& backing, int flags,
                                    const Caller& caller, bool& has_too_much) {
  if ((flags & O_TRUNC) != 0) return OpenBytes::Hold();
  Result<OpenBytes::Hold> hold = core_.budget.hold(inode, backing, caller.uid);
  has_too_much = !hold.ok();
  if (!hold.ok() && only_reads(flags)) return fail(ENOENT, hold.error().what);
  return hold;
}

// One id an object, kept as long as the inode is in memory: the kernel refuses a second id for
// a file that is open, even one that names the same backing file.
Result<int> Files::backing_id_of(Inode& inode, Tier& tier, int fd) {
  if (inode.backing_id != 0 && inode.backing_object == inode.record.object)
    return inode.backing_id;
  if (inode.backing_id != 0) {
    core_.backing_ids->close(inode.backing_id);
    inode.backing_id = 0;
  }
  UniqueFd path;
  if (fd < 0) {
    path = TRY(tier.open(inode.record.object, O_PATH));
    fd = path.get();
  }
  inode.backing_id = TRY(core_.backing_ids->open(fd));
  inode.backing_object = inode.record.object;
  return inode.backing_id;
}

// A new object takes the place of the published one; the old one stays as `previous` until the
// new one is published.
Result<UniqueFd> Files::start_rewrite(Inode& inode, const Caller& caller) {
  const ObjectId object = TRY(core_.catalog.next_id());
  NewCopy copy = TRY(core_.devices->create_copy(object));
  InodeRecord next = inode.record;
  next.previous_object = next.object;
  next.previous_state = next.state;
  next.object = object;
  next.writer = core_.knowledge.writer_of(caller.pid);
  Edit edit;
  edit.make_object(
      object,
      ObjectRecord{
          .inode = inode.number, .device = copy.device, .chunk_crc32c = {}, .sealed = {}});
  enter_state(inode.number, next, DataState::kUnpublished, edit);
  if (const Result<void> committed =
          commit_record(core_, inode, std::move(next), std::move(edit));
      !committed.ok()) {
    static_cast<void>(core_.devices->remove_copy(copy.device, object).ok());
    return committed.error();
  }
  inode.device = copy.device;
  core_.budget.made(inode);
  return std::move(copy.fd);
}

// Whoever began it has not opened the file after all, and nobody else has.
void Files::undo_rewrite(Inode& inode) {
  if (const Result<void> undone = take_back_rewrite(core_, inode); !undone.ok()) {
    log_error("rewrite not taken back inode={} errno={}: the next start does", inode.number,
              undone.error().code);
    return;
  }
  if (core_.on_orphan_object) core_.on_orphan_object();
}

// The kernel does not know what the file shows from here on: a store through a mapping, for
// one, tells the kernel nothing of the file's times. The caller holds the lock.
void Files::make_kernel_ask(Inode& inode) {
  if (inode.is_remembered.exchange(false, std::memory_order_relaxed) &&
      core_.notifications != nullptr)
    core_.notifications->invalidate_attributes_at_once(inode.number);
}

Result<UniqueFd> Files::truncate_at_open(Inode& inode, Tier& tier, int flags,
                                         const Caller& caller) {
  {
    InodeRecord next = inode.record;
    Edit edit;
    if (TRY(strip_privileges(core_, inode.number, next, caller, false, edit))) {
      next.ctime = file_clock_now();
      TRY(commit_record(core_, inode, std::move(next), std::move(edit)));
      make_kernel_ask(inode);
    }
  }
  const bool published =
      inode.record.state == DataState::kPublished || inode.record.state == DataState::kSealed;
  const bool named = inode.record.nlink > 0;
  // Who only reads what he truncates would never publish it.
  const bool writable = (flags & O_ACCMODE) != O_RDONLY;
  if (published && named && writable && inode.opens == 0 &&
      (inode.record.flags & kInodeFsynced) == 0) {
    return start_rewrite(inode, caller);
  }
  const UniqueFd fd = TRY(tier.open(inode.record.object, O_RDWR));
  inode.appended_object.store(kNoObject);
  if (published) {
    TRY(begin_change(core_, inode, Change::kTruncate));
  }
  TRY(unmark_on_disk(core_, inode));
  if (::ftruncate(fd.get(), 0) != 0) {
    const Error failed = fail_errno("truncate");
    // Nobody may have it open who would tell the sealer.
    if (inode.writers == 0 && core_.on_unwritten) core_.on_unwritten(inode.number);
    return failed;
  }
  return UniqueFd{};
}

// ESTALE makes the kernel look the name up again, and find the miss.
Result<struct stat> Files::check_stands(Inode& inode) {
  Result<struct stat> checked = checked_status(core_, inode);
  if (checked.ok()) return checked;
  return miss_or_error(core_, inode, checked.error(), ESTALE);
}

Result<void> Files::check_direct_io(InodeNumber directory, int flags) {
  if ((flags & O_DIRECT) == 0) return {};
  const std::optional<DirectIo> told = TRY(core_.knowledge.direct_io(directory));
  if (told.value_or(core_.options.direct_io) == DirectIo::kPass) return {};
  return fail(EINVAL, "O_DIRECT is refused here");
}

Result<void> Files::check_direct_io_of(InodeNumber file, int flags) {
  const bool may_be_refused =
      core_.options.direct_io == DirectIo::kRefuse || core_.catalog.is_told_policy();
  if ((flags & O_DIRECT) == 0 || !may_be_refused) return {};
  const auto links = TRY(core_.catalog.list_links(file, 1));
  return check_direct_io(links.empty() ? kRootInode : links.front().first, flags);
}

bool Files::may_note_use(const Inode& inode) const {
  const bool may_matter =
      core_.is_publishing && (core_.options.pool_options.writes == PoolWrites::kReused ||
                              core_.catalog.is_told_policy());
  return may_matter && !inode.use_noted.load(std::memory_order_relaxed);
}

// Of a block that is opened once more after it was stored: where those go to the pool, it does
// now.
void Files::note_use(Inode& inode) {
  if (!may_note_use(inode)) return;
  if (const Result<void> noted = note_first_use(inode); !noted.ok())
    log_debug("use not noted inode={} errno={}", inode.number, noted.error().code);
}

Result<void> Files::note_first_use(Inode& inode) {
  const auto links = TRY(core_.catalog.list_links(inode.number, 1));
  if (links.empty()) return {};
  const PoolWrites writes = TRY(core_.knowledge.pool_writes(links.front().first))
                                .value_or(core_.options.pool_options.writes);
  const bool is_on_pool = TRY(core_.catalog.find_pool_copy(inode.number)).has_value();
  {
    const std::lock_guard lock(inode.mutex);
    InodeRecord next = inode.record;
    if (next.state != DataState::kPublished && next.state != DataState::kSealed) return {};
    inode.use_noted.store(true, std::memory_order_relaxed);
    if (writes != PoolWrites::kReused || is_on_pool || (next.flags & kInodeReused) != 0)
      return {};
    next.flags |= kInodeReused;
    Edit edit;
    edit.put_to_publish(inode.number, next.stamp.size);
    TRY(commit_record(core_, inode, std::move(next), std::move(edit)));
  }
  if (core_.on_pool_work) core_.on_pool_work();
  return {};
}

Result<OpenCost> Files::open_cost(InodeNumber number, int flags) {
  const Result<InodePtr> inode = core_.table.get(number);
  if (!inode.ok() || !(*inode)->is_file()) return OpenCost::kQuick;
  if (TRY(is_remote(**inode))) return OpenCost::kWaitsForPool;
  if (verifier_.is_wanted(**inode, flags)) return OpenCost::kWaitsForDisk;
  return !only_reads(flags) || may_note_use(**inode) ? OpenCost::kChanges : OpenCost::kQuick;
}

Result<bool> Files::is_remote(Inode& inode) {
  const auto lock = TRY(lock_to_look(inode));
  return inode.record.state == DataState::kRemote;
}

bool Files::has_no_name(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.record.nlink == 0;
}

// Where that cannot be known just now its close waits for nothing more than others'.
bool Files::is_told_to_keep(Inode& inode) {
  InodeRecord record;
  {
    const std::lock_guard lock(inode.mutex);
    record = inode.record;
  }
  return core_.knowledge.is_told_to_keep(inode.number, record);
}

Result<void> Files::let_go_of_remote(Inode& inode) {
  return drop_names(core_, inode.number, DropReason::kRemoved, {},
                    {.may_go = [](const Inode& now) -> Result<bool> {
                      return now.record.state == DataState::kRemote;
                    }});
}

Result<std::optional<Arrival>> Files::bring_bytes(const InodePtr& inode, int flags) {
  std::uint64_t size = 0;
  {
    const auto lock = TRY(lock_to_look(*inode));
    if (inode->record.state != DataState::kRemote) return std::optional<Arrival>{};
    size = inode->record.stamp.size;
  }
  const bool is_reader = only_reads(flags);
  const bool in_frames = is_reader && core_.fetch && core_.comes_in_frames(size);
  Result<std::optional<Arrival>> brought = std::optional<Arrival>{};
  if (!core_.fetch) {
    brought = fail(ENOENT, "its bytes are on a pool that is not given");
  } else if (in_frames) {
    brought = core_.fetch_in_frames(inode);
  } else if (const Result<void> fetched = core_.fetch(inode); !fetched.ok()) {
    brought = fetched.error();
  }
  // Who reads can do without; it is not he who fills the disk.
  if (!brought.ok() && is_reader &&
      (brought.error().code == ENOSPC || brought.error().code == EDQUOT))
    return fail(ENOENT, "there is no room for its bytes");
  // The kernel looks it up once more then, and makes a new one where it was asked to. Who reads gets a miss: a second ESTALE
  // would be his.
  const bool is_gone =
      !brought.ok() && (brought.error().code == ENOENT || brought.error().code == ESTALE);
  const bool is_missing = is_gone && !is_reader;
  // He does not want them: that the pool does not answer is nothing to him.
  if (is_missing && (flags & O_TRUNC) != 0) TRY(let_go_of_remote(*inode));
  if (is_missing && has_no_name(*inode))
    return fail(ESTALE, "its name has gone with its bytes");
  return brought;
}

Result<Opened> Files::open(InodeNumber number, int flags, const Caller& caller,
                           OpenCheck check) {
  bool has_too_much = false;
  Result<Opened> opened = try_open(number, flags, caller, check, has_too_much);
  // Files that he has closed may be mapped no longer. One look may find no more of them than
  // the kernel tells us closed meanwhile.
  for (int look = 0; has_too_much && look < kMostLooks; ++look) {
    if (!look_at_mapped_of(core_, caller.uid)) break;
    opened = try_open(number, flags, caller, check, has_too_much);
  }
  if (has_too_much) core_.budget.open_bytes().refuse();
  return opened;
}

Result<Opened> Files::try_open(InodeNumber number, int flags, const Caller& caller,
                               OpenCheck check, bool& has_too_much) {
  has_too_much = false;
  const InodePtr inode = TRY(core_.table.get(number));
  if (!inode->is_file()) return fail(EINVAL, "open of something else than a file");
  TRY(check_direct_io_of(number, flags));
  TRY(take_back_if_failed(core_, *inode));
  std::optional<Arrival> arrival = TRY(bring_bytes(inode, flags));
  if ((flags & O_ACCMODE) != O_RDONLY)
    inode->close_waits.store(is_told_to_keep(*inode), std::memory_order_relaxed);
  struct stat checked = TRY(check_stands(*inode));
  if (check == OpenCheck::kVerify && verifier_.is_wanted(*inode, flags)) {
    TRY(verifier_.verify(inode, flags));
    // A user may have changed it meanwhile.
    checked = TRY(check_stands(*inode));
  }
  const bool changes = !only_reads(flags);
  auto lock = changes ? std::unique_lock(inode->mutex) : TRY(lock_to_look(*inode));
  if (inode->is_going()) return fail(ESTALE, "about to go");
  if (const ObjectId object = inode->record.object;
      object != kNoObject && inode->damaged_object == object) {
    lock.unlock();
    verifier_.wait_until_dropped(object);
    return fail(ESTALE, "its bytes are not the sealed ones");
  }
  stop_refusing();
  if (changes && (inode->record.flags & kInodeFirstWriter) != 0)
    return fail(EEXIST, "a prefix file has one writer");
  Prepared prepared{.fd = {}, .hold = TRY(hold(*inode, checked, flags, caller, has_too_much))};
  const ObjectId before = inode->record.object;
  if ((flags & O_TRUNC) != 0) {
    Tier* tier = TRY(core_.devices->of(*inode));
    prepared.fd = TRY(truncate_at_open(*inode, *tier, flags, caller));
  }
  // Runtimes load with O_RDWR, too.
  const bool reads = (flags & O_ACCMODE) != O_WRONLY && (flags & O_TRUNC) == 0;
  if (reads) core_.budget.opened(*inode, checked, caller.uid);
  if (core_.on_loading && inode->block.load(std::memory_order_relaxed) != 0)
    core_.on_loading(*inode, flags);
  const std::uint64_t size = inode->record.stamp.size;
  const int kept_flags = flags & ~(O_TRUNC | O_CREAT | O_EXCL);
  // Whole by now, it is opened as others are. Either lets go of the lock, unless it fails.
  const bool still_comes = arrival && inode->record.state == DataState::kRemote;
  const Result<Opened> opened =
      still_comes ? open_arriving(inode, kept_flags, std::move(prepared), caller,
                                  std::move(*arrival), lock)
                  : open_locked(inode, kept_flags, std::move(prepared), caller, lock);
  if (!opened.ok() && inode->record.object != before) undo_rewrite(*inode);
  // Truncated, and nobody writes it.
  const bool is_left = !opened.ok() || (flags & O_ACCMODE) == O_RDONLY;
  if ((flags & O_TRUNC) != 0 && is_left && core_.on_unwritten) core_.on_unwritten(number);
  if (!opened.ok()) return opened.error();
  const std::uint64_t block = inode->block.load(std::memory_order_relaxed);
  if (block == 0) core_.budget.used(number);
  if (block != 0) {
    if ((flags & O_TRUNC) != 0) {
      inode->being_stored.store(true, std::memory_order_relaxed);
      core_.knowledge.store_began(block, caller.pid);
    } else if ((flags & O_ACCMODE) != O_WRONLY) {
      core_.knowledge.loaded(*inode, size, caller.pid);
      note_use(*inode);
    }
    if ((flags & O_TRUNC) != 0 || (flags & O_ACCMODE) == O_WRONLY)
      core_.knowledge.rewritten(*inode, caller.pid);
  }
  return *opened;
}

Result<Opened> Files::open_locked(const InodePtr& inode, int flags, Prepared prepared,
                                  const Caller& opener, std::unique_lock<InodeMutex>& lock) {
  UniqueFd fd = std::move(prepared.fd);
  Tier* tier = TRY(core_.devices->of(*inode));
  const bool writable = (flags & O_ACCMODE) != O_RDONLY;
  auto file = std::make_unique<OpenFile>(inode, flags, *tier, inode->record.object,
                                         core_.descriptors, opener);
  file->hold = std::move(prepared.hold);
  // Somebody reads it through the kernel's page cache, as it came, which excludes passthrough.
  const bool is_excluded = core_.passthrough() && inode->cached_opens > 0;
  if (core_.passthrough() && !is_excluded) {
    const Result<int> id = backing_id_of(*inode, *tier, fd.get());
    if (!id.ok()) return id.error();
    const bool watch_writes = writable && (core_.budget.is_tight(*inode->device) ||
                                           core_.budget.is_near_bound(inode->tenant.load()) ||
                                           TRY(has_privileges(core_, *inode)));
    file->mode = watch_writes ? ServeMode::kPassthroughDirect : ServeMode::kPassthrough;
  } else {
    // The kernel drops the pages of a direct write before it asks us to write, and older ones not once more after it
    // (fs/fuse/file.c, fuse_direct_io()): a page that somebody reads meanwhile keeps the old bytes, or zeros at the
    // end. So who writes beside readers through the page cache goes through it as well, and who reads beside direct
    // writers past it.
    const bool streamed =
        !is_excluded && !inode->was_read && inode->record.stamp.size >= kStreamedFirst;
    const bool is_cached =
        writable ? inode->cached_opens > 0 : !streamed && inode->direct_writers == 0;
    file->mode = is_cached ? ServeMode::kCached : ServeMode::kDirect;
    if (!writable) inode->was_read = true;
    // A new object's has no flags.
    const int of_descriptor = flags & (O_SYNC | O_DSYNC | O_NOATIME);
    if (!fd || of_descriptor != 0)
      fd =
          TRY(tier->open(inode->record.object, (writable ? O_RDWR : O_RDONLY) | of_descriptor));
    file->adopt(std::move(fd));
  }
  // Last of what may fail: there is a writer from here on, and who seals it after him.
  if (writable && (inode->record.state == DataState::kPublished ||
                   inode->record.state == DataState::kSealed)) {
    TRY(begin_change(core_, *inode, Change::kWrite));
  }
  if (writable) {
    if (inode->writers == 0) {
      core_.budget.writer_began(inode->number);
      inode->danger_at_open = core_.budget.danger(*inode->device);
    }
    ++inode->writers;
    if ((flags & O_ACCMODE) == O_RDWR) {
      inode->may_be_stored_to = inode->may_be_stored_to || core_.passthrough();
      if (core_.passthrough()) core_.unseen.note(inode->number);
      inode->mappable_object = inode->record.object;
    }
    if (!file->only_appends()) inode->appended_object.store(kNoObject);
    make_kernel_ask(*inode);
    inode->write_opens = 1 + core_.write_opens.fetch_add(1);
    file->write_open = inode->write_opens;
    file->makes = inode->record.state == DataState::kUnpublished;
  }
  return enter(std::move(file), lock);
}

// Through the kernel's page cache, so that who maps it waits for its bytes as who reads it does.
Result<Opened> Files::open_arriving(const InodePtr& inode, int flags, Prepared prepared,
                                    const Caller& opener, Arrival&& arrival,
                                    std::unique_lock<InodeMutex>& lock) {
  auto file = std::make_unique<OpenFile>(inode, flags, *arrival.tier, arrival.object,
                                         core_.descriptors, opener, std::move(arrival.bytes));
  file->mode = ServeMode::kCached;
  file->hold = std::move(prepared.hold);
  file->adopt(std::move(arrival.fd));
  return enter(std::move(file), lock);
}

Opened Files::enter(std::unique_ptr<OpenFile> file, std::unique_lock<InodeMutex>& lock) {
  Inode& inode = *file->inode;
  count_opened(*file);
  const Opened opened{.file = file.get(),
                      .mode = file->mode,
                      .backing_id = inode.backing_id,
                      .drops_pages = file->mode == ServeMode::kCached &&
                                     std::exchange(inode.has_old_pages, false),
                      .wants_flush = file->writable()};
  lock.unlock();
  core_.counters.open_files.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard table_lock(open_mutex_);
  open_.emplace(file.get(), std::move(file));
  return opened;
}

Result<Created> Files::finish_create(Namespace::Made&& made, int flags, const Caller& opener) {
  if (made.block) core_.knowledge.store_began(made.block->number, opener.pid);
  Created created;
  std::unique_lock lock(made.inode->mutex);
  created.entry.inode = made.inode->number;
  created.entry.generation = made.inode->record.generation;
  Tier* tier = TRY(core_.devices->of(*made.inode));
  const struct stat backing = TRY(tier->status(made.inode->record.object));
  made.inode->seen_at.store(monotonic_now(), std::memory_order_relaxed);
  created.entry.attributes = merge_attributes(made.inode->number, made.inode->record, &backing);
  // Last of what may fail; lets go of the lock.
  created.opened = TRY(open_locked(made.inode, flags & ~(O_TRUNC | O_CREAT | O_EXCL),
                                   {.fd = std::move(made.copy.fd), .hold = {}}, opener, lock));
  made.inode->close_waits.store(made.is_kept, std::memory_order_relaxed);
  created.entry.entry_timeout_s = kBlockTimeout;
  created.entry.attribute_timeout_s = kFreshTimeout;
  core_.table.add_lookup(made.inode);
  return created;
}

Result<Created> Files::create(InodeNumber parent, std::string_view name, mode_t mode, int flags,
                              const Caller& caller) {
  TRY(check_direct_io(parent, flags));
  mode = (mode & ~static_cast<mode_t>(S_IFMT)) | S_IFREG;
  // Who only reads what he makes writes nothing that a close could publish.
  const bool writable = (flags & O_ACCMODE) != O_RDONLY;
  const DataState state = writable ? DataState::kUnpublished : DataState::kPublished;
  Result<Namespace::Made> made = names_.make(
      parent, name, {.mode = mode, .rdev = 0, .target = {}, .state = state}, caller);
  // The kernel believes that there is none: it looks again, and opens what has come since.
  const bool may_stand = (flags & O_EXCL) == 0 && !names_.native().holds(parent);
  if (!made.ok() && made.error().code == EEXIST && may_stand)
    return fail(ESTALE, "the name stands by now");
  Result<Created> created = finish_create(TRY(std::move(made)), flags, caller);
  // A create(2) that fails leaves no name.
  if (!created.ok()) {
    static_cast<void>(names_.unlink(parent, name, caller).ok());
    return created;
  }
  if (!writable && core_.on_unwritten) core_.on_unwritten(created->entry.inode);
  // Nobody else finds a prefix file before it is whole, and nobody a temporary after its rename.
  if (names_.native().holds(parent)) created->entry.entry_timeout_s = 0;
  return created;
}

Result<Created> Files::make_tmpfile(InodeNumber parent, mode_t mode, int flags,
                                    const Caller& caller) {
  TRY(check_direct_io(parent, flags));
  mode = (mode & ~static_cast<mode_t>(S_IFMT)) | S_IFREG;
  return finish_create(
      TRY(names_.make(parent, {},
                      {.mode = mode, .rdev = 0, .target = {}, .state = DataState::kUnpublished},
                      caller)),
      flags, caller);
}

std::unique_ptr<OpenFile> Files::take_out(OpenFile& file) {
  const std::lock_guard lock(open_mutex_);
  const auto at = open_.find(&file);
  if (at == open_.end()) return nullptr;
  std::unique_ptr<OpenFile> last = std::move(at->second);
  open_.erase(at);
  core_.counters.open_files.fetch_sub(1, std::memory_order_relaxed);
  return last;
}

bool Files::release_at_once(OpenFile& file) {
  if (file.writable()) return false;
  std::unique_ptr<OpenFile> last;  // its end may be the inode's, and comes after the lock
  const InodePtr inode = file.inode;
  const auto lock = lock_to_look(*inode);
  if (!lock.ok()) return false;
  last = take_out(file);
  if (last != nullptr) count_closed(*last);
  return true;
}

void Files::release(OpenFile& file) {
  const std::unique_ptr<OpenFile> last = take_out(file);
  if (last == nullptr) return;
  Inode& inode = *last->inode;
  bool seal = false;
  bool torn = false;
  bool abandoned = false;
  bool drop_pages = false;
  {
    const std::lock_guard lock(inode.mutex);
    count_closed(*last);
    if (is_direct_writer(*last)) {
      // Who had it mapped read pages all the same.
      inode.has_old_pages = true;
      drop_pages = inode.opens > 0 && inode.direct_writers == 0;
    }
    if (last->writable()) {
      if (last->is_closing) --inode.closing;
      --inode.writers;
      if (inode.writers == 0) {
        core_.budget.writer_ended(inode);
        inode.closed_at = core_.options.clocks.files();
      }
      if (inode.writers == 0 && inode.record.nlink > 0) {
        // What was stored after the last FLUSH (through a mapping, or a duplicate of the
        // descriptor) counts too; and when no FLUSH was the opener's, this is the close. An
        // empty file that was closed (flush()) was brought to the disk, and is published here.
        const Result<bool> is_emptied = is_empty_store(inode);
        const bool is_on_disk =
            is_emptied.ok() && *is_emptied && inode.on_disk.object == inode.record.object;
        if (const Result<void> stamped =
                publish_locked(core_, inode, is_on_disk ? std::uint32_t{kInodeOnDisk} : 0);
            !stamped.ok() && !inode.is_going()) {
          log_warn("stamp at release failed inode={} errno={}", inode.number,
                   stamped.error().code);
        }
        seal = is_unsealed(inode.record.state);
        torn = is_torn(inode);
        abandoned = inode.is_going() && inode.is_abandoned();
      }
    }
  }
  if (torn) drop_torn_file(inode);
  if (abandoned) drop_abandoned(inode);
  if (drop_pages && core_.notifications != nullptr)
    core_.notifications->invalidate_data(inode.number);
  if (last->writable()) store_done(inode);
  if (seal && core_.on_unwritten) core_.on_unwritten(inode.number);
}

void Files::drop_torn_file(Inode& inode) {
  if (const Result<void> dropped = drop_torn(core_, inode); !dropped.ok())
    log_error("torn file not dropped inode={} errno={}", inode.number, dropped.error().code);
}

// The sealer drops what somebody still reads: it finds that its writing has failed.
void Files::drop_abandoned(Inode& inode) {
  const auto drop = [&]() -> Result<void> {
    {
      const std::lock_guard lock(inode.mutex);
      if (TRY(take_back_failed(core_, inode)) || inode.record.previous_object != kNoObject)
        return {};
    }
    return drop_names(core_, inode.number, DropReason::kAbandoned, {},
                      {.may_go = [](const Inode& now) -> Result<bool> {
                        return now.is_going() && now.is_abandoned() && now.writers == 0;
                      }});
  };
  if (const Result<void> dropped = drop(); !dropped.ok())
    log_error("abandoned file not dropped inode={} errno={}", inode.number,
              dropped.error().code);
}

// The kernel goes on writing for who has it open.
Result<void> Files::note_left_open(Inode& inode) {
  if (inode.record.nlink == 0 || (inode.record.flags & kInodeMayGrow) != 0) return {};
  InodeRecord next = inode.record;
  next.flags |= kInodeMayGrow;
  return commit_record(core_, inode, std::move(next), {}, Lend::kYes);
}

void Files::release_all() {
  std::unordered_map<OpenFile*, std::unique_ptr<OpenFile>> open;
  {
    const std::lock_guard lock(open_mutex_);
    open.swap(open_);
  }
  std::vector<InodePtr> torn;
  for (const auto& [file, owner] : open) {
    const std::lock_guard lock(file->inode->mutex);
    count_closed(*file);
    // Half of what is being stored is not whole now: the sealer would take it for what its last close could not publish.
    const bool is_half = file->inode->record.state == DataState::kUnpublished;
    if (file->is_closing) --file->inode->closing;
    if (!file->writable() || is_half || --file->inode->writers > 0) continue;
    core_.budget.writer_ended(*file->inode);
    if (const Result<void> noted = note_left_open(*file->inode); !noted.ok())
      log_warn("left open inode={} errno={}: counts as damaged when it grows",
               file->inode->number, noted.error().code);
    if (is_torn(*file->inode)) torn.push_back(file->inode);
  }
  for (const InodePtr& inode : torn) drop_torn_file(*inode);
}

}  // namespace kvcachefs
