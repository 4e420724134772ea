// Goes to the background and tells the one who waits in the foreground how it went.
#pragma once

#include <functional>
#include <string>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"

namespace kvcachefs {

// Where a starting daemon tells the person who started it what happens. In the foreground:
// standard error. In the background: a pipe to the process that waits.
class StartReport {
 public:
  StartReport() = default;  // foreground
  explicit StartReport(UniqueFd pipe) : pipe_(std::move(pipe)), background_(true) {}

  // Something worth a word that is no failure.
  void note(const std::string& text);
  void failed(const std::string& problem);
  // The mount answers. In the background the standard streams go to /dev/null from now on.
  // Error: EPIPE (whoever waited has gone, for example by Ctrl-C: stop again).
  Result<void> ready();

 private:
  Result<void> send(char kind, const std::string& text);
  UniqueFd pipe_;
  bool background_ = false;
};

// Closes all but the standard streams: a daemon would hold on to whatever its starter had open,
// a lock of flock(1) or a pipe that somebody reads to its end, until the mount ends.
void close_inherited_descriptors() noexcept;

// Runs `daemon` in a process of its own session that is no child of ours. Returns in the caller
// when the daemon has reported, with the exit code for the shell: 0 once it is ready, 1 when it
// failed.
int run_in_background(const std::function<int(StartReport&)>& daemon);

}  // namespace kvcachefs
