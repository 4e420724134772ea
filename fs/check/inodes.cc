// Link counts and the states of inodes.
#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "fs/check/check.h"
#include "fs/life/states.h"
#include "metadata/keys.h"

namespace kvcachefs {
namespace {

constexpr std::size_t kEntryBatch = 1024;

}  // namespace

Result<void> Check::check_inodes() {
  Result<void> outcome;
  TRY(setup_.catalog.each_inode(
      [&](InodeNumber number, const InodeRecord& record) {
        ++summary_.inodes;
        outcome = check_inode(number, record);
        return outcome.ok();
      },
      [](const std::string&) {}));
  return outcome;
}

Result<void> Check::check_inode(InodeNumber number, InodeRecord record) {
  const InodeRecord before = record;
  TRY(check_links(number, record));
  TRY(check_state(number, record));
  if (S_ISREG(record.mode)) {
    // The data of an inode without a name goes with it, and recovery has taken it from the table of
    // unsealed ones.
    if (record.nlink > 0) TRY(check_data(number, record));
    const std::string key = keys::number(number);
    if (record.nlink > 0 && is_unsealed(record.state) && !TRY(has_row(Table::kUnsealed, key))) {
      problem(kCorrect, fmt::format("inode {} is not in the table of unsealed ones", number));
      Edit edit;
      edit.put_unsealed(number);
      TRY(commit(std::move(edit)));
    }
  }
  if (record == before) return {};
  Edit edit;
  edit.put_inode(number, record);
  return commit(std::move(edit));
}

Result<void> Check::check_links(InodeNumber number, InodeRecord& record) {
  std::uint32_t links = 0;
  if (S_ISDIR(record.mode)) {
    const bool named =
        number == kRootInode || !TRY(setup_.catalog.list_links(number, 1)).empty();
    if (named) links = 2;
    std::uint64_t after = 0;
    while (named) {
      const std::vector<DirEntry> entries =
          TRY(setup_.catalog.list_directory(number, after, kEntryBatch));
      if (entries.empty()) break;
      after = entries.back().cookie;
      for (const DirEntry& entry : entries) links += entry.type == DT_DIR ? 1 : 0;
    }
  } else {
    TRY(setup_.store.scan(Table::kBackReferences, keys::number(number), "",
                          [&links](std::string_view, std::string_view) {
                            ++links;
                            return true;
                          }));
  }
  const bool orphan = TRY(has_row(Table::kOrphans, keys::lettered(keys::kOrphanInode, number)));
  if (links == 0 && record.nlink > 0) {
    // An application's data may be worth a person's look; a cache's is found by its name or not
    // at all.
    if (S_ISREG(record.mode) && (record.flags & kInodeKeep) != 0) {
      problem(kReconnect, fmt::format("file {} has no name", number));
      TRY(reconnect(number, record));
      record.nlink = 1;
    } else {
      problem(kCollect, fmt::format("inode {} has no name", number));
      record.nlink = 0;
    }
    links = record.nlink;
  } else if (links != record.nlink) {
    problem(kCorrect,
            fmt::format("inode {} counts {} links and has {}", number, record.nlink, links));
    record.nlink = links;
  } else if (links == 0 && !orphan) {
    problem(kCollect, fmt::format("inode {} has no name and is no orphan", number));
  }
  Edit edit;
  if (links == 0 && !orphan) edit.put_orphan_inode(number);
  if (links > 0 && orphan) {
    problem(kCorrect, fmt::format("inode {} has a name and is an orphan", number));
    edit.remove_orphan_inode(number);
  }
  return commit(std::move(edit));
}

Result<void> Check::check_state(InodeNumber number, InodeRecord& record) {
  if (!S_ISREG(record.mode)) {
    if (record.state == DataState::kNone && record.object == kNoObject &&
        record.previous_object == kNoObject)
      return {};
    problem(kCorrect, fmt::format("inode {} is no regular file and has data", number));
    record.state = DataState::kNone;
    record.object = kNoObject;
    record.previous_object = kNoObject;
    record.previous_state = DataState::kNone;
    record.stamp = {};
    return {};
  }
  if (record.state == DataState::kNone) {
    problem(kSealAnew, fmt::format("file {} has no state", number));
    TRY(forget_seal(number, record));
  }
  return {};
}

Result<void> Check::forget_seal(InodeNumber number, InodeRecord& record) {
  Edit edit;
  enter_state(number, record, DataState::kMutable, edit);
  return commit(std::move(edit));
}

Result<void> Check::drop_names(InodeNumber number, InodeRecord& record) {
  while (true) {
    const auto links = TRY(setup_.catalog.list_links(number, kEntryBatch));
    if (links.empty()) break;
    Edit edit;
    for (const auto& [parent, name] : links) {
      const std::optional<DentryRecord> dentry = TRY(setup_.catalog.find_dentry(parent, name));
      // The names' pass has left no back reference without its dentry.
      if (!dentry) return fail(EIO, "back reference without a name");
      edit.remove_dentry(parent, name, *dentry);
    }
    TRY(commit(std::move(edit)));
  }
  record.nlink = 0;
  Edit edit;
  edit.put_orphan_inode(number);
  return commit(std::move(edit));
}

}  // namespace kvcachefs
