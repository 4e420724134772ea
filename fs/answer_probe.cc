#include "fs/answer_probe.h"

#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <utility>

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

// The descriptor that the child's end is moved to; it keeps no other. Standard output may be a pipe whose reader waits
// for its last writer, and the child may hang.
constexpr int kChildPipe = 0;

// Only calls that are allowed in a child of any program: it never returns.
[[noreturn]] void answer_one(int pipe) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "kvcachefs-probe");
  if (pipe != kChildPipe) ::dup2(pipe, kChildPipe);
  ::close_range(kChildPipe + 1, ~0u, 0);
  std::array<char, PATH_MAX> path;
  const ssize_t got = ::recv(kChildPipe, path.data(), path.size() - 1, 0);
  if (got <= 0) ::_exit(0);
  path[static_cast<std::size_t>(got)] = '\0';
  struct statfs space;
  struct stat status;
  const bool answers = ::statfs(path.data(), &space) == 0 && ::stat(path.data(), &status) == 0;
  const int code = answers ? 0 : errno;
  ::send(kChildPipe, &code, sizeof code, MSG_NOSIGNAL);
  ::_exit(0);
}

}  // namespace

Result<AnswerProbe> AnswerProbe::prepare() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return fail_errno("probe: socketpair");
  }
  UniqueFd ours{ends[0]};
  const UniqueFd theirs{ends[1]};
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("probe: fork");
  if (pid == 0) answer_one(theirs.get());
  return AnswerProbe{pid, std::move(ours)};
}

AnswerProbe::AnswerProbe(AnswerProbe&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::move(other.pipe_)) {}

AnswerProbe::~AnswerProbe() {
  if (pid_ <= 0) return;
  pipe_.reset();
  ::kill(pid_, SIGKILL);
  // One that hangs in the kernel is left to init: waiting for it could take for ever.
  constexpr int kTries = 100;
  constexpr useconds_t kPauseUs = 1000;
  for (int i = 0; i < kTries; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
    ::usleep(kPauseUs);
  }
}

Result<void> AnswerProbe::ask(const std::string& path, std::chrono::milliseconds patience) {
  if (::send(pipe_.get(), path.data(), path.size(), MSG_NOSIGNAL) < 0) {
    return fail_errno("probe: ask");
  }
  const std::int64_t deadline = monotonic_now() + std::chrono::nanoseconds{patience}.count();
  while (true) {
    const std::int64_t left = deadline - monotonic_now();
    if (left <= 0) return fail(ETIMEDOUT, "the mount does not answer");
    pollfd answered{pipe_.get(), POLLIN, 0};
    const int ready = ::poll(&answered, 1, static_cast<int>(left / kNanosPerMilli) + 1);
    if (ready < 0 && errno != EINTR) return fail_errno("probe: poll");
    if (ready <= 0) continue;
    int code = 0;
    const ssize_t got = ::recv(pipe_.get(), &code, sizeof code, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof code) return fail(EIO, "probe: its process ended");
    if (code != 0) return fail(code, "statfs or stat");
    return {};
  }
}

}  // namespace kvcachefs
