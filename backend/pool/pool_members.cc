#include "backend/pool/pool_members.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "backend/pool/pool_path.h"
#include "backend/pool/pool_transfer.h"

namespace kvcachefs {
namespace {

// Records of a log that are read at once.
constexpr std::size_t kLogReadAtOnce = 64 * 1024;
constexpr std::size_t kMostMembers = 4096;
constexpr int kMostLooks = 3;
constexpr std::uint64_t kMostLogsAtOnce = 16;
static_assert(kLogReadAtOnce % kPoolLogRecordBytes == 0);

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Result<std::string> read_text(PoolSession& session, PoolFile& file, Deadline deadline) {
  std::string text(kPoolTextLimit, '\0');
  text.resize(TRY(session.read(file, 0, std::as_writable_bytes(std::span(text)), deadline)));
  return text;
}

Result<PoolSuperblock> read_superblock(PoolSession& session, Deadline deadline) {
  const PoolFilePtr file = TRY(session.open(pool_superblock_path(), deadline));
  const std::string text = TRY(read_text(session, *file, deadline));
  return decode_pool_superblock(text);
}

// The file alone is missing or unusable, the pool is not.
bool is_of_file(const Error& error) noexcept {
  return error.code == ENOENT || error.code == ENOTDIR || error.code == EISDIR ||
         error.code == ESTALE || error.code == EACCES;
}

bool is_of_room(const Error& error) noexcept {
  return error.code == ENOSPC || error.code == EDQUOT;
}

}  // namespace

Result<PoolSuperblock> join_pool(PoolSession& session, const Uuid& node, Deadline deadline) {
  const Result<PoolSuperblock> standing = read_superblock(session, deadline);
  if (standing.ok() || standing.error().code != ENOENT) return standing;
  for (const char* name : {"nodes", "log", "sums", "trash"})
    TRY(make_directories(session, pool_service_path(name), deadline));
  const std::string temporary = pool_temporary_path(node, 0);
  TRY(make_directories(session, split_pool_path(temporary).first, deadline));
  const PoolSuperblock superblock{.pool = random_uuid()};
  const PoolFilePtr file = TRY(write_anew(
      session, temporary, encode_pool_superblock(superblock), PoolWrite::kNow, deadline));
  const Result<void> linked = session.link(*file, pool_superblock_path(), deadline);
  static_cast<void>(session.remove(temporary, deadline).ok());
  if (linked.ok()) return superblock;
  if (linked.error().code != EEXIST) return linked.error();
  return read_superblock(session, deadline);
}

Result<PoolSuperblock> read_pool(PoolSession& session, Deadline deadline) {
  return read_superblock(session, deadline);
}

Result<void> check_pool(PoolSession& session, const Uuid& pool, Deadline deadline) {
  const Result<PoolSuperblock> standing = read_superblock(session, deadline);
  if (standing.ok() && standing->pool == pool) return {};
  if (standing.ok())
    return fail(ENOTCONN, "pool: another pool stands there than the one that was joined");
  if (is_of_file(standing.error()))
    return fail(ENOTCONN, "pool: there is none where it was: is it mounted?");
  return standing.error();
}

Result<PoolBeat> beat(PoolSession& session, const PoolNode& node, Deadline deadline) {
  const std::string path = pool_node_path(node.node);
  const std::string temporary = path + ".new";
  const std::string text = encode_pool_node(node);
  Result<PoolFilePtr> file = write_anew(session, temporary, text, PoolWrite::kNow, deadline);
  if (file.ok()) {
    if (const Result<void> moved = session.rename(temporary, path, deadline); !moved.ok())
      file = moved.error();
  }
  const bool is_full = !file.ok() && is_of_room(file.error());
  if (is_full) {
    static_cast<void>(session.remove(temporary, deadline).ok());
    file = TRY(session.open_to_write(path, deadline));
    TRY(session.write(**file, 0, bytes_of(text), PoolWrite::kNow, deadline));
  }
  if (!file.ok()) return file.error();
  return PoolBeat{.at = TRY(session.status(**file, deadline)).mtime, .is_full = is_full};
}

// It may be written over just now, and what is open then be gone: another look tells.
Result<std::optional<PoolMember>> read_member(PoolSession& session, const Uuid& node,
                                              Deadline deadline) {
  Error last = fail(EBADMSG, "pool: a node's heartbeat");
  for (int looks = 0; looks < kMostLooks; ++looks) {
    const Result<PoolFilePtr> file = session.open(pool_node_path(node), deadline);
    const Result<std::string> text =
        file.ok() ? read_text(session, **file, deadline) : Result<std::string>(file.error());
    if (text.ok()) {
      const Result<PoolNode> told = decode_pool_node(*text);
      if (told.ok() && told->node == node)
        return std::optional(PoolMember{.node = *told, .beaten = (*file)->status().mtime});
      continue;
    }
    last = text.error();
    if (last.code != ESTALE) break;
  }
  // What does not read is of this file alone.
  if (is_of_file(last) || last.code == EBADMSG) return std::optional<PoolMember>{};
  return last;
}

Result<std::vector<Uuid>> list_nodes(PoolSession& session, Deadline deadline) {
  std::vector<Uuid> nodes;
  TRY(session.list(
      pool_service_path("nodes"),
      [&](const PoolEntry& entry) {
        if (const std::optional<Uuid> node = parse_uuid(entry.name)) nodes.push_back(*node);
        return nodes.size() < kMostMembers;
      },
      deadline));
  return nodes;
}

Result<std::vector<PoolMember>> list_members(PoolSession& session, Deadline deadline) {
  std::vector<PoolMember> members;
  for (const Uuid& node : TRY(list_nodes(session, deadline))) {
    const std::optional<PoolMember> member = TRY(read_member(session, node, deadline));
    if (member) members.push_back(*member);
  }
  return members;
}

// ---- change logs

Result<std::uint64_t> next_pool_log(PoolSession& session, const Uuid& node, Deadline deadline) {
  std::uint64_t next = 1;
  TRY(session.list(
      pool_service_path("log"),
      [&](const PoolEntry& entry) {
        const std::optional<std::uint64_t> log = parse_pool_log_name(entry.name, node);
        // Others may have made names there.
        if (log && *log < kMostPoolLogs) next = std::max(next, *log + 1);
        return true;
      },
      deadline));
  return next;
}

Result<void> PoolLogWriter::append(PoolSession& session, std::vector<PoolLogRecord> records,
                                   Deadline deadline) {
  if (bytes_ + records.size() * kPoolLogRecordBytes > kMostBytes) give_up_log();
  std::string bytes;
  std::uint64_t sequence = sequence_;
  for (PoolLogRecord& record : records) {
    record.sequence = ++sequence;
    bytes += encode_pool_log_record(record);
  }
  if (file_ == nullptr) {
    Result<PoolFilePtr> file =
        session.create(pool_log_path(node_, log_), kPoolServiceMode, deadline);
    // One that is there is of somebody's who was thought to have given up.
    if (!file.ok() && file.error().code == EEXIST) give_up_log();
    if (!file.ok()) return file.error();
    file_ = std::move(file).value();
  }
  const Result<void> written = write(session, bytes, deadline);
  // The place that they did not find is still theirs.
  if (!written.ok() && is_of_room(written.error())) return written;
  sequence_ = sequence;
  bytes_ += bytes.size();
  // What of it is there nobody knows: readers find a gap in the next log.
  if (!written.ok()) give_up_log();
  return written;
}

Result<void> PoolLogWriter::write(PoolSession& session, const std::string& bytes,
                                  Deadline deadline) {
  TRY(session.write(*file_, bytes_, bytes_of(bytes), PoolWrite::kNow, deadline));
  // Others remove the logs of a node that was silent for long, and nobody reads what goes there then.
  if (TRY(session.status(*file_, deadline)).nlink == 0 && file_->status().nlink > 0)
    return fail(ESTALE, "pool: the change log was removed");
  return {};
}

void PoolLogWriter::give_up_log() {
  file_.reset();
  bytes_ = 0;
  ++log_;
}

Result<bool> PoolLogReader::read(PoolSession& session, std::uint64_t log,
                                 const std::function<void(const PoolLogRecord&)>& visit,
                                 Deadline deadline) {
  // Those of a node that could not append for long: there are none of most numbers.
  const bool is_far = log > log_ && log - log_ > kMostLogsAtOnce;
  if (!began_ || log < log_ || is_far) {
    const bool missed = began_;
    const Result<PoolStatus> status = session.status(pool_log_path(node_, log), deadline);
    if (!status.ok() && !is_of_file(status.error())) return status.error();
    log_ = log;
    at_ = status.ok() ? status->size / kPoolLogRecordBytes * kPoolLogRecordBytes : 0;
    sequence_ = 0;
    file_.reset();
    began_ = true;
    return !missed;
  }
  bool whole = true;
  while (true) {
    whole = TRY(read_log(session, visit, deadline)) && whole;
    if (log_ >= log) return whole;
    ++log_;
    at_ = 0;
    file_.reset();
  }
}

Result<bool> PoolLogReader::read_log(PoolSession& session,
                                     const std::function<void(const PoolLogRecord&)>& visit,
                                     Deadline deadline) {
  if (file_ == nullptr) {
    Result<PoolFilePtr> file = session.open(pool_log_path(node_, log_), deadline);
    if (!file.ok() && is_of_file(file.error())) return true;  // nothing was appended yet
    if (!file.ok()) return file.error();
    file_ = std::move(file).value();
  }
  bool whole = true;
  std::string bytes(kLogReadAtOnce, '\0');
  while (true) {
    const Result<std::size_t> got =
        session.read(*file_, at_, std::as_writable_bytes(std::span(bytes)), deadline);
    if (!got.ok() && is_of_file(got.error())) {
      file_.reset();
      return false;
    }
    if (!got.ok()) return got.error();
    for (std::size_t at = 0; at + kPoolLogRecordBytes <= *got; at += kPoolLogRecordBytes) {
      const Result<PoolLogRecord> record =
          decode_pool_log_record(std::string_view(bytes).substr(at, kPoolLogRecordBytes));
      // It is being written, or it is damaged: what comes after it tells.
      if (!record.ok()) {
        if (at + kPoolLogRecordBytes >= *got) return whole;
        whole = false;
      } else {
        if (sequence_ != 0 && record->sequence != sequence_ + 1) whole = false;
        sequence_ = record->sequence;
        visit(*record);
      }
      at_ += kPoolLogRecordBytes;
    }
    if (*got < bytes.size()) return whole;
  }
}

}  // namespace kvcachefs
