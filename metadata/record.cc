#include "metadata/record.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cassert>

#include "backend/base/wire.h"

namespace kvcachefs {
namespace {

using wire::put_le;
using wire::Reader;

constexpr std::uint8_t kInodeVersion = 1;
constexpr std::uint8_t kObjectVersion = 1;
constexpr std::uint8_t kDentryVersion = 1;
constexpr std::uint8_t kBlockVersion = 1;
constexpr std::uint8_t kPoolCopyVersion = 2;
constexpr std::uint8_t kPoolCopyVersionWithoutParts = 1;
constexpr std::uint8_t kTombstoneVersion = 1;
constexpr std::uint8_t kOwnerChangeVersion = 2;
constexpr std::uint8_t kOwnerChangeVersionWithoutTold = 1;
constexpr std::uint8_t kHasUid = 1;
constexpr std::uint8_t kHasGid = 2;
constexpr std::uint8_t kHasMode = 4;
constexpr std::uint8_t kIsToBeKept = 8;
constexpr std::uint8_t kMayGo = 16;

constexpr std::uint32_t kKnownFlags = kInodeFsynced | kInodePoisoned | kInodeKeep |
                                      kInodeHasAcl | kInodeHasXattr | kInodeFirstWriter |
                                      kInodeReused | kInodeMayGrow | kInodeOnDisk;
constexpr std::size_t kLongestTarget = 4095;  // PATH_MAX without the closing NUL

// Parts that most records do not have cost a bit each when absent.
enum Part : std::uint8_t {
  kPartRdev = 1u << 0,
  kPartObject = 1u << 1,
  kPartPrevious = 1u << 2,
  kPartStamp = 1u << 3,
  kPartTarget = 1u << 4,
  kPartWriter = 1u << 5,
};
constexpr std::uint8_t kKnownParts =
    kPartRdev | kPartObject | kPartPrevious | kPartStamp | kPartTarget | kPartWriter;
constexpr std::uint8_t kPartSealed = 1u << 0;
constexpr std::uint8_t kPartParent = 1u << 0;
constexpr std::uint8_t kPartHinted = 1u << 1;

constexpr bool known_type(std::uint32_t mode) noexcept {
  switch (mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFLNK:
    case S_IFBLK:
    case S_IFCHR:
    case S_IFIFO:
    case S_IFSOCK:
      return (mode & ~static_cast<std::uint32_t>(S_IFMT | 07777)) == 0;
    default:
      return false;
  }
}

constexpr bool known_dirent_type(std::uint8_t type) noexcept {
  switch (type) {
    case DT_REG:
    case DT_DIR:
    case DT_LNK:
    case DT_BLK:
    case DT_CHR:
    case DT_FIFO:
    case DT_SOCK:
      return true;
    default:
      return false;
  }
}

constexpr bool known_state(DataState state) noexcept { return state <= DataState::kRemote; }

bool has_previous(const InodeRecord& record) noexcept {
  return record.previous_object != kNoObject || record.previous_state != DataState::kNone;
}

std::uint8_t parts_of(const InodeRecord& record) noexcept {
  unsigned parts = 0;
  if (record.rdev != 0) parts |= kPartRdev;
  if (record.object != kNoObject) parts |= kPartObject;
  if (has_previous(record)) parts |= kPartPrevious;
  if (record.stamp != DataStamp{}) parts |= kPartStamp;
  if (!record.target.empty()) parts |= kPartTarget;
  if (record.writer != ProcessId{}) parts |= kPartWriter;
  return static_cast<std::uint8_t>(parts);
}

void put_stamp(std::string& out, const DataStamp& stamp) {
  put_le(out, stamp.size);
  put_le(out, stamp.mtime);
  put_le(out, stamp.ctime);
}

DataStamp take_stamp(Reader& in) noexcept {
  DataStamp stamp;
  stamp.size = in.take<std::uint64_t>();
  stamp.mtime = in.take<std::int64_t>();
  stamp.ctime = in.take<std::int64_t>();
  return stamp;
}

}  // namespace

std::string encode(const InodeRecord& record) {
  assert(known_type(record.mode) && "an inode has a type");
  assert((record.flags & ~kKnownFlags) == 0 && record.target.size() <= kLongestTarget);
  const std::uint8_t parts = parts_of(record);
  std::string out;
  out.reserve(120 + record.target.size());
  put_le(out, kInodeVersion);
  put_le(out, parts);
  put_le(out, record.mode);
  put_le(out, record.uid);
  put_le(out, record.gid);
  put_le(out, record.nlink);
  put_le(out, record.generation);
  put_le(out, record.flags);
  put_le(out, record.atime);
  put_le(out, record.mtime);
  put_le(out, record.ctime);
  put_le(out, record.btime);
  put_le(out, static_cast<std::uint8_t>(record.state));
  if ((parts & kPartRdev) != 0) put_le(out, record.rdev);
  if ((parts & kPartObject) != 0) put_le(out, record.object);
  if ((parts & kPartPrevious) != 0) {
    put_le(out, record.previous_object);
    put_le(out, static_cast<std::uint8_t>(record.previous_state));
  }
  if ((parts & kPartStamp) != 0) put_stamp(out, record.stamp);
  if ((parts & kPartWriter) != 0) {
    put_le(out, record.writer.boot);
    put_le(out, record.writer.number);
    put_le(out, record.writer.began);
  }
  if ((parts & kPartTarget) != 0) out += record.target;
  return out;
}

Result<InodeRecord> decode_inode(std::string_view bytes) {
  Reader in(bytes);
  if (in.take<std::uint8_t>() != kInodeVersion) return fail(EBADMSG, "inode record: version");
  const auto parts = in.take<std::uint8_t>();
  InodeRecord record;
  record.mode = in.take<std::uint32_t>();
  record.uid = in.take<std::uint32_t>();
  record.gid = in.take<std::uint32_t>();
  record.nlink = in.take<std::uint32_t>();
  record.generation = in.take<std::uint32_t>();
  record.flags = in.take<std::uint32_t>();
  record.atime = in.take<std::int64_t>();
  record.mtime = in.take<std::int64_t>();
  record.ctime = in.take<std::int64_t>();
  record.btime = in.take<std::int64_t>();
  record.state = static_cast<DataState>(in.take<std::uint8_t>());
  if ((parts & kPartRdev) != 0) record.rdev = in.take<std::uint64_t>();
  if ((parts & kPartObject) != 0) record.object = in.take<std::uint64_t>();
  if ((parts & kPartPrevious) != 0) {
    record.previous_object = in.take<std::uint64_t>();
    record.previous_state = static_cast<DataState>(in.take<std::uint8_t>());
  }
  if ((parts & kPartStamp) != 0) record.stamp = take_stamp(in);
  if ((parts & kPartWriter) != 0) {
    record.writer.boot = in.take<std::uint32_t>();
    record.writer.number = in.take<std::uint32_t>();
    record.writer.began = in.take<std::uint64_t>();
  }
  if ((parts & kPartTarget) != 0) {
    if (in.left() > kLongestTarget) return fail(EBADMSG, "inode record: target too long");
    record.target = in.take_rest();
  }
  if (!in.done()) return fail(EBADMSG, "inode record: length");
  if ((parts & ~kKnownParts) != 0) return fail(EBADMSG, "inode record: unknown part");
  if (parts != parts_of(record)) return fail(EBADMSG, "inode record: part without content");
  if (!known_type(record.mode)) return fail(EBADMSG, "inode record: type");
  if ((record.flags & ~kKnownFlags) != 0) return fail(EBADMSG, "inode record: unknown flag");
  if (!known_state(record.state) || !known_state(record.previous_state)) {
    return fail(EBADMSG, "inode record: state");
  }
  return record;
}

std::string encode(const ObjectRecord& record) {
  const bool sealed = record.sealed != DataStamp{};
  std::string out;
  out.reserve(40 + record.chunk_crc32c.size() * sizeof(std::uint32_t));
  put_le(out, kObjectVersion);
  put_le(out, static_cast<std::uint8_t>(sealed ? kPartSealed : 0));
  put_le(out, record.inode);
  put_le(out, record.device);
  if (sealed) put_stamp(out, record.sealed);
  for (const std::uint32_t crc : record.chunk_crc32c) put_le(out, crc);
  return out;
}

Result<ObjectRecord> decode_object(std::string_view bytes) {
  Reader in(bytes);
  if (in.take<std::uint8_t>() != kObjectVersion) return fail(EBADMSG, "object record: version");
  const auto parts = in.take<std::uint8_t>();
  ObjectRecord record;
  record.inode = in.take<std::uint64_t>();
  record.device = in.take<std::uint32_t>();
  if ((parts & kPartSealed) != 0) record.sealed = take_stamp(in);
  if (!in.ok() || in.left() % sizeof(std::uint32_t) != 0) {
    return fail(EBADMSG, "object record: length");
  }
  if ((parts & ~kPartSealed) != 0) return fail(EBADMSG, "object record: unknown part");
  if (((parts & kPartSealed) != 0) != (record.sealed != DataStamp{})) {
    return fail(EBADMSG, "object record: part without content");
  }
  record.chunk_crc32c.resize(in.left() / sizeof(std::uint32_t));
  for (std::uint32_t& crc : record.chunk_crc32c) crc = in.take<std::uint32_t>();
  return record;
}

std::string encode(const DentryRecord& record) {
  assert(known_dirent_type(record.type) && "a dentry has a type");
  std::string out;
  out.reserve(18);
  put_le(out, kDentryVersion);
  put_le(out, record.type);
  put_le(out, record.inode);
  put_le(out, record.cookie);
  return out;
}

Result<DentryRecord> decode_dentry(std::string_view bytes) {
  Reader in(bytes);
  if (in.take<std::uint8_t>() != kDentryVersion) return fail(EBADMSG, "dentry record: version");
  DentryRecord record;
  record.type = in.take<std::uint8_t>();
  record.inode = in.take<std::uint64_t>();
  record.cookie = in.take<std::uint64_t>();
  if (!in.done()) return fail(EBADMSG, "dentry record: length");
  if (!known_dirent_type(record.type)) return fail(EBADMSG, "dentry record: type");
  return record;
}

std::string encode(const BlockRecord& record) {
  assert((record.has_parent || (!record.hinted && record.parent == 0)) &&
         record.hash.size() <= kLongestHash);
  std::string out;
  out.reserve(34 + record.hash.size());
  put_le(out, kBlockVersion);
  put_le(out, static_cast<std::uint8_t>((record.has_parent ? kPartParent : 0) |
                                        (record.hinted ? kPartHinted : 0)));
  put_le(out, record.inode);
  if (record.has_parent) put_le(out, record.parent);
  put_le(out, record.birth);
  put_le(out, record.stamp);
  out += record.hash;
  return out;
}

Result<BlockRecord> decode_block(std::string_view bytes) {
  Reader in(bytes);
  if (in.take<std::uint8_t>() != kBlockVersion) return fail(EBADMSG, "block record: version");
  const auto parts = in.take<std::uint8_t>();
  BlockRecord record;
  record.inode = in.take<std::uint64_t>();
  record.has_parent = (parts & kPartParent) != 0;
  record.hinted = (parts & kPartHinted) != 0;
  if (record.has_parent) record.parent = in.take<std::uint64_t>();
  record.birth = in.take<std::uint64_t>();
  record.stamp = in.take<std::uint64_t>();
  if (!in.ok() || in.left() > kLongestHash) return fail(EBADMSG, "block record: length");
  record.hash = in.take_rest();
  if ((parts & ~(kPartParent | kPartHinted)) != 0)
    return fail(EBADMSG, "block record: unknown part");
  if (record.hinted && !record.has_parent)
    return fail(EBADMSG, "block record: hint without a parent");
  if (record.hash.find('\0') != std::string::npos) return fail(EBADMSG, "block record: hash");
  return record;
}

std::string encode(const PoolCopy& record) {
  std::string out;
  put_le(out, kPoolCopyVersion);
  put_le(out, record.fileid);
  put_le(out, record.path_hash);
  put_le(out, record.size);
  put_le(out, record.mtime);
  put_le(out, static_cast<std::uint8_t>(record.keep));
  return out;
}

Result<PoolCopy> decode_pool_copy(std::string_view bytes) {
  Reader in(bytes);
  const auto version = in.take<std::uint8_t>();
  if (version != kPoolCopyVersion && version != kPoolCopyVersionWithoutParts)
    return fail(EBADMSG, "pool copy record: version");
  PoolCopy record;
  record.fileid = in.take<std::uint64_t>();
  record.path_hash = in.take<std::uint64_t>();
  record.size = in.take<std::uint64_t>();
  record.mtime = in.take<std::int64_t>();
  const auto parts = version == kPoolCopyVersion ? in.take<std::uint8_t>() : std::uint8_t{0};
  record.keep = parts != 0;
  if (!in.done()) return fail(EBADMSG, "pool copy record: length");
  if (parts > 1) return fail(EBADMSG, "pool copy record: unknown part");
  return record;
}

std::string encode(const Tombstone& record) {
  std::string out;
  put_le(out, kTombstoneVersion);
  put_le(out, static_cast<std::uint8_t>(record.is_directory));
  put_le(out, record.fileid);
  return out;
}

Result<Tombstone> decode_tombstone(std::string_view bytes) {
  Reader in(bytes);
  if (in.take<std::uint8_t>() != kTombstoneVersion)
    return fail(EBADMSG, "tombstone record: version");
  const auto kind = in.take<std::uint8_t>();
  Tombstone record;
  record.is_directory = kind == 1;
  record.fileid = in.take<std::uint64_t>();
  if (!in.done()) return fail(EBADMSG, "tombstone record: length");
  if (kind > 1) return fail(EBADMSG, "tombstone record: kind");
  return record;
}

std::string encode(const OwnerChange& record) {
  std::string out;
  put_le(out, kOwnerChangeVersion);
  put_le(out, record.fileid);
  const int keep = !record.keep ? 0 : *record.keep ? kIsToBeKept : kMayGo;
  put_le(out,
         static_cast<std::uint8_t>((record.uid ? kHasUid : 0) | (record.gid ? kHasGid : 0) |
                                   (record.mode ? kHasMode : 0) | keep));
  put_le(out, record.told);
  for (const auto& part : {record.uid, record.gid, record.mode})
    if (part) put_le(out, *part);
  return out;
}

Result<OwnerChange> decode_owner_change(std::string_view bytes) {
  Reader in(bytes);
  const auto version = in.take<std::uint8_t>();
  if (version != kOwnerChangeVersion && version != kOwnerChangeVersionWithoutTold)
    return fail(EBADMSG, "owner change record: version");
  OwnerChange record;
  record.fileid = in.take<std::uint64_t>();
  const auto parts = in.take<std::uint8_t>();
  constexpr unsigned kKeep = kIsToBeKept | kMayGo;
  if (parts > (kHasUid | kHasGid | kHasMode | kKeep) || (parts & kKeep) == kKeep)
    return fail(EBADMSG, "owner change record: parts");
  if (version == kOwnerChangeVersion) record.told = in.take<std::uint8_t>();
  if (record.told > kMostToldWords) return fail(EBADMSG, "owner change record: told");
  if ((parts & kKeep) != 0) record.keep = (parts & kIsToBeKept) != 0;
  if ((parts & kHasUid) != 0) record.uid = in.take<std::uint32_t>();
  if ((parts & kHasGid) != 0) record.gid = in.take<std::uint32_t>();
  if ((parts & kHasMode) != 0) record.mode = in.take<std::uint32_t>();
  if (!in.done()) return fail(EBADMSG, "owner change record: length");
  if (record.mode.value_or(0) > 07777) return fail(EBADMSG, "owner change record: mode");
  return record;
}

}  // namespace kvcachefs
