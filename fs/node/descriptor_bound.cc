#include "fs/node/descriptor_bound.h"

#include <sys/resource.h>

namespace kvcachefs {

std::uint64_t DescriptorBound::limit_of_process() noexcept {
  constexpr std::uint64_t kUsual = 1024;
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : kUsual;
}

}  // namespace kvcachefs
