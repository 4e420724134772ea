// LOOKUP and FORGET.
#include <cerrno>
#include <optional>
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

// The answer to a lookup: an entry; or, without one, for how long there is none.
struct Found {
  std::optional<Entry> entry;
  double miss_timeout_s = kNegativeTimeout;
};

// The request's memory is gone when its handler returns.
auto ask_for(fuse_ino_t parent, const char* name, const Caller& caller, AskPool ask) {
  return [=, name = std::string(name)](Volume& volume) -> Result<Found> {
    Found found;
    const Result<Entry> entry = volume.lookup(parent, name, caller, &found.miss_timeout_s, ask);
    if (!entry && entry.error().code != ENOENT) return entry.error();
    if (entry) found.entry = *entry;
    return found;
  };
}

void answer_lookup(Reply& reply, const Result<Found>& found) noexcept {
  if (!found) return reply.error(found.error());
  // The kernel keeps this answer, so that asking again for what is not there costs nothing.
  if (!found->entry) return reply.no_entry(found->miss_timeout_s);
  answer_entry(std::move(reply), *found->entry);
}

// For a worker.
template <class Ask>
auto later(Ask ask) {
  return [ask = std::move(ask)](Reply& answer) { answer_lookup(answer, ask(answer.volume())); };
}

}  // namespace

void op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  Reply reply(request, Operation::kLookup);
  const Caller caller = caller_of(request);
  if (Volume::is_made_up(parent))
    return run_slowly(std::move(reply), kNoDisk,
                      later(ask_for(parent, name, caller, AskPool::kNo)));
  // Where too many wait for the pool, what is not here is a miss.
  const bool asks_pool =
      look_here(reply, [&](Volume& volume) { return volume.lookup_asks_pool(parent, name); });
  if (asks_pool && run_lookup(reply, later(ask_for(parent, name, caller, AskPool::kYes))))
    return;
  run_look(std::move(reply), ask_for(parent, name, caller, AskPool::kNo), answer_lookup);
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
