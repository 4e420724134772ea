#include "fs/fuse/reply.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cassert>
#include <cstdlib>
#include <memory>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "fs/fuse/kernel_order.h"

namespace kvcachefs {

namespace {

constexpr std::size_t kPageSize = 4096;

// One buffer a thread, kept: memory that is allocated and faulted in for every READ costs more
// than the copy.
struct ThreadBuffer {
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory;
  std::size_t size = 0;

  std::span<std::byte> at_least(std::size_t wanted) {
    if (wanted > size) {
      const std::size_t rounded = (wanted + kPageSize - 1) / kPageSize * kPageSize;
      memory.reset(static_cast<std::byte*>(std::aligned_alloc(kPageSize, rounded)));
      size = memory == nullptr ? 0 : rounded;
    }
    return {memory.get(), std::min(size, wanted)};
  }
};

// libfuse ends its ring threads by cancelling them; unwinding out of a handler would end the
// process.
void refuse_cancellation() noexcept {
  thread_local const bool refused = [] {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    return true;
  }();
  (void)refused;
}

// None, or an error that any filesystem in good health answers with, because of what it was
// asked: there is none (a miss is one of these), there is one already, this caller may not, this
// cannot be.
bool is_ordinary(int code) noexcept {
  switch (code) {
    case 0:
    case ENOENT:
    case EEXIST:
    case ENOTEMPTY:
    case ENODATA:
    case ENXIO:
    case ENOTTY:
    case ERANGE:
    case E2BIG:
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ENOTDIR:
    case EXDEV:
    case ELOOP:
    case EMLINK:
    case ENAMETOOLONG:
    case EOPNOTSUPP:
    case ENOSYS:
    case EINVAL:
    case EINTR:
    case EAGAIN:
    case EBUSY:
    case ETXTBSY:
    case EFBIG:
    case EBADF:
    case ESTALE:
      return true;
    default:
      return false;
  }
}

void describe(const Opened& opened, bool direct_mmap, fuse_file_info& info) noexcept {
  info.fh = reinterpret_cast<std::uint64_t>(opened.file);
  info.direct_io = 0;
  info.keep_cache = 0;
  info.noflush = opened.wants_flush ? 0 : 1;
  switch (opened.mode) {
    case ServeMode::kPassthrough:
      set_backing_id(info, opened.backing_id);
      break;
    case ServeMode::kPassthroughDirect:
      set_backing_id(info, opened.backing_id);
      info.direct_io = 1;
      break;
    case ServeMode::kCached:
      info.keep_cache = opened.drops_pages ? 0 : 1;
      break;
    case ServeMode::kDirect:
      // Where a direct file cannot be mapped shared (kernel < 6.6, old libfuse; passthrough is not there either, so
      // no modes clash) it goes through the page cache instead: slower, but what applications expect works.
      // Writes stay one after another: a write(2) larger than one request is atomic only under the inode's lock.
      info.direct_io = direct_mmap ? 1 : 0;
      break;
  }
}

}  // namespace

fuse_entry_param to_entry_param(const Entry& entry) noexcept {
  fuse_entry_param param{};
  param.ino = entry.inode;
  param.generation = entry.generation;
  param.attr = entry.attributes;
  param.attr_timeout = entry.attribute_timeout_s;
  param.entry_timeout = entry.entry_timeout_s;
  return param;
}

Reply::Reply(fuse_req_t request, Operation operation) noexcept
    : request_(request), operation_(operation), began_ns_(monotonic_now()) {
  refuse_cancellation();
}

Reply::Reply(Reply&& other) noexcept
    : request_(std::exchange(other.request_, nullptr)),
      operation_(other.operation_),
      began_ns_(other.began_ns_),
      place_(std::move(other.place_)),
      handle_(other.handle_) {}

Reply::~Reply() { assert(request_ == nullptr && "a request was dropped without an answer"); }

fuse_req_t Reply::take(const Error& error) noexcept {
  assert(request_ != nullptr && "a request was answered twice");
  before_answer(handle_);
  place_.leave();
  const std::int64_t now = monotonic_now();
  context().stats.record(operation_, began_ns_, now, !is_ordinary(error.code));
  if (error.code == ENOSPC) context().stats.refused(now);
  if (log_enabled(LogLevel::kDebug)) {
    log_debug("answer operation={} errno={} us={} pid={} what=\"{}\"",
              operation_name(operation_), error.code, (now - began_ns_) / 1000,
              fuse_req_ctx(request_)->pid, error.what);
  }
  return std::exchange(request_, nullptr);
}

OpenFile* Reply::file(const fuse_file_info* info) noexcept {
  if (info == nullptr) return nullptr;
  auto* const file = reinterpret_cast<OpenFile*>(info->fh);
  handle_ = file;
  after_request(handle_);
  return file;
}

OpenDirectory* Reply::directory(const fuse_file_info* info) noexcept {
  auto* const directory = reinterpret_cast<OpenDirectory*>(info->fh);
  handle_ = directory;
  after_request(handle_);
  return directory;
}

std::span<std::byte> Reply::buffer(std::size_t size) {
#ifdef KVCACHEFS_HAVE_IO_URING
  char* payload = nullptr;
  std::size_t payload_size = 0;
  if (fuse_req_get_payload(request_, &payload, &payload_size, nullptr) == 0) {
    return {reinterpret_cast<std::byte*>(payload), std::min(payload_size, size)};
  }
#endif
  thread_local ThreadBuffer mine;
  return mine.at_least(size);
}

void Reply::error(const Error& error) noexcept {
  assert(error.code > 0);
  fuse_reply_err(take(error), error.code);
}

void Reply::result(const Result<void>& result) noexcept {
  result.ok() ? ok() : error(result.error());
}

void Reply::ok() noexcept { fuse_reply_err(take(), 0); }

void Reply::none() noexcept { fuse_reply_none(take()); }

void Reply::no_entry(double timeout_s) noexcept {
  fuse_entry_param none{};
  none.entry_timeout = timeout_s;
  fuse_reply_entry(take(), &none);
}

void Reply::attributes(const AttributesReply& attributes) noexcept {
  fuse_reply_attr(take(), &attributes.attributes, attributes.timeout_s);
}

#ifdef KVCACHEFS_HAVE_STATX
void Reply::statx(const AttributesReply& attributes) noexcept {
  const auto stamp = [](const timespec& time) {
    struct statx_timestamp out {};
    out.tv_sec = time.tv_sec;
    out.tv_nsec = static_cast<std::uint32_t>(time.tv_nsec);
    return out;
  };
  const struct stat& from = attributes.attributes;
  struct statx out {};
  out.stx_mask = STATX_BASIC_STATS | STATX_BTIME;
  out.stx_blksize = static_cast<std::uint32_t>(from.st_blksize);
  out.stx_nlink = static_cast<std::uint32_t>(from.st_nlink);
  out.stx_uid = from.st_uid;
  out.stx_gid = from.st_gid;
  out.stx_mode = static_cast<std::uint16_t>(from.st_mode);
  out.stx_ino = from.st_ino;
  out.stx_size = static_cast<std::uint64_t>(from.st_size);
  out.stx_blocks = static_cast<std::uint64_t>(from.st_blocks);
  out.stx_atime = stamp(from.st_atim);
  out.stx_btime = stamp(attributes.birth);
  out.stx_ctime = stamp(from.st_ctim);
  out.stx_mtime = stamp(from.st_mtim);
  out.stx_rdev_major = major(from.st_rdev);
  out.stx_rdev_minor = minor(from.st_rdev);
  fuse_reply_statx(take(), 0, &out, attributes.timeout_s);
}
#endif

void Reply::data(const void* bytes, std::size_t size) noexcept {
  fuse_reply_buf(take(), static_cast<const char*>(bytes), size);
}

void Reply::link_target(const char* target) noexcept { fuse_reply_readlink(take(), target); }

void Reply::written(std::size_t count) noexcept { fuse_reply_write(take(), count); }

void Reply::space(const struct statvfs& space) noexcept { fuse_reply_statfs(take(), &space); }

void Reply::xattr_size(std::size_t size) noexcept { fuse_reply_xattr(take(), size); }

void Reply::position(std::uint64_t offset) noexcept {
  fuse_reply_lseek(take(), static_cast<off_t>(offset));
}

bool Reply::entry(const Entry& entry) noexcept {
  const fuse_entry_param param = to_entry_param(entry);
  return fuse_reply_entry(take(), &param) == 0;
}

bool Reply::opened(const Opened& opened, fuse_file_info& info) noexcept {
  describe(opened, context().direct_mmap, info);
  handle_ = opened.file;
  return fuse_reply_open(take(), &info) == 0;
}

bool Reply::created(const Created& created, fuse_file_info& info) noexcept {
  const fuse_entry_param param = to_entry_param(created.entry);
  describe(created.opened, context().direct_mmap, info);
  handle_ = created.opened.file;
  return fuse_reply_create(take(), &param, &info) == 0;
}

bool Reply::entries(const void* bytes, std::size_t size) noexcept {
  return fuse_reply_buf(take(), static_cast<const char*>(bytes), size) == 0;
}

}  // namespace kvcachefs
