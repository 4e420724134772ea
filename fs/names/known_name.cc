#include "fs/names/known_name.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <vector>

namespace kvcachefs {
namespace {

constexpr std::size_t kLongestPath = 4096;
constexpr std::array<std::string_view, 3> kReadOnly = {"runtime", "model", "prefix"};

}  // namespace

Result<void> find_known_name(Catalog& catalog, InodeNumber inode, KnownName& out) {
  std::vector<std::string> names;
  std::size_t length = 0;
  std::optional<Runtime> told;
  for (InodeNumber at = inode; at != kRootInode;) {
    auto links = TRY(catalog.list_links(at, 1));
    if (links.empty()) return {};
    at = links.front().first;
    length += links.front().second.size() + 1;
    if (length > kLongestPath) return {};
    names.push_back(std::move(links.front().second));
    if (!told) {
      const std::optional<std::string> value = TRY(catalog.find_xattr(at, kToldXattr));
      if (value) told = parse_runtime(*value);
    }
  }
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (!out.path.empty()) out.path += '/';
    out.path += *name;
  }
  if (!out.path.empty()) out.file = recognize(out.path, told);
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
  name.remove_prefix(kOwnXattrs.size());
  if (std::find(kReadOnly.begin(), kReadOnly.end(), name) != kReadOnly.end())
    return fail(EPERM, "read-only xattr");
  return fail(EOPNOTSUPP, "xattr");
}

}  // namespace kvcachefs
