#include "metadata/rocksdb_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_manager.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/table_properties_collectors.h>
#include <rocksdb/write_buffer_manager.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/unique_fd.h"
#include "metadata/format.h"
#include "metadata/free_space.h"

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

using rocksdb::ColumnFamilyHandle;
using rocksdb::Status;

constexpr std::uint64_t kMega = 1024 * 1024;
// Bounds what a start after a crash has to replay.
constexpr std::uint64_t kLogBytes = 16 * kMega;
// What must be free for a database to be opened: a new log, manifest and options.
constexpr off_t kRoomToOpen = 8 * kMega;
// How often a database that stopped for a full disk is asked to go on.
constexpr std::int64_t kResumeInterval = kNanosPerSecond / 5;
// How often the same kind of failure is logged.
constexpr std::int64_t kLogInterval = 10 * kNanosPerSecond;

rocksdb::Slice slice(std::string_view bytes) noexcept { return {bytes.data(), bytes.size()}; }
std::string_view view(const rocksdb::Slice& bytes) noexcept {
  return {bytes.data(), bytes.size()};
}

int errno_of(const Status& status) noexcept {
  if (status.IsNoSpace() || status.subcode() == Status::SubCode::kSpaceLimit) return ENOSPC;
  if (status.IsCorruption()) return EBADMSG;
  return EIO;
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

struct Shared {
  std::shared_ptr<rocksdb::Cache> cache;
  std::shared_ptr<rocksdb::WriteBufferManager> write_buffers;
};

rocksdb::DBOptions database_options(const RocksdbOptions& options, const Shared& shared,
                                    bool create) {
  rocksdb::DBOptions db;
  db.create_if_missing = create;
  db.create_missing_column_families = true;
  db.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  db.max_total_wal_size = kLogBytes;
  // The log flows to the disk as it is written, so that a sync finds little left to do.
  db.wal_bytes_per_sync = kMega;
  db.bytes_per_sync = kMega;
  db.max_open_files = options.max_open_files;
  db.write_buffer_manager = shared.write_buffers;
  db.max_background_jobs = 2;
  // A start after a crash should not wait for table files to be written.
  db.avoid_flush_during_recovery = true;
  db.skip_stats_update_on_db_open = true;
  // Its presence makes RocksDB watch a full disk and go on when there is space.
  db.sst_file_manager.reset(rocksdb::NewSstFileManager(rocksdb::Env::Default()));
  db.max_bgerror_resume_count = 1 << 30;
  db.max_manifest_file_size = 16 * kMega;
  // RocksDB's own LOG: warnings only, two files of bounded size; nothing to do while idle.
  db.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  db.keep_log_file_num = 2;
  db.max_log_file_size = 4 * kMega;
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  // Table files would name the machine otherwise.
  db.db_host_id = "";
  return db;
}

rocksdb::ColumnFamilyOptions table_options(Table table, const RocksdbOptions& options,
                                           const Shared& shared) {
  rocksdb::ColumnFamilyOptions family;
  family.write_buffer_size = options.write_buffer_bytes / 4;
  family.level_compaction_dynamic_level_bytes = true;
  family.target_file_size_base = 16 * kMega;
  family.max_bytes_for_level_base = 64 * kMega;

  rocksdb::BlockBasedTableOptions blocks;
  blocks.block_cache = shared.cache;
  // Memory for indexes and filters counts against the cache.
  blocks.cache_index_and_filter_blocks = true;
  blocks.cache_index_and_filter_blocks_with_high_priority = true;
  blocks.pin_l0_filter_and_index_blocks_in_cache = true;
  blocks.format_version = 5;
  switch (table) {
    case Table::kDentries:
    case Table::kInodes:
    case Table::kObjects:
    case Table::kXattrs:
      // Looked up by whole keys, often by ones that are not there.
      blocks.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
      family.memtable_whole_key_filtering = true;
      family.memtable_prefix_bloom_size_ratio = 0.03;
      break;
    case Table::kUnsealed:
    case Table::kOrphans:
    case Table::kMeta:
      // Queues: entries go soon after they came. A small buffer bounds the removed ones that a
      // walk steps over.
      family.write_buffer_size = 2 * kMega;
      break;
    case Table::kListings:
    case Table::kBackReferences:
      break;
  }
  family.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
  // Where half of 128 entries in a row are removals, compact at once: a walk would step over
  // each of them.
  family.table_properties_collector_factories.push_back(
      rocksdb::NewCompactOnDeletionCollectorFactory(128, 64));

  const std::vector<rocksdb::CompressionType> built_in = rocksdb::GetSupportedCompressions();
  const bool lz4 =
      std::find(built_in.begin(), built_in.end(), rocksdb::kLZ4Compression) != built_in.end();
  family.compression = rocksdb::kNoCompression;
  if (lz4) {
    // Fresh table files are rewritten soon: not worth the time.
    family.compression_per_level = {rocksdb::kNoCompression, rocksdb::kNoCompression,
                                    rocksdb::kLZ4Compression};
  }
  return family;
}

class Database : public Store {
 public:
  Database(std::unique_ptr<rocksdb::DB> db, std::vector<ColumnFamilyHandle*> families,
           Shared shared)
      : db_(std::move(db)), families_(std::move(families)), shared_(std::move(shared)) {}

  Result<void> watch_space(const std::string& dir) { return free_space_.open(dir); }

  ~Database() override {
    // What is in table files need not be replayed from the log at the next start.
    rocksdb::FlushOptions flush;
    flush.allow_write_stall = true;  // nobody writes any more
    if (const Status status = db_->Flush(flush, families_); !status.ok()) {
      log_warn("database_flush error=\"{}\"", status.ToString());
    }
    for (ColumnFamilyHandle* family : families_) db_->DestroyColumnFamilyHandle(family);
    if (const Status status = db_->Close(); !status.ok()) {
      log_warn("database_close error=\"{}\"", status.ToString());
    }
  }

  Result<std::optional<std::string>> get(Table table, std::string_view key) override {
    rocksdb::PinnableSlice value;
    const Status status = db_->Get(read_options_, family(table), slice(key), &value);
    if (status.IsNotFound()) return std::optional<std::string>{};
    if (!status.ok()) return failure("get", status);
    return std::optional<std::string>{std::string(value.data(), value.size())};
  }

  Result<void> scan(
      Table table, std::string_view prefix, std::string_view from,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) override {
    const std::string end = end_of_prefix(prefix);
    const rocksdb::Slice upper = slice(end);
    rocksdb::ReadOptions options;
    // Without it, the iterator would step over removed records beyond the prefix to find the
    // next one.
    if (!end.empty()) options.iterate_upper_bound = &upper;
    // A walk of a whole table must not push out what others need.
    options.fill_cache = !prefix.empty();
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options, family(table)));
    for (at->Seek(slice(std::max(prefix, from))); at->Valid(); at->Next()) {
      if (!view(at->key()).starts_with(prefix)) break;
      if (!visit(view(at->key()), view(at->value()))) return {};
    }
    if (!at->status().ok()) return failure("scan", at->status());
    return {};
  }

  Result<void> write(const WriteBatch& batch) override {
    TRY(free_space_.admit(batch.frees()));
    rocksdb::WriteBatch updates;
    for (const WriteBatch::Operation& operation : batch.operations()) {
      const Status status = operation.is_delete
                                ? updates.Delete(family(operation.table), slice(operation.key))
                                : updates.Put(family(operation.table), slice(operation.key),
                                              slice(operation.value));
      if (!status.ok()) return failure("batch", status);
    }
    Status status = apply(updates);
    if (!status.ok() && resume()) status = apply(updates);
    if (!status.ok()) return failure("write", status);
    return {};
  }

  Result<void> sync() override {
    return sync_group_([this]() -> Result<void> {
      Status status = db_->SyncWAL();
      if (!status.ok() && resume()) status = db_->SyncWAL();
      if (!status.ok()) return failure("sync", status);
      return {};
    });
  }

  std::uint64_t memory_bytes() const override {
    std::uint64_t bytes = shared_.cache->GetUsage() + shared_.write_buffers->memory_usage();
    for (ColumnFamilyHandle* family : families_) {
      std::uint64_t readers = 0;
      if (db_->GetIntProperty(family, rocksdb::DB::Properties::kEstimateTableReadersMem,
                              &readers)) {
        bytes += readers;
      }
    }
    return bytes;
  }

 private:
  ColumnFamilyHandle* family(Table table) const noexcept {
    return families_[static_cast<std::size_t>(table)];
  }

  Status apply(rocksdb::WriteBatch& updates) {
    [[maybe_unused]] const InsideLibrary inside;
    return db_->Write(write_options_, &updates);
  }

  Error failure(const char* step, const Status& status) {
    const std::int64_t now = monotonic_now();
    std::int64_t last = last_logged_.load(std::memory_order_relaxed);
    if (now - last >= kLogInterval && last_logged_.compare_exchange_strong(last, now)) {
      log_error("database_failed step={} error=\"{}\"", step, status.ToString());
    }
    return fail(errno_of(status), "database");
  }

  // After a full disk the database refuses writes until it is asked to go on. True: it goes on.
  bool resume() {
    const std::lock_guard lock(resume_mutex_);
    const std::int64_t now = monotonic_now();
    if (now - last_resume_ < kResumeInterval) return resumed_;
    last_resume_ = now;
    resumed_ = db_->Resume().ok();
    if (resumed_) log_info("database_resumed");
    return resumed_;
  }

  const rocksdb::ReadOptions read_options_;
  const rocksdb::WriteOptions write_options_;  // sync = false
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<ColumnFamilyHandle*> families_;
  Shared shared_;
  FreeSpace free_space_;
  GroupCall sync_group_;
  std::atomic<std::int64_t> last_logged_{-kLogInterval};
  std::mutex resume_mutex_;
  std::int64_t last_resume_ = -kResumeInterval;
  bool resumed_ = false;
};

struct OpenFailure {
  int code;
  std::string text;
};

OpenFailure explain(const std::string& dir, int code, const std::string& detail) {
  switch (code) {
    case ENOENT:
      return {code,
              fmt::format("{}: no metadata database here: check the state directory's path, "
                          "or mount it once to make one",
                          dir)};
    case EBUSY:
      return {code, fmt::format("{}: metadata database in use by another process: unmount that "
                                "file system first",
                                dir)};
    case EACCES:
      return {code,
              fmt::format("{}: no permission to write: run as the directory's owner", dir)};
    case EROFS:
      return {code,
              fmt::format("{}: on a read-only filesystem: remount it read-write, or choose "
                          "another state directory",
                          dir)};
    case ENOTDIR:
      return {code, fmt::format("{}: not a directory: choose another state directory", dir)};
    case ENOSPC:
      return {code, fmt::format("{}: its filesystem is full: free some space", dir)};
    case EPROTONOSUPPORT:
      return {code,
              fmt::format("{}: metadata database has tables that this version does not know "
                          "({}): use the newer kvcachefs that wrote it, or start with an "
                          "empty state directory",
                          dir, detail)};
    case EBADMSG:
      return {code,
              fmt::format("{}: metadata database damaged ({}): restore the state directory "
                          "from a backup, or start with an empty one",
                          dir, detail)};
    default:
      return {code, fmt::format("{}: metadata database does not open ({})", dir, detail)};
  }
}

// Whether the first files of an opening fit. Asked of the filesystem itself: how much of its
// free space is ours to use, it alone knows.
bool has_room(const std::string& dir) {
  const UniqueFd probe(::open(dir.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!probe) return errno != ENOSPC;
  return ::fallocate(probe.get(), 0, 0, kRoomToOpen) == 0 || errno != ENOSPC;
}

// RocksDB says what a system call gave only in words, and Debian's ends the process when the
// disk fills up while it opens: ask the directory for what can be told beforehand.
int check_directory(const std::string& dir, bool create) {
  struct stat status;
  if (::stat(dir.c_str(), &status) != 0) {
    if (errno != ENOENT || !create) return errno;
    if (::mkdir(dir.c_str(), 0700) != 0) return errno;
    return has_room(dir) ? 0 : ENOSPC;
  }
  if (!S_ISDIR(status.st_mode)) return ENOTDIR;
  if (::eaccess(dir.c_str(), R_OK | W_OK | X_OK) != 0) return errno;
  if (::access((dir + "/CURRENT").c_str(), F_OK) != 0 && !create) return ENOENT;
  return has_room(dir) ? 0 : ENOSPC;
}

int open_errno(const Status& status) {
  if (status.IsNoSpace()) return ENOSPC;
  if (status.IsCorruption() || status.IsNotFound() || status.IsPathNotFound()) return EBADMSG;
  if (status.IsInvalidArgument() || status.IsNotSupported()) return EBADMSG;
  const std::string text = status.ToString();
  if (text.find("lock") != std::string::npos || status.IsBusy()) return EBUSY;
  if (text.find("No such file") != std::string::npos) return EBADMSG;
  return EIO;
}

bool in_bounds(const RocksdbOptions& options) noexcept {
  return options.cache_bytes >= 8 * kMega && options.cache_bytes <= 256 * kMega &&
         options.write_buffer_bytes >= 8 * kMega && options.write_buffer_bytes <= 128 * kMega &&
         options.max_open_files >= 64 && options.max_open_files <= 4096;
}

}  // namespace

Result<std::unique_ptr<Store>> RocksdbStore::open(const std::string& dir,
                                                  const RocksdbOptions& options, bool create,
                                                  std::string* problem) {
  if (!in_bounds(options)) return fail(EINVAL, "database: option out of bounds");
  const auto refuse = [&](int code, const std::string& detail) {
    OpenFailure failure = explain(dir, code, detail);
    log_error("database_refused {}", failure.text);
    if (problem != nullptr) *problem = std::move(failure.text);
    return fail(code, "database: open");
  };
  if (const int code = check_directory(dir, create); code != 0) {
    return refuse(code, std::strerror(code));
  }

  Shared shared;
  shared.cache = rocksdb::NewLRUCache(options.cache_bytes);
  shared.write_buffers =
      std::make_shared<rocksdb::WriteBufferManager>(options.write_buffer_bytes);
  const rocksdb::DBOptions db_options = database_options(options, shared, create);

  // Tables of a newer version must be found before anything is written.
  std::vector<std::string> present;
  const bool exists = ::access((dir + "/CURRENT").c_str(), F_OK) == 0;
  if (exists) {
    if (const Status status = rocksdb::DB::ListColumnFamilies(db_options, dir, &present);
        !status.ok()) {
      return refuse(open_errno(status), status.ToString());
    }
  }
  for (const std::string& name : present) {
    if (std::find(kTableNames.begin(), kTableNames.end(), name) == kTableNames.end()) {
      return refuse(EPROTONOSUPPORT, name);
    }
  }

  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (std::size_t i = 0; i < kTableCount; ++i) {
    descriptors.emplace_back(kTableNames[i],
                             table_options(static_cast<Table>(i), options, shared));
  }
  std::vector<ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  if (const Status status = rocksdb::DB::Open(db_options, dir, descriptors, &families, &db);
      !status.ok()) {
    return refuse(open_errno(status), status.ToString());
  }
  auto database = std::make_unique<Database>(std::unique_ptr<rocksdb::DB>(db),
                                             std::move(families), std::move(shared));
  TRY(database->watch_space(dir));
  return std::unique_ptr<Store>(std::move(database));
}

}  // namespace kvcachefs
