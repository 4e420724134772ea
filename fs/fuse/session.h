// One FUSE mount: the agreement with the kernel, the threads that serve it, and the ways back
// to it (backing ids, notifications).
//
//   FuseSession session(options);                 // nothing is mounted yet
//   Volume::open(…, &session, &session, …);       // the volume keeps the two ports
//   session.set_volume(*volume);
//   session.mount(problem);                       // mounts, answers INIT, decides data path
//   and transport session.run();                                // serves until it is
//   unmounted; from another thread: unmount()
//
// After run() no handler runs any more and none will. RELEASE requests that the kernel had
// still queued at the unmount never came; the volume closes what is open when it stops. The
// session outlives the volume.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/base/fair_pool.h"
#include "backend/base/result.h"
#include "backend/private_mount.h"
#include "fs/fuse/change_pools.h"
#include "fs/fuse/slow_calls.h"
#include "fs/node/ports.h"
#include "fs/stats.h"

struct fuse_session;
struct fuse_conn_info;

namespace kvcachefs {

class DiskRequests;
class Notifier;
class ReadLoop;
class Volume;
struct OperationContext;

enum class DataPathWish { kAuto, kPassthrough, kDaemon };
enum class TransportWish { kAuto, kUring, kDev };

struct SessionOptions {
  std::string mountpoint;
  // First column of the mount table; the type is fuse.kvcachefs.
  std::string source = "kvcachefs";
  bool allow_other = false;
  // Options of the mount itself, one each: "nosuid", "ro", "context=…".
  std::vector<std::string> mount_options;
  // Libfuse does not pass these on.
  AccessTimes access_times = AccessTimes::kAsBelow;
  bool follows_symlinks = true;
  DataPathWish data_path = DataPathWish::kAuto;
  TransportWish transport = TransportWish::kAuto;
  bool idmap = false;  // it can be mounted once more with other ids
  // Largest READ and WRITE. The kernel's own limit is 1 MiB unless an administrator raises it,
  // which gains nothing.
  std::size_t max_request_bytes = std::size_t{1} << 20;
  // Of the io_uring transport: entries for each CPU, and the memory of all.
  std::size_t ring_depth = 64;
  std::size_t ring_memory_bytes = std::size_t{256} << 20;
  // Threads that read /dev/fuse.
  unsigned read_threads = 10;
  // A regular file on the first device, open for the time of mount(), to try passthrough with;
  // -1: no trial.
  int trial_fd = -1;
  // Calls may wait for one.
  bool has_pool = false;
};

// What was decided, and the reason in a sentence.
struct InForce {
  std::string mode;
  std::string why;
};

class FuseSession final : public BackingIds, public KernelNotifications {
 public:
  explicit FuseSession(SessionOptions options);
  // Ends what still runs and detaches the mount.
  ~FuseSession() override;
  FuseSession(const FuseSession&) = delete;
  FuseSession& operator=(const FuseSession&) = delete;

  void set_volume(Volume& volume) noexcept;

  // When it returns, the mount is there and what was decided can be asked for; requests wait
  // until run(). `problem` says in a sentence what failed, on what, and what to do. Errors:
  // what mounting gives (EPERM, ENOENT, ENOTDIR, …); EOPNOTSUPP when a data path or transport
  // that was asked for by name is not to be had; EPROTO. Signals are blocked in every thread
  // that it starts.
  Result<void> mount(std::string& problem);

  // Call when the kernel knows the root's attributes (notifier.h); messages wait until then.
  void start_notifications();

  // Serves until the mount is gone or request_stop(). Errors: EIO and others of reading
  // /dev/fuse.
  Result<void> run();

  // Makes run() return although the mount is in use: who uses it gets ENOTCONN.
  // Async-signal-safe.
  void request_stop() noexcept;

  // Takes the mount away; run() returns when the last user is gone. Errors: EBUSY (in use; not
  // when `lazily`), EINVAL (it is not there any more, or something else was mounted over it),
  // EPERM.
  Result<void> unmount(bool lazily);

  // "passthrough" or "daemon"; "io_uring" or "dev_fuse". Constant after mount().
  [[nodiscard]] const InForce& data_path() const noexcept { return data_path_; }
  [[nodiscard]] const InForce& transport() const noexcept { return transport_; }
  [[nodiscard]] const Stats& stats() const noexcept;
  // After run(): the kernel had ended the connection before, with nobody left who had a file open
  // or mapped.
  [[nodiscard]] bool was_let_go() const noexcept { return was_let_go_; }
  // Notifications that did not find room; see notifier.h.
  [[nodiscard]] std::uint64_t notifications_dropped() const noexcept;

  // BackingIds
  [[nodiscard]] bool available() const noexcept override;
  Result<int> open(int fd) override;
  void close(int id) noexcept override;

  // KernelNotifications
  void invalidate_entry(InodeNumber parent, std::string name) override;
  void invalidate_attributes(InodeNumber inode) override;
  void invalidate_attributes_at_once(InodeNumber inode) override;
  void invalidate_data(InodeNumber inode) override;
  void drop_listing(InodeNumber directory, std::uint64_t ticket) override;

 private:
  Result<void> create_session(std::string& problem);
  Result<void> set_flags(std::string& problem) const;
  Result<void> answer_init(std::string& problem);
  Result<void> check_wishes(std::string& problem) const;
  void negotiate_with(fuse_conn_info& connection) noexcept;
  // Tries passthrough with a real file. Requests may come before mount() gets to it: the first
  // to ask decides.
  void decide_data_path() const noexcept;
  void decide_transport();
  void raise_read_ahead() const noexcept;
  [[nodiscard]] bool connection_lives() const noexcept;
  void abort_connection() noexcept;
  void shut_down() noexcept;

  const SessionOptions options_;
  std::string mountpoint_;  // canonical
  dev_t device_ = 0;
  std::atomic<bool> mounted_{false};
  std::atomic<bool> was_let_go_{false};
  fuse_session* session_ = nullptr;
  std::unique_ptr<OperationContext> context_;
  std::unique_ptr<DiskRequests> disk_requests_;
  std::unique_ptr<SlowCalls> slow_calls_;
  std::unique_ptr<ChangePools> change_calls_;
  std::unique_ptr<FairPool> room_calls_;
  std::unique_ptr<FairPool> pool_calls_;
  std::unique_ptr<FairPool> lookup_calls_;
  std::unique_ptr<FairPool> sync_calls_;
  std::unique_ptr<FairPool> read_calls_;
  std::unique_ptr<Notifier> notifier_;
  std::unique_ptr<ReadLoop> loop_;

  bool wants_passthrough_ = false;
  bool wants_uring_ = false;
  std::size_t ring_depth_ = 0;
  std::size_t max_request_bytes_ = 0;
  std::atomic<bool> init_done_{false};
  bool passthrough_offered_ = false;
  bool uring_offered_ = false;
  bool idmap_offered_ = false;
  mutable std::once_flag data_path_decided_;
  mutable std::atomic<bool> passthrough_{false};
  mutable InForce data_path_;
  InForce transport_;
};

}  // namespace kvcachefs
