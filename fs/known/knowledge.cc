#include "fs/known/knowledge.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/base/log.h"
#include "backend/base/proc_status.h"
#include "fs/known/block_number.h"
#include "fs/known/find_blocks.h"
#include "fs/known/known_name.h"
#include "fs/known/order_source.h"

namespace kvcachefs {
namespace {

constexpr pid_t kNobody = -1;
// A file with more is taken for what these are: the links of many sessions.
constexpr std::size_t kMostNames = 64;

std::string_view name_in(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

order::Snapshot snapshot_in(const BlockRecord& record) {
  order::Snapshot snapshot;
  if (record.has_parent) snapshot.parent = record.parent;
  snapshot.hinted = record.hinted;
  snapshot.birth = record.birth;
  snapshot.stamp = record.stamp;
  return snapshot;
}

void store_snapshot(BlockRecord& record, const order::Snapshot& snapshot) {
  record.has_parent = snapshot.parent.has_value();
  record.parent = snapshot.parent.value_or(0);
  record.hinted = snapshot.hinted && record.has_parent;
  record.birth = snapshot.birth;
  record.stamp = snapshot.stamp;
}

namespace {

// As path_in(), but the thread's own until its next one: it is asked for each name, and mostly as long as the last time.
std::string_view path_at(const Place& place, std::string_view name) {
  thread_local std::string path;
  if (place.is_too_long) return {};
  path.assign(place.path);
  if (!path.empty()) path += '/';
  path += name;
  return path;
}

}  // namespace

Knowledge::Knowledge(Catalog& catalog, InodeTable& table, FilePolicy otherwise, Clocks clocks,
                     Keepers keepers)
    : time_(std::move(clocks)),
      catalog_(catalog),
      table_(table),
      otherwise_(otherwise),
      keepers_(keepers),
      places_(catalog, table, tenants_) {}

Result<void> Knowledge::begin_time() {
  const Result<std::optional<ClockRecord>> last = catalog_.clock();
  if (!last.ok() && last.error().code != EBADMSG) return last.error();
  if (!last.ok()) log_warn("the mount's own time does not read: the wall clock is believed");
  time_.begin(last.ok() ? *last : std::nullopt, boot_id(), catalog_.coming_id());
  return keep_time(/*is_due=*/true);
}

Result<void> Knowledge::keep_time(bool is_due) {
  if (!is_due && !time_.was_set(catalog_.coming_id())) return {};
  return catalog_.set_clock(time_.record(catalog_.coming_id()));
}

bool Knowledge::is_kept_there(const Place& place, const std::optional<Recognized>& file,
                              std::uint32_t owner) const noexcept {
  const FilePolicy by_name = file ? file->policy : otherwise_;
  return keeps_all() || place.policy.holds_for(owner).value_or(by_name) >= FilePolicy::kKeep;
}

Result<void> Knowledge::check_depth(InodeNumber directory, bool is_deeper) {
  const auto place = TRY(places_.at(directory));
  if (is_deeper && place != nullptr && place->depth >= kMostDepth)
    return fail(ENAMETOOLONG, "directories lie too deep");
  return {};
}

bool Knowledge::is_kept_at(InodeNumber directory, std::string_view name, std::uint32_t owner) {
  if (keeps_all()) return true;
  if (!catalog_.is_told() && !catalog_.is_told_policy() && !may_be_recognized(name))
    return false;
  const auto place = places_.at(directory);
  // A thread that refuses to wait asks this to know where the call is to be done.
  if (!place.ok() || *place == nullptr) return !place.ok() && place.error().code == kMustWait;
  return is_kept_there(**place, recognize(path_at(**place, name), (*place)->told), owner);
}

bool Knowledge::is_told_to_keep(InodeNumber inode, const InodeRecord& record) {
  if (keeps_all()) return true;
  const Result<Treatment> told = treatment(inode, record);
  return told.ok() && is_told_to_keep(*told);
}

bool Knowledge::is_told_to_keep(const Treatment& treatment) const noexcept {
  return keeps_all() ||
         (treatment.policy >= FilePolicy::kKeep && treatment.by != PolicyBy::kApplication);
}

NameLook Knowledge::look(InodeNumber directory, std::string_view name, std::uint32_t owner) {
  NameLook seen{.block = {}, .fan_out = {}, .age = places_.age(), .is_kept = keeps_all()};
  if (!catalog_.is_told() && !catalog_.is_told_policy() && !may_be_recognized(name))
    return seen;
  const auto place = places_.at(directory);
  seen.must_wait = !place.ok() && place.error().code == kMustWait;
  if (!place.ok() || *place == nullptr) return seen;
  seen.tenant = (*place)->tenant;
  const std::optional<Recognized> file = recognize(path_at(**place, name), (*place)->told);
  seen.is_kept = is_kept_there(**place, file, owner);
  seen.is_directory_of_block = file && file->kind == NameKind::kDirectory;
  seen.is_companion = file && file->kind == NameKind::kCompanion;
  const bool is_known = file && (file->kind == NameKind::kBlock ||
                                 file->kind == NameKind::kFanOut || seen.is_directory_of_block);
  if (!is_known) return seen;
  BlockName block{.temporary = file->temporary,
                  .hash = std::string(file->prefix_hash),
                  .series = uses_.series_of(file->runtime, file->model),
                  .tenant = seen.tenant};
  if (!file->temporary) {
    block.number = block_number(directory, name);
  } else if (!file->final_stem.empty()) {
    const std::string final_name = final_path(*file);
    block.number = block_number(directory, name_in(final_name));
  }
  (file->kind == NameKind::kBlock ? seen.block : seen.fan_out) = std::move(block);
  return seen;
}

void Knowledge::put_rows(Edit& edit, InodeNumber directory, std::string_view name,
                         InodeNumber inode, const NameLook& seen) {
  // The keeper may have read the directory already. If this holds, it comes after the commit: it
  // takes the directory's lock before it leaves it.
  if (!holds(seen)) {
    add_late(directory);
    if (on_unread) on_unread();
  }
  if (!seen.block || seen.block->temporary) return;
  const BlockName& block = *seen.block;
  BlockRecord record{.inode = inode, .hash = block.hash};
  // A file that replaces another one of its name has its place in the order.
  if (const auto known = learner_.snapshot(block.number)) store_snapshot(record, *known);
  edit.put_block(block.number, record);
  if (!block.hash.empty()) edit.put_prefix(block.hash, directory, name);
}

Result<std::uint64_t> Knowledge::remove_rows(Edit& edit, InodeNumber directory,
                                             std::string_view name, const NameLook& seen) {
  // With the inode's lock held the keeper cannot come to this name any more.
  if (!is_settled(seen)) return remove_rows_found(edit, directory, name);
  if (!seen.block || seen.block->temporary) return std::uint64_t{0};
  edit.remove_block(seen.block->number);
  if (!seen.block->hash.empty()) edit.remove_prefix(seen.block->hash, directory, name);
  return seen.block->number;
}

Result<std::uint64_t> Knowledge::leave_rows(Edit& edit, InodeNumber inode,
                                            InodeNumber directory, std::string_view name,
                                            const NameLook& seen) {
  LeftRows left{.parent = directory, .name = std::string(name), .hash = {}};
  const std::uint64_t number = block_number(directory, name);
  bool is_block = false;
  if (is_settled(seen)) {
    is_block = seen.block && !seen.block->temporary;
    if (is_block) left.hash = seen.block->hash;
  } else if (auto record = TRY(catalog_.find_block(number))) {
    is_block = true;
    left.hash = std::move(record->hash);
  }
  if (!is_block) {
    edit.put_orphan_inode(inode);
    return std::uint64_t{0};
  }
  edit.put_orphan_inode(inode, left);
  return number;
}

Result<void> Knowledge::remove_rows_left(const std::vector<InodeNumber>& inodes) {
  // Whoever makes a name in the directory waits for so many.
  constexpr std::ptrdiff_t kBatch = 64;
  std::vector<LeftByInode> left;
  for (const InodeNumber inode : inodes) {
    auto rows = catalog_.find_left_rows(inode);
    // What does not read is left to fsck, which finds its rows.
    if (!rows.ok() && rows.error().code == EBADMSG) continue;
    if (!rows.ok()) return rows.error();
    if (*rows) left.emplace_back(inode, std::move(**rows));
  }
  const auto parent_of = [](const LeftByInode& of) { return of.second.parent; };
  std::sort(left.begin(), left.end(), [&](const LeftByInode& a, const LeftByInode& b) {
    return parent_of(a) < parent_of(b);
  });
  for (auto at = left.begin(); at != left.end();) {
    const InodeNumber directory = parent_of(*at);
    auto end = at + std::min(kBatch, left.end() - at);
    end = std::find_if(at, end,
                       [&](const LeftByInode& of) { return parent_of(of) != directory; });
    TRY(remove_rows_in(directory, {at, end}));
    at = end;
  }
  return {};
}

Result<void> Knowledge::remove_rows_in(InodeNumber directory,
                                       std::span<const LeftByInode> left) {
  // Who makes a name anew writes the same rows, and holds the directory's lock.
  const Result<InodePtr> held = table_.get(directory);
  if (!held.ok() && held.error().code != ESTALE) return held.error();
  std::unique_lock<InodeMutex> lock;
  if (held.ok()) lock = std::unique_lock((*held)->mutex);
  Edit edit;
  edit.set_frees();
  std::vector<std::uint64_t> gone;
  for (const auto& [inode, rows] : left) {
    const std::uint64_t number = block_number(directory, rows.name);
    const auto block = catalog_.find_block(number);
    if (!block.ok() && block.error().code == EBADMSG) continue;
    if (!block.ok()) return block.error();
    const bool is_its_own = *block && (*block)->inode == inode;
    if (is_its_own) {
      edit.remove_block(number);
      gone.push_back(number);
    }
    if (!rows.hash.empty() && (is_its_own || !*block || (*block)->hash != rows.hash))
      edit.remove_prefix(rows.hash, directory, rows.name);
  }
  if (!edit.empty()) TRY(catalog_.commit(std::move(edit)));
  // Again: the file's last close may have come after the unlink.
  for (const std::uint64_t block : gone) removed(block);
  return {};
}

Result<std::uint64_t> Knowledge::remove_rows_found(Edit& edit, InodeNumber directory,
                                                   std::string_view name) {
  const std::uint64_t number = block_number(directory, name);
  const std::optional<BlockRecord> record = TRY(catalog_.find_block(number));
  if (!record) return std::uint64_t{0};
  edit.remove_block(number);
  if (!record->hash.empty()) edit.remove_prefix(record->hash, directory, name);
  return number;
}

std::vector<InodeNumber> Knowledge::take_late() {
  const std::lock_guard lock(late_mutex_);
  return std::exchange(late_, {});
}

void Knowledge::add_late(InodeNumber directory) {
  const std::lock_guard lock(late_mutex_);
  if (std::find(late_.begin(), late_.end(), directory) == late_.end())
    late_.push_back(directory);
}

Knowledge::PlaceChange::PlaceChange(Knowledge& knowledge) : knowledge_(knowledge) {
  knowledge_.changing_.fetch_add(1);
  knowledge_.places_.changed();
}

Knowledge::PlaceChange::~PlaceChange() {
  knowledge_.places_.changed();
  if (knowledge_.on_unread) knowledge_.on_unread();
  knowledge_.changing_.fetch_sub(1);
}

void Knowledge::note(order::Note::What what, std::uint64_t block, pid_t thread) {
  order::Note note{.what = what, .name = block, .caller = {}, .when_ns = now()};
  if (thread >= 0) {
    note.caller = processes_.caller(thread, note.when_ns);
    if (note.caller.process == 0 && what != order::Note::What::kListed)
      invisible_.fetch_add(1, std::memory_order_relaxed);
  }
  // Nobody's order changes by a listing, and what goes is not written.
  if (what != order::Note::What::kListed && what != order::Note::What::kRemoved &&
      !heard_.load(std::memory_order_relaxed))
    heard_.store(true, std::memory_order_relaxed);
  feed_.note(note);
}

void Knowledge::looked_up(const BlockName& block, pid_t thread, bool hit) {
  if (block.number == 0 || block.temporary) return;
  uses_.used(block.series);
  note(hit ? order::Note::What::kHit : order::Note::What::kMiss, block.number, thread);
}

void Knowledge::became(std::uint64_t absent, std::uint64_t block) {
  if (block == 0) return;
  feed_.note({.what = order::Note::What::kBecame,
              .name = block,
              .caller = {},
              .when_ns = now(),
              .was = absent});
}

void Knowledge::store_began(std::uint64_t block, pid_t thread) {
  if (block != 0) note(order::Note::What::kStoreBegan, block, thread);
}

void Knowledge::stored(std::uint64_t block) {
  if (block != 0) note(order::Note::What::kStored, block, kNobody);
}

void Knowledge::named(Inode& inode, std::uint64_t block, pid_t thread) {
  if (inode.block.exchange(block, std::memory_order_relaxed) != block)
    store_began(block, thread);
  stored(block);
  note_group(block, inode.tenant.load(std::memory_order_relaxed));
}

void Knowledge::note_group(std::uint64_t block, TenantSlot tenant) {
  if (block == 0 || !tenants_.had_any()) return;
  feed_.note({.what = order::Note::What::kGrouped,
              .name = block,
              .caller = {},
              .when_ns = now(),
              .group = tenant});
}

Result<void> Knowledge::grouped(InodeNumber inode, TenantSlot tenant) {
  if (!tenants_.had_any()) return {};
  for (const auto& [directory, name] : TRY(catalog_.list_links(inode, kMostNames))) {
    const NameLook seen = look(directory, name);
    if (seen.block && !seen.block->temporary) note_group(seen.block->number, tenant);
  }
  return {};
}

void Knowledge::store_done(Inode& inode) {
  if (inode.being_stored.load(std::memory_order_relaxed) &&
      inode.being_stored.exchange(false, std::memory_order_relaxed)) {
    const std::uint64_t block = inode.block.load(std::memory_order_relaxed);
    stored(block);
    note_group(block, inode.tenant.load(std::memory_order_relaxed));
  }
}

void Knowledge::loaded(const Inode& inode, std::uint64_t size, pid_t thread) {
  const std::uint64_t block = inode.block.load(std::memory_order_relaxed);
  if (block == 0) return;
  uses_.loaded(inode.series.load(std::memory_order_relaxed), size);
  lookups_.opened(block, processes_.caller(thread, now()).process);
  note(order::Note::What::kLoaded, block, thread);
}

UnixNanos Knowledge::last_use(std::uint64_t block) {
  const auto key = learner().eviction_key(block);
  return key ? time_.to_wall(time_of_stamp(key->stamp)) : 0;
}

bool Knowledge::is_stored_block(InodeNumber inode, std::uint64_t likely) {
  if (likely != 0) {
    const Result<std::optional<BlockRecord>> record = catalog_.find_block(likely);
    if (record.ok() && *record && (*record)->inode == inode) {
      stored(likely);
      return true;
    }
  }
  const Result<std::uint64_t> block = number_of(inode);
  if (!block.ok()) return false;
  stored(*block);
  return true;
}

void Knowledge::removed(std::uint64_t block) {
  if (block != 0) note(order::Note::What::kRemoved, block, kNobody);
}

void Knowledge::listed(pid_t thread) {
  const std::int64_t at = now();
  const order::Caller caller = processes_.caller(thread, at);
  const std::lock_guard lock(listing_mutex_);
  crawlers_.listed(caller, at);
  note(order::Note::What::kListed, 0, thread);
}

Crawlers::Opening Knowledge::opened_directory(pid_t thread) {
  const std::int64_t at = now();
  const order::Caller caller = processes_.caller(thread, at);
  const std::lock_guard lock(listing_mutex_);
  const Crawlers::Opening opening = crawlers_.opened(caller, at);
  note(order::Note::What::kListed, 0, thread);
  return opening;
}

void Knowledge::closed_directory(const Crawlers::Opening& opening) {
  crawlers_.closed(opening);
}

void Knowledge::synced_directory(const Crawlers::Opening& opening) {
  const std::lock_guard lock(listing_mutex_);
  const std::int64_t until_ns = crawlers_.withdrawn(opening);
  // The learner has one stream for all that are invisible, and is silent for a second there.
  if (opening.caller.process == 0) return;
  feed_.note({.what = order::Note::What::kNotListed,
              .name = 0,
              .caller = opening.caller,
              .when_ns = now(),
              .until_ns = until_ns});
}

bool Knowledge::is_crawling(pid_t thread) {
  const std::int64_t at = now();
  return crawlers_.any(at) && crawlers_.has(processes_.caller(thread, at), at);
}

bool Knowledge::serves_nfs(pid_t thread) { return processes_.serves_nfs(thread, now()); }

Result<std::uint64_t> Knowledge::number_of(InodeNumber inode) {
  // An inode has few names; those of a session's links are not blocks.
  constexpr std::size_t kNames = 64;
  for (const auto& [directory, name] : TRY(catalog_.list_links(inode, kNames))) {
    const std::uint64_t number = block_number(directory, name);
    if (TRY(catalog_.find_block(number))) return number;
  }
  return fail(ENODATA, "no block of KV cache");
}

Result<std::string> Knowledge::parent_hash(InodeNumber inode, const MayEnter& may_enter) {
  const std::uint64_t number = TRY(number_of(inode));
  const std::optional<order::Parent> parent = learner().parent(number);
  if (!parent) return fail(ENODATA, "no block is known before it");
  const std::optional<BlockRecord> record = TRY(catalog_.find_block(parent->name));
  if (!record || record->hash.empty()) return fail(ENODATA, "the block before it has no hash");
  if (may_enter && TRY(find_blocks(catalog_, record->hash, 1, may_enter)).empty())
    return fail(ENODATA, "the block before it is not to be found by its path");
  return record->hash;
}

Result<void> Knowledge::set_parent_hash(InodeNumber inode, std::string_view hash,
                                        const MayEnter& may_enter) {
  if (hash.empty() || hash.size() > kLongestHash ||
      hash.find_first_not_of("-0123456789abcdef") != std::string_view::npos)
    return fail(EINVAL, "not a prefix hash");
  const std::uint64_t number = TRY(number_of(inode));
  KnownName self;
  TRY(find_known_name(catalog_, inode, self));
  if (!self.file) return fail(ENODATA, "no block of KV cache");
  for (const FoundBlock& found : TRY(find_blocks(catalog_, hash, kMostFound, may_enter))) {
    if (!is_same_series(*self.file, found.file)) continue;
    if (found.number == number) return fail(EINVAL, "a block does not follow itself");
    heard_.store(true, std::memory_order_relaxed);
    if (!learner().set_parent(number, found.number, now()))
      return fail(EINVAL, "the parent was told to follow this block");
    return {};
  }
  return fail(ENODATA, "no such block of this model, rank and group");
}

Result<void> Knowledge::forget_parent(InodeNumber inode) {
  const std::uint64_t number = TRY(number_of(inode));
  if (!learner().forget_parent(number)) return fail(ENODATA, "no block is known before it");
  return {};
}

Result<Treatment> Knowledge::treatment(InodeNumber inode, const InodeRecord& record,
                                       bool* is_block) {
  TreatmentOfNames names(otherwise_, record.uid, keepers_.may_keep_own(record.uid, record.gid));
  bool found_block = false;
  for (const auto& [directory, name] : TRY(catalog_.list_links(inode, kMostNames))) {
    const auto place = TRY(places_.at(directory));
    if (place != nullptr) names.add(*place, name);
    if (is_block != nullptr && !found_block)
      found_block = TRY(catalog_.find_block(block_number(directory, name))).has_value();
  }
  if (is_block != nullptr) *is_block = found_block;
  Told own;
  if ((record.flags & kInodeHasXattr) != 0) own = TRY(own_told(catalog_, inode));
  Treatment treatment = names.of(record, own);
  if (treatment.policy == FilePolicy::kProcess) TRY(judge_writer(inode, record, treatment));
  if (treatment.ttl) {
    std::int64_t shortest = shortest_ttl_s_.load(std::memory_order_relaxed);
    bool is_shorter = false;
    while (treatment.ttl->count() < shortest && !is_shorter)
      is_shorter = shortest_ttl_s_.compare_exchange_weak(shortest, treatment.ttl->count());
    if (is_shorter && on_shorter_ttl) on_shorter_ttl();
  }
  return treatment;
}

Result<void> Knowledge::judge_writer(InodeNumber inode, const InodeRecord& record,
                                     Treatment& treatment) {
  if (record.writer.any()) {
    treatment.writer_lives = writers_.is_alive(record.writer);
    if (treatment.writer_lives) return {};
    treatment.tenant = kOrphans;
    tenants_.has_orphans();
    return {};
  }
  for (const auto& [directory, name] : TRY(catalog_.list_links(inode, kMostNames))) {
    const NameLook seen = look(directory, name);
    if (seen.block && uses_.was_used_within(seen.block->series, kTrustUnseen))
      treatment.writer_lives = true;
  }
  return {};
}

ProcessId Knowledge::writer_of(pid_t thread) {
  const std::int64_t at = now();
  return writers_.identity_of(static_cast<pid_t>(processes_.caller(thread, at).process), at);
}

std::optional<std::chrono::seconds> Knowledge::shortest_ttl() const noexcept {
  const std::int64_t shortest = shortest_ttl_s_.load(std::memory_order_relaxed);
  if (shortest == INT64_MAX) return std::nullopt;
  return std::chrono::seconds{shortest};
}

Result<Told> Knowledge::told_above(InodeNumber directory, std::uint32_t owner) {
  const auto place = TRY(places_.at(directory));
  if (place == nullptr) return Told{};
  return Told{.policy = place->policy.holds_for(owner), .ttl = place->ttl.holds_for(owner)};
}

Result<std::optional<DirectIo>> Knowledge::direct_io(InodeNumber directory) {
  const auto place = TRY(places_.at(directory));
  if (place == nullptr) return std::optional<DirectIo>{};
  return place->direct_io;
}

Result<std::optional<PoolWrites>> Knowledge::pool_writes(InodeNumber directory) {
  const auto place = TRY(places_.at(directory));
  if (place == nullptr) return std::optional<PoolWrites>{};
  return place->pool_writes;
}

void Knowledge::linked(InodeNumber directory, std::string_view name, InodeNumber inode) {
  if (name.find_first_not_of("0123456789") != std::string_view::npos) return;
  const auto place = places_.of(directory);
  if (!place.ok() || *place == nullptr) return;
  const std::string path = path_in(**place, name);
  const auto file = recognize(path, (*place)->told);
  if (!file || file->kind != NameKind::kSession || !file->position) return;
  if (const Result<void> told = follow_in_session(directory, *file->position, inode);
      !told.ok())
    log_debug("session order not taken inode={} errno={}", inode, told.error().code);
}

Result<void> Knowledge::follow_in_session(InodeNumber directory, std::uint32_t position,
                                          InodeNumber inode) {
  const std::uint64_t number = TRY(number_of(inode));
  const auto neighbour = [&](std::int64_t at) -> Result<std::optional<std::uint64_t>> {
    if (at < 0) return std::optional<std::uint64_t>{};
    const auto dentry = TRY(catalog_.find_dentry(directory, std::to_string(at)));
    if (!dentry) return std::optional<std::uint64_t>{};
    const Result<std::uint64_t> found = number_of(dentry->inode);
    if (found.ok()) return std::optional<std::uint64_t>{*found};
    if (found.error().code == ENODATA) return std::optional<std::uint64_t>{};
    return found.error();
  };
  heard_.store(true, std::memory_order_relaxed);
  // A chain of hashes has one parent: what another session has told cannot differ, but in error.
  if (const auto before = TRY(neighbour(std::int64_t{position} - 1)))
    learner().set_parent(number, *before, now());
  if (const auto after = TRY(neighbour(std::int64_t{position} + 1)))
    learner().set_parent(*after, number, now());
  return {};
}

}  // namespace kvcachefs
