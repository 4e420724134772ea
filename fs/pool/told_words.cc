#include "fs/pool/told_words.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>

#include "backend/base/log.h"
#include "backend/base/visible.h"
#include "fs/known/file_policy.h"
#include "fs/known/known_name.h"
#include "fs/names/attrs.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/queued_directory.h"

namespace kvcachefs {
namespace {

struct Word {
  std::string_view key;  // on the pool
  std::string_view xattr;
  std::uint8_t bit = 0;
};
constexpr Word kWords[] = {
    {"layout", kToldXattr, 1}, {"policy", kPolicyXattr, 2}, {"ttl", kTtlXattr, 4}};

const Word* word_of(std::string_view xattr) noexcept {
  for (const Word& word : kWords)
    if (word.xattr == xattr) return &word;
  return nullptr;
}

// As the user has said it, where a record can hold that.
std::string value_on_pool(const Word& word, const std::string& value) {
  if (is_pool_word(value) && value != kPoolUntold) return value;
  const auto ttl = parse_ttl(value);
  return word.xattr == kTtlXattr && ttl.ok() ? std::to_string(ttl->count()) + "s"
                                             : std::string(kPoolUntold);
}

// Whether this mount would let the directory's owner say it. The caller holds the inode's lock.
Result<void> check_word(const Core& core, const Inode& inode, const Word& word,
                        const std::string& value) {
  TRY(check_own_xattr(inode.record, word.xattr, value));
  if (word.xattr != kPolicyXattr || parse_policy(value) == FilePolicy::kCache) return {};
  if (core.options.keepers.may_keep_own(inode.record.uid, inode.record.gid)) return {};
  return fail(EPERM, "the mount's keep-by leaves it to others to keep files");
}

// What was told here and is not on the pool yet. The caller holds the inode's lock.
Result<bool> is_given_here(Core& core, const Inode& inode, const SharedName& shared,
                           const PoolCopy& copy, const Word& word) {
  const auto waiting = TRY(core.catalog.find_owner_change(shared.path));
  if (waiting && waiting->fileid == copy.fileid && (waiting->told & word.bit) != 0) return true;
  return TRY(core.catalog.is_to_publish(inode.number)) &&
         TRY(core.catalog.find_xattr(inode.number, word.xattr)).has_value();
}

Result<void> take_word(Core& core, Inode& inode, const SharedName& shared, std::uint64_t fileid,
                       const std::vector<PoolWord>& asked, const Word& word,
                       const std::string& value) {
  std::optional<std::string> wanted;
  if (value != kPoolUntold) wanted = value;
  // Mostly it is told so already: a change of a layout makes all places out of date.
  if (TRY(core.catalog.find_xattr(inode.number, word.xattr)) == wanted) return {};
  return Attributes(core).take_xattr(inode, word.xattr, wanted, [&]() -> Result<bool> {
    const auto copy = TRY(core.catalog.find_pool_copy(inode.number));
    if (!copy || copy->fileid != fileid || copy->path_hash != shared.path_hash) return false;
    if (TRY(is_given_here(core, inode, shared, *copy, word))) return false;
    const auto now = TRY(told_words(core, inode.number, word.bit));
    if (std::find(asked.begin(), asked.end(), now.front()) == asked.end())
      return fail(EAGAIN, "told another meanwhile");
    const Result<void> may = wanted ? check_word(core, inode, word, *wanted) : Result<void>{};
    if (may.ok()) return true;
    log_warn("pool: a directory is not told this, ignored path=\"{}\" {}=\"{}\" why=\"{}\"",
             shared.path, word.key, visible(*wanted), may.error().what);
    return false;
  });
}

// What is told here and stands nowhere there: another node has written its own words at the same moment, the record
// was lost, or it was told before records were there.
Result<void> tell_again(Core& core, Inode& inode, const SharedName& shared,
                        std::uint64_t fileid, std::uint8_t unsaid) {
  {
    const std::lock_guard lock(inode.mutex);
    if ((inode.record.flags & kInodeHasXattr) == 0) return {};
    const std::uint8_t bits = TRY(told_bits(core, inode.number)) & unsaid;
    const auto copy = TRY(core.catalog.find_pool_copy(inode.number));
    if (bits == 0 || !copy || copy->fileid != fileid || copy->path_hash != shared.path_hash)
      return {};
    OwnerChange change = TRY(waiting_change(core, shared.path, fileid));
    change.told |= bits;
    Edit edit;
    edit.put_owner_change(shared.path, change);
    TRY(core.catalog.commit(std::move(edit)));
  }
  if (core.on_pool_work) core.on_pool_work();
  return {};
}

}  // namespace

bool is_shared_word(const Inode& inode, std::string_view xattr) noexcept {
  return inode.type == S_IFDIR && word_of(xattr) != nullptr;
}

Result<void> put_told_change(Core& core, const Inode& inode,
                             const std::optional<SharedName>& name, std::string_view xattr,
                             Edit& edit) {
  const Word* const word = word_of(xattr);
  if (!name || word == nullptr) return {};
  const auto copy = TRY(core.catalog.find_pool_copy(inode.number));
  if (copy && copy->fileid != 0 && copy->path_hash == name->path_hash) {
    OwnerChange change = TRY(waiting_change(core, name->path, copy->fileid));
    change.told |= word->bit;
    edit.put_owner_change(name->path, change);
  } else if (core.is_publishing) {
    edit.put_to_publish(inode.number, kQueuedDirectory);
  }
  return {};
}

Result<std::uint8_t> told_bits(Core& core, InodeNumber directory) {
  std::uint8_t bits = 0;
  for (const Word& word : kWords)
    if (TRY(core.catalog.find_xattr(directory, word.xattr)))
      bits = static_cast<std::uint8_t>(bits | word.bit);
  return bits;
}

Result<std::vector<PoolWord>> told_words(Core& core, InodeNumber directory, std::uint8_t bits) {
  std::vector<PoolWord> words;
  for (const Word& word : kWords) {
    if ((bits & word.bit) == 0) continue;
    const auto value = TRY(core.catalog.find_xattr(directory, word.xattr));
    words.push_back({.key = std::string(word.key),
                     .value = value ? value_on_pool(word, *value) : std::string(kPoolUntold)});
  }
  return words;
}

Result<std::vector<PoolWord>> all_told(Core& core, const Inode& inode) {
  if (inode.type != S_IFDIR) return std::vector<PoolWord>{};
  return told_words(core, inode.number, kMostToldWords);
}

Result<void> take_told(Core& core, Inode& inode, const SharedName& shared, std::uint64_t fileid,
                       const std::vector<PoolWord>& asked,
                       const std::optional<PoolTold>& said) {
  if (inode.type != S_IFDIR) return {};
  std::uint8_t unsaid = 0;
  for (const Word& word : kWords) {
    const std::string* const value = said ? said->find(word.key) : nullptr;
    if (value == nullptr) {
      unsaid = static_cast<std::uint8_t>(unsaid | word.bit);
    } else {
      TRY(take_word(core, inode, shared, fileid, asked, word, *value));
    }
  }
  return unsaid == 0 ? Result<void>{} : tell_again(core, inode, shared, fileid, unsaid);
}

}  // namespace kvcachefs
