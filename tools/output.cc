#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "backend/base/visible.h"
#include "tools/commands.h"

namespace kvcachefs {
namespace {

int first_error = 0;  // of standard output

void note(bool written) {
  if (!written && first_error == 0) first_error = errno == 0 ? EIO : errno;
}

}  // namespace

void complain(std::string_view problem) {
  const std::string line = fmt::format("kvcachefs: {}\n", visible_message(problem));
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

void print_text(std::string_view text) {
  if (first_error != 0) return;
  note(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

bool output_failed() { return first_error != 0; }

int finish_output(int code, int failed) {
  note(std::fflush(stdout) == 0 && std::ferror(stdout) == 0);
  if (first_error == 0) return code;
  if (first_error != EPIPE)
    complain(
        fmt::format("standard output: {}: not all was written", std::strerror(first_error)));
  return code == kExitOk ? failed : code;
}

void hold_standard_streams() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest that is free: this one.
    [[maybe_unused]] const int opened =
        ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace kvcachefs
