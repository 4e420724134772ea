#include "fs/pool/directory_describer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <string>

#include "backend/base/log.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/told_words.h"

namespace kvcachefs {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The caller holds the inode's lock.
Result<bool> has_name(Core& core, const Inode& inode,
                      const std::pair<InodeNumber, std::string>& link) {
  const auto links = TRY(core.catalog.list_links(inode.number, 1));
  return inode.record.nlink > 0 && !links.empty() && links.front() == link;
}

void put_change(const std::string& path, const OwnerChange& change, Edit& edit) {
  if (change != OwnerChange{.fileid = change.fileid}) edit.put_owner_change(path, change);
}

}  // namespace

Result<std::vector<DirectoryDescriber::Found>> DirectoryDescriber::find_unknown(
    std::string_view path, InodeNumber directory, const std::vector<MadeDirectory>& made) {
  std::vector<Found> all;
  for (; !path.empty() && directory != kRootInode; path = split_pool_path(path).first) {
    const auto one = std::find_if(made.begin(), made.end(), [&](const MadeDirectory& entry) {
      return entry.path == path;
    });
    const auto known = TRY(core_.catalog.find_pool_copy(directory));
    // One that was known, and had to be made, was removed by another node, with all that was said of it.
    if (known && known->fileid != 0 && one == made.end()) break;
    const Result<InodePtr> inode = core_.table.get(directory);
    if (!inode.ok()) break;
    auto links = TRY(core_.catalog.list_links(directory, 1));
    if (links.empty()) break;
    Found found{.number = directory,
                .link = std::move(links.front()),
                .owner = {.path = std::string(path), .number = TRY(core_.catalog.next_id())}};
    {
      const std::lock_guard lock((*inode)->mutex);
      const Owner told = TRY(owner_told(core_, **inode));
      found.owner.uid = told.uid;
      found.owner.gid = told.gid;
      found.owner.mode = told.mode;
    }
    if (one != made.end()) found.owner.made = one->fileid;
    directory = found.link.first;
    all.push_back(std::move(found));
  }
  return all;
}

Result<void> DirectoryDescriber::describe(std::string_view path, InodeNumber directory,
                                          const std::vector<MadeDirectory>& made) {
  const std::vector<Found> found = TRY(find_unknown(path, directory, made));
  if (found.empty()) return {};
  std::vector<DirectoryOwner> owners;
  owners.reserve(found.size());
  for (const Found& one : found) owners.push_back(one.owner);
  using Numbers = std::vector<std::uint64_t>;  // of the first of them
  const Numbers told = TRY(service_.client().call<Numbers>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [owners = std::move(owners), node = service_.node()](
          PoolSession& session, Deadline deadline) -> Result<Numbers> {
        Numbers out;
        for (const DirectoryOwner& owner : owners) {
          const Result<std::uint64_t> fileid =
              describe_directory(session, owner, node, deadline);
          if (!fileid.ok() && out.empty()) return fileid.error();
          if (!fileid.ok()) break;
          out.push_back(*fileid);
        }
        return out;
      }));
  for (std::size_t i = 0; i < told.size(); ++i) {
    TRY(note(found[i], told[i]));
    service_.tell({.change = PoolChange::kPublished,
                   .path_hash = pool_path_hash(found[i].owner.path),
                   .fileid = told[i],
                   .size = 0});
  }
  return {};
}

// From here on it is known to be there. Who gave it another owner, or told it something, while it was
// on its way found no copy of it.
Result<void> DirectoryDescriber::note(const Found& found, std::uint64_t fileid) {
  const DirectoryOwner& owner = found.owner;
  const Result<InodePtr> inode = core_.table.get(found.number);
  if (!inode.ok() && inode.error().code != ESTALE) return inode.error();
  std::unique_lock<InodeMutex> lock;
  if (inode.ok()) lock = std::unique_lock((*inode)->mutex);
  Edit edit;
  if (!inode.ok() || !TRY(has_name(core_, **inode, found.link))) {
    // A removal since begin() has left a tombstone.
    if (owner.made == 0 || TRY(core_.catalog.find_tombstone(owner.path))) return {};
    edit.put_tombstone(owner.path, {.fileid = fileid, .is_directory = true});
    return core_.catalog.commit(std::move(edit));
  }
  if (const auto copy = TRY(core_.catalog.find_pool_copy(found.number)))
    edit.remove_pool_copy(found.number, *copy);
  edit.put_pool_copy(found.number, {.fileid = fileid, .path_hash = pool_path_hash(owner.path)});
  edit.remove_to_publish(found.number);
  OwnerChange change = TRY(waiting_change(core_, owner.path, fileid));
  const Owner now = TRY(owner_told(core_, **inode));
  if (!(now == Owner{.uid = owner.uid, .gid = owner.gid, .mode = owner.mode})) {
    change.uid = now.uid;
    change.gid = now.gid;
    change.mode = now.mode;
  }
  change.told |= TRY(told_bits(core_, found.number));
  put_change(owner.path, change, edit);
  TRY(core_.catalog.commit(std::move(edit)));
  // Others may have said something of it before: whoever looks it up asks.
  (*inode)->pool_checked.store(0);
  return {};
}

Result<bool> DirectoryDescriber::goes_there(Inode& inode, const SharedLink& link) {
  const PoolWrites writes = TRY(core_.knowledge.pool_writes(inode.number))
                                .value_or(core_.options.pool_options.writes);
  if (writes == PoolWrites::kOff) return false;
  if (!core_.knowledge.look(link.directory, link.name).fan_out) return true;
  return TRY(told_bits(core_, inode.number)) != 0;
}

// False: it is not what was found any more.
Result<bool> DirectoryDescriber::begin(Inode& inode, const SharedLink& link) {
  const std::lock_guard lock(inode.mutex);
  if (!TRY(has_name(core_, inode, {link.directory, link.name}))) return false;
  Edit edit;
  if (const auto copy = TRY(core_.catalog.find_pool_copy(inode.number)))
    edit.remove_pool_copy(inode.number, *copy);
  edit.put_pool_copy(inode.number, {.fileid = 0, .path_hash = link.shared.path_hash});
  TRY(core_.catalog.commit(std::move(edit)));
  return true;
}

// It is not there, and is not going to be.
Result<void> DirectoryDescriber::give_up(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  const auto copy = TRY(core_.catalog.find_pool_copy(inode.number));
  if (!copy || copy->fileid != 0) return {};
  Edit edit;
  edit.remove_pool_copy(inode.number, *copy);
  return core_.catalog.commit(std::move(edit));
}

// It is there, by whomever: what it was told here is to go there.
Result<void> DirectoryDescriber::tell_known(Inode& inode, const SharedName& shared) {
  const std::lock_guard lock(inode.mutex);
  const auto copy = TRY(core_.catalog.find_pool_copy(inode.number));
  if (!copy || copy->path_hash != shared.path_hash) return {};
  OwnerChange change = TRY(waiting_change(core_, shared.path, copy->fileid));
  change.told |= TRY(told_bits(core_, inode.number));
  Edit edit;
  put_change(shared.path, change, edit);
  edit.remove_to_publish(inode.number);
  return core_.catalog.commit(std::move(edit));
}

Result<DirectoryDescriber::Outcome> DirectoryDescriber::publish(Inode& inode) {
  const auto link = TRY(shared_link_of(core_.catalog, core_.knowledge, inode.number));
  if (!link || !TRY(goes_there(inode, *link))) return Outcome::kStays;
  const SharedName& shared = link->shared;
  // Of one that was removed under this path.
  if (TRY(core_.catalog.find_tombstone(shared.path))) return Outcome::kLater;
  const auto known = TRY(core_.catalog.find_pool_copy(inode.number));
  if (known && known->fileid != 0 && known->path_hash == shared.path_hash) {
    TRY(tell_known(inode, shared));
    return Outcome::kDone;
  }
  if (!TRY(begin(inode, *link))) return Outcome::kLater;
  using Made = std::vector<MadeDirectory>;
  const Result<Made> made = service_.client().call<Made>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [path = shared.path](PoolSession& session, Deadline deadline) -> Result<Made> {
        Made out;
        TRY(make_directories(session, path, deadline, &out));
        return out;
      });
  const int code = made.ok() ? 0 : made.error().code;
  if (code == ENOTDIR || code == EISDIR || code == EINVAL) {
    log_warn("pool: a directory is not made there, stays here path=\"{}\" step=\"{}\" errno={}",
             shared.path, made.error().what, code);
    TRY(give_up(inode));
    return Outcome::kObstructed;
  }
  if (!made.ok()) return made.error();
  TRY(describe(shared.path, inode.number, *made));
  const auto noted = TRY(core_.catalog.find_pool_copy(inode.number));
  return noted && noted->fileid != 0 ? Outcome::kDone : Outcome::kLater;
}

}  // namespace kvcachefs
