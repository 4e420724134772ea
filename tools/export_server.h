// Runs a user-space NFS server for a mount: started when the mount answers, ended when it has gone, started again when it
// is there again or the server has ended by itself.
//
// A server keeps the root of a mount whose daemon has died, and a new mount would never be served: so it is ended
// with it. Of a process with one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "backend/base/file_lock.h"
#include "tools/ganesha_config.h"

namespace kvcachefs {

class ExportServer {
 public:
  // `what.work` is made, but not what is above it; it holds configuration, log, and what the server keeps. One that is
  // there must be ours, with nothing else in it.
  explicit ExportServer(GaneshaExport what) : what_(std::move(what)) {}
  ~ExportServer() { end(); }
  ExportServer(const ExportServer&) = delete;
  ExportServer& operator=(const ExportServer&) = delete;

  // Until SIGTERM or SIGINT, which give 0, also while the server is starting. 1: it could not be started at first; said
  // on standard error.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLookEvery{500};
  static constexpr std::chrono::seconds kStartLimit{30};
  static constexpr std::chrono::seconds kEndLimit{10};
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{30};

  bool prepare();
  bool fill_work(std::string& problem);
  // What is mounted there and answers; nullopt: nothing.
  [[nodiscard]] std::optional<dev_t> find_served() const;
  void look();
  void try_later();
  bool start(dev_t mount);
  bool spawn();
  bool wait_until_it_serves();
  void end();
  // Whether it has ended by itself.
  bool has_ended();
  [[nodiscard]] std::string work(const char* name) const { return what_.work + "/" + name; }
  [[nodiscard]] std::string last_words() const;

  const GaneshaExport what_;
  std::optional<FileLock> lock_;
  std::string program_;
  pid_t server_ = 0;  // 0: none runs
  dev_t served_ = 0;  // of the server that runs
  bool waits_ = false;
  bool asked_to_end_ = false;
  Clock::time_point not_before_{};
  std::chrono::seconds pause_ = kFirstPause;
};

}  // namespace kvcachefs
