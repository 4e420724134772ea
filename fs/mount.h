// One mount: builds and owns everything, starts and stops it in order.
//
// Start: probe processes (forked before the first thread) -> privileges -> state directory (its
//        lock) -> mount point (a dead mount is taken away) -> database -> catalog -> devices ->
//        session (nothing mounted yet) -> volume (recovery) -> control socket and metrics
//        (listen) -> kernel mount -> volume's threads, those of control and metrics, session
//        thread -> the mount answers -> the pool is joined, if it is there -> READY=1.
// Stop:  STOPPING=1 -> kernel unmount; a busy mount is drained for a moment, then detached, and
//        what is open is served until its last close or the stop-timeout -> session thread ends
//        -> metrics and control socket -> volume (seals what it can, writes the clean marker) -> session ->
//        pool, devices -> catalog and database -> state directory (its lock).
//
// Lock order, over all layers: inode table -> inode -> {devices, database}. The session's
// notifier and the control thread hold no lock while they call. The lock of the state directory
// is held from the second step to the last.
//
// Threads: the caller of run() waits for signals and the end of the session; the session has
// its own; the volume has its sealer and reaper; the control socket one, metrics three.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"
#include "backend/pool/pool_service.h"
#include "fs/config.h"
#include "fs/control.h"
#include "fs/fuse/session.h"
#include "fs/local_devices.h"
#include "fs/metrics_server.h"
#include "fs/mount_place.h"
#include "fs/state_dir.h"
#include "fs/status.h"
#include "fs/volume.h"
#include "metadata/catalog.h"

namespace kvcachefs {

class Mount {
 public:
  // A daemon sets up its process: the signals that run() takes blocked, those ignored
  // that would end or stop it and mean nothing to it, many descriptors, no limit of the
  // starter's to the size of files or the processor's time, no core dumps (they would hold
  // cache bytes), no umask (modes come from the callers).
  static void prepare_process() noexcept;

  // All up to "the mount answers". The caller has one thread. A failure leaves nothing behind;
  // `problem` says what failed, on what, and what to do.
  static Result<std::unique_ptr<Mount>> start(const Config& config, const Note& note,
                                              std::string& problem);
  // Stops at once when run() was not called.
  ~Mount();
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  // Serves until SIGTERM, SIGINT or SIGQUIT, ask_to_stop(), or until somebody unmounts; stops;
  // returns the exit code: 0, or 1 when the connection to the kernel failed. A second signal
  // ends the waiting. SIGHUP opens the log anew and takes over the settings that may change on
  // a live mount (kLive).
  int run();
  // Reads the settings again; before run(). Errors: as read_settings(). Without it SIGHUP opens
  // the log alone.
  using ReadSettings = std::function<Result<Config>(std::string& problem)>;
  void on_hang_up(ReadSettings read) { read_settings_ = std::move(read); }
  // Any thread.
  void ask_to_stop() noexcept;

 private:
  explicit Mount(const Config& config);

  Result<void> open_database(std::string& problem);
  Result<void> open_pool(std::string& problem);
  Result<void> open_volume(std::string& problem);
  void say_what_is_reached(const Note& note) const;
  // For fsck. The mount works without it.
  void remember_devices() noexcept;
  Result<void> mount_kernel(std::string& problem);
  Result<void> open_control(std::string& problem);
  Result<void> open_metrics(std::string& problem);
  Result<void> wait_for_answer(AnswerProbe& probe, std::string& problem);
  Result<std::string> answer(const ControlRequest& request);
  [[nodiscard]] StatusReport report();

  enum class Event { kStop, kSessionEnded, kHangUp, kTimeout };
  Event wait_for_event(int timeout_ms) noexcept;
  void take_settings();
  void unmount_in_time() noexcept;
  bool drain(std::int64_t deadline) noexcept;
  void finish() noexcept;

  const Config config_;
  const std::int64_t started_;
  ReadSettings read_settings_;
  // Of the settings, what may have changed since.
  std::vector<Assignment> said_;
  std::chrono::nanoseconds stop_timeout_;
  // In the order of their making; finish() takes them apart the other way round.
  std::unique_ptr<StateDir> state_;
  std::unique_ptr<LocalDevices> devices_;
  std::unique_ptr<Catalog> catalog_;
  std::unique_ptr<PoolService> pool_;  // null: nobody asked for one
  std::shared_ptr<PoolGovernor> pool_governor_;
  std::unique_ptr<FuseSession> session_;
  std::unique_ptr<Volume> volume_;
  std::thread serving_;
  std::unique_ptr<ControlServer> control_;
  std::unique_ptr<MetricsServer> metrics_;  // null: nobody asked for it

  UniqueFd trial_;          // of the first device, until the session has mounted
  UniqueFd signals_;        // signalfd
  UniqueFd stop_asked_;     // eventfd
  UniqueFd session_ended_;  // eventfd
  std::atomic<bool> session_failed_{false};
  std::atomic<bool> stopping_{false};
  bool impatient_ = false;  // asked twice to stop
  bool finished_ = false;
};

}  // namespace kvcachefs
