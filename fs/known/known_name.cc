#include "fs/known/known_name.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fs/known/file_policy.h"
#include "fs/known/place.h"

namespace kvcachefs {
namespace {

// Of a file with more names, a block's may be passed over: the links of many sessions.
constexpr std::size_t kMostLooked = 64;

constexpr std::array<std::string_view, 3> kReadOnly = {"runtime", "model", "prefix"};

}  // namespace

Result<void> find_known_name(Catalog& catalog, InodeNumber inode, KnownName& out) {
  PlaceWalk places(catalog);
  for (const auto& [directory, name] : TRY(catalog.list_links(inode, kMostLooked))) {
    const auto place = TRY(places.find(directory));
    if (place == nullptr) continue;
    std::string path = path_in(*place, name);
    const bool is_block = finished_block(path, place->told).has_value();
    if (!is_block && (out.file || !recognize(path, place->told))) continue;
    out.path = std::move(path);
    out.file = recognize(out.path, place->told);
    if (is_block) return {};
  }
  return {};
}

Result<std::string> known_xattr(Catalog& catalog, InodeNumber inode, std::string_view name) {
  name.remove_prefix(kOwnXattrs.size());
  if (std::find(kReadOnly.begin(), kReadOnly.end(), name) == kReadOnly.end())
    return fail(ENODATA, "xattr");
  KnownName known;
  TRY(find_known_name(catalog, inode, known));
  if (!known.file) return fail(ENODATA, "xattr");
  std::string_view value = name_of(known.file->runtime);
  if (name == "model") value = known.file->model;
  if (name == "prefix") value = known.file->prefix_hash;
  if (value.empty()) return fail(ENODATA, "xattr");
  return std::string(value);
}

Result<void> check_own_xattr(const InodeRecord& inode, std::string_view name,
                             std::string_view value) {
  if (name == kToldXattr) {
    if (!S_ISDIR(inode.mode)) return fail(ENOTDIR, "a layout is told to a directory");
    if (!parse_runtime(value)) return fail(EINVAL, "no such layout");
    return {};
  }
  if (name == kPolicyXattr || name == kTtlXattr) {
    if (!S_ISDIR(inode.mode) && !S_ISREG(inode.mode))
      return fail(EPERM, "no directory or regular file");
    if (name == kPolicyXattr && !parse_policy(value)) return fail(EINVAL, "no such policy");
    if (name == kTtlXattr) (void)TRY(parse_ttl(value));
    return {};
  }
  if (is_term(name)) {
    if (!S_ISDIR(inode.mode)) return fail(ENOTDIR, "a tenant is a directory");
    if (name == kShareXattr) (void)TRY(parse_share(value));
    if (name == kQuotaXattr) (void)TRY(parse_quota(value));
    return {};
  }
  if (name == kDirectIoXattr) {
    if (!S_ISDIR(inode.mode)) return fail(ENOTDIR, "told to a directory");
    if (!parse_direct_io(value)) return fail(EINVAL, "neither pass nor refuse");
    return {};
  }
  if (name == kPoolWritesXattr) {
    if (!S_ISDIR(inode.mode)) return fail(ENOTDIR, "told to a directory");
    if (!parse_pool_writes(value)) return fail(EINVAL, "neither all, reused nor off");
    return {};
  }
  name.remove_prefix(kOwnXattrs.size());
  if (std::find(kReadOnly.begin(), kReadOnly.end(), name) != kReadOnly.end())
    return fail(EPERM, "read-only xattr");
  return fail(EOPNOTSUPP, "xattr");
}

}  // namespace kvcachefs
