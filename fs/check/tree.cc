// Every directory hangs below the root, by one name. What has come loose is moved to
// /lost+found.
#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <unordered_set>

#include "fs/check/check.h"

namespace kvcachefs {
namespace {

using Links = std::vector<std::pair<InodeNumber, std::string>>;

// Walks from a directory to the root, along first names. The memory is that of the directories'
// numbers.
class Ancestry {
 public:
  explicit Ancestry(Catalog& catalog) : catalog_(catalog) { reached_.insert(kRootInode); }

  // False: the walk came back to where it had been, a circle. A walk that ends at a directory
  // without a name is as good as one to the root: that one's own turn comes.
  Result<bool> leads_up(InodeNumber directory) {
    std::vector<InodeNumber> path;
    std::unordered_set<InodeNumber> on_path;
    for (InodeNumber at = directory; reached_.count(at) == 0;) {
      if (!on_path.insert(at).second) return false;
      path.push_back(at);
      const Links links = TRY(catalog_.list_links(at, 1));
      if (links.empty()) break;
      at = links.front().first;
    }
    reached_.insert(path.begin(), path.end());
    return true;
  }

 private:
  Catalog& catalog_;
  std::unordered_set<InodeNumber> reached_;
};

Result<void> remove_link(Catalog& catalog, InodeNumber inode, InodeNumber parent,
                         const std::string& name) {
  const std::optional<DentryRecord> dentry = TRY(catalog.find_dentry(parent, name));
  if (!dentry || dentry->inode != inode) return {};
  Edit edit;
  edit.remove_dentry(parent, name, *dentry);
  return catalog.commit(std::move(edit));
}

}  // namespace

Result<void> Check::check_tree() {
  Ancestry ancestry(setup_.catalog);
  Result<void> outcome;
  TRY(setup_.catalog.each_inode(
      [&](InodeNumber number, const InodeRecord& record) {
        if (!S_ISDIR(record.mode) || number == kRootInode) return true;
        outcome = [&]() -> Result<void> {
          TRY(check_directory(number, record));
          if (TRY(ancestry.leads_up(number))) return {};
          problem(kReconnect, fmt::format("directory {} lies in a circle", number));
          const Links links = TRY(setup_.catalog.list_links(number, 1));
          TRY(remove_link(setup_.catalog, number, links.front().first, links.front().second));
          TRY(reconnect(number, record));
          return TRY(ancestry.leads_up(number)) ? Result<void>{}
                                                : fail(EIO, "a circle of directories");
        }();
        return outcome.ok();
      },
      [](const std::string&) {}));
  return outcome;
}

Result<void> Check::check_directory(InodeNumber number, const InodeRecord& record) {
  Links links = TRY(setup_.catalog.list_links(number, 2));
  while (links.size() > 1) {
    const auto& [parent, name] = links.back();
    problem(kRemove, fmt::format("directory {} has a second name, \"{}\" in directory {}",
                                 number, printable(name), parent));
    TRY(remove_link(setup_.catalog, number, parent, name));
    links = TRY(setup_.catalog.list_links(number, 2));
  }
  if (!links.empty()) return {};
  const bool empty = TRY(setup_.catalog.directory_empty(number));
  if (empty && record.nlink == 0) return {};
  InodeRecord next = record;
  Edit edit;
  if (empty) {
    problem(kCollect, fmt::format("directory {} has no name and nothing in it", number));
    next.nlink = 0;
    edit.put_orphan_inode(number);
  } else {
    problem(kReconnect, fmt::format("directory {} has no name", number));
    next.nlink = 2;  // counted anew later
    edit.remove_orphan_inode(number);
    TRY(reconnect(number, record));
  }
  edit.put_inode(number, next);
  return commit(std::move(edit));
}

Result<InodeNumber> Check::lost_and_found() {
  if (lost_and_found_) return *lost_and_found_;
  std::string name = "lost+found";
  while (true) {
    const std::optional<DentryRecord> standing =
        TRY(setup_.catalog.find_dentry(kRootInode, name));
    if (!standing) break;
    if (standing->type == DT_DIR) {
      lost_and_found_ = standing->inode;
      return standing->inode;
    }
    name += '+';  // somebody's file has the name
  }
  const InodeNumber number = TRY(new_id());
  InodeRecord record;
  record.mode = S_IFDIR | 0700;
  record.nlink = 2;
  record.atime = record.mtime = record.ctime = record.btime = file_clock_now();
  std::optional<InodeRecord> root = TRY(setup_.catalog.find_inode(kRootInode));
  if (!root) return fail(EIO, "no root directory");
  ++root->nlink;
  Edit edit;
  edit.put_inode(number, record);
  edit.put_inode(kRootInode, *root);
  edit.put_dentry(kRootInode, name, {.inode = number, .type = DT_DIR, .cookie = TRY(new_id())});
  TRY(commit(std::move(edit)));
  lost_and_found_ = number;
  return number;
}

Result<void> Check::reconnect(InodeNumber number, const InodeRecord& record) {
  const InodeNumber parent = TRY(lost_and_found());
  std::string name = fmt::format("#{}", number);
  while (TRY(setup_.catalog.find_dentry(parent, name))) name += '+';
  Edit edit;
  edit.put_dentry(parent, name,
                  {.inode = number,
                   .type = static_cast<std::uint8_t>(IFTODT(record.mode)),
                   .cookie = TRY(new_id())});
  if (S_ISDIR(record.mode)) {
    std::optional<InodeRecord> above = TRY(setup_.catalog.find_inode(parent));
    if (!above) return fail(EIO, "no lost+found");
    ++above->nlink;
    edit.put_inode(parent, *above);
  }
  return commit(std::move(edit));
}

}  // namespace kvcachefs
