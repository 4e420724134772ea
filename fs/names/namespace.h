// Names: the calls that find, make, move and remove dentries.
//
// The kernel holds the parents' locks during each of them, so two changes of one directory
// never run at once; what changes an inode from several directories, and the daemon's own
// drops, are ordered by the inode locks, and dentries are read again under them.
#pragma once

#include "fs/names/native_map.h"
#include "fs/node/core.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

// A file or directory that stands on the pool, and gets a name here.
struct Adoption {
  mode_t mode = 0;  // with its type
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  PoolCopy copy;
};

class Namespace {
 public:
  explicit Namespace(Core& core) : core_(core) {}

  // As the methods of the same names in fs/volume.h.
  Result<Entry> lookup(InodeNumber parent, std::string_view name, const Caller& caller,
                       double* miss_timeout_s);
  Result<Entry> make_node(InodeNumber parent, std::string_view name, mode_t mode, dev_t rdev,
                          const Caller& caller);
  Result<Entry> make_symlink(InodeNumber parent, std::string_view name, std::string_view target,
                             const Caller& caller);
  Result<Entry> link(InodeNumber inode, InodeNumber new_parent, std::string_view new_name,
                     const Caller& caller);
  Result<void> unlink(InodeNumber parent, std::string_view name, const Caller& caller);
  Result<void> rmdir(InodeNumber parent, std::string_view name);
  Result<void> rename(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                      std::string_view new_name, unsigned flags, const Caller& caller);
  Result<std::string> read_link(InodeNumber inode);
  Result<void> list(InodeNumber directory, std::uint64_t after_cookie, bool plus,
                    const std::function<bool(const ListedEntry&)>& visit, const Caller& caller);

  // Makes an inode with a name (or, with an empty one, without: O_TMPFILE), and for a regular
  // file its object. The new inode is returned with one lookup counted; `copy` is the backing
  // file of a regular one.
  struct Made {
    InodePtr inode;
    NewCopy copy;
    std::optional<BlockName> block;  // what its name says
    bool is_kept = false;            // the same: it must not be lost
    bool is_directory_of_block = false;
  };
  struct NewInode {
    mode_t mode = 0;
    dev_t rdev = 0;
    std::string_view target;
    DataState state = DataState::kNone;
  };
  bool stands_for_a_block(InodeNumber directory);
  void hand_absence_on(Inode& directory, const Made& made, const NameLook& seen,
                       Unfound at_name);
  Result<Made> make(InodeNumber parent, std::string_view name, const NewInode& what,
                    const Caller& caller);
  // A file in state `remote`, or a directory. Errors: EEXIST (the name is here by now), ENOENT (the directory was
  // removed), and those of Catalog::commit().
  Result<void> adopt(InodeNumber parent, std::string_view name, const Adoption& what);
  // A directory that another node has removed on the pool, where `copy` says it stood, goes if it is
  // empty here. Otherwise its copy has the number 0 from here on: its next file says anew whose it
  // is. Errors: those of drop_empty_directory().
  Result<void> drop_directory(Inode& directory, const PoolCopy& copy);
  // The entry of an inode in memory, with one lookup counted.
  // `user`: who asked for it by name, and gets a lease by that. ENOENT: it is being evicted.
  Result<Entry> entry_of(const InodePtr& inode, const Caller* user = nullptr);
  // Errors: ENOENT (the block is about to go), those of checked_status().
  Result<bool> look_into(Inode& directory, const Caller& caller);
  // kMustWait: somebody changes it.
  Result<Entry> entry_without_waiting(const InodePtr& inode);
  // The entry of a name that was just made. On an error the kernel does not learn of the name,
  // so it is told to forget the listing of `parent`.
  Result<Entry> entry_made(InodeNumber parent, const InodePtr& inode);

  // Before the mount answers.
  Result<void> load_native_map() { return native_.load(core_.catalog); }
  [[nodiscard]] const NativeMap& native() const noexcept { return native_; }

 private:
  Result<InodeNumber> parent_of(InodeNumber directory);
  Result<void> finish_drop(InodeNumber parent, std::string_view name);
  // unlink and rmdir; `directory`: which of them.
  // `thread`: of who calls.
  Result<void> remove_name(InodeNumber parent, std::string_view name, bool directory,
                           pid_t thread);
  // The steps of a rename (rename.cc).
  struct Renaming;
  // kChanged: the dentries did, between the first look and the locks. kCameSecond: the target is a prefix
  // file, which stays.
  enum class Outcome : std::uint8_t { kChanged, kCameSecond, kMoved };
  Result<void> find_both(Renaming& call, bool no_replace);
  Result<Outcome> commit_rename(Renaming& call);
  Result<void> put_whiteout(Renaming& call);
  Result<void> move_names(Renaming& call);
  Result<void> put_block_rows(Renaming& call, bool moves);
  Result<void> check_tenants(const Renaming& call);
  void note_tenant(Inode& inode, TenantSlot tenant);
  // Where the name stands on the pool; nullopt: nowhere, or nothing is there yet. Not under an inode's lock.
  std::optional<SharedName> name_on_pool(InodeNumber parent, std::string_view name);
  // Adds to the commit that takes this name from an inode what is to be done on the pool. The caller holds the
  // inode's lock.
  Result<void> leave_pool(Inode& inode, const std::optional<SharedName>& name, Edit& edit);
  Result<void> put_on_pool(Renaming& call, bool moves);
  void tell_gone(const Renaming& call, bool moved);
  void tell_stored(const Renaming& call, bool moved, const Caller& caller);
  struct NewName {
    InodeNumber parent = 0;
    std::string_view name;
  };
  // After the commit of a rename onto a published prefix file.
  void came_second(Inode& second, const Inode& first, const NewName& hash, bool was_in_prefix);

  Core& core_;
  NativeMap native_;
};

// A dentry that changes between the look and the locks is looked at again; more rounds than
// this mean that somebody renames it in a loop, which the kernel's own locks rule out.
inline constexpr int kMostRounds = 8;

// Whether a file can have this name. The kernel sends no other; a damaged request must not
// reach the catalog. Errors: EINVAL (empty, "." or "..", has a slash or a NUL), ENAMETOOLONG.
Result<void> check_name(std::string_view name);

}  // namespace kvcachefs
