#include "metadata/rocksdb_instance.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/table_properties_collectors.h>
#include <rocksdb/write_buffer_manager.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/unique_fd.h"
#include "metadata/format.h"
#include "metadata/free_space.h"

namespace kvcachefs {
namespace {

using rocksdb::ColumnFamilyHandle;
using rocksdb::Status;

constexpr std::uint64_t kMega = 1024 * 1024;
// Bounds what a start after a crash has to replay.
constexpr std::uint64_t kLogBytes = 16 * kMega;
// What must be free for a database to be opened: a new log, manifest and options.
constexpr off_t kRoomToOpen = 8 * kMega;

// RocksDB's own warnings and errors, in our log. Its own file would end the process: its writer
// asserts when a line did not fit on the disk (issue 11643 of RocksDB), and Debian's build has its
// assertions.
class RocksdbLog : public rocksdb::Logger {
 public:
  RocksdbLog() : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    if (!admit()) return;
    std::array<char, 512> line{};
    std::vsnprintf(line.data(), line.size(), format, arguments);
    for (char& character : line) {
      if (character == '\n' || character == '"') character = ' ';
    }
    log_warn("database_says text=\"{}\"", line.data());
  }

 private:
  // A disk that is full makes it say the same over and over.
  bool admit() {
    const std::lock_guard lock(mutex_);
    const std::int64_t now = monotonic_now();
    if (now - since_ >= kNanosPerSecond * 10) {
      since_ = now;
      lines_ = 0;
    }
    return ++lines_ <= 10;
  }

  std::mutex mutex_;
  std::int64_t since_ = 0;
  int lines_ = 0;
};

rocksdb::DBOptions database_options(const RocksdbOptions& options,
                                    const RocksdbInstance& instance, bool create) {
  rocksdb::DBOptions db;
  db.create_if_missing = create;
  db.create_missing_column_families = true;
  db.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  db.max_total_wal_size = kLogBytes;
  // The log flows to the disk as it is written, so that a sync finds little left to do.
  db.wal_bytes_per_sync = kMega;
  db.bytes_per_sync = kMega;
  db.max_open_files = options.max_open_files;
  db.write_buffer_manager = instance.write_buffers;
  db.max_background_jobs = 2;
  // A start after a crash should not wait for table files to be written.
  db.avoid_flush_during_recovery = true;
  db.skip_stats_update_on_db_open = true;
  // After a failure it is opened anew, see the header.
  db.max_bgerror_resume_count = 0;
  db.listeners.push_back(instance.failure);
  db.max_manifest_file_size = 16 * kMega;
  // What is allotted ahead would be bytes of the mount's size that nobody sees.
  db.allow_fallocate = false;
  db.manifest_preallocation_size = 64 * 1024;
  db.info_log = std::make_shared<RocksdbLog>();
  db.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  db.stats_dump_period_sec = 0;
  db.stats_persist_period_sec = 0;
  // Table files would name the machine otherwise.
  db.db_host_id = "";
  return db;
}

rocksdb::ColumnFamilyOptions table_options(Table table, const RocksdbOptions& options,
                                           const RocksdbInstance& instance) {
  rocksdb::ColumnFamilyOptions family;
  family.write_buffer_size = options.write_buffer_bytes / 4;
  // A full log has all tables' buffers written, one table after the other. With two of a table (RocksDB's
  // default) the next such moment stops every commit until a busy disk has taken the first; a third and a
  // fourth are filled only then.
  family.max_write_buffer_number = 4;
  family.level_compaction_dynamic_level_bytes = true;
  family.target_file_size_base = 16 * kMega;
  family.max_bytes_for_level_base = 64 * kMega;

  rocksdb::BlockBasedTableOptions blocks;
  blocks.block_cache = instance.cache;
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
    case Table::kBlocks:
    case Table::kPoolCopies:
      // Looked up by whole keys, often by ones that are not there.
      blocks.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
      family.memtable_whole_key_filtering = true;
      family.memtable_prefix_bloom_size_ratio = 0.03;
      break;
    case Table::kUnsealed:
    case Table::kOrphans:
    case Table::kPoolQueue:
    case Table::kMeta:
      // Queues: entries go soon after they came. A small buffer bounds the removed ones that a
      // walk steps over.
      family.write_buffer_size = 2 * kMega;
      break;
    case Table::kListings:
    case Table::kBackReferences:
    case Table::kPrefixes:
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
      return {code, fmt::format("{}: its filesystem is full: free 32 MiB or more", dir)};
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

bool has_database_files(const std::string& dir) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(dir.c_str()), ::closedir);
  if (!listing) return false;
  while (const dirent* entry = ::readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(".sst")) return true;
    // A creation cut short leaves the first one.
    if (name.starts_with("MANIFEST-") && name != "MANIFEST-000001") return true;
  }
  return false;
}

// RocksDB says what a system call gave only in words: ask the directory for what can be told
// beforehand.
int check_directory(const std::string& dir, bool create) {
  struct stat status;
  if (::stat(dir.c_str(), &status) != 0) {
    if (errno != ENOENT || !create) return errno;
    if (::mkdir(dir.c_str(), 0700) != 0) return errno;
    return RocksdbInstance::has_room(dir) ? 0 : ENOSPC;
  }
  if (!S_ISDIR(status.st_mode)) return ENOTDIR;
  if (::eaccess(dir.c_str(), R_OK | W_OK | X_OK) != 0) return errno;
  if (!RocksdbInstance::exists(dir)) {
    // The rest of a database must not be taken for none: a new one would remove its files.
    if (has_database_files(dir)) return EBADMSG;
    if (!create) return ENOENT;
  }
  if (RocksdbInstance::has_room(dir)) return 0;
  // Who has filled the disk must be able to mount and remove something.
  return FreeSpace::give_up_reserve(dir) && RocksdbInstance::has_room(dir) ? 0 : ENOSPC;
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

std::unique_ptr<RocksdbInstance> new_instance(const RocksdbOptions& options,
                                              std::shared_ptr<RocksdbFailure> failure) {
  auto instance = std::make_unique<RocksdbInstance>();
  instance->failure = std::move(failure);
  instance->cache = rocksdb::NewLRUCache(options.cache_bytes);
  instance->write_buffers =
      std::make_shared<rocksdb::WriteBufferManager>(options.write_buffer_bytes);
  return instance;
}

std::vector<rocksdb::ColumnFamilyDescriptor> descriptors(const RocksdbOptions& options,
                                                         const RocksdbInstance& instance) {
  std::vector<rocksdb::ColumnFamilyDescriptor> all;
  for (std::size_t i = 0; i < kTableCount; ++i) {
    all.emplace_back(kTableNames[i], table_options(static_cast<Table>(i), options, instance));
  }
  return all;
}

// What the logs hold becomes durable before anything is added to a new one: a later sync reaches
// only logs of this opening, and a machine's crash must leave a prefix of the writes.
Result<void> sync_logs(const std::string& dir) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(dir.c_str()), ::closedir);
  if (!listing) return fail_errno("database directory");
  while (const dirent* entry = ::readdir(listing.get())) {
    if (!std::string_view(entry->d_name).ends_with(".log")) continue;
    const UniqueFd log(
        ::openat(::dirfd(listing.get()), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!log || ::fdatasync(log.get()) != 0) return fail_errno("database log");
  }
  if (::fsync(::dirfd(listing.get())) != 0) return fail_errno("database directory");
  return {};
}

}  // namespace

void RocksdbFailure::OnBackgroundError(rocksdb::BackgroundErrorReason /*reason*/,
                                       Status* status) {
  if (status == nullptr || status->ok()) return;
  error_.store(errno_of(*status), std::memory_order_relaxed);
  const bool hard = status->severity() >= Status::Severity::kHardError;
  // A soft one does not take back a hard one.
  State seen = State::kNone;
  state_.compare_exchange_strong(seen, State::kSoft, std::memory_order_acq_rel);
  if (hard) state_.store(State::kHard, std::memory_order_release);
}

int RocksdbFailure::errno_of(const Status& status) noexcept {
  if (status.IsNoSpace() || status.subcode() == Status::SubCode::kSpaceLimit) return ENOSPC;
  // A write that waited for room in memory, which the failed writing of a table did not make.
  if (status.IsIncomplete()) return ENOSPC;
  if (status.IsCorruption()) return EBADMSG;
  return EIO;
}

bool RocksdbInstance::exists(const std::string& dir) noexcept {
  return ::access((dir + "/CURRENT").c_str(), F_OK) == 0;
}

bool RocksdbInstance::has_room(const std::string& dir) {
  const UniqueFd probe(::open(dir.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!probe) return errno != ENOSPC;
  return ::fallocate(probe.get(), 0, 0, kRoomToOpen) == 0 || errno != ENOSPC;
}

RocksdbInstance::~RocksdbInstance() {
  if (!db) return;
  // What is in table files need not be replayed from the log at the next start.
  if (!read_only && failure->state() == RocksdbFailure::State::kNone) {
    rocksdb::FlushOptions flush;
    flush.allow_write_stall = true;  // nobody writes any more
    if (const Status status = db->Flush(flush, families); !status.ok()) {
      log_warn("database_flush error=\"{}\"", status.ToString());
    }
  }
  for (ColumnFamilyHandle* family : families) db->DestroyColumnFamilyHandle(family);
  if (const Status status = db->Close(); !status.ok()) {
    log_warn("database_close error=\"{}\"", status.ToString());
  }
}

std::uint64_t RocksdbInstance::memory_bytes() const {
  std::uint64_t bytes = cache->GetUsage() + write_buffers->memory_usage();
  for (ColumnFamilyHandle* family : families) {
    std::uint64_t readers = 0;
    if (db->GetIntProperty(family, rocksdb::DB::Properties::kEstimateTableReadersMem,
                           &readers)) {
      bytes += readers;
    }
  }
  return bytes;
}

Result<std::unique_ptr<RocksdbInstance>> RocksdbInstance::open(
    const std::string& dir, const RocksdbOptions& options, bool create,
    std::shared_ptr<RocksdbFailure> failure, std::string* problem) {
  if (!in_bounds(options)) return fail(EINVAL, "database: option out of bounds");
  const auto refuse = [&](int code, const std::string& detail) {
    OpenFailure reason = explain(dir, code, detail);
    if (!options.shown_as.empty())
      for (std::size_t at = 0; (at = reason.text.find(dir, at)) != std::string::npos;
           at += options.shown_as.size())
        reason.text.replace(at, dir.size(), options.shown_as);
    log_error("database_refused {}", reason.text);
    if (problem != nullptr) *problem = std::move(reason.text);
    return fail(code, "database: open");
  };
  if (const int code = check_directory(dir, create); code != 0) {
    return refuse(code, std::strerror(code));
  }

  auto instance = new_instance(options, std::move(failure));
  const rocksdb::DBOptions db_options = database_options(options, *instance, create);

  // Tables of a newer version must be found before anything is written.
  std::vector<std::string> present;
  if (exists(dir)) {
    TRY(sync_logs(dir));
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

  rocksdb::DB* db = nullptr;
  if (const Status status = rocksdb::DB::Open(db_options, dir, descriptors(options, *instance),
                                              &instance->families, &db);
      !status.ok()) {
    return refuse(open_errno(status), status.ToString());
  }
  instance->db.reset(db);
  return instance;
}

Result<std::unique_ptr<RocksdbInstance>> RocksdbInstance::open_read_only(
    const std::string& dir, const RocksdbOptions& options) {
  auto instance = new_instance(options, std::make_shared<RocksdbFailure>());
  instance->read_only = true;
  rocksdb::DB* db = nullptr;
  if (const Status status = rocksdb::DB::OpenForReadOnly(
          database_options(options, *instance, false), dir, descriptors(options, *instance),
          &instance->families, &db);
      !status.ok()) {
    return fail(open_errno(status), "database: open read-only");
  }
  instance->db.reset(db);
  return instance;
}

}  // namespace kvcachefs
