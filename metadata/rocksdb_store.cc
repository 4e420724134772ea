#include "metadata/rocksdb_store.h"

#include <rocksdb/db.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "metadata/free_space.h"
#include "metadata/rocksdb_instance.h"

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace kvcachefs {
namespace {

// A writer may carry out the batches of others that wait, which ThreadSanitizer takes for a race: it
// does not see the synchronisation inside a library that is not built with it.
struct InsideLibrary {
#if defined(__SANITIZE_THREAD__)
  InsideLibrary() noexcept {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~InsideLibrary() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  InsideLibrary(const InsideLibrary&) = delete;
  InsideLibrary& operator=(const InsideLibrary&) = delete;
#endif
};

using rocksdb::Status;

// How often a database that failed is opened anew: at first, and at last, when it fails at once.
constexpr std::int64_t kFirstPause = kNanosPerSecond / 5;
constexpr std::int64_t kLastPause = 10 * kNanosPerSecond;
// One that worked for so long starts with the first pause again.
constexpr std::int64_t kWorked = 60 * kNanosPerSecond;
// How long callers inside may keep a failed database from being closed.
constexpr std::chrono::seconds kDrainLimit{2};
// How often the same kind of failure is logged.
constexpr std::int64_t kLogInterval = 10 * kNanosPerSecond;

rocksdb::Slice slice(std::string_view bytes) noexcept { return {bytes.data(), bytes.size()}; }
std::string_view view(const rocksdb::Slice& bytes) noexcept {
  return {bytes.data(), bytes.size()};
}

// The first key after all that begin with `prefix`; empty: there is none.
std::string end_of_prefix(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xff) end.pop_back();
  if (!end.empty()) end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

// Calls that wait for the same thing share one run of it: the first runs it for all that came
// before it began.
class GroupCall {
 public:
  template <class Run>
  Result<void> operator()(Run run) {
    std::unique_lock lock(mutex_);
    const std::uint64_t ticket = ++last_ticket_;
    while (done_until_ < ticket) {
      if (running_) {
        changed_.wait(lock);
        continue;
      }
      running_ = true;
      const std::uint64_t covers = last_ticket_;
      lock.unlock();
      const Result<void> result = run();
      lock.lock();
      running_ = false;
      done_until_ = covers;
      if (!result) {
        failed_until_ = covers;
        failure_ = result.error();
      }
      changed_.notify_all();
    }
    // A later failure may hide here that this ticket's own run went well: an error too many,
    // never one too few.
    if (failed_until_ >= ticket) return failure_;
    return {};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t last_ticket_ = 0;
  std::uint64_t done_until_ = 0;
  std::uint64_t failed_until_ = 0;
  Error failure_;
  bool running_ = false;
};

// Lets callers through, or keeps them waiting while what they use is being replaced.
class Gate {
 public:
  class Pass {
   public:
    explicit Pass(Gate& gate) : gate_(gate) { gate_.enter(); }
    ~Pass() { gate_.leave(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Gate& gate_;
  };

  // True: nobody is inside, and nobody enters until open().
  bool close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    if (changed_.wait_for(lock, kDrainLimit, [this] { return inside_ == 0; })) return true;
    closed_ = false;
    lock.unlock();
    changed_.notify_all();
    return false;
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = false;
    }
    changed_.notify_all();
  }

 private:
  void enter() {
    std::unique_lock lock(mutex_);
    while (closed_) changed_.wait(lock);
    ++inside_;
  }
  void leave() {
    {
      const std::lock_guard lock(mutex_);
      if (--inside_ != 0 || !closed_) return;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool closed_ = false;
};

class Database : public Store {
 public:
  Database(std::string dir, const RocksdbOptions& options,
           std::unique_ptr<RocksdbInstance> instance)
      : dir_(std::move(dir)),
        options_(options),
        failure_(instance->failure),
        instance_(std::move(instance)) {}

  Result<void> watch_space() { return free_space_.open(dir_); }

  Result<std::optional<std::string>> get(Table table, std::string_view key) override {
    if (unreadable_.load(std::memory_order_relaxed)) TRY(mend());
    const Gate::Pass pass(gate_);
    if (!instance_) return closed();
    rocksdb::PinnableSlice value;
    const Status status =
        instance_->db->Get(read_options_, instance_->family(table), slice(key), &value);
    if (status.IsNotFound()) return std::optional<std::string>{};
    if (!status.ok()) return failure("get", status);
    return std::optional<std::string>{std::string(value.data(), value.size())};
  }

  Result<void> scan(
      Table table, std::string_view prefix, std::string_view from,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) override {
    if (unreadable_.load(std::memory_order_relaxed)) TRY(mend());
    const Gate::Pass pass(gate_);
    if (!instance_) return closed();
    const std::string end = end_of_prefix(prefix);
    const rocksdb::Slice upper = slice(end);
    rocksdb::ReadOptions options;
    // Without it, the iterator would step over removed records beyond the prefix to find the
    // next one.
    if (!end.empty()) options.iterate_upper_bound = &upper;
    // A walk of a whole table must not push out what others need.
    options.fill_cache = !prefix.empty();
    const std::unique_ptr<rocksdb::Iterator> at(
        instance_->db->NewIterator(options, instance_->family(table)));
    for (at->Seek(slice(std::max(prefix, from))); at->Valid(); at->Next()) {
      if (!view(at->key()).starts_with(prefix)) break;
      if (!visit(view(at->key()), view(at->value()))) return {};
    }
    if (!at->status().ok()) return failure("scan", at->status());
    return {};
  }

  Result<void> write(const WriteBatch& batch) override {
    TRY(free_space_.admit(batch.frees()));
    TRY(mend());
    Status status = apply(batch);
    // Another try when the failure is cured at once.
    if (!status.ok() && has_failed() && mend().ok() && !has_failed()) status = apply(batch);
    if (!status.ok()) return failure("write", status);
    return {};
  }

  Result<void> sync() override {
    return sync_group_([this]() -> Result<void> {
      // Opening it anew makes all that was written durable.
      TRY(mend());
      const Gate::Pass pass(gate_);
      if (!instance_ || instance_->read_only) return closed();
      if (const Status status = instance_->db->SyncWAL(); !status.ok()) {
        return failure("sync", status);
      }
      return {};
    });
  }

  std::uint64_t memory_bytes() const override {
    const Gate::Pass pass(gate_);
    return instance_ ? instance_->memory_bytes() : 0;
  }

  std::uint64_t disk_bytes() const override { return free_space_.used(); }

 private:
  using Failure = RocksdbFailure::State;

  Status apply(const WriteBatch& batch) {
    const Gate::Pass pass(gate_);
    if (!instance_ || instance_->read_only) {
      return Status::IOError("the database did not open again");
    }
    rocksdb::WriteBatch updates;
    for (const WriteBatch::Operation& operation : batch.operations()) {
      rocksdb::ColumnFamilyHandle* family = instance_->family(operation.table);
      const Status status = operation.is_delete ? updates.Delete(family, slice(operation.key))
                                                : updates.Put(family, slice(operation.key),
                                                              slice(operation.value));
      if (!status.ok()) return status;
    }
    [[maybe_unused]] const InsideLibrary inside;
    return instance_->db->Write(write_options_, &updates);
  }

  Error failure(const char* step, const Status& status) {
    const std::int64_t now = monotonic_now();
    std::int64_t last = last_logged_.load(std::memory_order_relaxed);
    if (now - last >= kLogInterval && last_logged_.compare_exchange_strong(last, now)) {
      log_error("database_failed step={} error=\"{}\"", step, status.ToString());
    }
    return fail(RocksdbFailure::errno_of(status), "database");
  }

  Error closed() const { return fail(reopen_error_.load(), "database closed after a failure"); }

  [[nodiscard]] bool has_failed() const noexcept {
    return reopen_error_.load() != 0 || failure_->state() != Failure::kNone;
  }

  // Before a write: a database that failed is opened anew. Errors: ENOSPC, EIO, EBADMSG: it
  // cannot be, for now.
  Result<void> mend() {
    if (!has_failed()) return {};
    const std::lock_guard lock(mend_mutex_);  // who comes meanwhile needs it mended, too
    if (!has_failed()) return {};
    const std::int64_t now = monotonic_now();
    if (now >= next_try_) {
      next_try_ = now + kFirstPause;
      if (RocksdbInstance::has_room(dir_) && gate_.close()) {
        pause_ = now - last_try_ > kWorked ? kFirstPause : std::min(2 * pause_, kLastPause);
        last_try_ = now;
        next_try_ = now + pause_;
        const Result<void> reopened = reopen();
        gate_.open();
        return reopened;
      }
    }
    const int reopen_error = reopen_error_.load();
    if (reopen_error == 0 && failure_->state() == Failure::kSoft) return {};
    return fail(reopen_error != 0 ? reopen_error : failure_->error(), "database");
  }

  // The gate is closed.
  Result<void> reopen() {
    instance_.reset();
    failure_->forget();
    auto opened = RocksdbInstance::open(dir_, options_, false, failure_, nullptr);
    if (opened) {
      instance_ = std::move(*opened);
      reopen_error_ = 0;
      unreadable_ = false;
      log_info("database_opened_again");
      return {};
    }
    reopen_error_ = opened.error().code;
    auto readable = RocksdbInstance::open_read_only(dir_, options_);
    unreadable_ = !readable.ok();
    if (readable) {
      instance_ = std::move(*readable);
    } else {
      log_error("database_closed error=\"{}\": reads fail until it opens again",
                std::strerror(readable.error().code));
    }
    return opened.error();
  }

  const std::string dir_;
  const RocksdbOptions options_;
  const rocksdb::ReadOptions read_options_;
  const rocksdb::WriteOptions write_options_;  // sync = false
  const std::shared_ptr<RocksdbFailure> failure_;
  mutable Gate gate_;
  std::unique_ptr<RocksdbInstance> instance_;  // changed behind the closed gate
  // Why there is no instance, or one for reads only; 0: there is one for writes.
  std::atomic<int> reopen_error_{0};
  std::atomic<bool> unreadable_{false};
  FreeSpace free_space_;
  GroupCall sync_group_;
  std::atomic<std::int64_t> last_logged_{-kLogInterval};
  std::mutex mend_mutex_;
  std::int64_t last_try_ = -kWorked;
  std::int64_t next_try_ = 0;
  std::int64_t pause_ = kFirstPause;
};

}  // namespace

bool RocksdbStore::exists(const std::string& dir) noexcept {
  return RocksdbInstance::exists(dir);
}

Result<std::unique_ptr<Store>> RocksdbStore::open(const std::string& dir,
                                                  const RocksdbOptions& options, bool create,
                                                  std::string* problem) {
  auto database = std::make_unique<Database>(
      dir, options,
      TRY(RocksdbInstance::open(dir, options, create, std::make_shared<RocksdbFailure>(),
                                problem)));
  TRY(database->watch_space());
  return std::unique_ptr<Store>(std::move(database));
}

}  // namespace kvcachefs
