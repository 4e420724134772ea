// Attributes and xattrs: stat, chmod, chown, truncate, utimens, and the xattr calls.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "fs/node/core.h"
#include "fs/node/open_file.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

class Attributes {
 public:
  explicit Attributes(Core& core) : core_(core) {}

  // As the methods of the same names in fs/volume.h.
  Result<AttributesReply> attributes(InodeNumber inode, const OpenFile* file,
                                     const Caller& caller);
  Result<AttributesReply> set_attributes(InodeNumber inode, const SetAttributes& change,
                                         OpenFile* file, const Caller& caller);
  Result<void> set_xattr(InodeNumber inode, std::string_view name, std::string_view value,
                         int flags, const Caller& caller);
  Result<std::string> get_xattr(InodeNumber inode, std::string_view name, const Caller& caller);
  Result<std::string> list_xattrs(InodeNumber inode, const Caller& caller);
  Result<void> remove_xattr(InodeNumber inode, std::string_view name, const Caller& caller);

  // What another server has told a directory that is on the pool; nullopt: it is told this no longer.
  // `may`: asked with the inode's lock held; where it is false nothing happens. Errors: EIO, EBADMSG,
  // ENOSPC (the inode has as many attributes as it may), those of `may`.
  Result<void> take_xattr(Inode& inode, std::string_view name,
                          const std::optional<std::string>& value,
                          const std::function<Result<bool>()>& may);

 private:
  // `user`: who asked by name, and gets a lease by that.
  static Result<InodeRecord> look_at_record(Inode& inode);
  Result<AttributesReply> reply_of(const InodePtr& inode, const Caller* user = nullptr);
  Result<void> change_data(const InodePtr& inode, const SetAttributes& change, OpenFile* file,
                           const Caller& caller);
  Result<void> note_mapped_store(Inode& inode, int fd);
  Result<void> check_keeper(Inode& inode, std::string_view policy, const Caller& caller);
  Result<void> told(Inode& inode, std::string_view name);
  static void put_told_facts(Inode& inode, std::string_view name, bool is_set, Edit& edit);
  // Not under an inode's lock. nullopt: it stays on this node.
  Result<std::optional<SharedName>> name_on_pool(InodeNumber number);
  Result<void> set_acl(Inode& inode, std::string_view name, std::string_view value,
                       const Caller& caller);

  Result<void> store_xattr(Inode& inode, std::string_view name, std::string_view value,
                           int flags, Edit&& edit);
  Result<void> erase_xattr(Inode& inode, std::string_view name, Edit&& edit);
  Result<void> set_parent(InodeNumber number, std::string_view hash, int flags,
                          const Caller& caller);
  Result<void> set_told(Inode& inode, std::string_view value, int flags,
                        const std::optional<SharedName>& shared);
  Result<std::string> policy_in_force(InodeNumber number, const InodeRecord& record,
                                      std::string_view name);

  Core& core_;
};

inline constexpr std::string_view kCapabilityXattr = "security.capability";

// What a write, truncate or chown takes from a file, as ext4 does (setattr_should_drop_suidgid,
// fs/attr.c): suid; sgid where the group may execute, or where the caller is not in the file's
// group; and file capabilities, from everybody. Unless `forced` (a chown, or the kernel says so),
// a caller with CAP_FSETID keeps suid and sgid. Adds to the edit; true when something changed.
Result<bool> strip_privileges(Core& core, InodeNumber number, InodeRecord& record,
                              const Caller& caller, bool forced, Edit& edit);

// Whether a write would have something to strip: such a file's writes must come to the daemon.
// The caller holds the inode's lock.
Result<bool> has_privileges(Core& core, const Inode& inode);

}  // namespace kvcachefs
