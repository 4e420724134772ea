#include "fs/pool/pool_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "backend/base/clock.h"
#include "backend/base/duplicate_fd.h"
#include "backend/base/log.h"
#include "backend/pool/pool_directory.h"
#include "fs/life/pool_standing.h"
#include "fs/life/states.h"
#include "fs/node/attributes.h"
#include "fs/pool/drop_shared.h"
#include "fs/pool/keep_teller.h"
#include "fs/pool/told_words.h"

namespace kvcachefs {
namespace {

using SteadyClock = std::chrono::steady_clock;

bool is_missing(int code) noexcept { return code == ENOENT || code == ENOTDIR; }

bool is_remote(Inode& inode) {
  const std::lock_guard lock(inode.mutex);
  return inode.record.state == DataState::kRemote;
}

bool is_of(const PoolCopy& copy, const PoolStatus& status) noexcept {
  return status.fileid == copy.fileid && status.size == copy.size && status.mtime == copy.mtime;
}

}  // namespace

PoolFiles::PoolFiles(Core& core, Namespace& names, PoolService& service,
                     const PoolOptions& options, ReplacedNames& replaced,
                     EvictedEarly& evicted_early, DamagedFiles& damaged)
    : core_(core),
      names_(names),
      service_(service),
      options_(options),
      replaced_(replaced),
      evicted_early_(evicted_early),
      damaged_(damaged),
      frames_(core, service, damaged,
              [this](const InodePtr& inode, const PoolCopy& copy, NewCopy&& local,
                     ObjectId object, Fetched&& fetched) -> Result<void> {
                const PoolFilePtr used = fetched.file;
                TRY(settle(inode, copy, std::move(local), object, std::move(fetched)));
                tell_use(used);
                return {};
              }),
      owners_(core, service,
              [this](Inode& inode, const PoolCopy& copy) { drop_directory(inode, copy); }) {}

// ---- names

std::optional<PoolFiles::Question> PoolFiles::to_ask(InodeNumber directory,
                                                     std::string_view name) {
  if (!service_.is_usable() || name == "." || name == "..") return std::nullopt;
  const auto dentry = core_.catalog.find_dentry(directory, name);
  if (!dentry.ok()) return std::nullopt;
  if (*dentry) return to_check(directory, name, **dentry);
  const std::optional<SharedName> shared = shared_name(core_.knowledge, directory, name);
  if (!shared || service_.is_known_missing(shared->path)) return std::nullopt;
  return Question{.shared = *shared, .standing = nullptr, .copy = {}};
}

// Of a file that is here and on the pool: others may have removed or replaced it while nothing was heard of them. A
// block whose bytes are here is as good as any other.
std::optional<PoolFiles::Question> PoolFiles::to_check(InodeNumber directory,
                                                       std::string_view name,
                                                       const DentryRecord& dentry) {
  if (dentry.type != DT_REG && dentry.type != DT_DIR) return std::nullopt;
  const Result<InodePtr> inode = core_.table.get(dentry.inode);
  if (!inode.ok()) return std::nullopt;
  if (dentry.type == DT_DIR) {
    check_owner(**inode);
    return to_find(directory, name, *inode);
  }
  const std::int64_t checked = (*inode)->pool_checked.load(std::memory_order_relaxed);
  const bool is_fresh = monotonic_now() - checked < kHoldsUnfollowed;
  const bool is_told = service_.miss_time() == PoolService::kMissFollowed;
  if (checked >= doubted_at_.load() && (is_fresh || is_told)) return std::nullopt;
  DataState state = DataState::kNone;
  {
    const std::lock_guard lock((*inode)->mutex);
    state = (*inode)->record.state;
  }
  if (state != DataState::kRemote && state != DataState::kSealed) return std::nullopt;
  if (state == DataState::kRemote && checked == 0 &&
      known_.holds(dentry.inode, monotonic_now()))
    return std::nullopt;
  const auto copy = core_.catalog.find_pool_copy(dentry.inode);
  const auto is_changed = core_.catalog.is_to_publish(dentry.inode);
  if (!copy.ok() || !*copy || !is_changed.ok() || *is_changed) return std::nullopt;
  const std::optional<SharedName> shared = shared_name(core_.knowledge, directory, name);
  if (!shared || shared->path_hash != (*copy)->path_hash) return std::nullopt;
  if (shared->is_block && state != DataState::kRemote) {
    check_owner(**inode);
    return std::nullopt;
  }
  return Question{.shared = *shared, .standing = *inode, .copy = **copy};
}

// Of a directory that was made here: others may have made it there. What is there stays where it is when this one is to be
// renamed.
std::optional<PoolFiles::Question> PoolFiles::to_find(InodeNumber directory,
                                                      std::string_view name,
                                                      const InodePtr& inode) {
  const auto copy = core_.catalog.find_pool_copy(inode->number);
  if (!copy.ok() || (*copy && (*copy)->fileid != 0)) return std::nullopt;
  const std::optional<SharedName> shared = shared_name(core_.knowledge, directory, name);
  if (!shared || service_.is_known_missing(shared->path)) return std::nullopt;
  const auto told = all_told(core_, *inode);
  if (!told.ok()) return std::nullopt;
  return Question{.shared = *shared, .standing = inode, .copy = {}, .told = *told};
}

// It is on the pool: a rename of it would leave there what is in it.
void PoolFiles::note_directory(InodeNumber directory, std::string_view name, const Owner& owner,
                               const Question& question, const PoolKnown& found) {
  // Who is publishing the first file in it, maybe this node, has yet to say whose it is.
  if (!found.sums) return;
  Inode& inode = *question.standing;
  {
    const std::lock_guard lock(inode.mutex);
    const auto dentry = core_.catalog.find_dentry(directory, name);
    if (!dentry.ok() || !*dentry || (*dentry)->inode != inode.number) return;
    const auto before = core_.catalog.find_pool_copy(inode.number);
    if (!before.ok()) return;
    Edit edit;
    if (*before) edit.remove_pool_copy(inode.number, **before);
    edit.put_pool_copy(inode.number,
                       {.fileid = found.status.fileid, .path_hash = question.shared.path_hash});
    if (const Result<void> put = core_.catalog.commit(std::move(edit)); !put.ok()) {
      log_warn("pool: a directory was not noted path=\"{}\" errno={}", question.shared.path,
               put.error().code);
      return;
    }
  }
  // Asked for again when it is looked up again.
  if (!take_owner(core_, inode, owner, question.shared, *found.sums).ok() ||
      !take_told(inode, question.shared, question.told, found))
    inode.pool_checked.store(0);
}

// False: it is to be asked for again.
bool PoolFiles::take_told(Inode& inode, const SharedName& shared,
                          const std::vector<PoolWord>& asked, const PoolKnown& found) {
  const Result<void> taken =
      kvcachefs::take_told(core_, inode, shared, found.status.fileid, asked, found.told);
  if (!taken.ok())
    log_warn(
        "pool: what a directory was told is not taken over path=\"{}\" step=\"{}\" errno={}",
        shared.path, taken.error().what, taken.error().code);
  return taken.ok();
}

// Of what need not be asked for itself: whose it is may have been changed while nothing was heard of the others.
void PoolFiles::check_owner(Inode& inode) {
  const bool is_doubted = inode.pool_checked.load() < doubted_at_.load();
  if (!is_doubted || owners_.want(inode.number))
    inode.pool_checked.store(monotonic_now(), std::memory_order_relaxed);
}

bool PoolFiles::is_wanted(InodeNumber directory, std::string_view name) {
  return to_ask(directory, name).has_value();
}

InodePtr PoolFiles::bring(InodeNumber directory, std::string_view name, bool loads) {
  const std::optional<Question> question = to_ask(directory, name);
  if (!question) return nullptr;
  const SharedName& shared = question->shared;
  const InodePtr& standing = question->standing;
  const Owner owner = standing != nullptr ? owner_of(*standing) : Owner{};
  asked_.fetch_add(1, std::memory_order_relaxed);
  const auto deadline = SteadyClock::now() + kLookupDeadline;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::uint64_t ticket = service_.misses().before_asking(shared.path_hash);
    Result<KnownFiles::Noted> found =
        ask(shared.path, loads && shared.is_block && standing == nullptr, deadline);
    const bool is_gone = !found.ok() && is_missing(found.error().code);
    if (!found.ok() && !is_gone) return standing;
    // Taken away, or replaced, since the server was asked? A tombstone goes after its removal was told: so it is
    // looked for first.
    const auto tombstone = core_.catalog.find_tombstone(shared.path);
    if (!tombstone.ok()) return standing;
    if (!service_.misses().is_current(shared.path_hash, ticket)) continue;
    if (standing != nullptr && !standing->is_file()) {
      if (is_gone)
        service_.misses().missed(shared.path_hash, ticket,
                                 monotonic_now() + service_.miss_time().count());
      else if (*tombstone && (*tombstone)->hides(found->known.status.fileid))
        return standing;
      else if (found->known.status.kind == PoolKind::kDirectory)
        note_directory(directory, name, owner, *question, found->known);
      return standing;
    }
    if (standing != nullptr) {
      if (!is_gone && found->known.status.fileid == question->copy.fileid) {
        standing->pool_checked.store(monotonic_now(), std::memory_order_relaxed);
        if (const auto& said = found->known.sums;
            said && (!take_owner(core_, *standing, owner, shared, *said).ok() ||
                     !tell_kept(core_, *standing, said->keep).ok()))
          standing->pool_checked.store(0);
        return standing;
      }
      if (is_gone && keeps(*standing)) return standing;
      drop(standing->number, question->copy);
    }
    if (is_gone) {
      service_.misses().missed(shared.path_hash, ticket,
                               monotonic_now() + service_.miss_time().count());
      return nullptr;
    }
    // What somebody put there that is neither a file nor a directory stays there.
    const PoolStatus& status = found->known.status;
    if (status.kind == PoolKind::kOther || (*tombstone && (*tombstone)->hides(status.fileid)) ||
        damaged_.is_missed(shared.path_hash, status.fileid, monotonic_now()))
      return nullptr;
    found_.fetch_add(1, std::memory_order_relaxed);
    return take_over(directory, name, shared, std::move(*found));
  }
  return standing;
}

InodePtr PoolFiles::take_over(InodeNumber directory, std::string_view name,
                              const SharedName& shared, KnownFiles::Noted&& found) {
  const Result<void> adopted = adopt(directory, name, shared, found.known);
  if (!adopted.ok() && adopted.error().code != EEXIST) {
    log_warn("pool: name not taken over path=\"{}\" step=\"{}\" errno={}", shared.path,
             adopted.error().what, adopted.error().code);
    return nullptr;
  }
  const auto dentry = core_.catalog.find_dentry(directory, name);
  if (!dentry.ok() || !*dentry) return nullptr;
  const Result<InodePtr> inode = core_.table.get((*dentry)->inode);
  if (!inode.ok()) return nullptr;
  if (adopted.ok()) {
    const std::int64_t now = monotonic_now();
    std::optional<bool> said;
    if (found.known.sums) said = found.known.sums->keep;
    const auto untold = all_told(core_, **inode);
    const bool is_told = tell_kept(core_, **inode, said).ok() && untold.ok() &&
                         take_told(**inode, shared, *untold, found.known);
    (*inode)->pool_checked.store(is_told ? now : 0, std::memory_order_relaxed);
    // The file that a block's name stood for is as good as the one that it stands for.
    const std::int64_t holds =
        shared.is_block ? core_.options.budget.lease.count() : kHoldsUnfollowed;
    known_.note((*inode)->number, std::move(found), now + holds);
  }
  return *inode;
}

// What must not be lost is published again where the pool has lost it; nobody has said that he removed it.
bool PoolFiles::keeps(Inode& inode) {
  const Result<Treatment> treatment = note_policy(core_, inode);
  if (treatment.ok() && treatment->policy < FilePolicy::kKeep) return false;
  Edit edit;
  {
    const std::lock_guard lock(inode.mutex);
    if (inode.record.state == DataState::kRemote) return false;
    edit.put_to_publish(inode.number, inode.record.stamp.size);
  }
  if (!core_.is_publishing || !core_.catalog.commit(std::move(edit)).ok()) return true;
  if (core_.on_pool_work) core_.on_pool_work();
  return true;
}

// The bytes that are here are as good as before; only the pool has them no more.
void PoolFiles::stays_here(Inode& inode, const PoolCopy& copy) {
  {
    const std::lock_guard lock(inode.mutex);
    const auto standing = core_.catalog.find_pool_copy(inode.number);
    if (standing.ok() && (!*standing || !(*standing)->is_same_file(copy))) return;
    Edit edit;
    edit.remove_pool_copy(inode.number, copy);
    if (const Result<void> put = core_.catalog.commit(std::move(edit)); !put.ok()) {
      log_warn("pool: an eviction was not noted inode={} errno={}", inode.number,
               put.error().code);
      return;
    }
  }
  // Its directory may have been told so since it was published.
  static_cast<void>(keeps(inode));
}

void PoolFiles::drop_directory(Inode& directory, const PoolCopy& copy) {
  if (copy.fileid == 0) return;
  if (has_gone(directory, copy)) return drop_emptied();
  const std::lock_guard lock(mutex_);
  if (emptying_.size() < kMostEmptying) emptying_.insert(directory.number);
}

bool PoolFiles::has_gone(Inode& directory, const PoolCopy& copy) {
  if (const Result<void> dropped = names_.drop_directory(directory, copy); !dropped.ok())
    log_warn("pool: a directory is not removed inode={} errno={}", directory.number,
             dropped.error().code);
  const std::lock_guard lock(directory.mutex);
  return directory.record.nlink == 0;
}

// Something that another has removed has gone here: directories above it may be empty now, one after the other.
void PoolFiles::drop_emptied() {
  for (bool again = true; again;) {
    std::vector<InodeNumber> numbers;
    {
      const std::lock_guard lock(mutex_);
      numbers.assign(emptying_.begin(), emptying_.end());
    }
    again = false;
    for (const InodeNumber number : numbers) {
      const Result<InodePtr> inode = core_.table.get(number);
      const auto copy = core_.catalog.find_pool_copy(number);
      const bool is_known_again = copy.ok() && (!*copy || (*copy)->fileid != 0);
      const bool gone =
          inode.ok() && copy.ok() && *copy && !is_known_again && has_gone(**inode, **copy);
      if (!gone && !is_known_again && inode.ok()) continue;
      again = again || gone;
      const std::lock_guard lock(mutex_);
      emptying_.erase(number);
    }
  }
}

void PoolFiles::drop(InodeNumber number, const PoolCopy& copy) {
  dropped_.fetch_add(1, std::memory_order_relaxed);
  if (const Result<void> dropped = drop_shared(core_, number, copy); !dropped.ok())
    log_warn("pool: name not removed inode={} errno={}", number, dropped.error().code);
}

Result<KnownFiles::Noted> PoolFiles::ask(const std::string& path, bool loads,
                                         Deadline deadline) {
  const auto is_early = [loads, most = options_.stage_whole](const PoolKnown& found) {
    return loads && found.file != nullptr && found.status.kind == PoolKind::kFile &&
           found.status.size > 0 && found.status.size <= most;
  };
  KnownFiles::Noted noted;
  noted.known = TRY(service_.client().call<PoolKnown>(
      PoolClass::kDemand, deadline,
      [path, is_early](PoolSession& session, Deadline until) -> Result<PoolKnown> {
        PoolFound there = TRY(session.find(path, until));
        PoolKnown found{.file = std::move(there.file), .status = there.status, .sums = {}};
        if (found.status.kind == PoolKind::kDirectory) {
          found.sums = TRY(find_directory_owner(session, path, found.status, until));
          found.told = TRY(find_told(session, path, found.status, until));
        }
        if (found.status.kind == PoolKind::kFile && !is_early(found))
          found.sums = TRY(find_sums(session, found.status, until));
        return found;
      }));
  if (!is_early(noted.known)) return noted;
  noted.early = EarlyLoad::begin(core_, service_.client(), early_, path, noted.known,
                                 load_deadline(SteadyClock::now(), noted.known.status.size));
  noted.known.sums = TRY(service_.client().call<std::optional<PoolSums>>(
      PoolClass::kDemand, deadline,
      [status = noted.known.status](PoolSession& session, Deadline until) {
        return find_sums(session, status, until);
      }));
  return noted;
}

Result<void> PoolFiles::adopt(InodeNumber directory, std::string_view name,
                              const SharedName& shared, const PoolKnown& found) {
  const bool is_file = found.status.kind == PoolKind::kFile;
  Adoption what{.mode = is_file ? S_IFREG | kAdoptedFileMode : S_IFDIR | kAdoptedDirectoryMode,
                .uid = options_.owner_uid,
                .gid = options_.owner_gid,
                .copy = {.fileid = found.status.fileid,
                         .path_hash = shared.path_hash,
                         .size = is_file ? found.status.size : 0,
                         .mtime = is_file ? found.status.mtime : 0}};
  Owner owner{.uid = what.uid, .gid = what.gid, .mode = what.mode & 07777};
  if (found.sums)
    owner = {.uid = found.sums->uid,
             .gid = found.sums->gid,
             .mode = permissions_said(what.mode & S_IFMT, found.sums->mode)};
  owner = TRY(with_given(core_, shared.path, found.status.fileid, owner));
  what.uid = owner.uid;
  what.gid = owner.gid;
  what.mode = (what.mode & S_IFMT) | owner.mode;
  return names_.adopt(directory, name, what);
}

// ---- bytes

Result<void> PoolFiles::fetch(const InodePtr& inode, PoolPace pace) {
  std::shared_ptr<Flight> flight;
  {
    std::unique_lock lock(mutex_);
    std::shared_ptr<Flight>& standing = flights_[inode->number];
    if (standing != nullptr) {
      flight = standing;
      landed_.wait(lock, [&flight] { return flight->done; });
      return flight->outcome;
    }
    flight = standing = std::make_shared<Flight>();
  }
  const Result<void> outcome = fetch_once(inode, pace);
  if (!outcome.ok()) missed_.fetch_add(1, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  flight->outcome = outcome;
  flight->done = true;
  flights_.erase(inode->number);
  landed_.notify_all();
  return outcome;
}

Result<PoolFiles::Standing> PoolFiles::standing_of(const InodePtr& inode) {
  const std::optional<PoolCopy> copy = TRY(core_.catalog.find_pool_copy(inode->number));
  const std::optional<SharedName> shared =
      TRY(shared_name_of(core_.catalog, core_.knowledge, inode->number));
  if (!copy || !shared || shared->path_hash != copy->path_hash)
    return fail(ENOENT, "pool: the file has no place there");
  return Standing{.copy = *copy, .path = shared->path};
}

Result<void> PoolFiles::fetch_once(const InodePtr& inode, PoolPace pace) {
  if (!is_remote(*inode)) return {};
  const Standing standing = TRY(standing_of(inode));
  const PoolCopy& copy = standing.copy;
  if (is_large(copy.size)) return fetch_large(inode);
  Load load = TRY(this->load(inode, standing, pace));
  const std::uint32_t device = load.local.device;
  const PoolFilePtr used = load.fetched.ok() ? load.fetched->file : nullptr;
  const Result<void> settled = load.fetched.ok() ? settle(inode, copy, std::move(load.local),
                                                          load.object, std::move(*load.fetched))
                                                 : Result<void>(load.fetched.error());
  if (used != nullptr) tell_use(used);
  if (settled.ok()) return settled;
  const Error error = settled.error();
  core_.budget.usage().reaped(inode->number, load.object);
  static_cast<void>(core_.devices->remove_copy(device, load.object).ok());
  return miss_of(inode, standing, error);
}

Result<PoolFiles::Load> PoolFiles::load(const InodePtr& inode, const Standing& standing,
                                        PoolPace pace) {
  const PoolCopy& copy = standing.copy;
  std::optional<KnownFiles::Noted> noted = known_.take(inode->number, monotonic_now());
  if (noted && !is_of(copy, noted->known.status)) noted.reset();
  if (noted && noted->early != nullptr && !noted->early->has_failed()) {
    EarlyLoad& early = *noted->early;
    const std::optional<PoolSums>& sums = noted->known.sums;
    Result<Fetched> fetched = early.wait();
    if (fetched.ok() && sums && sums->speaks_of_bytes() &&
        sums->chunk_crc32c != fetched->chunk_crc32c)
      fetched = fail(EILSEQ, "pool: a file is not what was published");
    if (fetched.ok()) fetched->sums = sums;
    Load load{.object = early.object(), .local = early.take(), .fetched = std::move(fetched)};
    count_bytes(*inode, load.local.device, copy.size);
    return load;
  }
  const ObjectId object = TRY(core_.catalog.next_id());
  NewCopy local = TRY(core_.devices->create_copy(object));
  const bool fits = core_.budget.can_hold(local.device, copy.size);
  count_bytes(*inode, local.device, fits ? copy.size : 0);
  const auto called = SteadyClock::now();
  Result<Fetched> fetched = fail(ENOSPC, "pool: there is no room for a file");
  if (fits && core_.budget.make_room(local.device, inode->tenant.load(), called))
    fetched = fetch_now(standing, noted ? std::optional(std::move(noted->known)) : std::nullopt,
                        local.fd, load_deadline(called, copy.size), pace);
  return Load{.object = object, .local = std::move(local), .fetched = std::move(fetched)};
}

// Before they are here: of several that ask for room at the same time each sees the others' bytes.
void PoolFiles::count_bytes(const Inode& inode, std::uint32_t device, std::uint64_t size) {
  core_.budget.usage().made(inode.number, device, inode.tenant.load());
  core_.budget.usage().measured(inode.number, size);
}

Deadline PoolFiles::load_deadline(SteadyClock::time_point called, std::uint64_t size) {
  return called + kOpenDeadline + std::chrono::milliseconds(size / (kOpenRate / 1000));
}

Result<Fetched> PoolFiles::fetch_now(const Standing& standing, std::optional<PoolKnown> known,
                                     const UniqueFd& local, Deadline deadline, PoolPace pace) {
  // Whoever hangs in a read may hold on to the file for longer than this call.
  const auto fd = std::make_shared<UniqueFd>(TRY(duplicate_fd(local.get())));
  return service_.client().call<Fetched>(
      PoolClass::kLoad, deadline,
      [path = standing.path, copy = standing.copy, known = std::move(known), fd, pace](
          PoolSession& session, Deadline until) -> Result<Fetched> {
        Fetched out = TRY(kvcachefs::fetch(session, path, known, fd->get(), until, pace));
        if (!is_of(copy, out.status)) return fail(ESTALE, "pool: another file has the name");
        return out;
      });
}

Error PoolFiles::miss_of(const InodePtr& inode, const Standing& standing, const Error& error) {
  if (error.code == ENOSPC || error.code == EDQUOT) return error;
  // A pool that is away says so once (pool_client.h).
  if (error.code != ENOTCONN && error.code != ETIMEDOUT)
    log_info("pool: not loaded path=\"{}\" step=\"{}\" errno={}", standing.path, error.what,
             error.code);
  if (error.code == EILSEQ)
    damaged_.found(standing.path, standing.copy.path_hash, standing.copy.fileid);
  // It is not what it was found as: who looks again asks the pool.
  if (is_missing(error.code) || error.code == ESTALE || error.code == EILSEQ)
    drop(inode->number, standing.copy);
  // The kernel looks the name up once more then, and opens the file that replaced this one. A second time is an error to
  // who opens it: a miss is none.
  if (error.code == ESTALE && looked_again_.is_first(standing.copy.path_hash, monotonic_now()))
    return fail(ESTALE, "pool: another file has the name by now");
  return fail(ENOENT, "pool: its bytes cannot be had");
}

// ---- large ones

Result<FrameFetcher::Joined> PoolFiles::join_flight(const InodePtr& inode) {
  if (std::optional<FrameFetcher::Joined> joined = frames_.join(inode->number))
    return std::move(*joined);
  const Standing standing = TRY(standing_of(inode));
  std::optional<PoolKnown> known;
  if (auto noted = known_.take(inode->number, monotonic_now());
      noted && is_of(standing.copy, noted->known.status))
    known = std::move(noted->known);
  if (!known) {
    Result<PoolKnown> found = service_.client().call<PoolKnown>(
        PoolClass::kDemand, SteadyClock::now() + kOpenDeadline,
        [path = standing.path, copy = standing.copy](PoolSession& session,
                                                     Deadline until) -> Result<PoolKnown> {
          PoolKnown there = TRY(find_known(session, path, until));
          if (there.status.kind != PoolKind::kFile || !is_of(copy, there.status))
            return fail(ESTALE, "pool: another file has the name");
          if (there.file == nullptr) there.file = TRY(session.open(path, until));
          if (!is_of(copy, there.file->status()))
            return fail(ESTALE, "pool: another file has the name");
          return there;
        });
    if (!found.ok()) return miss_of(inode, standing, found.error());
    known = std::move(*found);
  }
  return frames_.begin(inode, standing.copy, standing.path, std::move(*known));
}

// A pool that does not answer is a miss to who opens a file, and an error to who reads it. The first opener finds out for
// those who come meanwhile: few may wait in all.
Result<Arrival> PoolFiles::begun(FrameFetcher::Joined&& joined) {
  FrameFlight& flight = joined.reader->flight();
  if (flight.is_to_be_tried() && !flight.tried(flight.wait_for(0, 1)))
    return fail(ENOENT, "pool: its bytes cannot be had");
  return FrameFetcher::arrival(std::move(joined));
}

Result<std::optional<Arrival>> PoolFiles::fetch_in_frames(const InodePtr& inode) {
  Result<FrameFetcher::Joined> joined = join_flight(inode);
  Result<Arrival> arrival =
      joined.ok() ? begun(std::move(*joined)) : Result<Arrival>(joined.error());
  if (arrival.ok()) return std::optional<Arrival>(std::move(*arrival));
  if (!is_remote(*inode)) return std::optional<Arrival>{};
  missed_.fetch_add(1, std::memory_order_relaxed);
  return arrival.error();
}

// Who changes it needs all of it.
Result<void> PoolFiles::fetch_large(const InodePtr& inode) {
  const Result<FrameFetcher::Joined> joined = join_flight(inode);
  if (!joined.ok()) return is_remote(*inode) ? Result<void>(joined.error()) : Result<void>{};
  const Result<void> done = joined->reader->flight().wait_until_done();
  if (done.ok() || !is_remote(*inode)) return {};
  if (done.error().code == ENOSPC || done.error().code == EDQUOT) return done;
  return fail(ENOENT, "pool: its bytes cannot be had");
}

// Who evicts there asks when it was last used. Not everybody may say so, and nobody waits for it.
void PoolFiles::tell_use(PoolFilePtr file) {
  service_.client().submit<void>(
      PoolClass::kBackground, SteadyClock::now() + kTouchDeadline,
      [file = std::move(file)](PoolSession& session, Deadline deadline) {
        return session.touch(*file, deadline);
      },
      [](const Result<void>&) {});
}

// From here on it is a file like others: the sealer makes it durable, and finds its checksums made.
Result<void> PoolFiles::settle(const InodePtr& inode, const PoolCopy& copy, NewCopy&& local,
                               ObjectId object, Fetched&& fetched) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, to_timespec(copy.mtime)};
  if (::futimens(local.fd.get(), times) != 0) return fail_errno("times of a backing file");
  struct stat backing {};
  if (::fstat(local.fd.get(), &backing) != 0) return fail_errno("status of a backing file");
  if (static_cast<std::uint64_t>(backing.st_size) != copy.size)
    return fail(EIO, "a backing file has another size");
  {
    const std::lock_guard lock(inode->mutex);
    InodeRecord next = inode->record;
    if (next.state != DataState::kRemote || next.nlink == 0)
      return fail(ESTALE, "removed meanwhile");
    Edit edit;
    enter_state(inode->number, next, DataState::kPublished, edit);
    next.object = object;
    next.stamp = stamp_of(backing);
    edit.make_object(object, ObjectRecord{.inode = inode->number,
                                          .device = local.device,
                                          .chunk_crc32c = std::move(fetched.chunk_crc32c),
                                          .sealed = next.stamp});
    TRY(commit_record(core_, *inode, std::move(next), std::move(edit)));
    inode->device = local.device;
    core_.budget.measured(*inode, backing);
  }
  const std::uint64_t block = inode->block.load(std::memory_order_relaxed);
  if (block != 0) core_.knowledge.stored(block);
  loaded_.fetch_add(1, std::memory_order_relaxed);
  loaded_bytes_.fetch_add(copy.size, std::memory_order_relaxed);
  if (core_.on_unwritten) core_.on_unwritten(inode->number);
  return {};
}

// ---- what others do

void PoolFiles::on_change(const PoolLogRecord& record) {
  if (record.change == PoolChange::kPublished) {
    if (record.size == 0) doubt_owner(record);
    return doubt_replaced(record);
  }
  const auto numbers = core_.catalog.list_by_fileid(record.fileid, kMostOfOneNumber);
  if (!numbers.ok()) return;
  for (const InodeNumber number : *numbers) {
    const auto copy = core_.catalog.find_pool_copy(number);
    if (!copy.ok() || !*copy || (*copy)->fileid != record.fileid ||
        (*copy)->path_hash != record.path_hash)
      continue;
    const Result<InodePtr> inode = core_.table.get(number);
    if (!inode.ok()) continue;
    if ((*inode)->type == S_IFDIR && record.change == PoolChange::kRemoved)
      drop_directory(**inode, **copy);
    if (!(*inode)->is_file()) continue;
    DataState state = DataState::kNone;
    // What is written here since then is this node's, and will be published.
    Result<bool> stays = false;
    {
      const std::lock_guard lock((*inode)->mutex);
      state = (*inode)->record.state;
      stays = is_newer(core_, **inode, **copy);
    }
    if (state == DataState::kUnpublished || state == DataState::kMutable || !stays.ok())
      continue;
    const bool is_evicted = record.change == PoolChange::kEvicted;
    if ((*stays || is_evicted) && state != DataState::kRemote) {
      if (*stays && is_evicted) evicted_early_.note(record.path_hash, record.fileid);
      stays_here(**inode, **copy);
    } else if (is_evicted && known_.holds(number, monotonic_now())) {
      // Whoever was told of it may still load it: its handle leads to it in the pool's trash. It is asked for again when
      // that is over.
      (*inode)->pool_checked.store(0, std::memory_order_relaxed);
    } else {
      drop(number, **copy);
    }
  }
  drop_emptied();
}

// What was said of it may have been said anew.
void PoolFiles::doubt_owner(const PoolLogRecord& record) {
  const auto numbers = core_.catalog.list_by_fileid(record.fileid, kMostOfOneNumber);
  if (!numbers.ok()) return;
  for (const InodeNumber number : *numbers) {
    const Result<InodePtr> inode = core_.table.get(number);
    if (inode.ok() && !owners_.want(number)) (*inode)->pool_checked.store(0);
  }
}

void PoolFiles::doubt_replaced(const PoolLogRecord& record) {
  const std::optional<InodeNumber> number = replaced_.find(record.path_hash);
  if (!number) return;
  const auto copy = core_.catalog.find_pool_copy(*number);
  if (copy.ok() && *copy && (*copy)->fileid == record.fileid) return;
  replaced_.doubt(record.path_hash);
  if (const Result<InodePtr> inode = core_.table.get(*number); inode.ok())
    (*inode)->pool_checked.store(0);
}

PoolCounts PoolFiles::counts() const {
  PoolCounts counts;
  counts.asked = asked_.load();
  counts.found = found_.load();
  counts.loaded = loaded_.load();
  counts.loaded_bytes = loaded_bytes_.load();
  counts.missed = missed_.load();
  counts.damaged = damaged_.count();
  counts.arriving = frames_.flights();
  counts.dropped = dropped_.load();
  return counts;
}

}  // namespace kvcachefs
