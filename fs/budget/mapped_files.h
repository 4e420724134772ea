// Files that were closed and may still be mapped: where the kernel maps backing files
// (passthrough), a mapping outlives the close, and nobody is told when it ends. Whoever closed
// one last holds its bytes (open_bytes.h) until a look finds that it is not mapped
// (fs/life/is_mapped.h); that it is known to be mapped makes it count as open.
//
// Any thread; the lock is a leaf. Memory: some 150 bytes a file.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "fs/budget/open_bytes.h"
#include "fs/known/tenants.h"
#include "metadata/record.h"

namespace kvcachefs {

class MappedFiles {
 public:
  // As many mappings as a process may have. While there are more, further files are found
  // mapped when they are to be evicted, and are nobody's until then.
  static constexpr std::size_t kMost = 65'536;
  // Stands for the process that has a file mapped which was to be evicted: nobody knows its
  // user.
  static constexpr uid_t kSomebody = static_cast<uid_t>(-1);

  struct File {
    uid_t user = kSomebody;
    InodeNumber inode = 0;
    ObjectId object = kNoObject;
    bool is_known = false;  // to be mapped
  };

  // Replaces what was added of this user's inode before.
  void add(const File& file, OpenBytes::Hold hold);
  // It was found mapped, or not to be: unless it is another object by now.
  void set_known(const File& file);
  void remove(const File& file);
  // Bytes of a tenant's files that are not known yet to be mapped, or not to be.
  [[nodiscard]] std::uint64_t unknown_of(TenantSlot tenant) const;
  // `most` of them, in turns; of one user, the same.
  [[nodiscard]] std::vector<File> next(std::size_t most);
  [[nodiscard]] std::vector<File> next_of(uid_t user, std::size_t most);

 private:
  struct Mapped {
    ObjectId object = kNoObject;
    bool is_known = false;
    OpenBytes::Hold hold;
  };
  using Key = std::pair<uid_t, InodeNumber>;
  using Table = std::map<Key, Mapped>;

  [[nodiscard]] Table::iterator find(const File& file);
  void count(const Mapped& mapped);
  void discount(const Mapped& mapped);
  // From `begin` up to before `end`, beginning behind `last`.
  static std::vector<File> some(Table::iterator begin, Table::iterator end,
                                Table::iterator first, std::size_t most);

  mutable std::mutex mutex_;
  // Under mutex_.
  Table files_;
  std::array<std::uint64_t, order::kGroups> unknown_of_{};  // by tenant
  Key last_{};
  InodeNumber last_own_ = 0;
};

}  // namespace kvcachefs
