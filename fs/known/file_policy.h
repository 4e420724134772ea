// What may be done with a file by itself: what directories and files are told (user.kvcachefs.policy and
// user.kvcachefs.ttl), and what holds when nobody has said anything.
//
// Of each name of a file the nearest that was told decides, the file itself before its
// directories; else what the layout that recognises the name says; else what the mount was
// told. Of several names the strictest policy holds. Telling changes what is there already. A
// directory is told by its owner, and that holds for the files below it that are his, or
// root's; what root tells holds for all (ToldOnPath).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fs/known/place.h"
#include "fs/layout/layout.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// "cache", "process", "keep" or "pin"; on a directory or a regular file.
inline constexpr std::string_view kPolicyXattr = "user.kvcachefs.policy";
// How long after its last use a file may go although its room is not needed: "90s", "12h", "7d". On a
// directory or a regular file.
inline constexpr std::string_view kTtlXattr = "user.kvcachefs.ttl";

// From a second to ten years. Errors: EINVAL.
Result<std::chrono::seconds> parse_ttl(std::string_view text);

// What one inode was told itself.
struct Told {
  std::optional<FilePolicy> policy;
  std::optional<std::chrono::seconds> ttl;
};
// Errors: EIO.
Result<Told> own_told(Catalog& catalog, InodeNumber inode);

// Of policy kProcess: so long after the last use of its model a file stays whose writer is not visible here.
inline constexpr std::chrono::hours kTrustUnseen{1};

// Who decided.
enum class PolicyBy : std::uint8_t {
  kMount,        // nobody: --policy of the mount
  kLayout,       // the layout that recognises the name
  kApplication,  // it was fsynced, or truncated after publication: who does that needs it again
  kDirectory,    // the nearest one above that was told
  kFile,         // it was told itself
};

struct Treatment {
  FilePolicy policy = FilePolicy::kCache;
  PolicyBy by = PolicyBy::kMount;
  // Since the last use. Of kCache and kProcess; nullopt: it does not expire. What is kept or pinned never
  // does.
  std::optional<std::chrono::seconds> ttl;
  TenantSlot tenant = 0;  // of its first name; kOrphans: an orphan's, whosever name that is
  // Of kProcess: its writer lives, or is not known and its model was used within kTrustUnseen.
  bool writer_lives = false;
  // Of kProcess, and who wrote it has ended.
  [[nodiscard]] bool is_orphan() const noexcept { return tenant == kOrphans; }
  // It may not be evicted.
  [[nodiscard]] bool is_kept() const noexcept {
    return policy >= FilePolicy::kKeep || (policy == FilePolicy::kProcess && writer_lives);
  }
};

// Puts the names of one file together.
class TreatmentOfNames {
 public:
  // `otherwise`: of the mount. `owner`: of the file; `owner_may_keep`: else what a layout, or a
  // directory of anybody but root, says of keeping it does not count (fs/known/keepers.h).
  TreatmentOfNames(FilePolicy otherwise, std::uint32_t owner, bool owner_may_keep = true)
      : otherwise_(otherwise), owner_(owner), owner_may_keep_(owner_may_keep) {}
  void add(const Place& place, std::string_view name);
  // `own`: what the file itself was told.
  [[nodiscard]] Treatment of(const InodeRecord& record, const Told& own) const;

 private:
  const FilePolicy otherwise_;
  const std::uint32_t owner_;
  const bool owner_may_keep_;
  std::size_t names_ = 0;
  std::size_t names_with_ttl_ = 0;
  bool is_untold_ = false;  // a name is: no directory above it was told
  bool is_block_ = false;   // a name is a block's
  Treatment strictest_;
};

}  // namespace kvcachefs
