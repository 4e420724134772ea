#include "fs/known/known_name.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "fs/known/place.h"

namespace kvcachefs {
namespace {

constexpr std::array<std::string_view, 4> kReadOnly = {"runtime", "model", "prefix", "policy"};

}  // namespace

Result<void> find_known_name(Catalog& catalog, InodeNumber inode, KnownName& out) {
  const auto links = TRY(catalog.list_links(inode, 1));
  if (links.empty()) return {};
  const auto place = TRY(find_place(catalog, links.front().first));
  if (place == nullptr) return {};
  out.path = path_in(*place, links.front().second);
  out.file = recognize(out.path, place->told);
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
  if (name == "policy") value = name_of(known.file->policy);
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
  name.remove_prefix(kOwnXattrs.size());
  if (std::find(kReadOnly.begin(), kReadOnly.end(), name) != kReadOnly.end())
    return fail(EPERM, "read-only xattr");
  return fail(EOPNOTSUPP, "xattr");
}

}  // namespace kvcachefs
