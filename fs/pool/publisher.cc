#include "fs/pool/publisher.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/priority.h"
#include "backend/base/units.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"
#include "fs/acl/acl.h"
#include "fs/life/checksum.h"
#include "fs/life/drop.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"
#include "fs/pool/at_once.h"
#include "fs/pool/owner_changes.h"
#include "fs/pool/pool_error.h"

namespace kvcachefs {
namespace {

using SteadyClock = std::chrono::steady_clock;

}  // namespace

// Room on the pool, for as long as a file is on its way.
class Publisher::RoomTaken {
 public:
  RoomTaken(PoolService& service, std::uint64_t bytes)
      : service_(service), bytes_(bytes), is_taken_(service.take_room(bytes)) {}
  ~RoomTaken() {
    if (is_taken_) service_.give_room(bytes_);
  }
  RoomTaken(const RoomTaken&) = delete;
  RoomTaken& operator=(const RoomTaken&) = delete;
  [[nodiscard]] bool is_taken() const noexcept { return is_taken_; }

 private:
  PoolService& service_;
  const std::uint64_t bytes_;
  const bool is_taken_;
};

// What a call has of a file. Whoever hangs in one may hold on to it for longer than this volume lives: it has nothing of that,
// and no inode above all.
struct Publisher::Sent {
  std::string path;
  UniqueFd fd;
  std::uint64_t size = 0;
  std::vector<std::uint32_t> chunk_crc32c;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t mode = 0;
  bool keep = false;
  bool replaces = false;
  std::uint64_t damaged = 0;
  std::uint64_t number = 0;  // of this try
  PublishTries::Tries earlier = {};

  [[nodiscard]] PoolSource source() const {
    return {.path = path,
            .fd = fd.get(),
            .size = size,
            .chunk_crc32c = chunk_crc32c,
            .uid = uid,
            .gid = gid,
            .mode = mode,
            .keep = keep,
            .replaces = replaces,
            .damaged = damaged,
            .earlier_tries = earlier.numbers,
            .earlier_files = earlier.files};
  }
};

// A sealed file, and what must still hold when its publication is recorded.
struct Publisher::Candidate {
  InodePtr inode;
  InodeNumber directory = 0;
  std::string name;
  SharedName shared;
  ObjectId object = kNoObject;
  DataStamp stamp = {};
  std::shared_ptr<Sent> sent = std::make_shared<Sent>();  // not changed once a call has it
};

// The files of a batch: several threads take them in order, and each waits for its turn with what must be in order.
class Publisher::Batch {
 public:
  explicit Batch(std::vector<InodeNumber> numbers)
      : numbers_(std::move(numbers)), done_(numbers_.size(), false) {}

  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }
  [[nodiscard]] InodeNumber number(std::size_t ticket) const { return numbers_[ticket]; }
  // The next file; nullopt: there is none, or one has failed.
  std::optional<std::size_t> take() {
    const std::lock_guard lock(mutex_);
    if (error_ || taken_ == numbers_.size()) return std::nullopt;
    return taken_++;
  }
  // Returns when all before it are done. False: one of them has failed, and this one would fare as badly.
  bool wait_for_turn(std::size_t ticket) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == ticket || failed_before(ticket); });
    return !failed_before(ticket);
  }
  // Those after it need not wait for it any more.
  void done(std::size_t ticket) {
    const std::lock_guard lock(mutex_);
    done_[ticket] = true;
    while (turn_ < done_.size() && done_[turn_]) ++turn_;
    changed_.notify_all();
  }
  void ended(std::size_t ticket, const Result<Outcome>& outcome) {
    {
      const std::lock_guard lock(mutex_);
      if (!outcome.ok() && (!error_ || ticket < failed_)) {
        error_ = outcome.error();
        failed_ = ticket;
      }
      if (!outcome.ok() || *outcome == Outcome::kLater) all_ = false;
    }
    done(ticket);
  }
  // Whether nothing is left to be done; once nobody works on it.
  [[nodiscard]] Result<bool> verdict() const {
    const std::lock_guard lock(mutex_);
    if (error_) return *error_;
    return all_ && taken_ == numbers_.size();
  }

 private:
  [[nodiscard]] bool failed_before(std::size_t ticket) const {
    return error_ && failed_ < ticket;
  }

  const std::vector<InodeNumber> numbers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t taken_ = 0;
  std::size_t turn_ = 0;  // the first that is not done
  std::vector<bool> done_;
  std::optional<Error> error_;
  std::size_t failed_ = 0;  // where there is an error: the first file that has one
  bool all_ = true;
};

void Publisher::start() {
  thread_ = std::thread([this] { run(); });
}

void Publisher::wake() {
  const std::lock_guard lock(mutex_);
  pending_ = true;
  changed_.notify_one();
}

void Publisher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

bool Publisher::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void Publisher::run() {
  pthread_setname_np(pthread_self(), "kv-publish");
  yield_cpus();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || pending_; });
    if (stopping_) return;
    pending_ = false;
    Round round;
    names_.begin_round();
    walk_.begin_round();
    bool more = true;
    bool failed = false;
    // What comes meanwhile begins a round of its own, and so does what is to be tried again.
    const auto until = SteadyClock::now() + kPause;
    while (more && !pending_ && !stopping_) {
      lock.unlock();
      const Result<void> passed = pass(round);
      say(passed);
      failed = !passed.ok();
      more = !failed && round.left() == WorkLeft::kMore;
      lock.lock();
      if (more && SteadyClock::now() >= until) pending_ = true;
    }
    if (!failed && round.left() != WorkLeft::kLater) continue;
    pending_ = true;
    // They make the room that others lack.
    if (round.names == WorkLeft::kMore) continue;
    changed_.wait_for(lock, kPause, [this] { return stopping_; });
  }
}

// Once when it begins to fail, and once when it goes on.
void Publisher::say(const Result<void>& passed) {
  if (!passed.ok() && (passed.error().code == ENOSPC || passed.error().code == EDQUOT))
    service_.found_full();
  const bool was_stopped = stopped_for().code != 0;
  if (!passed.ok() && !was_stopped)
    log_warn("pool: write-back stopped step=\"{}\" errno={}", passed.error().what,
             passed.error().code);
  const bool goes_on = passed.ok() && was_stopped && service_.is_usable();
  if (goes_on) log_info("pool: write-back goes on");
  if (passed.ok() && !goes_on) return;
  const std::lock_guard lock(mutex_);
  stopped_for_ = passed.ok() ? Error{0, ""} : passed.error();
}

Error Publisher::stopped_for() const {
  const std::lock_guard lock(mutex_);
  return stopped_for_;
}

// Each part that may have more to do has its turn.
Result<void> Publisher::pass(Round& round) {
  if (core_.is_publishing) TRY(bound_.keep());
  if (!service_.is_usable()) {
    round = {.names = WorkLeft::kLater, .kept = WorkLeft::kLater, .files = WorkLeft::kLater};
    return {};
  }
  const auto is_stopping = [this] { return stopping(); };
  if (round.names == WorkLeft::kMore) {
    round.names = WorkLeft::kLater;
    round.names = TRY(names_.step(is_stopping));
  }
  if (round.kept == WorkLeft::kMore) round.kept = TRY(kept_.step());
  // Before what may find no room, and once more for what was changed while it was on its way.
  static_cast<void>(TRY(owners_.tell_all(is_stopping)));
  if (round.files == WorkLeft::kMore) {
    const Result<WorkLeft> published = publish_some();
    if (!published.ok()) {
      walk_.restart();
      return published.error();
    }
    round.files = *published;
  }
  const bool all_told = TRY(owners_.tell_all(is_stopping));
  round.owners = all_told ? WorkLeft::kNothing : WorkLeft::kLater;
  return {};
}

// ---- what was stored

// Some of them: what is to be taken away has its turn, too.
Result<WorkLeft> Publisher::publish_some() {
  if (!core_.is_publishing) return WorkLeft::kNothing;
  for (int batches = 0; batches < kBatchesInPass && !stopping(); ++batches) {
    TRY(bound_.keep());
    // Not one file after the other, when none has room.
    if (const RoomTaken any(service_, 0); !any.is_taken()) return WorkLeft::kLater;
    std::vector<InodeNumber> batch = TRY(core_.catalog.list_to_publish(walk_.after(), kBatch));
    if (batch.empty()) {
      const WorkLeft left = walk_.ended();
      if (left == WorkLeft::kNothing) bound_.emptied();
      return left;
    }
    walk_.met(batch.back());
    const std::size_t listed = batch.size();
    const std::int64_t now = monotonic_now();
    std::erase_if(batch, [&](InodeNumber number) { return files_.holds(number, now); });
    if (batch.size() < listed) walk_.left_some();
    if (batch.empty()) continue;
    Batch work(TRY(in_order(std::move(batch))));
    at_once(std::min(kAtOnce, work.size()), [this, &work] { publish_batch(work); });
    if (!TRY(work.verdict())) walk_.left_some();
  }
  return WorkLeft::kMore;
}

void Publisher::publish_batch(Batch& batch) {
  while (!stopping()) {
    const std::optional<std::size_t> ticket = batch.take();
    if (!ticket) return;
    const InodeNumber number = batch.number(*ticket);
    Result<Outcome> outcome = publish_one(batch, *ticket);
    if (!outcome.ok()) failed_.fetch_add(1, std::memory_order_relaxed);
    // A file may take longer than it may while the pool answers all others: they do not wait for it.
    const bool is_slow =
        !outcome.ok() && outcome.error().code == ETIMEDOUT && service_.is_usable();
    if (!outcome.ok() && (is_slow || !is_of_pool(outcome.error().code))) {
      if (put_off(number, outcome.error())) outcome = Outcome::kLater;
    } else if (outcome.ok() && *outcome != Outcome::kLater) {
      files_.forget(number);
    }
    batch.ended(*ticket, outcome);
  }
}

// False: so many are that it cannot be a matter of each.
bool Publisher::put_off(InodeNumber number, const Error& error) {
  const PutOff::Noted noted = files_.note(number, monotonic_now());
  if (noted != PutOff::Noted::kFirst)
    return noted == PutOff::Noted::kAgain || is_of_path(error.code);
  const auto shared = shared_name_of(core_.catalog, core_.knowledge, number);
  log_warn("pool: not published yet inode={} path=\"{}\" step=\"{}\" errno={}", number,
           shared.ok() && *shared ? (*shared)->path : "", error.what, error.code);
  return true;
}

Result<std::vector<InodeNumber>> Publisher::in_order(std::vector<InodeNumber> numbers) {
  std::vector<std::pair<std::uint64_t, InodeNumber>> by_birth;
  for (const InodeNumber number : numbers) {
    const Result<InodePtr> inode = core_.table.get(number);
    const std::uint64_t block = inode.ok() ? (*inode)->block.load() : 0;
    const auto known = block != 0 ? core_.knowledge.learner().snapshot(block) : std::nullopt;
    by_birth.emplace_back(known ? known->birth : 0, number);
  }
  std::sort(by_birth.begin(), by_birth.end());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = by_birth[i].second;
  return numbers;
}

// nullopt: it stays here, or is gone.
Result<std::optional<Publisher::Candidate>> Publisher::find_candidate(InodeNumber number) {
  Result<InodePtr> inode = core_.table.get(number);
  if (!inode.ok()) {
    if (inode.error().code == ESTALE) return std::optional<Candidate>{};
    return inode.error();
  }
  if (!(*inode)->is_file()) return std::optional<Candidate>{};
  const std::optional<SharedLink> link =
      TRY(shared_link_of(core_.catalog, core_.knowledge, number));
  if (!link) return std::optional<Candidate>{};
  const FilePolicy policy = TRY(note_policy(core_, **inode)).policy;
  if (policy == FilePolicy::kProcess) return std::optional<Candidate>{};
  Candidate file{.inode = *inode,
                 .directory = link->directory,
                 .name = link->name,
                 .shared = link->shared};
  Sent& sent = *file.sent;
  sent.path = file.shared.path;
  sent.replaces = !file.shared.is_block;
  sent.damaged = damaged_.at(file.shared.path_hash);
  sent.keep = policy >= FilePolicy::kKeep;
  const PoolWrites writes = TRY(core_.knowledge.pool_writes(file.directory))
                                .value_or(core_.options.pool_options.writes);
  if (writes == PoolWrites::kOff) return std::optional<Candidate>{};
  const std::lock_guard lock(file.inode->mutex);
  const InodeRecord& record = file.inode->record;
  const bool waits_for_use =
      writes == PoolWrites::kReused && file.shared.is_block && !sent.keep;
  if (waits_for_use && (record.flags & kInodeReused) == 0) return std::optional<Candidate>{};
  // One that is written anew comes again with its next seal.
  if (record.state != DataState::kSealed || record.nlink == 0 || file.inode->is_going() ||
      file.inode->damaged_object == record.object)
    return std::optional<Candidate>{};
  static_cast<void>(TRY(core_.devices->of(*file.inode)));
  std::optional<ObjectRecord> object = TRY(core_.catalog.find_object(record.object));
  const std::size_t chunks = (record.stamp.size + kChecksumChunk - 1) / kChecksumChunk;
  if (!object || object->chunk_crc32c.size() != chunks) {
    log_warn("not published inode={} bytes={}: it has no checksums (files over {} have none)",
             number, record.stamp.size, format_size(kMostChecksummedBytes));
    return std::optional<Candidate>{};
  }
  Result<UniqueFd> fd = core_.devices->open_copy(*file.inode->device, record.object, kOwnRead);
  // One that is missing is found by who opens it.
  if (!fd.ok() && fd.error().code == ENOENT) return std::optional<Candidate>{};
  if (!fd.ok()) return fd.error();
  file.object = record.object;
  file.stamp = record.stamp;
  sent.size = record.stamp.size;
  sent.uid = record.uid;
  sent.gid = record.gid;
  sent.mode = TRY(mode_without_acl(core_.catalog, number, record));
  sent.fd = std::move(*fd);
  sent.chunk_crc32c = std::move(object->chunk_crc32c);
  return std::optional<Candidate>(std::move(file));
}

// What decides whether there is something to be published.
struct Publisher::Seen {
  InodePtr inode;  // null: it is gone
  std::vector<std::pair<InodeNumber, std::string>> links = {};
  DataState state = DataState::kNone;
  ObjectId object = kNoObject;
  DataStamp stamp = {};
  std::uint32_t flags = 0;
  bool operator==(const Seen&) const = default;
};

Result<Publisher::Seen> Publisher::see(InodeNumber number) {
  Result<InodePtr> inode = core_.table.get(number);
  if (!inode.ok()) {
    if (inode.error().code == ESTALE) return Seen{.inode = nullptr};
    return inode.error();
  }
  const std::lock_guard lock((*inode)->mutex);
  return see_locked(*inode);
}

Result<Publisher::Seen> Publisher::see_locked(const InodePtr& inode) {
  return Seen{.inode = inode,
              .links = TRY(core_.catalog.list_links(inode->number, 1)),
              .state = inode->record.state,
              .object = inode->record.object,
              .stamp = inode->record.stamp,
              .flags = inode->record.flags};
}

Result<Publisher::Outcome> Publisher::publish_one(Batch& batch, std::size_t ticket) {
  const InodeNumber number = batch.number(ticket);
  const Seen seen = TRY(see(number));
  if (seen.inode != nullptr && is_unsealed(seen.state)) return Outcome::kUnsealed;
  if (seen.inode != nullptr && seen.inode->type == S_IFDIR)
    return publish_directory(seen.inode, seen);
  std::optional<Candidate> found = TRY(find_candidate(number));
  const Outcome outcome = found ? TRY(publish_found(*found, batch, ticket)) : Outcome::kGone;
  if (outcome != Outcome::kGone && outcome != Outcome::kObstructed) return outcome;
  return forget(number, seen, outcome == Outcome::kObstructed);
}

Result<Publisher::Outcome> Publisher::publish_directory(const InodePtr& inode,
                                                        const Seen& seen) {
  using Described = DirectoryDescriber::Outcome;
  const Described described = TRY(directories_.publish(*inode));
  if (described == Described::kDone) return Outcome::kDone;
  if (described == Described::kLater) return Outcome::kLater;
  return forget(inode->number, seen, described == Described::kObstructed);
}

Result<Publisher::Outcome> Publisher::publish_found(const Candidate& file, Batch& batch,
                                                    std::size_t ticket) {
  if (TRY(core_.catalog.find_tombstone(file.shared.path))) return Outcome::kLater;
  // Until there is: what the pool may hold is not exceeded for it.
  const RoomTaken room(service_, file.stamp.size);
  if (!room.is_taken()) return Outcome::kLater;
  file.sent->number = TRY(core_.catalog.next_id());
  file.sent->earlier = tries_.begin(file.object, file.sent->number);
  // It may have been noted by an earlier run.
  if (const auto noted = TRY(core_.catalog.find_pool_copy(file.inode->number));
      noted && noted->path_hash == file.shared.path_hash && noted->mtime != 0)
    file.sent->earlier.files.push_back(noted->fileid);
  const auto deadline =
      SteadyClock::now() + kCallDeadline +
      std::chrono::milliseconds(file.stamp.size / (kSlowestPublication / 1000));
  const std::shared_ptr<const Sent> sent = file.sent;
  const Result<Prepared> prepared = service_.client().call<Prepared>(
      PoolClass::kBackground, deadline,
      [sent, node = service_.node()](PoolSession& session, Deadline until) {
        return prepare_publication(session, sent->source(), node, sent->number, until);
      });
  if (prepared.ok()) {
    tries_.prepared(file.object, sent->number, prepared->status.fileid, prepared->standing);
    // Before what is in them: who was told by the server that there is none believes it of all below.
    for (const MadeDirectory& made : prepared->made)
      service_.tell({.change = PoolChange::kPublished,
                     .path_hash = pool_path_hash(made.path),
                     .fileid = made.fileid,
                     .size = 0});
  }
  if (!batch.wait_for_turn(ticket)) return Outcome::kLater;
  if (!file.shared.is_block) replaced_.begin(file.shared.path_hash, file.inode->number);
  // From here on whoever takes the name away knows what to take away there.
  if (prepared.ok() && !TRY(note_copy(file, prepared->status))) return Outcome::kLater;
  const Result<Published> published =
      prepared.ok() ? service_.client().call<Published>(
                          PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
                          [sent, prepared = *prepared, node = service_.node()](
                              PoolSession& session, Deadline until) {
                            return finish_publication(session, sent->source(), prepared, node,
                                                      sent->number, until);
                          })
                    : Result<Published>(prepared.error());
  if (!published.ok()) {
    const Error& error = published.error();
    // An open, or the scrub, finds out what it is.
    if (error.code == EILSEQ || error.code == ENODATA) {
      tries_.forget(file.object);
      return Outcome::kGone;
    }
    // The pool has something else in the way of its path.
    if (error.code == ENOTDIR || error.code == EISDIR || error.code == EINVAL) {
      log_warn("pool: not published, stays here path=\"{}\" step=\"{}\" errno={}",
               file.shared.path, error.what, error.code);
      tries_.forget(file.object);
      if (prepared.ok()) TRY(forget_copy(file, prepared->status));
      return Outcome::kObstructed;
    }
    return error;
  }
  tries_.forget(file.object);
  batch.done(ticket);
  // While it waits to be published: whoever ends here does it once more at the next start.
  if (is_own(*file.sent, *published))
    static_cast<void>(
        directories_
            .describe(split_pool_path(file.shared.path).first, file.directory, prepared->made)
            .ok());
  const Outcome outcome = TRY(record(file, *published, prepared->status.fileid));
  if (prepared->file != nullptr) clear(*sent);
  if (published->is_duplicate) {
    duplicates_.fetch_add(1, std::memory_order_relaxed);
  } else {
    published_.fetch_add(1, std::memory_order_relaxed);
    published_bytes_.fetch_add(file.stamp.size, std::memory_order_relaxed);
    tell_replaced(file, *published);
    service_.tell({.change = PoolChange::kPublished,
                   .path_hash = file.shared.path_hash,
                   .fileid = published->status.fileid,
                   .size = published->status.size});
  }
  return outcome;
}

void Publisher::clear(const Sent& sent) {
  const Result<void> cleared = service_.client().call<void>(
      PoolClass::kBackground, SteadyClock::now() + kCallDeadline,
      [number = sent.number, node = service_.node()](PoolSession& session,
                                                     Deadline deadline) -> Result<void> {
        clear_publication(session, node, number, deadline);
        return {};
      });
  static_cast<void>(cleared.ok());
}

// It was this try, or one before it, that put it there.
bool Publisher::is_own(const Sent& sent, const Published& published) {
  const auto& files = sent.earlier.files;
  return !published.is_duplicate ||
         std::find(files.begin(), files.end(), published.status.fileid) != files.end();
}

// What the name stood for, also before earlier tries, one of which may have replaced it and not been heard of again.
void Publisher::tell_replaced(const Candidate& file, const Published& published) {
  std::vector<std::uint64_t> replaced = file.sent->earlier.replaced;
  if (published.replaced != 0) replaced.push_back(published.replaced);
  std::sort(replaced.begin(), replaced.end());
  replaced.erase(std::unique(replaced.begin(), replaced.end()), replaced.end());
  for (const std::uint64_t fileid : replaced)
    if (fileid != published.status.fileid)
      service_.tell({.change = PoolChange::kRemoved,
                     .path_hash = file.shared.path_hash,
                     .fileid = fileid,
                     .size = 0});
}

bool Publisher::is_as_found(const Candidate& file, const InodeRecord& now) {
  return now.state == DataState::kSealed && now.object == file.object &&
         now.stamp == file.stamp;
}

// Whether the inode has the name, and the bytes, that were found. The caller holds its lock.
Result<Publisher::Standing> Publisher::look_again(const Candidate& file) {
  const InodeRecord& record = file.inode->record;
  const auto dentry = TRY(core_.catalog.find_dentry(file.directory, file.name));
  Standing standing;
  standing.has_name = record.nlink > 0 && dentry && dentry->inode == file.inode->number;
  standing.is_same = standing.has_name && is_as_found(file, record);
  standing.copy = TRY(core_.catalog.find_pool_copy(file.inode->number));
  return standing;
}

PoolCopy Publisher::copy_of(const Candidate& file, const Standing& standing,
                            const PoolStatus& status, bool keep) {
  const bool is_noted = standing.copy && standing.copy->fileid == status.fileid;
  return {.fileid = status.fileid,
          .path_hash = file.shared.path_hash,
          .size = status.size,
          .mtime = status.mtime,
          .keep = is_noted ? standing.copy->keep : keep};
}

void Publisher::put_copy(const Candidate& file, const Standing& standing, const PoolCopy& copy,
                         Edit& edit) {
  if (standing.copy) edit.remove_pool_copy(file.inode->number, *standing.copy);
  edit.put_pool_copy(file.inode->number, copy);
}

// Not under an inode's lock: a directory above may have been renamed.
Result<bool> Publisher::is_at_its_path(const Candidate& file) {
  const auto now = TRY(shared_name_of(core_.catalog, core_.knowledge, file.inode->number));
  return now && now->path == file.shared.path;
}

// What was noted before it was to be published: who looks the name up would take what stands there for what replaced it.
Result<void> Publisher::forget_copy(const Candidate& file, const PoolStatus& status) {
  const std::lock_guard lock(file.inode->mutex);
  const auto copy = TRY(core_.catalog.find_pool_copy(file.inode->number));
  if (!copy || copy->fileid != status.fileid || copy->path_hash != file.shared.path_hash)
    return {};
  Edit edit;
  edit.remove_pool_copy(file.inode->number, *copy);
  return core_.catalog.commit(std::move(edit));
}

// False: it is not what was found any more.
Result<bool> Publisher::note_copy(const Candidate& file, const PoolStatus& status) {
  if (!TRY(is_at_its_path(file))) return false;
  const std::lock_guard lock(file.inode->mutex);
  const Standing standing = TRY(look_again(file));
  if (!standing.is_same) return false;
  Edit edit;
  put_copy(file, standing, copy_of(file, standing, status, file.sent->keep), edit);
  TRY(core_.catalog.commit(std::move(edit)));
  return true;
}

// Here it may have got other bytes, or another name, while it was on its way; who took the name
// away has left a tombstone for what was noted. On the pool another node may have replaced,
// removed or evicted it already: then what was noted (`noted`, a number there) is not here any
// more (PoolFiles::on_change). The name goes, as that node has it, but for one that was
// evicted: its bytes are as good as before, and what must not be lost is published again.
Result<Publisher::Outcome> Publisher::record(const Candidate& file, const Published& published,
                                             std::uint64_t noted) {
  const bool is_here = TRY(is_at_its_path(file));
  std::unique_lock lock(file.inode->mutex);
  const Standing standing = TRY(look_again(file));
  const bool is_done = is_here && standing.is_same;
  const bool has_gone = is_done && !(standing.copy && standing.copy->fileid == noted);
  if (has_gone && evicted_early_.take(file.shared.path_hash, noted)) {
    lock.unlock();
    const bool is_kept = TRY(note_policy(core_, *file.inode)).policy >= FilePolicy::kKeep;
    return is_kept ? Outcome::kLater : Outcome::kGone;
  }
  Edit edit;
  if (has_gone) {
    edit.remove_to_publish(file.inode->number);
  } else if (is_done) {
    const bool keep = is_own(*file.sent, published) && file.sent->keep;
    put_copy(file, standing, copy_of(file, standing, published.status, keep), edit);
    note_owner(file, published, edit);
    edit.remove_to_publish(file.inode->number);
    file.inode->pool_checked.store(monotonic_now(), std::memory_order_relaxed);
    // After the store: who doubts it from here on stores a 0 himself.
    if (replaced_.is_doubted(file.shared.path_hash)) file.inode->pool_checked.store(0);
  } else if (!published.is_duplicate && !(is_here && standing.has_name) &&
             !file.inode->evicting) {
    if (standing.copy && standing.copy->path_hash == file.shared.path_hash)
      edit.remove_pool_copy(file.inode->number, *standing.copy);
    // Of what came behind it, and replaced it there, is one already.
    const auto later = TRY(core_.catalog.find_tombstone(file.shared.path));
    if (!later) edit.put_tombstone(file.shared.path, {.fileid = published.status.fileid});
  }
  TRY(core_.catalog.commit(std::move(edit)));
  lock.unlock();
  if (has_gone) TRY(drop_replaced(file));
  // It may have been told another since it was read, or the file there is another node's.
  if (is_done && !has_gone)
    if (const Result<void> told = tell_kept(core_, *file.inode); !told.ok())
      log_debug("pool: not told whether it is kept inode={} errno={}", file.inode->number,
                told.error().code);
  return is_done ? Outcome::kDone : Outcome::kLater;
}

// Another node has removed or replaced it: the name goes. Further hard links are this node's alone.
Result<void> Publisher::drop_replaced(const Candidate& file) {
  return drop_names(core_, file.inode->number, DropReason::kRemoved, {},
                    {.may_go = [&file](const Inode& inode) -> Result<bool> {
                       return is_as_found(file, inode.record);
                     },
                     .only = std::pair(file.directory, file.name)});
}

// Who changed the owner or the mode while the file was on its way found no copy of it on the pool, or not this one. A file of
// an earlier try has those of that time. The caller holds the inode's lock.
void Publisher::note_owner(const Candidate& file, const Published& published, Edit& edit) {
  const Sent& sent = *file.sent;
  if (!is_own(sent, published)) return;
  const Result<Owner> now = owner_told(core_, *file.inode);
  if (!now.ok()) {
    log_warn("pool: an owner was not noted path=\"{}\" errno={}", sent.path, now.error().code);
    return;
  }
  const bool is_same = *now == Owner{.uid = sent.uid, .gid = sent.gid, .mode = sent.mode};
  if (is_same && !published.is_duplicate) return;
  OwnerChange change = whole_change(published.status.fileid, *now);
  if (published.is_duplicate) change.keep = sent.keep;
  if (const auto waiting = core_.catalog.find_owner_change(sent.path);
      waiting.ok() && *waiting && (*waiting)->fileid == change.fileid && (*waiting)->keep)
    change.keep = (*waiting)->keep;
  edit.put_owner_change(sent.path, change);
}

// It is not to be published. A rename or a seal that came in between asks for it anew: both have the inode's lock.
Result<Publisher::Outcome> Publisher::forget(InodeNumber number, const Seen& seen,
                                             bool is_obstructed) {
  std::unique_lock<InodeMutex> lock;
  if (seen.inode != nullptr) {
    lock = std::unique_lock(seen.inode->mutex);
    if (!(TRY(see_locked(seen.inode)) == seen)) return Outcome::kLater;
  }
  // Before: who sees that it does not wait any more sees why.
  if (is_obstructed) obstructed_.fetch_add(1, std::memory_order_relaxed);
  Edit edit;
  edit.set_frees();
  edit.remove_to_publish(number);
  TRY(core_.catalog.commit(std::move(edit)));
  return Outcome::kGone;
}

void Publisher::add_counts(PoolCounts& counts) const {
  counts.published = published_.load();
  counts.published_bytes = published_bytes_.load();
  counts.duplicates = duplicates_.load();
  counts.removed = names_.removed();
  counts.trash = service_.trash();
  counts.obstructed = obstructed_.load();
  counts.failed = failed_.load() + names_.failed();
  counts.stopped_for = stopped_for();
  counts.queued = bound_.files();
  counts.queued_bytes = bound_.bytes();
  counts.skipped = bound_.skipped();
  if (const auto files = core_.catalog.list_to_publish(0, PoolCounts::kMostCounted); files.ok())
    counts.to_publish = files->size();
  if (const auto names = core_.catalog.list_tombstones({}, PoolCounts::kMostCounted);
      names.ok())
    counts.to_remove = names->size();
  if (const auto owners = core_.catalog.list_owner_changes({}, PoolCounts::kMostCounted);
      owners.ok())
    counts.owners_to_tell = owners->size();
}

}  // namespace kvcachefs
