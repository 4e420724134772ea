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

Result<Found> look_up(Volume& volume, fuse_ino_t parent, const std::string& name,
                      const Caller& caller, AskPool ask) {
  Found found;
  const Result<Entry> entry = volume.lookup(parent, name, caller, &found.miss_timeout_s, ask);
  if (!entry && entry.error().code != ENOENT) return entry.error();
  if (entry) found.entry = *entry;
  return found;
}

void answer_lookup(Reply& reply, const Result<Found>& found) noexcept {
  if (!found) return reply.error(found.error());
  // The kernel keeps this answer, so that asking again for what is not there costs nothing.
  if (!found->entry) return reply.no_entry(found->miss_timeout_s);
  answer_entry(std::move(reply), *found->entry);
}

}  // namespace

void op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept {
  Reply reply(request, Operation::kLookup);
  const auto ask_with = [parent, name = std::string(name),
                         caller = caller_of(request)](AskPool ask) {
    return [=](Volume& volume) { return look_up(volume, parent, name, caller, ask); };
  };
  const auto later = [](auto ask) {
    return [ask](Reply& answer) { answer_lookup(answer, ask(answer.volume())); };
  };
  if (Volume::is_made_up(parent))
    return run_slowly(std::move(reply), later(ask_with(AskPool::kNo)));
  // Where too many wait for the pool, what is not here is a miss.
  if (reply.volume().lookup_asks_pool(parent, name) &&
      run_lookup(reply, later(ask_with(AskPool::kYes))))
    return;
  run_look(std::move(reply), ask_with(AskPool::kNo), answer_lookup);
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
