#include "backend/pool/nfs_answers.h"

#include <cerrno>

namespace kvcachefs {
namespace {

UnixNanos nanos_of(const nfstime3& time) noexcept {
  return static_cast<UnixNanos>(time.seconds) * kNanosPerSecond + time.nseconds;
}

}  // namespace

int errno_of(nfsstat3 status) noexcept {
  switch (status) {
    case NFS3ERR_PERM:
    case NFS3ERR_ACCES:
      return EACCES;
    case NFS3ERR_NOENT:
      return ENOENT;
    case NFS3ERR_EXIST:
      return EEXIST;
    case NFS3ERR_XDEV:
      return EXDEV;
    case NFS3ERR_NOTDIR:
      return ENOTDIR;
    case NFS3ERR_ISDIR:
      return EISDIR;
    case NFS3ERR_INVAL:
      return EINVAL;
    case NFS3ERR_FBIG:
      return EFBIG;
    case NFS3ERR_NOSPC:
      return ENOSPC;
    case NFS3ERR_ROFS:
      return EROFS;
    case NFS3ERR_MLINK:
      return EMLINK;
    case NFS3ERR_NAMETOOLONG:
      return ENAMETOOLONG;
    case NFS3ERR_NOTEMPTY:
      return ENOTEMPTY;
    case NFS3ERR_DQUOT:
      return EDQUOT;
    case NFS3ERR_STALE:
    case NFS3ERR_BADHANDLE:
      return ESTALE;
    case NFS3ERR_NOTSUPP:
      return EOPNOTSUPP;
    case NFS3ERR_JUKEBOX:
      return EBUSY;
    default:
      return EIO;
  }
}

Result<void> check(nfsstat3 status, const char* what) {
  if (status != NFS3_OK) return fail(errno_of(status), what);
  return {};
}

Result<void> check_in(const post_op_attr& directory, nfsstat3 status, const char* what) {
  const std::optional<PoolStatus> now = status_of(directory);
  const bool is_empty = status == NFS3_OK || status == NFS3ERR_NOENT;
  if (is_empty && now && now->nlink == 0) return fail(ESTALE, what);
  return check(status, what);
}

PoolStatus status_of(const fattr3& attributes) noexcept {
  // No file is larger than what an off_t can say.
  const bool has_size = attributes.size <= INT64_MAX;
  return {.kind = attributes.type == NF3REG && has_size ? PoolKind::kFile
                  : attributes.type == NF3DIR           ? PoolKind::kDirectory
                                                        : PoolKind::kOther,
          .fileid = attributes.fileid,
          .size = has_size ? attributes.size : 0,
          .taken = attributes.used,
          .mtime = nanos_of(attributes.mtime),
          .ctime = nanos_of(attributes.ctime),
          .atime = nanos_of(attributes.atime),
          .mode = attributes.mode & 07777,
          .nlink = attributes.nlink,
          .uid = attributes.uid,
          .gid = attributes.gid};
}

std::optional<PoolStatus> status_of(const post_op_attr& attributes) {
  if (attributes.attributes_follow == 0) return std::nullopt;
  return status_of(attributes.post_op_attr_u.attributes);
}

sattr3 with_mode(std::uint32_t mode) noexcept {
  sattr3 attributes{};
  attributes.mode.set_it = 1;
  attributes.mode.set_mode3_u.mode = mode & 07777;
  return attributes;
}

}  // namespace kvcachefs
