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

std::optional<bool> is_cached(int fd, std::uint64_t size) noexcept {
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  CachestatRange range{.offset = 0, .length = size};
  Cachestat found{};
  if (::syscall(kCachestat, fd, &range, &found, 0) != 0) return std::nullopt;
  return found.cached >= (size + page - 1) / page;
}

}  // namespace kvcachefs
