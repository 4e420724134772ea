#include "fs/budget/mapped_files.h"

namespace kvcachefs {

// Holds end without the lock: theirs is a leaf as well.
void MappedFiles::add(const File& file, OpenBytes::Hold hold) {
  const std::lock_guard lock(mutex_);
  const auto at = files_.find({file.user, file.inode});
  if (at == files_.end() && files_.size() >= kMost) return;
  Mapped& mapped = at == files_.end() ? files_[{file.user, file.inode}] : at->second;
  discount(mapped);
  mapped.object = file.object;
  mapped.is_known = file.is_known;
  std::swap(mapped.hold, hold);
  count(mapped);
}

void MappedFiles::count(const Mapped& mapped) {
  if (!mapped.is_known) unknown_of_[mapped.hold.tenant()] += mapped.hold.bytes();
}

void MappedFiles::discount(const Mapped& mapped) {
  if (!mapped.is_known) unknown_of_[mapped.hold.tenant()] -= mapped.hold.bytes();
}

std::uint64_t MappedFiles::unknown_of(TenantSlot tenant) const {
  const std::lock_guard lock(mutex_);
  return unknown_of_[tenant];
}

MappedFiles::Table::iterator MappedFiles::find(const File& file) {
  const auto at = files_.find({file.user, file.inode});
  return at != files_.end() && at->second.object == file.object ? at : files_.end();
}

void MappedFiles::set_known(const File& file) {
  const std::lock_guard lock(mutex_);
  const auto at = find(file);
  if (at == files_.end()) return;
  discount(at->second);
  at->second.is_known = true;
}

void MappedFiles::remove(const File& file) {
  OpenBytes::Hold hold;
  const std::lock_guard lock(mutex_);
  const auto at = find(file);
  if (at == files_.end()) return;
  discount(at->second);
  hold = std::move(at->second.hold);
  files_.erase(at);
}

std::vector<MappedFiles::File> MappedFiles::some(Table::iterator begin, Table::iterator end,
                                                 Table::iterator first, std::size_t most) {
  std::vector<File> out;
  auto at = first;
  while (out.size() < most && begin != end) {
    if (at == end) at = begin;
    const auto& [key, mapped] = *at;
    out.push_back({.user = key.first,
                   .inode = key.second,
                   .object = mapped.object,
                   .is_known = mapped.is_known});
    ++at;
    if (at == first || (at == end && first == begin)) break;
  }
  return out;
}

std::vector<MappedFiles::File> MappedFiles::next(std::size_t most) {
  const std::lock_guard lock(mutex_);
  std::vector<File> out = some(files_.begin(), files_.end(), files_.upper_bound(last_), most);
  if (!out.empty()) last_ = {out.back().user, out.back().inode};
  return out;
}

std::vector<MappedFiles::File> MappedFiles::next_of(uid_t user, std::size_t most) {
  const std::lock_guard lock(mutex_);
  std::vector<File> out =
      some(files_.lower_bound({user, 0}), files_.upper_bound({user, ~InodeNumber{0}}),
           files_.upper_bound({user, last_own_}), most);
  if (!out.empty()) last_own_ = out.back().inode;
  return out;
}

}  // namespace kvcachefs
