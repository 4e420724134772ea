// Dentry, listing and back reference say the same of every name, and the name leads to an
// inode. Where one of the three is wrong or gone, the other two make it anew.
#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "fs/check/check.h"
#include "fs/names/namespace.h"
#include "metadata/keys.h"

namespace kvcachefs {
namespace {

std::string named(InodeNumber parent, std::string_view name) {
  return fmt::format("name \"{}\" in directory {}", printable(name), parent);
}

bool is_dirent_type(std::uint8_t type) {
  return type == DT_REG || type == DT_DIR || type == DT_LNK || type == DT_FIFO ||
         type == DT_SOCK || type == DT_CHR || type == DT_BLK;
}

}  // namespace

Result<void> Check::check_names() {
  TRY(check_listings());
  TRY(check_back_references());
  // A name that was dropped may be the one that a directory without a record waited for.
  do {
    name_was_dropped_ = false;
    directory_waits_ = false;
    TRY(check_dentries());
  } while (name_was_dropped_ && directory_waits_);
  return {};
}

Result<void> Check::check_listings() {
  return each_row(
      Table::kListings, [&](std::string_view key, std::string_view value) -> Result<void> {
        const keys::Listing at = *keys::to_listing(key);
        const DirEntry entry = TRY(decode_listing(at.cookie, value));
        const DentryRecord listed{
            .inode = entry.inode, .type = entry.type, .cookie = entry.cookie};
        const std::optional<std::string> standing =
            TRY(setup_.store.get(Table::kDentries, keys::named(at.parent, entry.name)));
        const Result<DentryRecord> dentry = decode_dentry(standing.value_or(""));
        if (dentry.ok() && *dentry == listed) return {};
        const bool confirmed = TRY(has_row(
            Table::kBackReferences, keys::back_reference(entry.inode, at.parent, entry.name)));
        if (!dentry.ok() && confirmed && is_dirent_type(entry.type)) {
          problem(kMakeAnew,
                  named(at.parent, entry.name) +
                      (standing ? " has a record that does not read" : " has no record"));
          Edit edit;
          edit.put_dentry(at.parent, entry.name, listed);
          return commit(std::move(edit));
        }
        problem(kRemove, fmt::format("listing entry {} of directory {} is not that of {}",
                                     at.cookie, at.parent, named(at.parent, entry.name)));
        return erase(Table::kListings, key);
      });
}

Result<void> Check::check_back_references() {
  return each_row(
      Table::kBackReferences, [&](std::string_view key, std::string_view) -> Result<void> {
        const keys::BackReference link = *keys::to_back_reference(key);
        const std::optional<std::string> standing =
            TRY(setup_.store.get(Table::kDentries, keys::named(link.parent, link.name)));
        const Result<DentryRecord> dentry = decode_dentry(standing.value_or(""));
        if (dentry.ok() && dentry->inode == link.inode) return {};
        problem(kRemove, fmt::format("back reference of inode {} to {} has no such name",
                                     link.inode, named(link.parent, link.name)));
        return erase(Table::kBackReferences, key);
      });
}

Result<void> Check::check_dentries() {
  return each_row(Table::kDentries,
                  [&](std::string_view key, std::string_view value) -> Result<void> {
                    const keys::Named at = *keys::to_named(key);
                    const Result<DentryRecord> dentry = decode_dentry(value);
                    if (dentry.ok()) return check_dentry(at.owner, at.name, *dentry);
                    problem(kRemove, named(at.owner, at.name) + " does not read");
                    return erase(Table::kDentries, key);
                  });
}

Result<void> Check::check_dentry(InodeNumber parent, std::string_view name,
                                 const DentryRecord& dentry) {
  const std::optional<std::string> listed =
      TRY(setup_.store.get(Table::kListings, keys::listing(parent, dentry.cookie)));
  const Result<DirEntry> entry = decode_listing(dentry.cookie, listed.value_or(""));
  const bool is_listed = entry.ok() && entry->name == name && entry->inode == dentry.inode;
  const auto drop = [&](const std::string& why) -> Result<void> {
    problem(kRemove, named(parent, name) + " " + why);
    name_was_dropped_ = true;
    DentryRecord gone = dentry;
    // The place is another name's, which keeps it.
    if (entry.ok() && !is_listed) gone.cookie = TRY(new_id());
    Edit edit;
    edit.remove_dentry(parent, name, gone);
    return commit(std::move(edit));
  };
  if (!check_name(name).ok()) return drop("is no name that a user can have given");
  const std::optional<InodeRecord> directory = TRY(setup_.catalog.find_inode(parent));
  const bool adrift = !directory && parent != kRootInode;
  if (directory && !S_ISDIR(directory->mode))
    return drop("is in something else than a directory");
  // A directory whose own name comes later in this walk gets its record there.
  if (adrift && (!is_given(parent) || TRY(setup_.catalog.list_links(parent, 1)).empty()))
    return drop("is in a directory that does not exist");
  directory_waits_ = directory_waits_ || adrift;
  if (dentry.inode == kRootInode) return drop("leads to the root directory");

  std::optional<InodeRecord> inode = TRY(setup_.catalog.find_inode(dentry.inode));
  if (!inode) {
    if (dentry.type != DT_DIR || !is_given(dentry.inode))
      return drop(fmt::format("leads to inode {}, which does not exist", dentry.inode));
    // What hangs below must not be lost with it.
    problem(kMakeAnew, fmt::format("{} leads to directory {}, which has no record",
                                   named(parent, name), dentry.inode));
    inode.emplace();
    inode->mode = S_IFDIR | 0700;
    inode->nlink = 2;  // counted anew later
    inode->atime = inode->mtime = inode->ctime = inode->btime = file_clock_now();
    Edit edit;
    edit.put_inode(dentry.inode, *inode);
    TRY(commit(std::move(edit)));
  }
  DentryRecord right = dentry;
  right.type = static_cast<std::uint8_t>(IFTODT(inode->mode));
  const char* wrong = nullptr;
  // Another name's place, or one that no directory has: this name gets a new one.
  if (entry.ok() ? !is_listed : !is_given(dentry.cookie)) right.cookie = TRY(new_id());
  if (right.type != dentry.type) {
    wrong = "says a wrong type";
  } else if (!entry.ok()) {
    wrong = "is not in its directory's listing";
  } else if (!is_listed) {
    wrong = "has the place of another in its directory's listing";
  } else if (!TRY(has_row(Table::kBackReferences,
                          keys::back_reference(dentry.inode, parent, name)))) {
    wrong = "has no back reference";
  }
  if (wrong == nullptr) return {};
  problem(kCorrect, named(parent, name) + " " + wrong);
  Edit edit;
  edit.put_dentry(parent, name, right);
  return commit(std::move(edit));
}

}  // namespace kvcachefs
