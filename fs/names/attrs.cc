#include "fs/names/attrs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fs/acl/acl.h"
#include "fs/known/known_name.h"
#include "fs/life/check_kept.h"
#include "fs/life/checked_status.h"
#include "fs/life/states.h"
#include "fs/names/credentials.h"
#include "fs/names/namespace.h"
#include "fs/names/native_map.h"
#include "fs/names/reach.h"
#include "fs/names/read_times.h"
#include "fs/node/attributes.h"
#include "fs/pool/keep_teller.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/told_words.h"

namespace kvcachefs {
namespace {

// ext4 keeps an inode's xattrs in one 4 KiB block; the kernel's own bound for a value is 64
// KiB.
constexpr std::size_t kLongestXattr = 64 * 1024;
// All of an inode's together, as ext4 has them in a block (EXT4_XATTR_LEN and EXT4_XATTR_SIZE,
// fs/ext4/xattr.h): a user's attributes are in nobody's budget, so that they are few.
constexpr std::size_t kMostXattrs = 4096;

std::size_t xattr_cost(std::string_view name, std::size_t value_bytes) noexcept {
  constexpr std::size_t kHeader = 16;
  constexpr std::size_t kRound = 4;
  const auto rounded = [](std::size_t bytes) { return (bytes + kRound - 1) / kRound * kRound; };
  // The namespace is a byte of the header.
  const std::size_t point = name.find('.');
  const std::size_t kept =
      point == std::string_view::npos ? name.size() : name.size() - point - 1;
  return kHeader + rounded(kept) + rounded(value_bytes);
}

// Errors: ENOSPC, as ext4's.
Result<void> check_xattr_room(Catalog& catalog, const Inode& inode, std::string_view name,
                              std::size_t value_bytes) {
  std::size_t all = xattr_cost(name, value_bytes);
  if (all <= kMostXattrs && (inode.record.flags & kInodeHasXattr) != 0)
    TRY(catalog.each_xattr(inode.number, [&](std::string_view each, std::size_t bytes) {
      if (each != name) all += xattr_cost(each, bytes);
      return all <= kMostXattrs;
    }));
  if (all > kMostXattrs) return fail(ENOSPC, "the inode has as many attributes as it may");
  return {};
}

bool is_acl(std::string_view name) { return name == kAclAccess || name == kAclDefault; }

bool is_supported(std::string_view name) {
  return name.starts_with("user.") || name.starts_with("trusted.") ||
         name.starts_with("security.") || is_acl(name);
}

// "user." alone names nothing.
bool is_named(std::string_view name) {
  return is_acl(name) || name.find('.') + 1 < name.size();
}

// Whether what a directory is told holds below it.
bool is_told_below(const Inode& inode, std::string_view name) {
  return inode.type == S_IFDIR &&
         (name == kPolicyXattr || name == kTtlXattr || name == kDirectIoXattr ||
          name == kPoolWritesXattr || is_term(name));
}

// Who has a share does not say how large it is.
Result<void> check_administrator(const Caller& caller) {
  if (has_capability(caller, CAP_SYS_ADMIN)) return {};
  return fail(EPERM, "shares and quotas are set by the administrator");
}

// What a directory is told decides what becomes of files below it: that is its owner's, not
// that of all who may write there.
Result<void> check_teller(Inode& inode, std::string_view name, const Caller& caller) {
  if (!is_told_below(inode, name) && !(inode.type == S_IFDIR && name == kToldXattr)) return {};
  if (owner_of(inode).uid == caller.uid || has_capability(caller, CAP_FOWNER)) return {};
  return fail(EPERM, "somebody else's directory");
}

// A time of utimensat(2) for the backing file.
timespec time_argument(const std::optional<UnixNanos>& time) {
  if (!time) return timespec{.tv_sec = 0, .tv_nsec = UTIME_OMIT};
  if (*time == kTimeNow) return timespec{.tv_sec = 0, .tv_nsec = UTIME_NOW};
  return to_timespec(*time);
}

// Who is not in a file's group may not leave it a set-group-ID bit.
bool may_keep_group(const Caller& caller, gid_t group) {
  return in_group(caller, group) || has_capability(caller, CAP_FSETID);
}

}  // namespace

Result<bool> strip_privileges(Core& core, InodeNumber number, InodeRecord& record,
                              const Caller& caller, bool forced, Edit& edit) {
  std::uint32_t strip = record.mode & S_ISUID;
  if ((record.mode & S_ISGID) != 0 &&
      ((record.mode & S_IXGRP) != 0 || !may_keep_group(caller, record.gid)))
    strip |= S_ISGID;
  if (strip != 0 && !forced && has_capability(caller, CAP_FSETID)) strip = 0;
  bool changed = strip != 0;
  record.mode &= ~strip;
  if ((record.flags & kInodeHasXattr) != 0 &&
      TRY(core.catalog.find_xattr(number, kCapabilityXattr))) {
    edit.remove_xattr(number, kCapabilityXattr);
    changed = true;
  }
  return changed;
}

Result<bool> has_privileges(Core& core, const Inode& inode) {
  const InodeRecord& record = inode.record;
  if ((record.mode & S_ISUID) != 0) return true;
  if ((record.mode & S_ISGID) != 0) return true;
  if ((record.flags & kInodeHasXattr) == 0) return false;
  return TRY(core.catalog.find_xattr(inode.number, kCapabilityXattr)).has_value();
}

Result<AttributesReply> Attributes::reply_of(const InodePtr& inode, const Caller* user) {
  std::optional<struct stat> backing;
  if (inode->is_file()) {
    Result<struct stat> checked = checked_status(core_, *inode);
    // ESTALE makes the kernel look the name up again, and find the miss.
    if (!checked.ok()) return miss_or_error(core_, *inode, checked.error(), ESTALE);
    backing = *checked;
  }
  const auto reply = [&](const InodeRecord& record) {
    AttributesReply shown{
        .attributes = merge_attributes(inode->number, record, backing ? &*backing : nullptr),
        .birth = to_timespec(record.btime),
        .timeout_s = attribute_timeout(*inode)};
    ReadTimes::show(*inode, shown.attributes);
    return shown;
  };
  if (inode->type == S_IFDIR) return reply(inode->shown());
  const auto lock = TRY(lock_to_look(*inode));
  if (user != nullptr && inode->is_going()) return fail(ESTALE, "about to go");
  if (user != nullptr && backing) core_.budget.answered(*inode, *backing, user->uid);
  return reply(inode->record);
}

Result<AttributesReply> Attributes::attributes(InodeNumber number, const OpenFile* file,
                                               const Caller& caller) {
  if (file != nullptr) return reply_of(file->inode);
  const InodePtr inode = TRY(core_.table.get(number));
  const bool wanted = inode->is_file() && !core_.knowledge.is_crawling(caller.pid);
  return reply_of(inode, wanted ? &caller : nullptr);
}

// A store through a mapping has moved the modification time of a sealed file, and nobody has looked at it
// since: other times would hide that its checksums no longer hold. The caller holds the inode's lock.
Result<void> Attributes::note_mapped_store(Inode& inode, int fd) {
  if (inode.record.state != DataState::kSealed) return {};
  struct stat backing {};
  if (::fstat(fd, &backing) != 0) return fail_errno("status of a backing file");
  if (is_same_data(stamp_of(backing), inode.record.stamp)) return {};
  return begin_change(core_, inode, Change::kTimes);
}

// Size and times of a regular file are its backing file's.
Result<void> Attributes::change_data(const InodePtr& inode, const SetAttributes& change,
                                     OpenFile* file, const Caller& caller) {
  if (change.size && core_.fetch) TRY(core_.fetch(inode));
  const bool keeps = change.size && may_keep(caller, core_.options.keepers);
  const std::lock_guard lock(inode->mutex);
  if (change.size && is_final(inode->record)) return fail(EEXIST, "a published prefix file");
  // Who touches what is on the pool alone has used it, and that is all.
  if (inode->record.state == DataState::kRemote)
    return change.size ? Result<void>(fail(EIO, "its bytes are not here")) : Result<void>{};
  Tier* tier = TRY(core_.devices->of(*inode));
  // Its stamp is about to change: from `published` on that must be known first, or a crash
  // right now would read as "never published". A sealed file that only gets other times keeps
  // its checksums, and finds out by itself.
  if (inode->record.state == DataState::kPublished ||
      (change.size && inode->record.state == DataState::kSealed)) {
    TRY(begin_change(core_, *inode, change.size ? Change::kTruncate : Change::kTimes));
  }
  std::optional<OpenFile::Descriptor> opened;
  if (file != nullptr && file->object == inode->record.object && file->writable()) {
    opened = TRY(file->descriptor());
  } else {
    opened.emplace(TRY(tier->open(inode->record.object, change.size ? O_RDWR : O_RDONLY)));
  }
  const int fd = opened->get();
  if (change.size) inode->appended_object.store(kNoObject);
  if (change.size && ::ftruncate(fd, static_cast<off_t>(*change.size)) != 0) {
    const Error failed = fail_errno("truncate");
    // Nobody may have it open who would tell the sealer.
    if (inode->writers == 0 && core_.on_unwritten) core_.on_unwritten(inode->number);
    return failed;
  }
  if (change.atime || change.mtime) {
    TRY(note_mapped_store(*inode, fd));
    const timespec times[2] = {time_argument(change.atime), time_argument(change.mtime)};
    if (::futimens(fd, times) != 0) return fail_errno("times");
  }
  if (inode->record.state == DataState::kUnpublished) return {};
  struct stat backing {};
  if (::fstat(fd, &backing) != 0) return fail_errno("status of a backing file");
  InodeRecord next = inode->record;
  Edit edit;
  if (next.state == DataState::kSealed) {
    std::optional<ObjectRecord> object = TRY(core_.catalog.find_object(next.object));
    if (object && object->sealed == next.stamp) {
      object->sealed = stamp_of(backing);
      edit.put_object(next.object, *object);
    }
  }
  edit.set_frees();
  next.stamp = stamp_of(backing);
  // An application's own. The call frees room, mostly: it does not fail for that.
  if (keeps && check_kept(core_, *inode).ok()) next.flags |= kInodeKeep;
  return commit_record(core_, *inode, std::move(next), std::move(edit));
}

Result<AttributesReply> Attributes::set_attributes(InodeNumber number,
                                                   const SetAttributes& change, OpenFile* file,
                                                   const Caller& caller) {
  const InodePtr inode = file != nullptr ? file->inode : TRY(core_.table.get(number));
  const bool regular = inode->is_file();
  if (change.size && !regular) return fail(EINVAL, "size of something else than a file");
  const bool data = regular && (change.size || change.atime || change.mtime);
  if (data) TRY(change_data(inode, change, file, caller));
  const bool chown = change.uid || change.gid;
  std::optional<SharedName> shared;
  if (chown || change.mode) shared = TRY(name_on_pool(number));
  {
    const std::lock_guard lock(inode->mutex);
    const UnixNanos now = file_clock_now();
    InodeRecord next = inode->record;
    Edit edit;
    if (change.uid) next.uid = *change.uid;
    if (change.gid) next.gid = *change.gid;
    const bool forced = chown || change.kill_suid_sgid;
    if (inode->type != S_IFDIR && (forced || change.size)) {
      (void)TRY(strip_privileges(core_, number, next, caller, forced, edit));
    }
    if (change.mode) {
      next.mode = (next.mode & S_IFMT) | (*change.mode & 07777);
      TRY(follow_mode(core_.catalog, number, next, edit));
    }
    if (!regular && change.atime) {
      next.atime = *change.atime == kTimeNow ? now : *change.atime;
      inode->read_at.store(0);
      // The kernel answers readlink from its pages.
      if (inode->type == S_IFLNK && core_.notifications != nullptr)
        core_.notifications->invalidate_data(number);
    }
    if (!regular && change.mtime) next.mtime = *change.mtime == kTimeNow ? now : *change.mtime;
    if (chown || change.mode || change.kill_suid_sgid || !regular) next.ctime = now;
    const GivenOwner given{.uid = change.uid.has_value(),
                           .gid = change.gid.has_value(),
                           .mode = change.mode.has_value()};
    TRY(put_owner_change(core_, *inode, shared, given, next, edit));
    if (next != inode->record)
      TRY(commit_record(core_, *inode, std::move(next), std::move(edit)));
    if (data && inode->writers == 0 && is_unsealed(inode->record.state) && core_.on_unwritten)
      core_.on_unwritten(number);
  }
  if (shared && core_.on_pool_work) core_.on_pool_work();
  // What its directories were told holds for it, or what it was told for those below, by its
  // owner.
  if (change.uid && core_.catalog.is_told_policy() && (regular || inode->type == S_IFDIR)) {
    TRY(told(*inode, kPolicyXattr));
  }
  return reply_of(inode);
}

Result<std::optional<SharedName>> Attributes::name_on_pool(InodeNumber number) {
  if (!core_.is_pooled) return std::optional<SharedName>{};
  return shared_name_of(core_.catalog, core_.knowledge, number);
}

Result<void> Attributes::set_acl(Inode& inode, std::string_view name, std::string_view value,
                                 const Caller& caller) {
  const std::optional<SharedName> shared = TRY(name_on_pool(inode.number));
  const std::lock_guard lock(inode.mutex);
  InodeRecord next = inode.record;
  Edit edit;
  const PosixAcl acl = value.empty() ? PosixAcl{} : TRY(PosixAcl::parse(value));
  if (name == kAclDefault && !S_ISDIR(next.mode)) {
    return acl.empty()
               ? Result<void>{}
               : Result<void>{fail(EACCES, "default ACL of something else than a directory")};
  }
  bool store = !acl.empty();
  if (name == kAclAccess && store) {
    next.mode = (next.mode & ~0777u) | acl.mode_bits();
    if ((next.mode & S_ISGID) != 0 && !may_keep_group(caller, next.gid))
      next.mode &= ~static_cast<std::uint32_t>(S_ISGID);
    store = !acl.equals_mode();
  }
  if (store) {
    TRY(check_xattr_room(core_.catalog, inode, name, value.size()));
    edit.put_xattr(inode.number, name, acl.encode());
    next.flags |= kInodeHasAcl | kInodeHasXattr;
    TRY(core_.budget.metadata().check(inode.record, next));
  } else {
    edit.remove_xattr(inode.number, name);
  }
  next.ctime = file_clock_now();
  GivenOwner given;
  given.mode = name == kAclAccess;
  if (given.mode)
    given.told_mode = store ? (next.mode & 07000) | acl.least_mode() : next.mode & 07777;
  TRY(put_owner_change(core_, inode, shared, given, next, edit));
  TRY(commit_record(core_, inode, std::move(next), std::move(edit)));
  if (shared && core_.on_pool_work) core_.on_pool_work();
  return {};
}

Result<void> Attributes::set_xattr(InodeNumber number, std::string_view name,
                                   std::string_view value, int flags, const Caller& caller) {
  if (!is_supported(name)) return fail(EOPNOTSUPP, "xattr namespace");
  if (!is_named(name)) return fail(EINVAL, "xattr name");
  if (value.size() > kLongestXattr) return fail(E2BIG, "xattr value");
  const InodePtr inode = TRY(core_.table.get(number));
  if (name == kParentXattr) return set_parent(number, value, flags, caller);
  TRY(check_teller(*inode, name, caller));
  std::optional<SharedName> shared;
  if (is_shared_word(*inode, name)) shared = TRY(name_on_pool(number));
  if (name == kToldXattr) return set_told(*inode, value, flags, shared);
  if (is_term(name)) {
    TRY(check_administrator(caller));
    if (!core_.knowledge.tenants().has_room_for(number))
      return fail(ENOSPC, "as many directories as can be have a share or a quota");
  }
  if (is_acl(name)) return set_acl(*inode, name, value, caller);
  std::unique_lock lock(inode->mutex);
  if (name.starts_with(kOwnXattrs)) TRY(check_own_xattr(inode->record, name, value));
  if (name == kPolicyXattr) TRY(check_keeper(*inode, value, caller));
  Edit edit;
  put_told_facts(*inode, name, true, edit);
  TRY(put_told_change(core_, *inode, shared, name, edit));
  TRY(store_xattr(*inode, name, value, flags, std::move(edit)));
  lock.unlock();
  if (shared && core_.on_pool_work) core_.on_pool_work();
  return told(*inode, name);
}

// What a directory is told from now on, or is told no longer.
void Attributes::put_told_facts(Inode& inode, std::string_view name, bool is_set, Edit& edit) {
  if (name == kToldXattr) {
    if (is_set) edit.put_told();
    Knowledge::put_unread(edit, inode);
  } else if (is_set && is_told_below(inode, name)) {
    edit.put_told_policy();
  }
}

Result<void> Attributes::take_xattr(Inode& inode, std::string_view name,
                                    const std::optional<std::string>& value,
                                    const std::function<Result<bool>()>& may) {
  std::optional<Knowledge::PlaceChange> change;
  if (name == kToldXattr) change.emplace(core_.knowledge);
  {
    const std::lock_guard lock(inode.mutex);
    if (inode.record.nlink == 0 || !TRY(may())) return {};
    Edit edit;
    put_told_facts(inode, name, value.has_value(), edit);
    TRY(value ? store_xattr(inode, name, *value, 0, std::move(edit))
              : erase_xattr(inode, name, std::move(edit)));
  }
  return told(inode, name);
}

// Of a directory what is there already stays as far as it fits (note_policy()).
Result<void> Attributes::check_keeper(Inode& inode, std::string_view policy,
                                      const Caller& caller) {
  const std::optional<FilePolicy> told = parse_policy(policy);
  if (!told || *told == FilePolicy::kCache) return {};
  if (!may_keep(caller, core_.options.keepers))
    return fail(EPERM, "the mount's keep-by leaves it to others to keep files");
  return inode.is_file() && *told >= FilePolicy::kKeep ? check_kept(core_, inode)
                                                       : Result<void>{};
}

// After the commit: what is told holds for what is there already.
Result<void> Attributes::told(Inode& inode, std::string_view name) {
  if (name == kDirectIoXattr || name == kPoolWritesXattr) {
    core_.knowledge.places().changed();
    return {};
  }
  if (name != kPolicyXattr && name != kTtlXattr && !is_term(name)) return {};
  if (is_told_below(inode, name)) {
    if (is_term(name)) {
      const TenantTerms terms = TRY(own_terms(core_.catalog, inode.number));
      if (terms.any()) {
        core_.knowledge.tenants().put(inode.number, terms);
      } else {
        core_.knowledge.tenants().remove(inode.number);
      }
    }
    core_.knowledge.places().changed();
    core_.knowledge.told();
    if (core_.on_policy_told) core_.on_policy_told();
  } else if (inode.is_file()) {
    // Its names may change just now; who evicts looks again.
    if (const Result<Treatment> treatment = note_policy(core_, inode); treatment.ok())
      inode.close_waits.store(core_.knowledge.is_told_to_keep(*treatment),
                              std::memory_order_relaxed);
    if (core_.is_pooled) static_cast<void>(tell_kept(core_, inode).ok());
    core_.knowledge.told();
  }
  return {};
}

// The caller holds the inode's lock.
Result<void> Attributes::store_xattr(Inode& inode, std::string_view name,
                                     std::string_view value, int flags, Edit&& edit) {
  const bool stands = (inode.record.flags & kInodeHasXattr) != 0 &&
                      TRY(core_.catalog.find_xattr(inode.number, name)).has_value();
  if (stands && (flags & XATTR_CREATE) != 0) return fail(EEXIST, "xattr");
  if (!stands && (flags & XATTR_REPLACE) != 0) return fail(ENODATA, "xattr");
  TRY(check_xattr_room(core_.catalog, inode, name, value.size()));
  InodeRecord next = inode.record;
  next.flags |= kInodeHasXattr;
  next.ctime = file_clock_now();
  TRY(core_.budget.metadata().check(inode.record, next));
  edit.put_xattr(inode.number, name, value);
  return commit_record(core_, inode, std::move(next), std::move(edit));
}

// Nothing where there is none. The caller holds the inode's lock.
Result<void> Attributes::erase_xattr(Inode& inode, std::string_view name, Edit&& edit) {
  const std::vector<std::string> names = TRY(core_.catalog.list_xattrs(inode.number));
  if (std::find(names.begin(), names.end(), name) == names.end()) return {};
  InodeRecord next = inode.record;
  edit.remove_xattr(inode.number, name);
  if (names.size() == 1)
    next.flags &= ~static_cast<std::uint32_t>(kInodeHasXattr | kInodeHasAcl);
  next.ctime = file_clock_now();
  return commit_record(core_, inode, std::move(next), std::move(edit));
}

Result<void> Attributes::set_parent(InodeNumber number, std::string_view hash, int flags,
                                    const Caller& caller) {
  if (flags != 0) {
    const Result<std::string> stands = core_.knowledge.parent_hash(number);
    if (!stands.ok() && stands.error().code != ENODATA) return stands.error();
    if (stands.ok() && (flags & XATTR_CREATE) != 0) return fail(EEXIST, "xattr");
    if (!stands.ok() && (flags & XATTR_REPLACE) != 0) return fail(ENODATA, "xattr");
  }
  Reach reach(core_.catalog, caller);
  return core_.knowledge.set_parent_hash(number, hash, reach.asker());
}

// The names below mean something else from now on.
Result<void> Attributes::set_told(Inode& inode, std::string_view value, int flags,
                                  const std::optional<SharedName>& shared) {
  const Knowledge::PlaceChange change(core_.knowledge);
  {
    const std::lock_guard lock(inode.mutex);
    TRY(check_own_xattr(inode.record, kToldXattr, value));
    Edit edit;
    put_told_facts(inode, kToldXattr, true, edit);
    TRY(put_told_change(core_, inode, shared, kToldXattr, edit));
    TRY(store_xattr(inode, kToldXattr, value, flags, std::move(edit)));
  }
  if (shared && core_.on_pool_work) core_.on_pool_work();
  return {};
}

// Of a directory without waiting for what is on its way into it.
Result<InodeRecord> Attributes::look_at_record(Inode& inode) {
  if (inode.type == S_IFDIR) return inode.shown();
  const auto lock = TRY(lock_to_look(inode));
  return inode.record;
}

Result<std::string> Attributes::get_xattr(InodeNumber number, std::string_view name,
                                          const Caller& caller) {
  if (!is_supported(name)) return fail(EOPNOTSUPP, "xattr namespace");
  const InodePtr inode = TRY(core_.table.get(number));
  if (name == kParentXattr) {
    Reach reach(core_.catalog, caller);
    return core_.knowledge.parent_hash(number, reach.asker());
  }
  const bool is_policy = name == kPolicyXattr || name == kTtlXattr;
  if (name.starts_with(kOwnXattrs) && name != kToldXattr && name != kDirectIoXattr &&
      name != kPoolWritesXattr && !is_policy && !is_term(name))
    return known_xattr(core_.catalog, number, name);
  const InodeRecord record = TRY(look_at_record(*inode));
  if ((record.flags & kInodeHasXattr) != 0) {
    std::optional<std::string> value = TRY(core_.catalog.find_xattr(number, name));
    if (value) return *std::move(value);
  }
  if (is_policy) return policy_in_force(number, record, name);
  return fail(ENODATA, "xattr");
}

// What holds where the inode was told nothing itself.
Result<std::string> Attributes::policy_in_force(InodeNumber number, const InodeRecord& record,
                                                std::string_view name) {
  Told in_force;
  if (S_ISREG(record.mode)) {
    const Treatment treatment = TRY(core_.knowledge.treatment(number, record));
    in_force = {.policy = treatment.policy, .ttl = treatment.ttl};
  } else if (S_ISDIR(record.mode)) {
    in_force = TRY(core_.knowledge.told_above(number, record.uid));
  }
  if (name == kPolicyXattr && in_force.policy) return std::string(name_of(*in_force.policy));
  if (name == kTtlXattr && in_force.ttl) return std::to_string(in_force.ttl->count()) + "s";
  return fail(ENODATA, "xattr");
}

Result<std::string> Attributes::list_xattrs(InodeNumber number, const Caller& caller) {
  const InodePtr inode = TRY(core_.table.get(number));
  if ((TRY(look_at_record(*inode)).flags & kInodeHasXattr) == 0) return std::string{};
  const std::vector<std::string> names = TRY(core_.catalog.list_xattrs(number));
  std::string out;
  std::optional<bool> trusted;
  for (const std::string& name : names) {
    // As fs/xattr.c (xattr_list_one, simple_xattr_list): only for who may read them.
    if (name.starts_with("trusted.")) {
      if (!trusted) trusted = has_capability(caller, CAP_SYS_ADMIN);
      if (!*trusted) continue;
    }
    out += name;
    out += '\0';
  }
  return out;
}

Result<void> Attributes::remove_xattr(InodeNumber number, std::string_view name,
                                      const Caller& caller) {
  if (!is_supported(name)) return fail(EOPNOTSUPP, "xattr namespace");
  const InodePtr inode = TRY(core_.table.get(number));
  if (name == kParentXattr) return core_.knowledge.forget_parent(number);
  TRY(check_teller(*inode, name, caller));
  if (is_term(name)) TRY(check_administrator(caller));
  std::optional<Knowledge::PlaceChange> change;
  if (name == kToldXattr) change.emplace(core_.knowledge);
  std::optional<SharedName> shared;
  if (name == kAclAccess || is_shared_word(*inode, name)) shared = TRY(name_on_pool(number));
  std::unique_lock lock(inode->mutex);
  const bool stands = (inode->record.flags & kInodeHasXattr) != 0 &&
                      TRY(core_.catalog.find_xattr(number, name)).has_value();
  if (!stands) return is_acl(name) ? Result<void>{} : Result<void>{fail(ENODATA, "xattr")};
  Edit edit;
  put_told_facts(*inode, name, false, edit);
  TRY(put_told_change(core_, *inode, shared, name, edit));
  // Its bits are the group's own from here on, and no mask.
  if (name == kAclAccess)
    TRY(put_owner_change(core_, *inode, shared,
                         {.mode = true, .told_mode = inode->record.mode & kPermissions},
                         inode->record, edit));
  TRY(erase_xattr(*inode, name, std::move(edit)));
  lock.unlock();
  if (shared && core_.on_pool_work) core_.on_pool_work();
  return told(*inode, name);
}

}  // namespace kvcachefs
