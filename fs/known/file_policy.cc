#include "fs/known/file_policy.h"

#include <algorithm>

#include "backend/base/units.h"

namespace kvcachefs {
namespace {

constexpr std::chrono::seconds kShortestTtl{1};
constexpr std::chrono::seconds kLongestTtl = std::chrono::hours{10 * 365 * 24};

// Of an untold name.
Treatment by_default(std::string_view path, std::optional<Runtime> told, FilePolicy otherwise,
                     bool& is_block) {
  const std::optional<Recognized> known = recognize(path, told);
  if (!known) return {.policy = otherwise, .by = PolicyBy::kMount, .ttl = {}};
  is_block = is_block || known->kind == NameKind::kBlock;
  return {.policy = known->policy, .by = PolicyBy::kLayout, .ttl = {}};
}

}  // namespace

Result<std::chrono::seconds> parse_ttl(std::string_view text) {
  const auto duration = parse_duration(text, kShortestTtl, kLongestTtl);
  if (!duration.ok()) return fail(EINVAL, "not a time to live");
  return std::chrono::duration_cast<std::chrono::seconds>(*duration);
}

Result<Told> own_told(Catalog& catalog, InodeNumber inode) {
  Told told;
  if (const auto policy = TRY(catalog.find_xattr(inode, kPolicyXattr)))
    told.policy = parse_policy(*policy);
  if (const auto text = TRY(catalog.find_xattr(inode, kTtlXattr))) {
    const auto ttl = parse_ttl(*text);
    if (ttl.ok()) told.ttl = *ttl;
  }
  return told;
}

void TreatmentOfNames::add(const Place& place, std::string_view name) {
  Treatment one = by_default(path_in(place, name), place.told, otherwise_, is_block_);
  if (const std::optional<FilePolicy> told = place.policy.holds_for(owner_)) {
    one = {.policy = *told, .by = PolicyBy::kDirectory, .ttl = {}};
  } else {
    is_untold_ = true;
  }
  if (!owner_may_keep_ && !place.policy.is_roots_for(owner_) && one.by != PolicyBy::kMount)
    one.policy = FilePolicy::kCache;
  if (names_ == 0 || one.policy > strictest_.policy) {
    strictest_.policy = one.policy;
    strictest_.by = one.by;
  }
  if (names_ == 0) strictest_.tenant = place.tenant;
  ++names_;
  if (const std::optional<std::chrono::seconds> ttl = place.ttl.holds_for(owner_)) {
    ++names_with_ttl_;
    strictest_.ttl = std::max(strictest_.ttl.value_or(*ttl), *ttl);
  }
}

Treatment TreatmentOfNames::of(const InodeRecord& record, const Told& own) const {
  Treatment out = strictest_;
  if (names_ == 0) out.policy = otherwise_;
  const bool is_untold = is_untold_ || names_ == 0;
  const bool is_application = is_untold && !is_block_ && (record.flags & kInodeKeep) != 0;
  if (is_application && out.policy < FilePolicy::kKeep) {
    out.policy = FilePolicy::kKeep;
    out.by = PolicyBy::kApplication;
  }
  if (own.policy) {
    out.policy = *own.policy;
    out.by = PolicyBy::kFile;
  }
  // By one of its names it stays.
  if (names_with_ttl_ < names_) out.ttl.reset();
  if (own.ttl) out.ttl = own.ttl;
  if (out.policy >= FilePolicy::kKeep) out.ttl.reset();
  return out;
}

}  // namespace kvcachefs
