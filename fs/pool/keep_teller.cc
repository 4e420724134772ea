#include "fs/pool/keep_teller.h"

#include <utility>
#include <vector>

#include "backend/base/log.h"
#include "fs/life/states.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {
namespace {

// They take a tenth of a second or two, in which nothing is published.
constexpr std::size_t kRowsAtOnce = 2048;
constexpr int kShareOfTime = 9;  // between two walks, of what the last one took

}  // namespace

Result<void> tell_kept(Core& core, Inode& inode, std::optional<bool> said) {
  if (!inode.is_file()) return {};
  if (!core.catalog.is_told_policy()) {
    const std::lock_guard lock(inode.mutex);
    // It is as it was when it was published.
    if ((inode.record.flags & kInodeHasXattr) == 0) return {};
  }
  const std::uint64_t age = core.knowledge.treatments_age();
  const bool keep = TRY(note_policy(core, inode)).policy >= FilePolicy::kKeep;
  // What others have said of it is theirs to take back.
  const auto is_told = [&](const std::optional<PoolCopy>& copy) {
    return !copy || (keep ? said.value_or(copy->keep) : !copy->keep);
  };
  if (is_told(TRY(core.catalog.find_pool_copy(inode.number)))) return {};
  const auto shared = TRY(shared_name_of(core.catalog, core.knowledge, inode.number));
  if (!shared) return {};
  {
    const std::lock_guard lock(inode.mutex);
    std::optional<PoolCopy> copy = TRY(core.catalog.find_pool_copy(inode.number));
    if (is_told(copy) || copy->path_hash != shared->path_hash) return {};
    if (core.knowledge.treatments_age() != age) return fail(ESTALE, "told another meanwhile");
    Edit edit;
    TRY(put_keep_change(core, shared->path, *copy, keep, edit));
    edit.put_pool_copy(inode.number, *copy);
    TRY(core.catalog.commit(std::move(edit)));
  }
  if (core.on_pool_work) core.on_pool_work();
  return {};
}

Result<WorkLeft> KeepTeller::step() {
  const auto begin = std::chrono::steady_clock::now();
  if (!last_) {
    const std::uint64_t age = core_.knowledge.treatments_age();
    if (!core_.catalog.is_told_policy() || age_ == age) return WorkLeft::kNothing;
    // Whoever tells a thousand directories something causes few walks, and these take no more than a tenth of the time.
    if (begin - ended_ < kShareOfTime * took_) return WorkLeft::kLater;
    age_ = age;
    last_ = 0;
    took_ = {};
  }
  // The pool has to take what there is first.
  if (TRY(core_.catalog.list_owner_changes("", kRowsAtOnce)).size() == kRowsAtOnce)
    return WorkLeft::kLater;
  const std::vector<InodeNumber> numbers =
      TRY(core_.catalog.list_pool_copies(*last_, kRowsAtOnce));
  for (const InodeNumber number : numbers) {
    const Result<InodePtr> inode = core_.table.get(number);
    if (!inode.ok()) continue;
    const Result<void> told = tell_kept(core_, **inode);
    // What is renamed just now gets another place on the pool; the others do not wait for what does not read.
    if (!told.ok() && told.error().code != ESTALE && told.error().code != ENOENT)
      log_warn("pool: not told whether it is kept inode={} step=\"{}\" errno={}", number,
               told.error().what, told.error().code);
  }
  ended_ = std::chrono::steady_clock::now();
  took_ += ended_ - begin;
  if (!numbers.empty()) {
    last_ = numbers.back();
    return WorkLeft::kMore;
  }
  last_.reset();
  return WorkLeft::kNothing;
}

}  // namespace kvcachefs
