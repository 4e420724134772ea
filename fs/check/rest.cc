// What must lead to an inode: objects, xattrs, the tables of unsealed inodes and of orphans,
// and the backing files on the devices.
#include <fmt/format.h>

#include "fs/acl/posix_acl.h"
#include "fs/check/check.h"
#include "fs/life/states.h"
#include "metadata/keys.h"

namespace kvcachefs {

Result<void> Check::check_objects() {
  return each_row(
      Table::kObjects, [&](std::string_view key, std::string_view value) -> Result<void> {
        const ObjectId id = *keys::to_number(key);
        const ObjectRecord object = TRY(decode_object(value));
        if (TRY(refers_to(object.inode, id))) {
          ++summary_.objects;
          return {};
        }
        problem(kCollect,
                fmt::format("object {} belongs to no file (inode {})", id, object.inode));
        Edit edit;
        edit.remove_object(id, object.device);
        if (object.device < setup_.devices.size()) edit.put_orphan_object(id, object.device);
        return commit(std::move(edit));
      });
}

Result<void> Check::check_xattrs() {
  return each_row(Table::kXattrs, [&](std::string_view key, std::string_view) -> Result<void> {
    const keys::Named at = *keys::to_named(key);
    std::optional<InodeRecord> owner = TRY(setup_.catalog.find_inode(at.owner));
    if (!owner) {
      problem(kRemove, fmt::format("xattr \"{}\" belongs to inode {}, which does not exist",
                                   printable(at.name), at.owner));
      return erase(Table::kXattrs, key);
    }
    const bool acl = at.name == kAclAccess || at.name == kAclDefault;
    const std::uint32_t flags =
        owner->flags | kInodeHasXattr | (acl ? std::uint32_t{kInodeHasAcl} : 0u);
    if (flags == owner->flags) return {};
    problem(kCorrect, fmt::format("inode {} does not know of its xattr \"{}\"", at.owner,
                                  printable(at.name)));
    owner->flags = flags;
    Edit edit;
    edit.put_inode(at.owner, *owner);
    return commit(std::move(edit));
  });
}

Result<void> Check::check_unsealed() {
  return each_row(
      Table::kUnsealed, [&](std::string_view key, std::string_view) -> Result<void> {
        const InodeNumber number = *keys::to_number(key);
        const std::optional<InodeRecord> record = TRY(setup_.catalog.find_inode(number));
        if (record && is_unsealed(record->state)) return {};
        problem(kCorrect, fmt::format("inode {} is in the table of unsealed ones, and {}",
                                      number, record ? "is sealed" : "does not exist"));
        return erase(Table::kUnsealed, key);
      });
}

Result<void> Check::check_orphans() {
  return each_row(
      Table::kOrphans, [&](std::string_view key, std::string_view value) -> Result<void> {
        const std::uint64_t id = *keys::to_lettered(key);
        if (key.front() == keys::kOrphanInode) {
          const std::optional<InodeRecord> record = TRY(setup_.catalog.find_inode(id));
          if (record && record->nlink == 0) return {};
          problem(kCorrect, fmt::format("orphan {} is no inode without a name", id));
          return erase(Table::kOrphans, key);
        }
        const auto device = wire::Reader(value).take<std::uint32_t>();
        const std::optional<ObjectRecord> object = TRY(setup_.catalog.find_object(id));
        if (!object && device < setup_.devices.size()) return {};
        problem(kCorrect, object ? fmt::format("object {} is in use and an orphan", id)
                                 : fmt::format("orphan object {} is on no device", id));
        return erase(Table::kOrphans, key);
      });
}

Result<void> Check::check_devices() {
  const std::pair<std::uint64_t, std::uint64_t> recent = setup_.catalog.last_run_ids();
  for (std::size_t index = 0; index < setup_.devices.size(); ++index) {
    Tier& tier = *setup_.devices[index];
    const std::string& path = tier.info().path;
    Result<void> outcome;
    const auto check_file = [&](ObjectId id) -> Result<void> {
      const std::optional<ObjectRecord> object = TRY(setup_.catalog.find_object(id));
      if (object && object->device == index) return {};
      if (TRY(has_row(Table::kOrphans, keys::lettered(keys::kOrphanObject, id)))) return {};
      const bool is_recent = crashed_ && id >= recent.first && id < recent.second;
      if (!object && (is_recent || id < cut_before_)) return {};  // left to the next start
      problem(kRemove, fmt::format("backing file {:016x} in {} belongs to no file", id, path));
      return setup_.repair ? tier.remove(id) : Result<void>{};
    };
    TRY(tier.each(
        [&](ObjectId id) {
          outcome = check_file(id);
          return outcome.ok();
        },
        [&](const std::string& unknown) {
          unsolved(fmt::format("{}/{} is not of kvcachefs", path, printable(unknown)),
                   "look at it, and move it away");
        }));
    TRY(outcome);
  }
  return {};
}

}  // namespace kvcachefs
