// The states of a file's data and the steps between them. Every step is one commit of the
// inode's record.
//
//              create                  FLUSH, FSYNC, rename, link
//     (none) ─────────► unpublished ──────────────────────────────► published
//                        ▲      │                                    │     │
//      O_TRUNC of a      │      │ crash: dropped, or the             │     │ last writer
//      published file    │      ▼ previous object comes back         │     ▼ gone: seal
//      nobody has open   │    (none)                                 │    sealed ◄──┐
//                        │                                           │     │        │ last writer
//                        │         open for writing, truncate,       ▼     ▼        │ gone: at once
//                        └──────── found changed ──────────────────► mutable ───────┘ if unchanged,
//                                                                                     else anew
//
// (A rewrite starts from published or sealed: a new object, the old one kept as `previous`, unless room is short:
// drop_replaced.h.)
// What a crash leaves of each is decided by recover.h.
//
// The functions here change a copy of the record and add to an edit; the caller commits both,
// holding the inode's lock, and stores the copy in the inode afterwards.
#pragma once

#include <sys/stat.h>

#include "fs/node/core.h"

namespace kvcachefs {

[[nodiscard]] constexpr bool is_unsealed(DataState state) noexcept {
  return state == DataState::kUnpublished || state == DataState::kPublished ||
         state == DataState::kMutable;
}

// Sets the state and keeps the list of unsealed inodes in step.
void enter_state(InodeNumber number, InodeRecord& record, DataState state, Edit& edit);

// Keeps the count of unsealed files, after a commit.
void count_unsealed(Core& core, DataState before, DataState after) noexcept;

// What its names and directories have been told by now; noted in the inode, too. Without its lock.
// `is_block`, errors: those of Knowledge::treatment().
Result<Treatment> note_policy(Core& core, Inode& inode, bool* is_block = nullptr);

// Whether note_policy() lets a file go that it was told to keep: more would stay than its
// tenant may have (fs/budget/staying.h).
bool stays_as_cache(Core& core, const InodeRecord& record, const Treatment& treatment);

// A write of a file that is not published has failed with `code`: it will not be. The caller holds the inode's
// lock. Errors: as commit_record().
Result<void> poison(Core& core, Inode& inode, int code);
// Errors: the code of the write that failed, EIO when that was before this mount (poisoned). The caller holds
// the inode's lock.
Result<void> check_written(const Inode& inode);
// The same before a publication: also of writes that nobody has seen fail. May commit the inode's record.
Result<void> check_publishable(Core& core, Inode& inode);

// A whole file with a name stands in one of the orders of eviction: said after its seal, and when a block's name
// has gone and another is left. Two or three reads of the database. The caller holds the inode's lock.
void put_in_order(Core& core, const Inode& inode);

// Makes a record that was committed what the inode is. The caller holds the inode's lock.
void store_record(Core& core, Inode& inode, InodeRecord&& next);

// Whether the inode's lock is lent during a commit (fs/node/inode_mutex.h). kYes: the change is
// nothing to callers who only look; afterwards others may have the inode open.
enum class Lend : std::uint8_t { kNo, kYes };

// Commits, and makes the copy what the inode is. The caller holds the inode's lock. Errors:
// those of Catalog::commit(); the inode is as it was then.
Result<void> commit_record(Core& core, Inode& inode, InodeRecord&& next, Edit&& edit,
                           Lend lend = Lend::kNo);

// The step to `published`, or a new stamp for a file that is published already. `backing` is
// its status now. The old object of a rewrite goes to the orphans, and what was said of its bytes (kInodeOnDisk) with it. The file
// is not poisoned.
Result<void> prepare_publication(Core& core, InodeNumber number, InodeRecord& record,
                                 const struct stat& backing, Edit& edit);

// Takes back kInodeOnDisk, where it stands. The caller holds the inode's lock. Errors: those of Catalog::commit().
Result<void> unmark_on_disk(Core& core, Inode& inode);

// The old object of a rewrite, if there is one, goes to the orphans: a rewrite that fails leaves nothing from then on.
// Errors: those of Devices::index_of().
Result<void> let_go_of_previous(Core& core, InodeRecord& record, Edit& edit);

// The step to `mutable`: before a published or sealed file is opened for writing, truncated or
// given other times.
void prepare_change(InodeNumber number, InodeRecord& record, Edit& edit);

// What is about to happen to a published or sealed file.
enum class Change : std::uint8_t { kWrite, kTruncate, kTimes };
// That step as a commit of its own. A truncate, and new times, are let through on a full disk.
// The caller holds the inode's lock.
Result<void> begin_change(Core& core, Inode& inode, Change change);

// Of a rewrite that is not published: the file is what it was before, and the new object goes to the orphans.
// The caller holds the inode's lock. Errors: those of Catalog::commit(), of Devices::index_of().
Result<void> take_back_rewrite(Core& core, Inode& inode);

// Of a rewrite that could not be written, and that nobody has open: the same. False: it is none. The caller holds the inode's
// lock. Errors: the same.
Result<bool> take_back_failed(Core& core, Inode& inode);
// That, where it is one; takes the lock.
Result<void> take_back_if_failed(Core& core, Inode& inode);

// Publishes a file that a FLUSH, rename or link has reached; a new stamp when it changed since
// the last one, nothing otherwise. `marks`: flags (kInode...) that it gets in the same commit, if it is unsealed. The caller
// holds the inode's lock. Errors: those of check_written(), EIO (the backing file fails), ENOENT (the backing file is missing),
// ENOSPC.
Result<void> publish_locked(Core& core, Inode& inode, std::uint32_t marks = 0);

}  // namespace kvcachefs
