#include "fs/pool/directory_describer.h"

#include <sys/stat.h>

#include <chrono>
#include <string_view>
#include <utility>

#include "backend/base/log.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"
#include "fs/pool/owner_changes.h"

namespace kvcachefs {

using SteadyClock = std::chrono::steady_clock;

void DirectoryDescriber::describe(const SharedName& shared, InodeNumber directory,
                                  const std::vector<MadeDirectory>& made) {
  std::vector<InodeNumber> numbers;
  std::vector<DirectoryOwner> owners;
  for (std::string_view path = split_pool_path(shared.path).first;
       !path.empty() && directory != kRootInode; path = split_pool_path(path).first) {
    const auto known = core_.catalog.find_pool_copy(directory);
    const Result<InodePtr> inode = core_.table.get(directory);
    if (!known.ok() || *known || !inode.ok()) break;
    const Result<std::uint64_t> number = core_.catalog.next_id();
    if (!number.ok()) break;
    DirectoryOwner owner{.path = std::string(path), .number = *number};
    {
      const std::lock_guard lock((*inode)->mutex);
      const Result<Owner> told = owner_told(core_, **inode);
      if (!told.ok()) break;
      owner.uid = told->uid;
      owner.gid = told->gid;
      owner.mode = told->mode;
    }
    for (const MadeDirectory& one : made)
      if (one.path == path) owner.made = one.fileid;
    numbers.push_back(directory);
    owners.push_back(std::move(owner));
    const auto links = core_.catalog.list_links(directory, 1);
    if (!links.ok() || links->empty()) break;
    directory = links->front().first;
  }
  if (owners.empty()) return;
  using Numbers = std::vector<std::uint64_t>;  // of the first of them
  const Result<Numbers> told = service_.client().call<Numbers>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [owners, node = service_.node()](PoolSession& session,
                                       Deadline deadline) -> Result<Numbers> {
        Numbers out;
        for (const DirectoryOwner& owner : owners) {
          const Result<std::uint64_t> fileid =
              describe_directory(session, owner, node, deadline);
          if (!fileid.ok()) break;
          out.push_back(*fileid);
        }
        return out;
      });
  if (!told.ok() || told->empty()) return;
  Edit edit;
  for (std::size_t i = 0; i < told->size(); ++i)
    edit.put_pool_copy(numbers[i],
                       {.fileid = (*told)[i], .path_hash = pool_path_hash(owners[i].path)});
  if (!core_.catalog.commit(std::move(edit)).ok()) return;
  for (std::size_t i = 0; i < told->size(); ++i) {
    note_owner(numbers[i], owners[i], (*told)[i]);
    service_.tell({.change = PoolChange::kPublished,
                   .path_hash = pool_path_hash(owners[i].path),
                   .fileid = (*told)[i],
                   .size = 0});
  }
}

// Who changed it before its copy was noted found none.
void DirectoryDescriber::note_owner(InodeNumber number, const DirectoryOwner& owner,
                                    std::uint64_t fileid) {
  const Result<InodePtr> inode = core_.table.get(number);
  if (!inode.ok()) return;
  const std::lock_guard lock((*inode)->mutex);
  const Result<Owner> now = owner_told(core_, **inode);
  if (!now.ok() || *now == Owner{.uid = owner.uid, .gid = owner.gid, .mode = owner.mode})
    return;
  Edit edit;
  edit.put_owner_change(owner.path, whole_change(fileid, *now));
  if (const Result<void> put = core_.catalog.commit(std::move(edit)); !put.ok())
    log_warn("pool: an owner was not noted path=\"{}\" errno={}", owner.path, put.error().code);
}

}  // namespace kvcachefs
