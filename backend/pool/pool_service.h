// One node's membership in a pool: joins it as soon as it is there, says that it lives, tells others what it published
// and removed, follows what they tell, and cleans up. A pool that is away costs nothing but that.
//
// One thread does it, and one more looks after the trash (trash_keeper.h); any thread may call any method, but start() and the destructor. All times of others are by the
// server's clock.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backend/pool/pool_client.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_members.h"
#include "backend/pool/pool_misses.h"
#include "backend/pool/pool_room.h"
#include "backend/pool/pool_trash.h"
#include "backend/pool/trash_keeper.h"

namespace kvcachefs {

struct PoolServiceReport {
  bool joined = false;
  Error refused{0, ""};     // why it will not be used at all; code 0: nothing speaks against it
  Error joining{0, ""};     // of the last try, while it has not joined; code 0: there was none
  Uuid pool{};              // when joined
  std::size_t living = 0;   // nodes, this one included
  std::size_t waiting = 0;  // changes that others have not been told of
  std::uint64_t untold = 0;  // changes that they will not be told of
};

class PoolService {
 public:
  static constexpr std::chrono::milliseconds kDeadAfter{15'000};
  // Heartbeats of a node in a time of dead_after: when a server is slow for a moment, one or two are late.
  static constexpr int kLeastBeats = 3;
  struct Options {
    Uuid node{};
    std::chrono::milliseconds lease{60'000};
    // This node writes its heartbeat, and reads the heartbeats of the other nodes, that often.
    std::chrono::milliseconds beat_every{2000};
    // A node whose heartbeat is older than this is dead: this node does not follow its log, and evicts in its place. All
    // nodes have the default, whatever their beat_every is: no node is dead for its slow beat (kLeastBeats).
    std::chrono::milliseconds dead_after{kDeadAfter};
    // The pool that was joined before: no other one is used in its place, and none is made. nullopt: none was.
    std::optional<Uuid> pool{};
    // What the pool may hold, in bytes; 0: this node evicts nothing there.
    std::uint64_t size = 0;
  };
  // Who evicts, this node included, and what the others hold.
  struct Evictors {
    std::vector<Uuid> nodes;
    std::uint64_t used_by_others = 0;  // bytes, of those that share as this node does
    bool all_agree = false;            // all have said what they hold, of this sharing
  };
  // How soon others hear of a change; sooner where the beat is faster.
  static constexpr std::chrono::milliseconds kFollowEvery{200};
  // How soon it is seen, at first, that the server has answered.
  static constexpr std::chrono::milliseconds kLookEvery{5};
  // What is told goes out together: each append waits for the server's disk.
  static constexpr std::chrono::milliseconds kGather{25};
  // Less than what a session trusts a handle of them for.
  static constexpr std::chrono::seconds kListSumsEvery{30};
  static constexpr std::chrono::hours kForgottenAfter{1};
  // How long a miss may be remembered: while all living nodes are followed, and else.
  static constexpr std::chrono::seconds kMissFollowed{60};
  static constexpr std::chrono::seconds kMissUnfollowed{2};
  static constexpr std::size_t kMostUntold = 65'536;
  static constexpr std::chrono::seconds kFullFor{10};

  PoolService(PoolClient::Open open, Options options);
  ~PoolService();
  PoolService(const PoolService&) = delete;
  PoolService& operator=(const PoolService&) = delete;

  // Set before start(), called by its thread: it has joined this pool, for the first time; another node published or
  // removed something; something may have been missed, and what is remembered of the pool does not hold.
  std::function<void(const Uuid& pool)> on_joined;
  std::function<void(const PoolLogRecord&)> on_change;
  std::function<void()> on_gap;
  void start();
  // Returns when it has joined, or its first try has come to nothing; at the deadline at the latest.
  void wait_for_first_try(Deadline deadline);
  // Nothing is called any more when it returns. The client goes on.
  void stop();

  PoolClient& client() noexcept { return client_; }
  // It has joined, and the pool answers.
  [[nodiscard]] bool is_usable() const noexcept {
    return joined_.load(std::memory_order_relaxed) && client_.is_up();
  }
  [[nodiscard]] const Uuid& node() const noexcept { return options_.node; }
  PoolMisses& misses() noexcept { return misses_; }
  [[nodiscard]] std::chrono::nanoseconds miss_time() const;
  // Whether nothing is at the path, as far as is remembered: that is missing, or a directory above it (it was made here
  // after the server had been asked; who makes it there tells of it).
  [[nodiscard]] bool is_known_missing(std::string_view path) const;
  // Tells the others.
  void tell(const PoolLogRecord& record);
  // Returns when they have been told of all; at the deadline at the latest, and at once while the pool is not there.
  void wait_until_told(Deadline deadline);
  // By the server's clock; 0: it was never heard.
  [[nodiscard]] UnixNanos server_now() const;
  // Somebody found no room there just now. It holds for kFullFor: so long its trash is kept for no longer than it must.
  void found_full() noexcept;
  [[nodiscard]] bool is_full() const noexcept;
  // How long what was evicted stays in the trash, of which others may have said that it is there: they granted leases
  // until they heard of it. A full pool has no room for more than these.
  [[nodiscard]] static std::chrono::nanoseconds trash_time(
      std::chrono::nanoseconds longest_lease, bool is_full);
  // What is in the trash, as far as is known.
  [[nodiscard]] PoolTrash trash() const { return trash_.trash(); }
  // What the pool may hold, files and trash together, and how many bytes of files are there when grown() was `grown_at`:
  // who publishes waits for room from then on. nullopt: nobody waits.
  void set_room(std::optional<std::uint64_t> most, std::uint64_t files = 0,
                std::uint64_t grown_at = 0);
  // Takes room for a file that is going to be published; the caller gives it back when it has told of the file, or has
  // failed. False: there is none now (PoolRoom).
  [[nodiscard]] bool take_room(std::uint64_t bytes);
  void give_room(std::uint64_t bytes) { room_.give(bytes); }
  // Says on the pool that this mount ends, so that the trash is not kept for its readers. The last mount that ends empties
  // the trash. Returns when that is done, at the deadline at the latest, and at once while the pool is not there. The pool
  // is not usable from then on; what was to be told still is.
  void leave(Deadline deadline);
  // The living nodes, this one included; empty until it has joined.
  [[nodiscard]] std::vector<Uuid> living() const;
  // Of the living nodes. Empty until it is known who lives.
  [[nodiscard]] Evictors evictors() const;
  // For the next heartbeats: what this node found below its tops, when they were shared out so.
  void set_used(std::uint64_t bytes, std::uint64_t share);
  // Bytes that were published since the start, by this node and by those that were followed.
  [[nodiscard]] std::uint64_t grown() const noexcept { return grown_.load(); }
  [[nodiscard]] PoolServiceReport report() const;

 private:
  struct Peer {
    PoolNode told;
    PoolLogReader reader;
  };

  void run();
  void turn();
  void heard(const PoolLogRecord& record);
  void tried();
  void join();
  void cannot_join(Error error);
  void append();
  void beat();
  Result<std::vector<PoolMember>> ask_members();
  void meet(const std::vector<PoolMember>& members);
  void note_silence(const std::vector<PoolMember>& members);
  [[nodiscard]] std::chrono::nanoseconds silence(const Uuid& node) const;
  [[nodiscard]] bool lives(const PoolMember& member, UnixNanos now) const;
  [[nodiscard]] bool was_set_within_locked(std::chrono::nanoseconds time) const;
  void hear_server(UnixNanos at);
  void follow();
  void list_sums();
  void sweep();
  void say_goodbye(Deadline deadline);
  [[nodiscard]] bool is_last(const std::vector<PoolMember>& members, UnixNanos now) const;
  [[nodiscard]] PoolNode own_node() const;
  [[nodiscard]] std::optional<TrashKeeper::Duty> trash_duty() const;
  void missed_something();
  template <class T>
  Result<T> call(std::function<Result<T>(PoolSession&, Deadline)> work);

  const Options options_;
  // What sessions have to lead to; threads that are stuck outlive this.
  struct Identity {
    std::mutex mutex;
    std::optional<Uuid> pool;  // under mutex
  };
  static PoolClient::Open checked(PoolClient::Open open, std::shared_ptr<Identity> identity);

  const Uuid incarnation_ = random_uuid();
  const std::shared_ptr<Identity> identity_;
  PoolClient client_;
  PoolMisses misses_;
  TrashKeeper trash_;

  // Of the thread.
  std::unique_ptr<PoolLogWriter> log_;
  std::map<Uuid, Peer> peers_;
  // The last heartbeat of each, and since when it is that.
  struct Silence {
    UnixNanos beaten = 0;
    std::chrono::steady_clock::time_point since;
  };
  std::map<Uuid, Silence> silent_;
  int refusals_ = 0;  // tries to join in a row that came to one
  std::chrono::steady_clock::time_point beaten_{};
  std::chrono::steady_clock::time_point met_{};  // all that there are were asked
  std::chrono::steady_clock::time_point sums_listed_{};
  std::chrono::steady_clock::time_point swept_{};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PoolLogRecord> untold_;
  PoolServiceReport report_;
  std::vector<Uuid> living_;
  std::vector<PoolMember> members_;
  std::int64_t followed_ns_ = 0;      // monotonic: all living nodes were followed until then
  std::int64_t server_ahead_ns_ = 0;  // of the monotonic clock
  bool heard_ = false;
  // Monotonic: when this node saw that the server's clock had been set; nullopt: it has not seen that.
  std::optional<std::int64_t> server_set_ns_;
  std::uint64_t used_ = 0;  // of set_used(), as the next
  std::uint64_t share_ = 0;
  // The longest lease of a node that may still come back; nullopt: not known yet.
  std::optional<std::chrono::nanoseconds> longest_lease_;
  std::optional<std::uint64_t> room_most_;  // of set_room(), as the next
  std::uint64_t room_files_ = 0;
  std::uint64_t room_grown_at_ = 0;
  std::optional<Deadline> leaving_;
  bool has_left_ = false;
  PoolRoom room_;
  std::atomic<std::uint64_t> grown_{0};
  std::atomic<bool> joined_{false};
  std::atomic<std::int64_t> full_until_{0};  // monotonic
  bool has_gap_ = false;                     // a change will not be told; under mutex_
  bool has_tried_ = false;                   // to join; under mutex_
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvcachefs
