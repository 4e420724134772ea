#include "fs/budget/budget.h"

#include <algorithm>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/must_wait.h"
#include "fs/life/states.h"
#include "fs/order/name_record.h"

namespace kvcachefs {
namespace {

// Names that the kernel remembers hide who uses them; a lease must outlast that by far.
constexpr double kTimeoutsInLease = 6;
// Between two looks at the database's files: it grows by some megabytes in it.
constexpr std::int64_t kDatabaseEvery = kNanosPerSecond;
// How fast the size of a typical file is forgotten, at each look.
constexpr double kTypicalKept = 0.999;

// Its device is known.
SealedCopy copy_of(const Inode& inode, ObjectId object, std::uint64_t bytes) {
  return {.object = object,
          .device = *inode.device,
          .bytes = bytes,
          .kept = inode.kept,
          .tenant = inode.tenant.load(std::memory_order_relaxed),
          .open = inode.opens > 0};
}

}  // namespace

std::uint64_t written_bytes(const Inode& inode, const struct stat& backing) noexcept {
  // Its last block, and the blocks of its extents.
  constexpr std::uint64_t kBeside = 64 * kKiB;
  const auto size = static_cast<std::uint64_t>(std::max<off_t>(backing.st_size, 0));
  return std::min(allocated_bytes(backing), std::max(size, inode.allocated_end) + kBeside);
}

Budget::Budget(Devices& devices, Knowledge& knowledge, const BudgetOptions& options)
    : devices_(devices),
      knowledge_(knowledge),
      usage_(devices.indices()),
      leases_(options.lease.count()),
      longest_timeout_s_(std::chrono::duration<double>(options.lease).count() /
                         kTimeoutsInLease) {
  of_.resize(devices.indices());
  for (std::size_t i = 0; i < devices.count() && i < options.devices.size(); ++i)
    of_[devices.index_at(i)].limits = options.devices[i];
  if (options.database_on && *options.database_on < devices.count())
    database_on_ = devices.index_at(*options.database_on);
}

// ---- what happens

void Budget::made(const Inode& inode) {
  usage_.made(inode.number, *inode.device, inode.tenant.load(std::memory_order_relaxed));
}

std::optional<SealedCopy> Budget::sealed_copy(Inode& inode, const InodeRecord& record) {
  if (!devices_.of(inode).ok()) return std::nullopt;
  const Result<struct stat> backing = devices_.status_of_copy(*inode.device, record.object);
  if (!backing.ok()) return std::nullopt;
  return copy_of(inode, record.object, allocated_bytes(*backing));
}

// Else what is lost would be counted for as long as the mount lives.
std::optional<SealedCopy> Budget::counted_copy(Inode& inode, const InodeRecord& record) {
  if (auto copy = sealed_copy(inode, record)) return copy;
  constexpr std::uint64_t kPage = 4096;
  if (!devices_.of(inode).ok()) return std::nullopt;
  return copy_of(inode, record.object, (record.stamp.size + kPage - 1) / kPage * kPage);
}

void Budget::changed(Inode& inode, const InodeRecord& before) {
  metadata_.changed(before, inode.record);
  if (!inode.is_file()) return;
  const InodeRecord& after = inode.record;
  const bool was_sealed = before.state == DataState::kSealed && before.nlink > 0;
  const bool is_sealed = after.state == DataState::kSealed && after.nlink > 0;
  const bool lost_name = before.nlink > 0 && after.nlink == 0;
  note_rewrite(inode.number, before, after);
  if (before.previous_object != kNoObject && before.previous_object == after.object) {
    usage_.taken_back(inode.number, before.object, after.object,
                      is_sealed ? sealed_copy(inode, after) : std::nullopt);
    note_settling(inode);
    return;
  }
  if (before.previous_object != kNoObject && after.previous_object == kNoObject)
    usage_.let_go(before.previous_object);
  if (lost_name) {
    files_.forget(inode.number);
    leases_.forget(inode.number);
  }
  if (was_sealed && is_sealed) {
    if (((before.flags ^ after.flags) & kInodeKeep) == 0) return;
    inode.kept = inode.kept || (after.flags & kInodeKeep) != 0;
    if (const auto copy = sealed_copy(inode, after)) usage_.counted_anew(*copy);
  } else if (after.object != before.object && before.object != kNoObject) {
    usage_.replaced(inode.number, before.object,
                    was_sealed ? counted_copy(inode, before) : std::nullopt);
  } else if (was_sealed) {
    const auto copy = counted_copy(inode, before);
    if (!copy) return;
    if (lost_name) {
      usage_.nameless(inode.number, *copy, inode.opens > 0);
    } else {
      usage_.unsealed(inode.number, *copy);
    }
  } else if (is_sealed) {
    if (const auto copy = sealed_copy(inode, after)) usage_.sealed(inode.number, *copy);
  } else if (lost_name && is_unsealed(after.state) && inode.opens == 0) {
    usage_.live_nameless(inode.number, after.object);
  } else if (is_unsealed(after.state)) {
    note_settling(inode);
  }
}

void Budget::noted(Inode& inode) {
  const InodeRecord& record = inode.record;
  if (!inode.is_file() || record.nlink == 0) return;
  const TenantSlot tenant = inode.tenant.load(std::memory_order_relaxed);
  if (knowledge_.tenants().had_any()) {
    files_.set_group(inode.number, tenant);
    usage_.set_tenant(inode.number, tenant);
  }
  if (record.state == DataState::kPublished && inode.kept)
    usage_.set_settling(inode.number, false);
  if (record.state != DataState::kSealed) return;
  if (!usage_.is_counted_wrong(record.object, {.kept = inode.kept, .tenant = tenant})) return;
  if (const auto copy = sealed_copy(inode, record)) usage_.counted_anew(*copy);
}

void Budget::measured(const Inode& inode, const struct stat& backing) {
  const std::uint64_t written = written_bytes(inode, backing);
  usage_.measured(inode.number, written, allocated_bytes(backing) - written);
}

void Budget::writer_began(InodeNumber inode) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = writing_.empty();
    writing_.emplace(inode, kNoDevice);
  }
  usage_.set_settling(inode, false);
  if (first && on_writer) on_writer();
}

void Budget::writer_ended(const Inode& inode) {
  {
    const std::lock_guard lock(mutex_);
    writing_.erase(inode.number);
  }
  note_settling(inode);
}

// Whole, and not sealed yet. What its directory was told is looked at with the seal.
void Budget::note_settling(const Inode& inode) {
  const InodeRecord& record = inode.record;
  usage_.set_settling(inode.number, record.state == DataState::kPublished && record.nlink > 0 &&
                                        inode.writers == 0 && !inode.kept &&
                                        (record.flags & kInodeKeep) == 0);
}

void Budget::note_rewrite(InodeNumber number, const InodeRecord& before,
                          const InodeRecord& after) {
  const bool was = before.previous_object != kNoObject && before.nlink > 0;
  const bool is = after.previous_object != kNoObject && after.nlink > 0;
  if (was == is) return;
  const std::lock_guard lock(mutex_);
  if (is) {
    rewritten_.insert(number);
  } else {
    rewritten_.erase(number);
  }
}

std::vector<InodeNumber> Budget::rewritten(InodeNumber after, std::size_t most) const {
  const std::lock_guard lock(mutex_);
  std::vector<InodeNumber> out;
  for (auto at = rewritten_.upper_bound(after); at != rewritten_.end() && out.size() < most;
       ++at)
    out.push_back(*at);
  return out;
}

bool Budget::has_writers() const {
  const std::lock_guard lock(mutex_);
  return !writing_.empty();
}

std::vector<InodeNumber> Budget::written() const {
  const std::lock_guard lock(mutex_);
  std::vector<InodeNumber> out;
  out.reserve(writing_.size());
  for (const auto& [inode, device] : writing_) out.push_back(inode);
  return out;
}

std::vector<InodeNumber> Budget::largest_written(TenantMask tenants, std::size_t most) const {
  return usage_.largest_of(written(), tenants, most);
}

// ---- uses

bool Budget::grant(const Inode& inode, const struct stat& backing, uid_t user, bool opened) {
  // What is still being written is nobody's yet: its writer's own looks at it are no leases.
  const DataState state = inode.record.state;
  const bool is_remote = state == DataState::kRemote;
  const bool readable = is_remote || state == DataState::kSealed ||
                        (state == DataState::kPublished && inode.writers == 0);
  if (!readable || inode.record.nlink == 0) return false;
  // What is on the pool alone holds no room here.
  leases_.grant({.inode = inode.number,
                 .user = user,
                 .tenant = inode.tenant.load(std::memory_order_relaxed),
                 .opened = opened,
                 .bytes = is_remote ? 0 : allocated_bytes(backing)},
                monotonic_now());
  return true;
}

bool Budget::answered(const Inode& inode, const struct stat& backing, uid_t user) {
  return grant(inode, backing, user, false);
}

void Budget::opened(const Inode& inode, const struct stat& backing, uid_t user) {
  grant(inode, backing, user, true);
}

Result<OpenBytes::Hold> Budget::hold(const Inode& inode, const struct stat& backing,
                                     uid_t user) {
  const InodeRecord& record = inode.record;
  const TenantSlot tenant = inode.tenant.load(std::memory_order_relaxed);
  const bool is_remote = record.state == DataState::kRemote;  // on its way here
  const std::uint64_t bytes = is_remote ? record.stamp.size : allocated_bytes(backing);
  const bool can_go = record.state == DataState::kSealed && !inode.kept && inode.opens == 0;
  if (can_go && knowledge_.tenants().had_any()) {
    const std::uint64_t unknown = mapped_.unknown_of(tenant);
    const bool fits =
        staying().left(tenant).of_share >= static_cast<std::int64_t>(bytes + unknown);
    // One file always.
    if (!fits && usage_.by_tenant()[tenant].open + unknown > 0)
      return fail(ENOSPC, "what is open or kept would be more than others' shares leave");
  }
  std::optional<OpenBytes::Hold> hold = open_bytes_.open({.inode = inode.number,
                                                          .user = user,
                                                          .is_owner = user == record.uid,
                                                          .tenant = tenant,
                                                          .bytes = bytes});
  if (!hold) return fail(ENOSPC, "its user has as much open as he may");
  return std::move(*hold);
}

void Budget::held(const Inode& inode, std::uint64_t bytes) {
  const InodeRecord& record = inode.record;
  if (inode.opens == 1 && record.state == DataState::kSealed && record.nlink > 0)
    usage_.opened(copy_of(inode, record.object, bytes));
}

void Budget::let_go(const Inode& inode) {
  if (inode.opens == 0) usage_.closed(inode.record.object);
}

void Budget::used_as(InodeNumber inode, TenantSlot tenant) {
  used(inode);
  if (knowledge_.tenants().had_any()) files_.set_group(inode, tenant);
}

void Budget::stored(InodeNumber inode, UnixNanos written, ObjectId object, TenantSlot tenant) {
  files_.stored_since(inode, knowledge_.time().of_wall(written, object), knowledge_.now());
  if (knowledge_.tenants().had_any()) files_.set_group(inode, tenant);
}

void Budget::known(InodeNumber inode, UnixNanos written, ObjectId object, TenantSlot tenant) {
  constexpr std::int64_t kBirthsPerMicro = 16;
  const std::int64_t now = knowledge_.now();
  const std::int64_t when =
      std::clamp<std::int64_t>(knowledge_.time().of_wall(written, object), 1, now);
  files_.restore(inode,
                 {.parent = std::nullopt,
                  .hinted = false,
                  .birth = static_cast<std::uint64_t>(when / 1000 * kBirthsPerMicro),
                  .stamp = static_cast<std::uint64_t>(when / order::kNanosPerStamp)},
                 now);
  files_.set_group(inode, tenant);
}

bool Budget::is_leased(InodeNumber inode) const {
  return leases_.holds(inode, monotonic_now());
}

// ---- questions

std::int64_t Budget::room_now(std::uint32_t device) const {
  const DeviceRoom& seen = of_[device].seen;
  if (!of_[device].looked) return INT64_MAX;
  const auto grown = static_cast<std::int64_t>(usage_.on(device).all()) -
                     static_cast<std::int64_t>(seen.usage.all());
  return seen.room.bytes - std::max<std::int64_t>(grown, 0);
}

bool Budget::is_below_low(std::uint32_t device, int part) const {
  const DeviceRoom& seen = of_[device].seen;
  return room_now(device) < static_cast<std::int64_t>(seen.marks.low) / part ||
         (of_[device].looked && seen.room.inodes < seen.marks.inode_low / part);
}

bool Budget::waits_now(std::uint32_t device, TenantSlot tenant) const {
  constexpr int kWithinShare = 2;
  const TenantMask over = over_share_.load(std::memory_order_relaxed);
  const bool is_within = over != 0 && (over & mask_of(tenant)) == 0;
  return !of_[device].exhausted_since && is_below_low(device, is_within ? kWithinShare : 1);
}

bool Budget::is_tight(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  if (device >= of_.size()) return false;
  const Device& of = of_[device];
  const auto low = static_cast<std::int64_t>(of.seen.marks.low);
  const std::int64_t room = room_now(device);
  if (room < low || of.exhausted_since) return true;
  if (!of.seen.usage.complete) return false;
  // Writers that the kernel serves already may write as much as files usually have.
  const double promised = of.typical * static_cast<double>(of.writers + 1);
  return room + static_cast<std::int64_t>(of.seen.usage.evictable + of.seen.usage.settling) <
         low + static_cast<std::int64_t>(promised);
}

bool Budget::is_full(std::uint32_t device) const {
  std::unique_lock lock(mutex_);
  if (device >= of_.size()) return false;
  const Device& of = of_[device];
  const auto is_full_now = [&] {
    return of.exhausted_since && (room_now(device) <= 0 || of.seen.room.inodes <= 0);
  };
  if (!is_full_now() || refuses_to_wait()) return is_full_now();
  const auto called = std::chrono::steady_clock::now();
  room_made_.wait_until(lock, called + kLongestConfirmed, [&] {
    return !is_watched_ || !is_full_now() || of.exhausted_since >= called;
  });
  return is_full_now();
}

bool Budget::is_short(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  if (device >= of_.size()) return false;
  const Device& of = of_[device];
  return !of.exhausted_since && is_below_low(device);
}

bool Budget::waits_for_room(std::uint32_t device, TenantSlot tenant) const {
  const std::lock_guard lock(mutex_);
  return device < of_.size() && waits_now(device, tenant);
}

void Budget::wait_for_room(std::uint32_t device, TenantSlot tenant,
                           std::chrono::steady_clock::time_point called) {
  std::unique_lock lock(mutex_);
  if (device >= of_.size()) return;
  slowed_.fetch_add(1, std::memory_order_relaxed);
  room_made_.wait_until(lock, called + kLongestWait,
                        [&] { return !waits_now(device, tenant); });
}

bool Budget::has_room(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  return device >= of_.size() || room_now(device) >= 0;
}

bool Budget::make_room(std::uint32_t device, TenantSlot tenant,
                       std::chrono::steady_clock::time_point called) {
  if (on_writer) on_writer();
  if (waits_for_room(device, tenant)) wait_for_room(device, tenant, called);
  return has_room(device);
}

// Of two who ask at once the second one sees what the first one has got.
Result<Reservation> Budget::reserve_if_it_fits(const Inode& inode, std::uint32_t device,
                                               std::uint64_t bytes) {
  const std::lock_guard lock(reserving_);
  const TenantSlot tenant = inode.tenant.load();
  const Staying staying = this->staying();
  const auto more = static_cast<std::int64_t>(bytes);
  if (staying.left(tenant).of_quota < more)
    return fail(EDQUOT, "it does not fit into the quota beside what must stay");
  if (staying.left(tenant).of_share + staying.slack() < more)
    return fail(ENOSPC, "it does not fit beside what others' shares promise them");
  const UsageSums now = usage_.on(device);
  const DeviceRoom seen = room_on(device);
  if (seen.room.budget > 0 && now.open + now.kept + now.live + bytes > seen.room.budget)
    return fail(ENOSPC, "it does not fit beside what must stay");
  return Reservation(usage_, inode.number, device, tenant, bytes);
}

Result<Reservation> Budget::reserve(const Inode& inode, std::uint32_t device,
                                    std::uint64_t bytes,
                                    std::chrono::steady_clock::time_point called) {
  Reservation held = TRY(reserve_if_it_fits(inode, device, bytes));
  if (on_writer) on_writer();
  std::unique_lock lock(mutex_);
  if (device >= of_.size()) return held;
  const Device& of = of_[device];
  const auto has_room = [&] { return room_now(device) >= 0; };
  if (!has_room()) slowed_.fetch_add(1, std::memory_order_relaxed);
  room_made_.wait_until(lock, called + kLongestTake,
                        [&] { return has_room() || of.exhausted_since; });
  if (!has_room()) return fail(ENOSPC, "nothing more can be evicted for it");
  return held;
}

bool Budget::is_over_quota(TenantSlot tenant) const {
  if ((over_quota_.load(std::memory_order_relaxed) & mask_of(tenant)) == 0) return false;
  // Some may have gone since the last look.
  const auto found = knowledge_.tenants().find(tenant);
  return found && found->terms.quota && usage_.by_tenant()[tenant].all() > *found->terms.quota;
}

Staying Budget::staying() const { return staying_of(usage_.by_tenant()); }

Staying Budget::staying_of(const TenantUses& uses) const {
  if (!knowledge_.tenants().had_any()) return {};
  std::uint64_t budget = 0;
  std::uint64_t inodes = 0;
  bool is_bounded = true;
  {
    const std::lock_guard lock(mutex_);
    for (const Device& of : of_) {
      budget += of.seen.room.budget;
      inodes += of.seen.room.most_inodes;
      is_bounded = is_bounded && (!of.looked || of.seen.room.most_inodes != 0);
    }
  }
  return {knowledge_.tenants().list(), uses, budget,
          is_bounded && inodes != 0 ? budget / inodes : 0};
}

Staying Budget::look_at_staying() {
  const Staying now = staying();
  stays_over_bound_.store(now.beyond_quota() | now.beyond_share(), std::memory_order_relaxed);
  return now;
}

bool Budget::is_near_bound(TenantSlot tenant) const {
  return knowledge_.tenants().had_any() && (staying().near() & mask_of(tenant)) != 0;
}

Result<void> Budget::check_growth(std::uint32_t device, TenantSlot tenant) const {
  const TenantMask mask = mask_of(tenant);
  if ((stays_over_bound_.load(std::memory_order_relaxed) & mask) != 0) {
    // Some may have gone since the last look.
    const Staying now = staying();
    if ((now.beyond_quota() & mask) != 0)
      return fail(EDQUOT, "what is kept or open is more than the quota");
    if ((now.beyond_share() & mask) != 0)
      return fail(ENOSPC, "what is kept or open is more than others' shares leave");
  }
  if (is_full(device)) return fail(ENOSPC, "the budget is used, and nothing can be evicted");
  return {};
}

Result<void> Budget::check_staying(TenantSlot tenant, std::uint64_t bytes) const {
  TenantUses uses = usage_.by_tenant();
  uses[tenant].kept += bytes;
  ++uses[tenant].staying_files;
  const Staying then = staying_of(uses);
  const Staying::Left& left = then.left(tenant);
  if (left.of_quota < 0) return fail(EDQUOT, "what is kept would be more than the quota");
  if (left.of_share < 0)
    return fail(ENOSPC, "what is kept would be more than others' shares leave");
  return {};
}

bool Budget::can_hold(std::uint32_t device, std::uint64_t bytes) const {
  const DeviceRoom room = room_on(device);
  return room.room.budget == 0 || bytes + room.usage.kept <= room.room.budget;
}

void Budget::announce() { room_made_.notify_all(); }

std::uint64_t Budget::danger(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  return device < of_.size() ? of_[device].danger : 0;
}

DeviceRoom Budget::room_on(std::uint32_t device) const {
  const std::lock_guard lock(mutex_);
  if (device >= of_.size()) return {};
  DeviceRoom room = of_[device].seen;
  room.room.bytes = room_now(device);
  return room;
}

void Budget::set_exhausted(std::uint32_t device,
                           std::optional<std::chrono::steady_clock::time_point> walk_began) {
  const std::lock_guard lock(mutex_);
  of_[device].exhausted_since = walk_began;
}

void Budget::set_watched(bool watched) {
  {
    const std::lock_guard lock(mutex_);
    is_watched_ = watched;
  }
  announce();
}

// ---- looking

void Budget::measure(const std::function<InodePtr(InodeNumber)>& find) {
  std::vector<InodeNumber> numbers = written();
  if (numbers.size() > kMostMeasured) {
    // In turns, by number.
    std::sort(numbers.begin(), numbers.end());
    const auto from = std::upper_bound(numbers.begin(), numbers.end(), measured_last_);
    std::rotate(numbers.begin(), from, numbers.end());
    numbers.resize(kMostMeasured);
    measured_last_ = numbers.back();
  }
  for (const InodeNumber number : numbers) {
    const InodePtr inode = find(number);
    if (inode == nullptr) continue;
    // A truncation may hold its lock for a second: the figure of the last look holds until the
    // next one.
    if (!inode->mutex.try_lock_to_look()) continue;
    const std::unique_lock lock(inode->mutex, std::adopt_lock);
    const Result<Tier*> tier = devices_.of(*inode);
    if (!tier.ok()) continue;
    const Result<struct stat> backing = (*tier)->status(inode->record.object);
    if (!backing.ok()) continue;
    measured(*inode, *backing);
    const std::lock_guard own(mutex_);
    if (const auto at = writing_.find(number); at != writing_.end())
      at->second = *inode->device;
    Device& of = of_[*inode->device];
    of.typical = std::max(of.typical, static_cast<double>(written_bytes(*inode, *backing)));
  }
}

void Budget::look_at(std::uint32_t index, std::int64_t now_ns) {
  if (!devices_.has(index)) return;
  Result<struct statvfs> below = devices_.at(index).space();
  const UsageSums sums = usage_.on(index);
  // It is given back when it is needed.
  if (below.ok() && below->f_frsize > 0) below->f_bavail += sums.ahead / below->f_frsize;
  Device& of = of_[index];
  const double rate = of.rate.measure(sums.written, now_ns);
  const std::lock_guard lock(mutex_);
  of.seen.usage = sums;
  of.typical *= kTypicalKept;
  if (!below.ok()) devices_.failed(index, below.error().code);
  if (!below.ok()) return;  // of a device that does not answer, what was seen last holds
  of.seen.room =
      room_of(of.limits, *below, sums.known ? std::optional(sums.all()) : std::nullopt,
              of.seen.database);
  of.seen.marks = marks_of(of.seen.room.budget, rate, below->f_files);
  of.looked = true;
  const std::uint64_t available = below->f_bavail * below->f_frsize;
  if (available < danger_floor(of.seen.room, rate)) ++of.danger;
}

void Budget::look_at_database(std::int64_t now_ns) {
  if (!database_on_ || !database_bytes) return;
  if (database_asked_ns_ != 0 && now_ns - database_asked_ns_ < kDatabaseEvery) return;
  database_asked_ns_ = now_ns;
  const std::uint64_t bytes = database_bytes();
  const std::lock_guard lock(mutex_);
  of_[*database_on_].seen.database = bytes;
}

void Budget::look_at_bounds(std::uint64_t budget) {
  Leases::TenantBytes leased{};
  OpenBytes::TenantBytes opened{};
  if (knowledge_.tenants().had_any()) {
    const std::vector<Tenant> tenants = knowledge_.tenants().list();
    const Accounts accounts(tenants, budget);
    for (const Tenant& tenant : tenants) {
      const std::uint64_t quota = tenant.terms.quota.value_or(0);
      leased[tenant.slot] = quota / 2;
      opened[tenant.slot] =
          (tenant.terms.share ? accounts.part_of(budget, tenant.slot) : quota) / 2;
    }
  }
  leases_.set_most_bytes(budget / 2, leased);
  // A runtime opens all files of a batch at once.
  open_bytes_.set_most_bytes(budget - budget / 4, opened);
}

void Budget::look(const std::function<InodePtr(InodeNumber)>& find, std::int64_t now_ns) {
  measure(find);
  look_at_database(now_ns);
  std::uint64_t budget = 0;
  std::uint64_t database = 0;
  for (std::uint32_t index = 0; index < of_.size(); ++index) {
    look_at(index, now_ns);
    const std::lock_guard lock(mutex_);
    budget += of_[index].seen.room.budget;
    database += of_[index].seen.database;
    of_[index].writers = 0;
  }
  look_at_bounds(budget);
  metadata_.set_most_bytes(budget + database);
  const std::lock_guard lock(mutex_);
  for (const auto& [inode, device] : writing_)
    if (device < of_.size()) ++of_[device].writers;
}

}  // namespace kvcachefs
