#include "fs/life/page_cache.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace kvcachefs {
namespace {

// Linux 6.5, include/uapi/linux/mman.h and the table of system calls of all machines.
constexpr long kCachestat = 451;
struct CachestatRange {
  std::uint64_t offset;
  std::uint64_t length;
};
struct Cachestat {
  std::uint64_t cached;
  std::uint64_t dirty;
  std::uint64_t writeback;
  std::uint64_t evicted;
  std::uint64_t recently_evicted;
};

}  // namespace

std::optional<bool> is_cached(int fd, std::uint64_t size, std::uint64_t offset) noexcept {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (size == 0) return true;  // a length of 0 would be all of the file
  size += offset % page;
  offset -= offset % page;
  CachestatRange range{.offset = offset, .length = size};
  Cachestat found{};
  if (::syscall(kCachestat, fd, &range, &found, 0) != 0) return std::nullopt;
  return found.cached >= (size + page - 1) / page;
}

}  // namespace kvcachefs
