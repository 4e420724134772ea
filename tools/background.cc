#include "tools/background.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "tools/commands.h"

namespace kvcachefs {
namespace {

// Messages on the pipe: a kind, the text, and a NUL.
constexpr char kNote = 'n';
constexpr char kFailed = 'f';
constexpr char kReady = 'r';

// Reads messages until the daemon has said how it went, or has ended without a word.
int wait_for_report(int pipe) {
  std::string received;
  std::array<char, 1024> buffer;
  while (true) {
    const ssize_t got = ::read(pipe, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    received.append(buffer.data(), static_cast<std::size_t>(got));
    for (std::size_t end = received.find('\0'); end != std::string::npos;
         end = received.find('\0')) {
      const std::string message = received.substr(0, end);
      received.erase(0, end + 1);
      const std::string_view text = std::string_view{message}.substr(1);
      if (message[0] == kReady) return kExitOk;
      complain(text);
      if (message[0] == kFailed) return kExitFailed;
    }
  }
  complain("mount: the daemon ended before the mount answered: see its log (--log FILE)");
  return kExitFailed;
}

void to_null(int fd) {
  const UniqueFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  if (null) ::dup2(null.get(), fd);
}

}  // namespace

Result<void> StartReport::send(char kind, const std::string& text) {
  std::string message = kind + text;
  message += '\0';
  std::string_view rest = message;
  while (!rest.empty()) {
    const ssize_t put = ::write(pipe_.get(), rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail_errno("report to the foreground");
    rest.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

void StartReport::note(const std::string& text) {
  if (!background_) return complain(text);
  // Who waits may have gone; ready() finds that out.
  [[maybe_unused]] const auto sent = send(kNote, text);
}

void StartReport::failed(const std::string& problem) {
  if (!background_) return complain(problem);
  [[maybe_unused]] const auto sent = send(kFailed, problem);
}

Result<void> StartReport::ready() {
  if (!background_) return {};
  to_null(STDOUT_FILENO);
  to_null(STDERR_FILENO);
  TRY(send(kReady, {}));
  pipe_.reset();
  return {};
}

void close_inherited_descriptors() noexcept { ::close_range(STDERR_FILENO + 1, ~0U, 0); }

int run_in_background(const std::function<int(StartReport&)>& daemon) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    complain(fmt::format("mount: pipe: {}: close some files", std::strerror(errno)));
    return kExitFailed;
  }
  UniqueFd from_daemon{ends[0]};
  UniqueFd to_foreground{ends[1]};
  std::fflush(nullptr);

  const pid_t child = ::fork();
  if (child < 0) {
    complain(fmt::format("mount: fork: {}: end some processes", std::strerror(errno)));
    return kExitFailed;
  }
  if (child > 0) {
    to_foreground.reset();
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return wait_for_report(from_daemon.get());
  }
  // A session of its own, and then no leader of it: no terminal can become ours again.
  from_daemon.reset();
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  if (::chdir("/") != 0) ::_exit(kExitFailed);
  to_null(STDIN_FILENO);
  StartReport report{std::move(to_foreground)};
  return daemon(report);
}

}  // namespace kvcachefs
