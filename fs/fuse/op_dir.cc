// OPENDIR, RELEASEDIR, READDIR and READDIRPLUS.
#include <array>
#include <utility>
#include <vector>

#include "fs/fuse/kernel_order.h"
#include "fs/fuse/ops.h"

namespace kvcachefs {

namespace {

bool is_dots(const std::string& name) noexcept { return name == "." || name == ".."; }

struct stat name_attributes(const DirEntry& entry) noexcept {
  struct stat attributes {};
  attributes.st_ino = entry.inode;
  attributes.st_mode = static_cast<mode_t>(entry.type) << 12;  // DT_* to S_IFMT
  return attributes;
}

// Fills one answer with entries.
class Listing {
 public:
  Listing(Reply& reply, std::span<std::byte> buffer, bool plus)
      : request_(reply.request()), volume_(reply.volume()), buffer_(buffer), plus_(plus) {}

  // False: there is no room for it.
  bool add(const ListedEntry& listed) {
    char* place = reinterpret_cast<char*>(buffer_.data()) + used_;
    const std::size_t room = buffer_.size() - used_;
    const auto cookie = static_cast<off_t>(listed.entry.cookie);
    std::size_t size = 0;
    if (plus_) {
      // The kernel takes no lookup for "." and ".."; a node id of 0 says that only the name is
      // given.
      const bool counted = listed.plus.has_value() && !is_dots(listed.entry.name);
      fuse_entry_param param{};
      if (counted) {
        param = to_entry_param(*listed.plus);
      } else {
        param.attr = name_attributes(listed.entry);
      }
      size = fuse_add_direntry_plus(request_, place, room, listed.entry.name.c_str(), &param,
                                    cookie);
      if (size > room) return false;
      if (counted) {
        counted_.push_back(listed.plus->inode);
      } else if (listed.plus.has_value()) {
        surplus_.push_back(listed.plus->inode);
      }
    } else {
      const struct stat attributes = name_attributes(listed.entry);
      size = fuse_add_direntry(request_, place, room, listed.entry.name.c_str(), &attributes,
                               cookie);
      if (size > room) return false;
    }
    used_ += size;
    return true;
  }

  [[nodiscard]] bool is_empty() const noexcept { return used_ == 0; }

  void answer(Reply& reply, const Result<void>& listed) {
    // An error after some entries shows again when the kernel asks for what follows them.
    if (!listed && used_ == 0) {
      reply.error(listed.error());
    } else if (!reply.entries(buffer_.data(), used_)) {
      for (const InodeNumber inode : counted_) volume_.forget(inode, 1);
    }
    for (const InodeNumber inode : surplus_) volume_.forget(inode, 1);
  }

 private:
  fuse_req_t request_;
  Volume& volume_;
  std::span<std::byte> buffer_;
  std::size_t used_ = 0;
  bool plus_;
  std::vector<InodeNumber> counted_;
  std::vector<InodeNumber> surplus_;
};

// Shorter than a name, so that the kernel takes it for an end that does not make complete what
// it remembers (parse_dirfile() of its fs/fuse/readdir.c).
void answer_as(Reply& reply, ListingEnd end) {
  const std::array<std::byte, 8> no_name{};
  reply.data(no_name.data(), end == ListingEnd::kEmpty ? 0 : no_name.size());
}

void answer_end(Reply& reply, OpenDirectory& directory) {
  const ListingEnd end = reply.volume().end_listing(directory);
  if (end != ListingEnd::kWaits) return answer_as(reply, end);
  const bool is_parked =
      run_parked(reply, reply.context().slow_calls->of(kNoDisk), 4, [&directory](Reply& late) {
        answer_as(late, late.volume().await_listing_end(directory));
      });
  if (!is_parked) answer_as(reply, ListingEnd::kShort);
}

void answer_listing(Reply& reply, fuse_ino_t inode, std::size_t size, off_t offset, bool plus,
                    const Caller& caller, AskPool ask, OpenDirectory* directory) {
  const std::span<std::byte> buffer = reply.buffer(size);
  if (buffer.empty() && size != 0) return reply.error(fail(ENOMEM, "buffer for a readdir"));
  Listing listing(reply, buffer, plus);
  const Result<void> listed = reply.volume().list(
      inode, static_cast<std::uint64_t>(offset), plus,
      [&listing](const ListedEntry& entry) { return listing.add(entry); }, caller, ask);
  if (directory != nullptr && listed.ok() && listing.is_empty())
    return answer_end(reply, *directory);
  listing.answer(reply, listed);
}

void read_directory(Reply reply, fuse_ino_t inode, std::size_t size, off_t offset, bool plus,
                    OpenDirectory* directory) {
  const Caller caller = caller_of(reply.request());
  const auto answer_with = [=](AskPool ask) {
    return [=](Reply& answer) {
      answer_listing(answer, inode, size, offset, plus, caller, ask, directory);
    };
  };
  if (directory != nullptr &&
      !reply.volume().begin_listing(*directory, static_cast<std::uint64_t>(offset))) {
    return run_slowly(std::move(reply), kNoDisk,
                      [directory, list = answer_with(AskPool::kNo)](Reply& answer) {
                        answer.volume().await_listing_begin(*directory);
                        list(answer);
                      });
  }
  if (Volume::is_made_up(inode))
    return run_slowly(std::move(reply), kNoDisk, answer_with(AskPool::kNo));
  // Where too many wait for the pool, what is here is shown.
  const bool asks_pool = look_here(reply, [&](Volume& volume) {
    return volume.list_asks_pool(inode, static_cast<std::uint64_t>(offset));
  });
  if (asks_pool && run_on_pool(reply, answer_with(AskPool::kYes))) return;
  answer_with(AskPool::kNo)(reply);
}

}  // namespace

// The kernel answers a listing that it remembers: the daemon sees OPENDIR and RELEASEDIR alone.
// ENOSYS would spare these two as well, but hide which process lists, so that the lookups of a
// crawler would count as wanted; and the daemon could not refuse what the kernel remembers.
void op_opendir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept {
  Volume& volume = volume_of(request);
  const OpenedDirectory opened = volume.open_directory(inode, caller_of(request));
  info->fh = reinterpret_cast<std::uint64_t>(opened.directory);
  info->cache_readdir = opened.remembers;
  // Without it each OPENDIR drops what the kernel remembers.
  info->keep_cache = opened.directory != nullptr;
  before_answer(opened.directory);
  if (fuse_reply_open(request, info) != 0 && opened.directory != nullptr)
    volume.release_directory(*opened.directory);
}

void op_releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) noexcept {
  if (auto* const directory = reinterpret_cast<OpenDirectory*>(info->fh);
      directory != nullptr) {
    after_request(directory);
    volume_of(request).release_directory(*directory);
  }
  fuse_reply_err(request, 0);
}

void op_readdir(fuse_req_t request, fuse_ino_t inode, std::size_t size, off_t offset,
                fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kReaddir);
  OpenDirectory* const directory = reply.directory(info);
  read_directory(std::move(reply), inode, size, offset, /*plus=*/false, directory);
}

void op_readdirplus(fuse_req_t request, fuse_ino_t inode, std::size_t size, off_t offset,
                    fuse_file_info* info) noexcept {
  Reply reply(request, Operation::kReaddirplus);
  OpenDirectory* const directory = reply.directory(info);
  read_directory(std::move(reply), inode, size, offset, /*plus=*/true, directory);
}

}  // namespace kvcachefs
