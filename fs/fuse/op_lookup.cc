// LOOKUP and FORGET.
#include <string>
#include <utility>

#include "fs/fuse/ops.h"

namespace kvcachefs {

void answer_entry(Reply reply, const Result<Entry>& entry) noexcept {
  if (!entry) return reply.error(entry.error());
  Volume& volume = reply.volume();
  if (!reply.entry(*entry)) volume.forget(entry->inode, 1);
}

namespace {

void answer_lookup(Reply& reply, fuse_ino_t parent, const char* name, const Caller& caller,
                   AskPool ask) noexcept {
  double miss_timeout_s = kNegativeTimeout;
  const Result<Entry> entry = reply.volume().lookup(parent, name, caller, &miss_timeout_s, ask);
  // The kernel keeps this answer, so that asking again for what is not there costs nothing.
  if (!entry && entry.error().code == ENOENT) return reply.no_entry(miss_timeout_s);
  answer_entry(std::move(reply), entry);
}

}  // namespace

void op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  Reply reply(request, Operation::kLookup);
  const Caller caller = caller_of(request);
  if (Volume::is_made_up(parent)) {
    return run_slowly(std::move(reply),
                      [parent, name = std::string(name), caller](Reply& answer) {
                        answer_lookup(answer, parent, name.c_str(), caller, AskPool::kNo);
                      });
  }
  // Where too many wait for the pool, what is not here is a miss.
  if (reply.volume().lookup_asks_pool(parent, name) &&
      run_lookup(reply, [parent, name = std::string(name), caller](Reply& answer) {
        answer_lookup(answer, parent, name.c_str(), caller, AskPool::kYes);
      }))
    return;
  answer_lookup(reply, parent, name, caller, AskPool::kNo);
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
