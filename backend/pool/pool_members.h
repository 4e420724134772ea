// Who uses a pool, and what they tell each other on it: the superblock, heartbeats and change logs (FORMAT.md).
//
// Calls block, with a session of the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backend/pool/pool_format.h"
#include "backend/pool/pool_session.h"

namespace kvcachefs {

// Reads the superblock; where there is none, makes it and the directories beside it. Of several that do so at once
// one superblock stands. Errors: EPROTONOSUPPORT (a pool of another format), EBADMSG (a damaged superblock),
// EOPNOTSUPP (no hard links: nothing can be published there), and those of any call; EROFS, EACCES, ENOSPC.
[[nodiscard]] Result<PoolSuperblock> join_pool(PoolSession& session, const Uuid& node,
                                               Deadline deadline);

// What stands there. Errors: ENOENT (no pool), EBADMSG, EPROTONOSUPPORT (a damaged superblock, or one of another
// format), and those of any call.
[[nodiscard]] Result<PoolSuperblock> read_pool(PoolSession& session, Deadline deadline);

// Whether what the session leads to is that pool, and not the empty directory on which it should be mounted, or another
// one. Errors: ENOTCONN (it is not), and those of any call.
[[nodiscard]] Result<void> check_pool(PoolSession& session, const Uuid& pool,
                                      Deadline deadline);

struct PoolBeat {
  UnixNanos at = 0;      // by the server's clock
  bool is_full = false;  // there was no room for a new file: it was written over the last one
};
// Says that the node lives.
[[nodiscard]] Result<PoolBeat> beat(PoolSession& session, const PoolNode& node,
                                    Deadline deadline);

struct PoolMember {
  PoolNode node;
  UnixNanos beaten = 0;  // by the server's clock
};
// All that ever were and were not forgotten.
[[nodiscard]] Result<std::vector<Uuid>> list_nodes(PoolSession& session, Deadline deadline);
// nullopt: it is gone, or does not read.
[[nodiscard]] Result<std::optional<PoolMember>> read_member(PoolSession& session,
                                                            const Uuid& node,
                                                            Deadline deadline);
// Of all of them. What does not read is passed over.
[[nodiscard]] Result<std::vector<PoolMember>> list_members(PoolSession& session,
                                                           Deadline deadline);

// A number for a change log that the node has not used. Errors: those of any call.
[[nodiscard]] Result<std::uint64_t> next_pool_log(PoolSession& session, const Uuid& node,
                                                  Deadline deadline);

// Appends to this node's change log. One thread. A copy goes on from the same place, instead of the original.
class PoolLogWriter {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

  // `log`: from next_pool_log().
  PoolLogWriter(const Uuid& node, std::uint64_t log) : node_(node), log_(log) {}
  // Of the heartbeat: it goes up by one when a log is full.
  [[nodiscard]] std::uint64_t log() const noexcept { return log_; }
  // Gives each its sequence. Errors: ENOSPC, EDQUOT (the same records, and others behind them, may be appended again: they
  // get the same sequences and the same place); ESTALE (somebody has removed the log) and others: what the call has
  // written may be read, or not, it is not written again, and readers notice.
  Result<void> append(PoolSession& session, std::vector<PoolLogRecord> records,
                      Deadline deadline);

  // The next append begins another log: nobody knows what the last one came to.
  void give_up_log();
  // A change will not be told: readers find a gap before the next.
  void leave_gap() noexcept { ++sequence_; }

 private:
  Result<void> write(PoolSession& session, const std::string& bytes, Deadline deadline);

  Uuid node_;
  std::uint64_t log_;
  PoolFilePtr file_;
  std::uint64_t bytes_ = 0;
  std::uint64_t sequence_ = 0;
};

// Follows one node's change logs. One thread. A copy goes on from the same place.
class PoolLogReader {
 public:
  // From the end on that the log has at the first read.
  explicit PoolLogReader(const Uuid& node) : node_(node) {}
  // What was appended since the last call. `log` is that of the node's heartbeat. False: something was missed, and
  // whatever is remembered of this node's doings must be forgotten.
  Result<bool> read(PoolSession& session, std::uint64_t log,
                    const std::function<void(const PoolLogRecord&)>& visit, Deadline deadline);

 private:
  Result<bool> read_log(PoolSession& session,
                        const std::function<void(const PoolLogRecord&)>& visit,
                        Deadline deadline);

  Uuid node_;
  bool began_ = false;
  std::uint64_t log_ = 0;
  PoolFilePtr file_;
  std::uint64_t at_ = 0;        // bytes
  std::uint64_t sequence_ = 0;  // of the last record; 0: none was read
};

}  // namespace kvcachefs
