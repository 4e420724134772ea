// The handlers, a file to each kind of request: decode, call the volume, answer. No policy.
//
// Any thread of the session calls them; they throw nothing. On a ring's thread, which serves
// one CPU's callers, they only look: what changes something is done by workers, for it waits
// for a disk that takes no writes.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "backend/base/must_wait.h"
#include "fs/fuse/reply.h"

namespace kvcachefs {

// What libfuse is given.
[[nodiscard]] const fuse_lowlevel_ops& operation_table() noexcept;

// Calls of one user that do not wait for each other, though they are in one pool. kOfDisk: those
// about files of one disk; last, for each disk counts from there on.
enum class Kind : std::uint8_t { kAny, kRead, kLook, kOfDisk };
[[nodiscard]] constexpr std::uint64_t party_of(std::uint32_t user, Kind kind,
                                               std::uint32_t disk = 0) noexcept {
  return user | (static_cast<std::uint64_t>(kind) + disk) << 32;
}

// A worker does `work(reply)` for a call that is counted in `parked`, and counts it down.
template <class Work>
void post_counted(Reply&& reply, FairPool& workers, std::uint64_t party, Work work) {
  OperationContext& context = reply.context();
  auto shared = std::make_shared<Reply>(std::move(reply));
  const auto task = [&context, shared, work = std::move(work)] {
    work(*shared);
    context.parked.fetch_sub(1);
  };
  if (!workers.try_post(party, task)) task();
}

// Runs `work(reply)` on a worker, for calls that may wait. `quarters` of what may be parked are
// for calls of this kind. False: no place was left for its user, and nothing was done.
template <class Work>
[[nodiscard]] bool run_parked(Reply& reply, FairPool& workers, std::size_t quarters,
                              Work&& work, Kind kind = Kind::kAny, std::uint32_t disk = 0) {
  OperationContext& context = reply.context();
  const std::uint32_t user = caller_of(reply.request()).uid;
  // Counted first and compared then: who sets the limit to 0 and sees no parked request knows
  // that none follows.
  context.parked.fetch_add(1);
  Parking::Place place =
      Parking::of_this_thread().enter(user, context.parked_limit.load() * quarters / 4);
  if (!place) {
    context.parked.fetch_sub(1);
    return false;
  }
  reply.park(std::move(place));
  post_counted(std::move(reply), workers, party_of(user, kind, disk), std::forward<Work>(work));
  return true;
}

// What is left of a parked call goes on in another pool; its place is kept.
template <class Work>
void go_on(Reply&& reply, FairPool& workers, Work work) {
  OperationContext& context = reply.context();
  const std::uint32_t user = caller_of(reply.request()).uid;
  context.parked.fetch_add(1);
  post_counted(std::move(reply), workers, user, std::move(work));
}

inline void ask_again(Reply& reply) noexcept {
  reply.error(fail(EINTR, "too many wait for the disk"));
}

// For calls that may wait for a disk, that one (Volume::disk_of()) or whatever they need. Who
// has so many of them on their way that no place is left is told to ask again: on the thread
// that reads everybody's requests none may run.
template <class Work>
void run_slowly(Reply reply, std::optional<std::uint32_t> disk, Work work) {
  if (!run_parked(reply, reply.context().slow_calls->of(disk), 4, std::move(work)))
    ask_again(reply);
}

constexpr std::optional<std::uint32_t> kNoDisk;

// A change that a thread which reads /dev/fuse does itself, while this lives: enough others
// must be left to read (kMostReaders, session.cc).
class OwnChange {
 public:
  explicit OwnChange(OperationContext& context) noexcept
      : count_(context.changes_of_readers), may_(count_.fetch_add(1) < kMost) {}
  ~OwnChange() { count_.fetch_sub(1); }
  OwnChange(const OwnChange&) = delete;
  OwnChange& operator=(const OwnChange&) = delete;
  [[nodiscard]] bool may() const noexcept { return may_; }

 private:
  static constexpr std::size_t kMost = 64;
  std::atomic<std::size_t>& count_;
  const bool may_;
};

// The workers of what changes something, or has to wait for who does. Null: there are none.
[[nodiscard]] inline FairPool* change_workers(OperationContext& context) noexcept {
  return context.is_ring ? context.change_calls->of_this_thread()
                         : context.change_calls->of_readers();
}

// Where a call is to run that may have to wait.
enum class Placed : std::uint8_t {
  kParked,   // a worker does it, and the place is the reply's
  kBeyond,   // the same, and this thread waits for it (Ended::wait_beyond())
  kHere,     // the mount ends: this thread does it
  kRefused,  // too many wait for a disk that does not answer
  kNone,     // no place has become free in time
};

// For a call of which a worker is to do what the user has no place for any more, so that
// nothing that may wait runs on a thread that others' requests come by. That thread waits for a
// place itself, so that nobody sends more meanwhile: for a second, and not once more within ten
// where none has come. Where `is_stuck()`, of the disk that the call needs, it is refused.
// After kParked and kBeyond the caller counts `parked` down when it has answered.
template <class IsStuck>
[[nodiscard]] Placed find_place(Reply& reply, IsStuck is_stuck) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPatience{1};
  constexpr std::chrono::seconds kPatienceAgain{10};
  constexpr std::chrono::milliseconds kBetweenLooks{50};
  thread_local std::optional<Clock::time_point> waited_in_vain;
  OperationContext& context = reply.context();
  Parking& parking = Parking::of_this_thread();
  const std::uint32_t user = caller_of(reply.request()).uid;
  // As run_parked() does.
  context.parked.fetch_add(1);
  const auto not_parked = [&context](Placed placed) {
    context.parked.fetch_sub(1);
    return placed;
  };
  const auto park = [&reply](Parking::Place&& place, Placed placed) {
    reply.park(std::move(place));
    return placed;
  };
  // Mostly there is one.
  if (Parking::Place place = parking.enter(user, context.parked_limit.load()))
    return park(std::move(place), Placed::kParked);
  const Clock::time_point came = Clock::now();
  while (true) {
    const std::uint64_t seen = parking.leaves();
    const std::size_t most = context.parked_limit.load();
    if (Parking::Place place = parking.enter(user, most))
      return park(std::move(place), Placed::kParked);
    if (most == 0) return not_parked(Placed::kHere);
    if (is_stuck()) return not_parked(Placed::kRefused);
    if (Parking::Place place = parking.enter_beyond(context.beyond_limit.load()))
      return park(std::move(place), Placed::kBeyond);
    const Clock::time_point now = Clock::now();
    if (waited_in_vain && now - *waited_in_vain < kPatienceAgain)
      return not_parked(Placed::kNone);
    if (now - came >= kPatience) {
      waited_in_vain = now;
      return not_parked(Placed::kNone);
    }
    parking.await_leave(seen, kBetweenLooks);
  }
}

// The end of a call, for a thread that waits for it.
class Ended {
 public:
  explicit Ended(bool is_awaited) {
    if (is_awaited) done_ = std::make_shared<std::promise<void>>();
  }
  void say() const {
    if (done_ != nullptr) done_->set_value();
  }
  void wait() const { done_->get_future().wait(); }
  // Of one that was placed beyond those that are parked: so that nobody sends more of them
  // meanwhile, but not for long, as others' requests come by this thread. What is not done by
  // then keeps one of a few further places.
  void wait_beyond() const {
    constexpr std::chrono::milliseconds kLongestWait{200};
    done_->get_future().wait_for(kLongestWait);
  }

 private:
  std::shared_ptr<std::promise<void>> done_;
};

// A worker does `work(reply)` for a call that was placed so.
template <class Work>
void run_placed(Reply reply, Placed placed, FairPool& workers, Kind kind,
                std::optional<std::uint32_t> disk, Work work) {
  const std::uint32_t user = caller_of(reply.request()).uid;
  const Ended ended(placed == Placed::kBeyond);
  post_counted(std::move(reply), workers, party_of(user, kind, disk.value_or(0)),
               [ended, work = std::move(work)](Reply& answer) {
                 work(answer);
                 ended.say();
               });
  if (placed == Placed::kBeyond) ended.wait_beyond();
}

inline void refuse_for_disk(Reply& reply) noexcept {
  reply.error(fail(EIO, "too many wait for a disk that does not answer"));
}

// A change for which no place has become free: the thread that waited for one does it, or,
// where its user can make it as slow as he likes, he is told to ask again.
enum class NoPlace : std::uint8_t { kHere, kAskAgain };

// For calls that change a name, a record or a local file: they end at once, but on a disk that
// takes no writes, where each waits as long as that lasts. `disk`: of the file that it is
// about; its calls wait for no others.
template <class Work>
void run_change(Reply reply, Work work, std::optional<std::uint32_t> disk = kNoDisk,
                NoPlace no_place = NoPlace::kHere) {
  OperationContext& context = reply.context();
  if (!context.is_ring) {
    const OwnChange own(context);
    if (own.may()) return work(reply);
  }
  FairPool* const workers = change_workers(context);
  if (workers == nullptr) return work(reply);
  const auto is_stuck = [&reply, disk] {
    return disk ? reply.volume().is_stuck(*disk) : reply.volume().is_stalled();
  };
  const Placed placed = find_place(reply, is_stuck);
  if (placed == Placed::kRefused) return refuse_for_disk(reply);
  if (placed == Placed::kNone && no_place == NoPlace::kAskAgain) return ask_again(reply);
  // As many of its user's calls wait for room, or for the pool, and a change does for neither.
  if (placed == Placed::kHere || placed == Placed::kNone) return work(reply);
  run_placed(std::move(reply), placed, *workers, disk ? Kind::kOfDisk : Kind::kAny, disk,
             std::move(work));
}

template <class T>
[[nodiscard]] bool must_wait(const Result<T>& result) noexcept {
  return !result.ok() && result.error().code == kMustWait;
}

// For calls that only look: `ask(volume)`, a Result, is made here, and once more on a worker
// where it would have to wait; then `answer(reply, result)`. They do not wait behind their
// user's changes.
template <class Ask, class Answer>
void run_look(Reply reply, Ask ask, Answer answer) {
  OperationContext& context = reply.context();
  if (!context.is_ring) {
    const OwnChange own(context);
    if (own.may()) return answer(reply, ask(reply.volume()));
  }
  {
    std::optional<RefusesToWait> here(std::in_place);
    auto found = ask(reply.volume());
    here.reset();
    if (!must_wait(found)) return answer(reply, std::move(found));
  }
  const auto look = [ask = std::move(ask), answer = std::move(answer)](Reply& late) {
    answer(late, ask(late.volume()));
  };
  FairPool* const workers = change_workers(context);
  if (workers == nullptr) return look(reply);
  const Placed placed = find_place(reply, [] { return false; });
  if (placed == Placed::kHere) return look(reply);
  if (placed == Placed::kNone) return refuse_for_disk(reply);
  run_placed(std::move(reply), placed, *workers, Kind::kLook, kNoDisk, look);
}

// Asks before it is known where a call is to run, of what answers for a thread that refuses to
// wait.
template <class Ask>
[[nodiscard]] auto look_here(const Reply& reply, Ask ask) {
  const RefusesToWait here;
  return ask(reply.volume());
}

// The same for a question that may end with kMustWait: `otherwise`, where the answer would
// have to be waited for.
template <class Ask, class Value>
[[nodiscard]] Value look_or(const Reply& reply, Ask ask, Value otherwise) {
  const Result<Value> found = look_here(reply, ask);
  return found.ok() ? *found : otherwise;
}

// For a call that waits for room.
template <class Work>
[[nodiscard]] bool run_when_room(Reply& reply, Work work) {
  return run_parked(reply, *reply.context().room_calls, 3, std::move(work));
}

// For a call that waits for the pool.
template <class Work>
[[nodiscard]] bool run_on_pool(Reply& reply, Work work) {
  return run_parked(reply, *reply.context().pool_calls, 2, std::move(work));
}

// For a lookup that does: it does not wait behind opens, which take longer.
template <class Work>
[[nodiscard]] bool run_lookup(Reply& reply, Work work) {
  return run_parked(reply, *reply.context().lookup_calls, 2, std::move(work));
}

// op_lookup.cc
void op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;
void op_forget(fuse_req_t request, fuse_ino_t inode, std::uint64_t lookups) noexcept;
void op_forget_multi(fuse_req_t request, std::size_t count, fuse_forget_data* forgets) noexcept;
// Answers with what a new or found name is, and gives the lookup back when nobody is there to
// take it.
void answer_entry(Reply reply, const Result<Entry>& entry) noexcept;

// op_attr.cc
void op_getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
#ifdef KVCACHEFS_HAVE_STATX
void op_statx(fuse_req_t request, fuse_ino_t inode, int flags, int mask,
              fuse_file_info* info) noexcept;
#endif
void op_setattr(fuse_req_t request, fuse_ino_t inode, struct stat* attributes, int to_set,
                fuse_file_info* info) noexcept;
void op_statfs(fuse_req_t request, fuse_ino_t inode) noexcept;

// op_names.cc
void op_readlink(fuse_req_t request, fuse_ino_t inode) noexcept;
void op_mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
              dev_t rdev) noexcept;
void op_mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) noexcept;
void op_unlink(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;
void op_rmdir(fuse_req_t request, fuse_ino_t parent, const char* name) noexcept;
void op_symlink(fuse_req_t request, const char* target, fuse_ino_t parent,
                const char* name) noexcept;
void op_rename(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
               const char* new_name, unsigned flags) noexcept;
void op_link(fuse_req_t request, fuse_ino_t inode, fuse_ino_t new_parent,
             const char* new_name) noexcept;

// op_open.cc
void op_open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
void op_create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* info) noexcept;
void op_tmpfile(fuse_req_t request, fuse_ino_t parent, mode_t mode,
                fuse_file_info* info) noexcept;
void op_release(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;

// op_data.cc
void op_read(fuse_req_t request, fuse_ino_t inode, std::size_t size, off_t offset,
             fuse_file_info* info) noexcept;
void op_write(fuse_req_t request, fuse_ino_t inode, const char* bytes, std::size_t size,
              off_t offset, fuse_file_info* info) noexcept;
void op_lseek(fuse_req_t request, fuse_ino_t inode, off_t offset, int whence,
              fuse_file_info* info) noexcept;
void op_ioctl(fuse_req_t request, fuse_ino_t inode, unsigned command, void* argument,
              fuse_file_info* info, unsigned flags, const void* in, std::size_t in_size,
              std::size_t out_size) noexcept;

// op_sync.cc
void op_flush(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
void op_fsync(fuse_req_t request, fuse_ino_t inode, int data_only,
              fuse_file_info* info) noexcept;
void op_fsyncdir(fuse_req_t request, fuse_ino_t inode, int data_only,
                 fuse_file_info* info) noexcept;
void op_fallocate(fuse_req_t request, fuse_ino_t inode, int mode, off_t offset, off_t length,
                  fuse_file_info* info) noexcept;
void op_copy_file_range(fuse_req_t request, fuse_ino_t from, off_t from_offset,
                        fuse_file_info* from_info, fuse_ino_t to, off_t to_offset,
                        fuse_file_info* to_info, std::size_t length, int flags) noexcept;

// op_dir.cc
void op_releasedir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
void op_opendir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) noexcept;
void op_readdir(fuse_req_t request, fuse_ino_t inode, std::size_t size, off_t offset,
                fuse_file_info* info) noexcept;
void op_readdirplus(fuse_req_t request, fuse_ino_t inode, std::size_t size, off_t offset,
                    fuse_file_info* info) noexcept;

// op_xattr.cc
void op_setxattr(fuse_req_t request, fuse_ino_t inode, const char* name, const char* value,
                 std::size_t size, int flags) noexcept;
void op_getxattr(fuse_req_t request, fuse_ino_t inode, const char* name,
                 std::size_t size) noexcept;
void op_listxattr(fuse_req_t request, fuse_ino_t inode, std::size_t size) noexcept;
void op_removexattr(fuse_req_t request, fuse_ino_t inode, const char* name) noexcept;

}  // namespace kvcachefs
