#include "backend/pool/pool_service.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/pool/pool_path.h"
#include "backend/pool/pool_sweep.h"

namespace kvcachefs {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kCallDeadline{2};
constexpr std::chrono::seconds kSweepEvery{10};
constexpr std::chrono::seconds kSweepFullEvery{2};
// Until all have heard of an eviction, or know that they hear nothing; and how late a rename into the trash may come.
constexpr std::chrono::seconds kAllHaveHeard{15};
// The server's clock is said to have been set when it has moved by more than this against the monotonic clock between two
// heartbeats: the answer to each is late by kCallDeadline at most, and corrections by NTP are small.
constexpr std::int64_t kSet = 10 * kNanosPerSecond;
constexpr int kRefusals = 3;             // in a row
constexpr std::size_t kMostSwept = 256;  // files in one round
constexpr std::size_t kMostTold = 1024;  // records of one append

// What waiting does not mend.
bool is_refusal(int code) noexcept {
  return code == EPROTONOSUPPORT || code == EBADMSG || code == EOPNOTSUPP;
}

std::int64_t nanos(std::chrono::nanoseconds time) noexcept { return time.count(); }

}  // namespace

PoolService::PoolService(PoolClient::Open open, Options options)
    : options_(options),
      identity_(std::make_shared<Identity>()),
      client_("kv-pool", checked(std::move(open), identity_)),
      trash_(client_, [this] { return trash_duty(); }) {
  // The bounds of --pool-beat see to it.
  if (options_.dead_after < kLeastBeats * options_.beat_every) std::abort();
  const std::lock_guard lock(identity_->mutex);
  identity_->pool = options_.pool;
}

PoolClient::Open PoolService::checked(PoolClient::Open open,
                                      std::shared_ptr<Identity> identity) {
  return [open = std::move(open), identity = std::move(identity)](
             Deadline deadline) -> Result<std::unique_ptr<PoolSession>> {
    Result<std::unique_ptr<PoolSession>> opened = open(deadline);
    // Not the answer to what is asked for there: nobody is to remember it as that.
    if (!opened.ok() && (opened.error().code == ENOENT || opened.error().code == ENOTDIR))
      return fail(ENOTCONN, "pool: there is no such directory: is it mounted?");
    if (!opened.ok()) return opened;
    std::unique_ptr<PoolSession> session = std::move(opened).value();
    std::optional<Uuid> pool;
    {
      const std::lock_guard lock(identity->mutex);
      pool = identity->pool;
    }
    if (pool) TRY(check_pool(*session, *pool, deadline));
    return session;
  };
}

void PoolService::found_full() noexcept {
  full_until_.store(monotonic_now() + nanos(kFullFor), std::memory_order_relaxed);
}

bool PoolService::is_full() const noexcept {
  return monotonic_now() < full_until_.load(std::memory_order_relaxed);
}

std::chrono::nanoseconds PoolService::trash_time(std::chrono::nanoseconds longest_lease,
                                                 bool is_full) {
  return is_full ? std::min(2 * longest_lease, longest_lease + kAllHaveHeard)
                 : 2 * longest_lease;
}

PoolService::~PoolService() { stop(); }

void PoolService::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  trash_.stop();
  if (thread_.joinable()) thread_.join();
}

void PoolService::start() {
  trash_.start();
  thread_ = std::thread([this] { run(); });
}

// ---- what others ask

std::chrono::nanoseconds PoolService::miss_time() const {
  const std::lock_guard lock(mutex_);
  const bool followed = monotonic_now() - followed_ns_ < nanos(kMissUnfollowed);
  return followed ? kMissFollowed : kMissUnfollowed;
}

bool PoolService::is_known_missing(std::string_view path) const {
  const std::int64_t now = monotonic_now();
  for (; !path.empty(); path = split_pool_path(path).first)
    if (misses_.holds(pool_path_hash(path), now)) return true;
  return false;
}

void PoolService::tell(const PoolLogRecord& record) {
  heard(record);
  const std::lock_guard lock(mutex_);
  if (untold_.size() >= kMostUntold) {
    ++report_.untold;
    has_gap_ = true;
    return;
  }
  untold_.push_back(record);
  if (untold_.size() == 1) changed_.notify_all();
}

// Of this node, or of another one.
void PoolService::heard(const PoolLogRecord& record) {
  misses_.forget(record.path_hash);
  if (record.change == PoolChange::kPublished) {
    grown_.fetch_add(record.size);
  } else if (record.size > 0) {
    trash_.put(record.size);
  }
}

void PoolService::wait_until_told(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!report_.joined || !client_.is_up()) return;
  changed_.wait_until(lock, deadline, [this] { return untold_.empty() || stopping_; });
}

UnixNanos PoolService::server_now() const {
  const std::lock_guard lock(mutex_);
  return heard_ ? monotonic_now() + server_ahead_ns_ : 0;
}

std::vector<Uuid> PoolService::living() const {
  const std::lock_guard lock(mutex_);
  return living_;
}

PoolService::Evictors PoolService::evictors() const {
  const std::lock_guard lock(mutex_);
  Evictors out;
  if (living_.empty() || options_.size == 0) return out;
  out.nodes.push_back(options_.node);
  out.all_agree = true;
  std::vector<const PoolNode*> others;
  for (const PoolMember& member : members_) {
    const PoolNode& node = member.node;
    const bool lives = std::find(living_.begin(), living_.end(), node.node) != living_.end();
    if (node.node == options_.node || node.size == 0 || !lives) continue;
    out.nodes.push_back(node.node);
    others.push_back(&node);
  }
  const std::uint64_t share = pool_share(out.nodes);
  for (const PoolNode* node : others) {
    if (node->share == share) out.used_by_others += node->used;
    out.all_agree = out.all_agree && node->share == share;
  }
  return out;
}

void PoolService::set_used(std::uint64_t bytes, std::uint64_t share) {
  const std::lock_guard lock(mutex_);
  used_ = std::min(bytes, kMostPoolBytes);
  share_ = share;
}

PoolServiceReport PoolService::report() const {
  const std::lock_guard lock(mutex_);
  PoolServiceReport report = report_;
  report.living = living_.size();
  report.waiting = untold_.size();
  return report;
}

// ---- the trash, and room

std::optional<TrashKeeper::Duty> PoolService::trash_duty() const {
  const UnixNanos now = server_now();
  const std::lock_guard lock(mutex_);
  if (!is_usable() || living_.empty()) return std::nullopt;
  TrashKeeper::Duty duty{.pause = is_full() ? kSweepFullEvery : kSweepEvery};
  if (now != 0) duty.now = now;
  const bool is_mine = owner_of(kPoolService, living_) == options_.node;
  duty.renames = is_mine && now != 0;
  if (duty.renames && longest_lease_) {
    // What was put there before the clock was set forth seems old.
    const std::chrono::nanoseconds stays = trash_time(*longest_lease_, is_full());
    if (!was_set_within_locked(stays)) duty.before = now - nanos(stays);
  }
  duty.is_bounded = is_mine || options_.size > 0;
  duty.room = room_most_.value_or(options_.size);
  // What other nodes were told.
  if (duty.room == 0)
    for (const PoolMember& member : members_) duty.room = std::max(duty.room, member.node.size);
  return duty;
}

void PoolService::set_room(std::optional<std::uint64_t> most, std::uint64_t files,
                           std::uint64_t grown_at) {
  // A count is late by some hundredths (fs/pool/pool_evictor.cc).
  room_.set(most ? std::optional(*most - *most / 32) : std::nullopt);
  const std::lock_guard lock(mutex_);
  room_most_ = most;
  room_files_ = files;
  room_grown_at_ = grown_at;
}

bool PoolService::take_room(std::uint64_t bytes) {
  const std::uint64_t trash = this->trash().bytes;
  std::uint64_t files = 0;
  {
    const std::lock_guard lock(mutex_);
    files = room_files_ + (grown() - room_grown_at_);
  }
  return room_.take(bytes, files + trash, monotonic_now());
}

// ---- the end

void PoolService::leave(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!is_usable() || !thread_.joinable()) return;
  joined_.store(false);
  leaving_ = deadline;
  changed_.notify_all();
  changed_.wait_until(lock, deadline, [this] { return has_left_ || stopping_; });
}

// Whether no other mount lives that may need anything. One that has ended in order grants no lease.
bool PoolService::is_last(const std::vector<PoolMember>& members, UnixNanos now) const {
  return std::none_of(members.begin(), members.end(), [&](const PoolMember& member) {
    return member.node.node != options_.node && member.node.lease.count() > 0 &&
           lives(member, now);
  });
}

// By the server's clock it is seen at once that a node is dead. A clock that was set tells nothing of heartbeats before
// that: then our own clock alone does.
bool PoolService::lives(const PoolMember& member, UnixNanos now) const {
  const bool is_of_now = now - member.beaten < nanos(options_.dead_after);
  if (silence(member.node.node) >= options_.dead_after) return false;
  const std::lock_guard lock(mutex_);
  return is_of_now || was_set_within_locked(options_.dead_after);
}

bool PoolService::was_set_within_locked(std::chrono::nanoseconds time) const {
  return server_set_ns_ && monotonic_now() - *server_set_ns_ < nanos(time);
}

void PoolService::hear_server(UnixNanos at) {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = monotonic_now();
  const std::int64_t moved = at - now - server_ahead_ns_;
  if (heard_ && (moved > kSet || moved < -kSet)) server_set_ns_ = now;
  server_ahead_ns_ = at - now;
  heard_ = true;
}

void PoolService::say_goodbye(Deadline deadline) {
  PoolNode node = own_node();
  node.lease = std::chrono::milliseconds{0};
  const Result<PoolBeat> beaten = call<PoolBeat>([node](PoolSession& session, Deadline until) {
    return kvcachefs::beat(session, node, until);
  });
  if (beaten.ok()) hear_server(beaten->at);
  const Result<std::vector<PoolMember>> members =
      beaten.ok() ? ask_members() : Result<std::vector<PoolMember>>(beaten.error());
  if (!members.ok() || !is_last(*members, beaten->at)) return;
  PoolTrash removed;
  Result<TrashSwept> swept = TrashSwept{.all = false};
  while (swept.ok() && !swept->all && Clock::now() < deadline) {
    swept = client_.call<TrashSwept>(
        PoolClass::kBackground, deadline, [](PoolSession& session, Deadline until) {
          return sweep_trash(session, TrashRule::nothing_stays(), kMostSwept, until);
        });
    if (!swept.ok()) break;
    removed.files += swept->removed.files;
    removed.bytes += swept->removed.bytes;
    // Files that the pool does not let go.
    if (swept->removed.files == 0) break;
  }
  log_info("pool: the last mount ends: trash removed files={} bytes={} left={}", removed.files,
           removed.bytes, swept.ok() ? swept->left.files : trash().files);
}

// ---- the thread

template <class T>
Result<T> PoolService::call(std::function<Result<T>(PoolSession&, Deadline)> work) {
  return client_.call<T>(PoolClass::kBackground, Clock::now() + kCallDeadline, std::move(work));
}

void PoolService::run() {
  pthread_setname_np(pthread_self(), "kv-pool-beat");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::optional<Deadline> leaving = leaving_;
    const bool has_left = has_left_;
    lock.unlock();
    if (leaving && log_ != nullptr) append();
    if (leaving && !has_left) say_goodbye(*leaving);
    if (!leaving) turn();
    lock.lock();
    if (leaving && !std::exchange(has_left_, true)) changed_.notify_all();
    changed_.wait_for(
        lock, has_tried_ ? std::min(kFollowEvery, options_.beat_every) : kLookEvery, [this] {
          return stopping_ || leaving_.has_value() != has_left_ ||
                 (log_ != nullptr && !untold_.empty());
        });
    if (!untold_.empty()) changed_.wait_for(lock, kGather, [this] { return stopping_; });
  }
}

void PoolService::turn() {
  if (log_ == nullptr) join();
  if (log_ != nullptr || client_.health().last.code != 0) tried();
  if (log_ == nullptr) return;
  append();
  if (Clock::now() - beaten_ >= options_.beat_every) beat();
  follow();
  if (Clock::now() - sums_listed_ >= kListSumsEvery) list_sums();
  if (Clock::now() - swept_ >= (is_full() ? kSweepFullEvery : kSweepEvery)) sweep();
}

void PoolService::tried() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_tried_, true)) changed_.notify_all();
}

void PoolService::wait_for_first_try(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return has_tried_ || stopping_; });
}

void PoolService::join() {
  if (!client_.health().up) return;
  {
    const std::lock_guard lock(mutex_);
    if (report_.refused.code != 0) return;
  }
  const Uuid node = options_.node;
  const Result<PoolSuperblock> joined =
      call<PoolSuperblock>([node](PoolSession& session, Deadline deadline) {
        return join_pool(session, node, deadline);
      });
  if (!joined.ok()) {
    // A server that lies once does not refuse.
    refusals_ = is_refusal(joined.error().code) ? refusals_ + 1 : 0;
    if (refusals_ < kRefusals) {
      cannot_join(joined.error());
      return;
    }
    log_error("pool is not used: step=\"{}\" errno={}", joined.error().what,
              joined.error().code);
    const std::lock_guard lock(mutex_);
    report_.refused = joined.error();
    return;
  }
  const Result<std::uint64_t> log = call<std::uint64_t>(
      [node](PoolSession& session, Deadline deadline) -> Result<std::uint64_t> {
        // Those of the last run: nobody goes on with them. What cannot be removed is in nobody's way.
        static_cast<void>(
            sweep_temporaries(session, node, TimesThatGo::all(), kMostSwept, deadline).ok());
        return next_pool_log(session, node, deadline);
      });
  if (!log.ok()) {
    cannot_join(log.error());
    return;
  }
  log_ = std::make_unique<PoolLogWriter>(node, *log);
  log_info("pool joined uuid={}", format_uuid(joined->pool));
  {
    const std::lock_guard lock(identity_->mutex);
    identity_->pool = joined->pool;
  }
  if (on_joined && options_.pool != joined->pool) on_joined(joined->pool);
  joined_.store(true);
  const std::lock_guard lock(mutex_);
  report_.joined = true;
  report_.joining = {0, ""};
  report_.pool = joined->pool;
}

// It is tried again; said once of each cause.
void PoolService::cannot_join(Error error) {
  tried();
  {
    const std::lock_guard lock(mutex_);
    if (report_.joining.code == error.code) return;
    report_.joining = error;
  }
  log_warn("pool not joined yet step=\"{}\" errno={}", error.what, error.code);
}

void PoolService::append() {
  std::vector<PoolLogRecord> records;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_gap_, false)) log_->leave_gap();
    const auto end =
        untold_.begin() + static_cast<std::ptrdiff_t>(std::min(untold_.size(), kMostTold));
    records.assign(untold_.begin(), end);
  }
  // Each try of which nobody hears an answer costs a log.
  if (records.empty() || !client_.is_up()) return;
  // The thread of a call that hangs may outlive this one: it has a writer of its own.
  auto writer = std::make_shared<PoolLogWriter>(*log_);
  const Result<void> told =
      call<void>([writer, records](PoolSession& session, Deadline deadline) {
        return writer->append(session, records, deadline);
      });
  if (told.ok()) {
    *log_ = *writer;
    const std::lock_guard lock(mutex_);
    untold_.erase(untold_.begin(),
                  untold_.begin() + static_cast<std::ptrdiff_t>(records.size()));
    if (untold_.empty()) changed_.notify_all();
  } else if (told.error().code == ETIMEDOUT || told.error().code == ENOTCONN) {
    // It may still be under way, and what comes of it is not known: others find a gap, and forget.
    log_->give_up_log();
  } else {
    *log_ = *writer;
  }
}

PoolNode PoolService::own_node() const {
  const std::lock_guard lock(mutex_);
  return {.node = options_.node,
          .incarnation = incarnation_,
          .lease = options_.lease,
          .log = log_->log(),
          .size = options_.size,
          .used = used_,
          .share = share_};
}

void PoolService::beat() {
  const PoolNode node = own_node();
  const Result<PoolBeat> beaten =
      call<PoolBeat>([node](PoolSession& session, Deadline deadline) {
        return kvcachefs::beat(session, node, deadline);
      });
  if (!beaten.ok()) return;
  beaten_ = Clock::now();
  hear_server(beaten->at);
  if (beaten->is_full) found_full();
  const Result<std::vector<PoolMember>> members = ask_members();
  if (!members.ok()) return;
  meet(*members);
  met_ = Clock::now();
}

// Each has a deadline of its own: of many nodes far away one for all would never do.
Result<std::vector<PoolMember>> PoolService::ask_members() {
  const std::vector<Uuid> nodes = TRY(call<std::vector<Uuid>>(
      [](PoolSession& session, Deadline deadline) { return list_nodes(session, deadline); }));
  std::vector<PoolMember> members;
  for (const Uuid& node : nodes) {
    const std::optional<PoolMember> member =
        TRY(call<std::optional<PoolMember>>([node](PoolSession& session, Deadline deadline) {
          return read_member(session, node, deadline);
        }));
    if (member) members.push_back(*member);
  }
  return members;
}

void PoolService::meet(const std::vector<PoolMember>& members) {
  note_silence(members);
  const UnixNanos now = server_now();
  std::vector<Uuid> living = {options_.node};
  bool is_new = false;
  std::map<Uuid, Peer> peers;
  for (const PoolMember& member : members) {
    const Uuid& node = member.node.node;
    if (node == options_.node || !lives(member, now)) continue;
    living.push_back(node);
    const auto known = peers_.find(node);
    // It may have published before anybody followed it.
    if (known == peers_.end() || known->second.told.incarnation != member.node.incarnation)
      is_new = true;
    // One that was started anew goes on with its next log: all that it tells there is read.
    if (known != peers_.end()) {
      known->second.told = member.node;
      peers.insert(peers_.extract(known));
    } else {
      peers.emplace(node, Peer{.told = member.node, .reader = PoolLogReader(node)});
    }
  }
  // What it told last may not have been read.
  const bool is_one_gone = !peers_.empty();
  peers_ = std::move(peers);
  if (is_new || is_one_gone) {
    follow();  // from here on
    missed_something();
  }
  // A node that is shown there has had all forgotten that it may have changed.
  const std::lock_guard lock(mutex_);
  living_ = std::move(living);
  members_ = members;
}

// How long each has said nothing, by our own clock, too: the server's may be set, and a
// heartbeat's time be given by anybody who may write it.
void PoolService::note_silence(const std::vector<PoolMember>& members) {
  std::map<Uuid, Silence> silent;
  for (const PoolMember& member : members) {
    const auto known = silent_.find(member.node.node);
    const bool is_same = known != silent_.end() && known->second.beaten == member.beaten;
    silent.emplace(member.node.node,
                   is_same ? known->second : Silence{member.beaten, Clock::now()});
  }
  silent_ = std::move(silent);
}

std::chrono::nanoseconds PoolService::silence(const Uuid& node) const {
  const auto known = silent_.find(node);
  if (known == silent_.end()) return std::chrono::nanoseconds{0};
  return Clock::now() - known->second.since;
}

void PoolService::follow() {
  // Who is not known is not followed.
  bool all = met_ != Clock::time_point{} && Clock::now() - met_ < 2 * options_.beat_every;
  bool whole = true;
  for (auto& [node, peer] : peers_) {
    struct Followed {
      PoolLogReader reader;
      std::vector<PoolLogRecord> records;
      bool whole = true;
    };
    const Result<Followed> followed =
        call<Followed>([reader = peer.reader, log = peer.told.log](
                           PoolSession& session, Deadline deadline) -> Result<Followed> {
          Followed out{.reader = reader, .records = {}, .whole = true};
          out.whole = TRY(out.reader.read(
              session, log, [&](const PoolLogRecord& record) { out.records.push_back(record); },
              deadline));
          return out;
        });
    if (!followed.ok()) {
      all = false;
      continue;
    }
    peer.reader = followed->reader;
    whole = whole && followed->whole;
    for (const PoolLogRecord& record : followed->records) {
      heard(record);
      if (on_change) on_change(record);
    }
  }
  if (!whole) missed_something();
  if (!all) return;
  room_.heard(peers_.size() + 1);
  const std::lock_guard lock(mutex_);
  followed_ns_ = monotonic_now();
}

void PoolService::missed_something() {
  misses_.forget_all();
  if (on_gap) on_gap();
}

void PoolService::list_sums() {
  sums_listed_ = Clock::now();
  const Result<void> listed = call<void>([](PoolSession& session, Deadline deadline) {
    return find_sums_directories(session, deadline);
  });
  // Who needs one looks for it himself.
  if (!listed.ok()) log_debug("pool: sums not listed errno={}", listed.error().code);
}

void PoolService::sweep() {
  swept_ = Clock::now();
  const UnixNanos now = server_now();
  std::vector<Uuid> living;
  std::vector<PoolMember> members;
  {
    const std::lock_guard lock(mutex_);
    living = living_;
    members = members_;
  }
  if (living.empty() || now == 0) return;
  std::chrono::nanoseconds longest = options_.lease;
  std::vector<PoolMember> forgotten;
  for (const PoolMember& member : members) {
    const Uuid& node = member.node.node;
    // A time in the future tells of no life: then our own clock alone does.
    const std::int64_t said = member.beaten > now ? nanos(silence(node)) : now - member.beaten;
    if (said < nanos(kForgottenAfter) || silence(node) < options_.dead_after) {
      longest = std::max<std::chrono::nanoseconds>(longest, member.node.lease);
    } else if (owner_of(format_uuid(node), living) == options_.node) {
      forgotten.push_back(member);
    }
  }
  const Uuid own = options_.node;
  const std::uint64_t log = log_->log();
  // Of tries that nobody has come back to. What is dated ahead is from before the clock was set.
  std::optional<TimesThatGo> old = TimesThatGo{.before = now - nanos(kForgottenAfter),
                                               .after = now + nanos(kForgottenAfter)};
  {
    const std::lock_guard lock(mutex_);
    longest_lease_ = longest;
    if (was_set_within_locked(kForgottenAfter)) old.reset();
  }
  const Result<void> swept =
      call<void>([=](PoolSession& session, Deadline deadline) -> Result<void> {
        make_trash_directories(session, now, deadline);
        // Somebody may still be reading the last one.
        TRY(sweep_logs(session, own, log - 1, deadline));
        if (old)
          static_cast<void>(sweep_temporaries(session, own, *old, kMostSwept, deadline).ok());
        for (const PoolMember& member : forgotten) {
          static_cast<void>(
              TRY(sweep_node(session, member.node.node, member.beaten, kMostSwept, deadline)));
        }
        return {};
      });
  if (!swept.ok())
    log_debug("pool sweep failed step=\"{}\" errno={}", swept.error().what, swept.error().code);
}

}  // namespace kvcachefs
