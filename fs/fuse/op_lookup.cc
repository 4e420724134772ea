// LOOKUP and FORGET.
#include "fs/fuse/ops.h"

namespace kvcachefs {

void answer_entry(Reply reply, const Result<Entry>& entry) noexcept {
  if (!entry) return reply.error(entry.error());
  Volume& volume = reply.volume();
  if (!reply.entry(*entry)) volume.forget(entry->inode, 1);
}

void op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  Reply reply(request, Operation::kLookup);
  double miss_timeout_s = kNegativeTimeout;
  const Result<Entry> entry =
      reply.volume().lookup(parent, name, caller_of(request), &miss_timeout_s);
  // The kernel keeps this answer, so that asking again for what is not there costs nothing.
  if (!entry && entry.error().code == ENOENT) return reply.no_entry(miss_timeout_s);
  answer_entry(std::move(reply), entry);
}

void op_forget(fuse_req_t request, fuse_ino_t inode, std::uint64_t lookups) noexcept {
  Reply reply(request, Operation::kForget);
  reply.volume().forget(inode, lookups);
  reply.none();
}

void op_forget_multi(fuse_req_t request, std::size_t count,
                     fuse_forget_data* forgets) noexcept {
  Reply reply(request, Operation::kForget);
  for (std::size_t i = 0; i < count; ++i) {
    reply.volume().forget(forgets[i].ino, forgets[i].nlookup);
  }
  reply.none();
}

}  // namespace kvcachefs
