// One opening of the RocksDB database: its options, what can be told before it is opened, the
// failures it meets, its end.
//
// A database of which a write failed is not asked to go on (DB::Resume): RocksDB 7.8 appends to
// the same log behind the torn record (its pull request 12873), where a later start does not find
// it, or ends the process by an assertion (issue 11643). It is closed and opened anew instead,
// which is what it does after a crash: all writes it acknowledged are in the log.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/listener.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/base/result.h"
#include "metadata/rocksdb_store.h"

namespace kvcachefs {

// What RocksDB's own threads, or its writers, found. Any thread.
class RocksdbFailure : public rocksdb::EventListener {
 public:
  enum class State : std::uint8_t {
    kNone,
    kSoft,  // tables are not compacted any more; it still takes writes for a while
    kHard,  // it takes no more writes
  };
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                         rocksdb::Status* status) override;
  // Not by itself, see above.
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason /*reason*/,
                            rocksdb::Status /*error*/, bool* auto_recovery) override {
    *auto_recovery = false;
  }
  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
  // ENOSPC, EBADMSG or EIO; of the last failure.
  [[nodiscard]] int error() const noexcept { return error_.load(std::memory_order_relaxed); }
  // After the end of the instance that failed.
  void forget() noexcept { state_.store(State::kNone, std::memory_order_release); }
  static int errno_of(const rocksdb::Status& status) noexcept;

 private:
  std::atomic<State> state_{State::kNone};
  std::atomic<int> error_{0};
};

struct RocksdbInstance {
  // As RocksdbStore::open; `failure` hears of what fails from then on.
  static Result<std::unique_ptr<RocksdbInstance>> open(const std::string& dir,
                                                       const RocksdbOptions& options,
                                                       bool create,
                                                       std::shared_ptr<RocksdbFailure> failure,
                                                       std::string* problem);
  // For reads while there is no room to open it otherwise: nothing is written, what the logs hold
  // is read into memory. Errors: EBADMSG, EIO.
  static Result<std::unique_ptr<RocksdbInstance>> open_read_only(const std::string& dir,
                                                                 const RocksdbOptions& options);
  static bool exists(const std::string& dir) noexcept;
  // Whether the first files of an opening fit. Asked of the filesystem itself: how much of its
  // free space is ours to use, it alone knows.
  static bool has_room(const std::string& dir);

  RocksdbInstance() = default;
  // Writes out what is in memory unless a failure was seen. Nobody uses it any more.
  ~RocksdbInstance();
  RocksdbInstance(const RocksdbInstance&) = delete;
  RocksdbInstance& operator=(const RocksdbInstance&) = delete;

  [[nodiscard]] rocksdb::ColumnFamilyHandle* family(Table table) const noexcept {
    return families[static_cast<std::size_t>(table)];
  }
  [[nodiscard]] std::uint64_t memory_bytes() const;

  std::shared_ptr<rocksdb::Cache> cache;
  std::shared_ptr<rocksdb::WriteBufferManager> write_buffers;
  std::shared_ptr<RocksdbFailure> failure;
  std::unique_ptr<rocksdb::DB> db;  // null only while it is being opened
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  bool read_only = false;
};

}  // namespace kvcachefs
