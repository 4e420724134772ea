#include "fs/life/drop.h"

#include <algorithm>

#include "backend/base/log.h"
#include "fs/known/place.h"
#include "fs/life/drop_directory.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"

namespace kvcachefs {
namespace {

// What will be told of a name when it is gone. Without the locks, which its path needs none of.
struct Obituary {
  std::string path;  // empty: nothing is told
  Dropped what;
};
Obituary prepare_obituary(Core& core, const Inode& inode, InodeNumber directory,
                          std::string_view name, const NameLook& seen, DropReason reason) {
  Obituary out;
  const auto place = core.knowledge.places().of(directory);
  if (!place.ok() || *place == nullptr) return out;
  out.path = path_in(**place, name);
  out.what.reason = reason;
  out.what.inode = inode.number;
  if (seen.block && !seen.block->temporary)
    out.what.last_use = core.knowledge.last_use(seen.block->number);
  return out;
}

struct Dropping {
  bool any = false;      // one went
  bool last = false;     // and it was the last
  InodeNumber from = 0;  // the directory of the one that went last
};

// One name at a time, each in a commit of its own: a file with a million links must not become
// one huge batch. The inode goes with its last name.
// True: look for another one.
Result<bool> drop_one_name(Core& core, const InodePtr& inode, DropReason reason,
                           const DropLimits& limits, Dropping& dropping) {
  std::vector<std::pair<InodeNumber, std::string>> links;
  if (limits.only)
    links.push_back(*limits.only);
  else
    links = TRY(core.catalog.list_links(inode->number, 1));
  InodePtr parent;
  NameLook seen;
  Obituary obituary;
  if (!links.empty()) {
    const auto& [directory, name] = links.front();
    parent = TRY(core.table.get(directory));
    seen = core.knowledge.look(directory, name);
    obituary = prepare_obituary(core, *inode, directory, name, seen, reason);
  }
  const LockedInodes locked({inode.get(), parent.get()});
  if (inode->record.nlink == 0) return false;
  if (limits.may_go && !TRY(limits.may_go(*inode))) return false;
  InodeRecord next = inode->record;
  InodeRecord directory;
  std::uint64_t block = 0;
  Edit edit;
  edit.set_frees();
  if (parent != nullptr) {
    const auto& [parent_number, name] = links.front();
    const std::optional<DentryRecord> dentry =
        TRY(core.catalog.find_dentry(parent_number, name));
    if (!dentry || dentry->inode != inode->number)
      return !limits.only;  // renamed meanwhile: look again
    edit.remove_dentry(parent_number, name, *dentry);
    block = TRY(core.knowledge.remove_rows(edit, parent_number, name, seen));
    --next.nlink;
    // Who has listed the directory sees by this that it is another one.
    directory = touched(parent->record, file_clock_now(), 0);
    edit.put_inode(parent_number, directory);
  } else {
    next.nlink = 0;
  }
  next.ctime = file_clock_now();
  if (reason == DropReason::kPoisoned || reason == DropReason::kAbandoned)
    next.flags |= kInodePoisoned;
  if (next.nlink == 0) edit.put_orphan_inode(inode->number);
  std::optional<KernelListings::Change> change;
  if (parent != nullptr) change.emplace(core.listings, parent->number);
  // A file that is being evicted is a miss already.
  TRY(commit_record(core, *inode, std::move(next), std::move(edit),
                    inode->evicting ? Lend::kYes : Lend::kNo));
  if (parent != nullptr) parent->set_record(std::move(directory));
  core.knowledge.removed(block);
  if (!obituary.path.empty()) {
    obituary.what.size = inode->record.stamp.size;
    obituary.what.when = file_clock_now();
    core.drops.add_name(obituary.path, obituary.what);
  }
  if (parent != nullptr && core.notifications != nullptr) {
    if (is_eviction(reason) && reason != DropReason::kAsked) {
      core.notifications->invalidate_attributes(links.front().first);
    } else {
      core.notifications->invalidate_entry(links.front().first, links.front().second);
    }
  }
  // Another name is left that it has to have its turn by.
  if (limits.only && block != 0 && inode->record.nlink > 0) put_in_order(core, *inode);
  dropping = {.any = true,
              .last = inode->record.nlink == 0,
              .from = parent != nullptr ? parent->number : 0};
  return !dropping.last && !limits.only;
}

// A failure leaves an empty directory.
void drop_directory_of(Core& core, Dropping& dropping) {
  const InodeNumber from = std::exchange(dropping.from, 0);
  if (from == 0) return;
  if (const Result<void> dropped = drop_block_directory(core, from); !dropped.ok())
    log_warn("directory of a block not dropped inode={} errno={} step=\"{}\"", from,
             dropped.error().code, dropped.error().what);
}

// One of its paths for the log, relative to the root of the mount; empty: it has none.
std::string path_of(Core& core, InodeNumber number) {
  const auto links = core.catalog.list_links(number, 1);
  if (!links.ok() || links->empty()) return {};
  const auto& [parent, name] = links->front();
  const auto place = find_place(core.catalog, parent);
  std::string path = place.ok() && *place != nullptr ? path_in(**place, name) : name;
  // One line an event, whatever users call their files.
  for (char& c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == 0x7f) c = '?';
  }
  return path;
}

void put_in_quarantine(Core& core, Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  const Result<Tier*> tier = core.devices->of(inode);
  const Result<void> moved =
      tier.ok() ? (*tier)->quarantine(inode.record.object) : Result<void>(tier.error());
  // It is a miss all the same.
  if (!moved.ok()) {
    log_error("quarantine inode={} object={} event=not_moved errno={}", inode.number,
              inode.record.object, moved.error().code);
  }
}

}  // namespace

Result<void> drop_names(Core& core, InodeNumber number, DropReason reason,
                        std::optional<std::uint64_t> bytes, const DropLimits& limits) {
  Result<InodePtr> found = core.table.get(number);
  if (!found.ok()) {
    if (found.error().code == ESTALE) return {};
    return found.error();
  }
  const InodePtr inode = *found;
  const bool is_told = reason != DropReason::kIncomplete && reason != DropReason::kRemoved &&
                       !is_eviction(reason);
  const std::string path = is_told ? path_of(core, number) : std::string{};
  // At most one round a name, and one more for each rename that comes between.
  Dropping dropping;
  bool goes_on = true;
  while (goes_on) {
    goes_on = TRY(drop_one_name(core, inode, reason, limits, dropping));
    drop_directory_of(core, dropping);
  }
  if (limits.may_go && !dropping.any) return {};
  // For the log: a writer may still change the record.
  ObjectId object = kNoObject;
  int write_errno = 0;
  {
    const std::lock_guard lock(inode->mutex);
    object = inode->record.object;
    write_errno = inode->write_errno;
    // Two that evict the same file both come here.
    if (dropping.last || (!is_eviction(reason) && !limits.may_go)) {
      const std::uint64_t size = inode->record.stamp.size;
      core.drops.count(reason, std::min(bytes.value_or(size), size));
    }
  }
  switch (reason) {
    case DropReason::kPoisoned:
      core.counters.poisoned.fetch_add(1, std::memory_order_relaxed);
      log_error(
          "poisoned inode={} object={} path=\"{}\" errno={}: it was not written in full, the "
          "name is a miss",
          number, object, path, write_errno);
      break;
    case DropReason::kAbandoned:
      log_info(
          "abandoned inode={} object={} path=\"{}\": its writer ended without closing it, the "
          "name is a miss",
          number, object, path);
      break;
    case DropReason::kLost:
      core.counters.lost.fetch_add(1, std::memory_order_relaxed);
      log_error(
          "lost inode={} object={} path=\"{}\": its backing file is missing, the name is a "
          "miss",
          number, object, path);
      break;
    case DropReason::kUnreadable:
      core.counters.unreadable.fetch_add(1, std::memory_order_relaxed);
      [[fallthrough]];
    case DropReason::kDamaged:
      core.counters.damaged.fetch_add(1, std::memory_order_relaxed);
      log_error(
          "damaged inode={} object={} path=\"{}\": its backing file is not what was sealed, "
          "the "
          "name is a miss",
          number, object, path);
      put_in_quarantine(core, *inode);
      break;
    case DropReason::kIncomplete:
      log_debug("dropped inode={}: incomplete", number);
      break;
    case DropReason::kRemoved:
      log_debug("dropped inode={}: removed on the pool", number);
      break;
    case DropReason::kRoom:
    case DropReason::kQuota:
    case DropReason::kExpired:
    case DropReason::kAsked:
      break;
  }
  return {};
}

}  // namespace kvcachefs
