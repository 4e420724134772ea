#include "fs/fuse/transport.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "backend/base/log.h"
#include "backend/base/unique_fd.h"
#include "fs/fuse/libfuse.h"

namespace kvcachefs {

namespace {

constexpr const char* kSwitch = "/sys/module/fuse/parameters/enable_uring";

std::optional<std::string> read_small(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return std::nullopt;
  char text[64];
  const ssize_t size = ::read(fd.get(), text, sizeof text);
  if (size < 0) return std::nullopt;
  return std::string(text, static_cast<std::size_t>(size));
}

[[maybe_unused]] bool is_on(const std::optional<std::string>& value) {
  return value.has_value() && !value->empty() &&
         (value->front() == 'Y' || value->front() == '1');
}

}  // namespace

TransportPlan plan_io_uring(std::size_t depth, std::size_t payload_bytes,
                            std::size_t memory_bytes) {
  TransportPlan plan;
#ifdef KVCACHEFS_HAVE_IO_URING
  const auto cpus = static_cast<std::size_t>(get_nprocs_conf());
  plan.shape = ring_shape(cpus, depth, payload_bytes, memory_bytes);
  if (plan.shape.depth == 0) {
    plan.why =
        fmt::format("{} CPUs need more than {} MiB of ring buffers", cpus, memory_bytes >> 20);
    return plan;
  }
  if (!is_on(read_small(kSwitch))) {
    const UniqueFd fd(::open(kSwitch, O_WRONLY | O_CLOEXEC));
    if (!fd && errno == ENOENT) {
      plan.why = "the kernel has no FUSE-over-io_uring (it is there from 6.14 on)";
      return plan;
    }
    if (!fd || ::write(fd.get(), "1", 1) != 1) {
      plan.why =
          fmt::format("{} is N and may not be changed ({})", kSwitch, std::strerror(errno));
      return plan;
    }
    log_info("fuse_enable_uring value=Y file={}", kSwitch);
  }
  plan.io_uring = true;
  plan.why = fmt::format("{} queues of {} entries of {} KiB", cpus, plan.shape.depth,
                         plan.shape.payload_bytes >> 10);
#else
  (void)depth;
  (void)payload_bytes;
  (void)memory_bytes;
  plan.why = fmt::format("libfuse {} is built without io_uring", fuse_pkgversion());
#endif
  return plan;
}

bool ring_threads_run() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"), ::closedir);
  if (tasks == nullptr) return false;
  while (const dirent* entry = ::readdir(tasks.get())) {
    const auto name = read_small(std::string("/proc/self/task/") + entry->d_name + "/comm");
    if (name.has_value() && name->starts_with("fuse-ring-")) return true;
  }
  return false;
}

}  // namespace kvcachefs
