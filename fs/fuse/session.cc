#include "fs/fuse/session.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "backend/base/log.h"
#include "backend/base/unique_fd.h"
#include "fs/fuse/backing_ids.h"
#include "fs/fuse/loop.h"
#include "fs/fuse/negotiate.h"
#include "fs/fuse/notifier.h"
#include "fs/fuse/ops.h"
#include "fs/fuse/transport.h"
#include "fs/mount_table.h"

namespace kvcachefs {

namespace {

// Fewer wait than have been parked, which is bounded (parked_limit).
constexpr std::size_t kMostWaiting = 65'536;
constexpr FairPool::Limits kRoomThread{.each = 1, .most = 1, .queue = kMostWaiting};
// They wait for the pool: its client does four lookups and four loads at a time.
constexpr FairPool::Limits kPoolThreads{.each = 16, .most = 32, .queue = kMostWaiting};
// As many reads as may be parked of a ring of the usual depth.
constexpr FairPool::Limits kReadThreads{.each = 28, .most = 56, .queue = kMostWaiting};
// They wait for the pool, and look at what is left; those behind them look when they are done.
// Sixteen users may each wait with as many as they may have.
constexpr FairPool::Limits kSyncThreads{.each = 8, .most = 128, .queue = kMostWaiting};
// Without a ring: requests in memory that this daemon has read.
constexpr std::size_t kMostParked = 512;
constexpr std::size_t kMostBackground = 64;
// The kernel sends the next INIT only when it did not like the first one's version.
constexpr int kInitRounds = 4;
constexpr off_t kNoPages = -1;  // the offset of a message that is about attributes alone
constexpr unsigned kReadersBesideRings = 2;
// As many may wait for a disk that takes no writes, and others are served all the same.
constexpr unsigned kMostReaders = 128;
constexpr long kOverlayMagic = 0x794c7630;
constexpr const char* kReadAheadKib = "1024";

// libfuse has one log for all sessions of a process. Its last complaint is the best reason that
// a failed mount has.
std::mutex libfuse_complaint_mutex;
std::string libfuse_complaint;

void libfuse_log(fuse_log_level level, const char* format, va_list arguments) {
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  std::string_view text(line);
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  if (level >= FUSE_LOG_DEBUG) return log_debug("libfuse message=\"{}\"", text);
  if (level >= FUSE_LOG_NOTICE) return log_info("libfuse message=\"{}\"", text);
  log_warn("libfuse message=\"{}\"", text);
  const std::lock_guard lock(libfuse_complaint_mutex);
  libfuse_complaint = text;
}

std::string take_complaint() {
  const std::lock_guard lock(libfuse_complaint_mutex);
  return std::exchange(libfuse_complaint, {});
}

// libfuse splits its option list at commas.
std::string escape(const std::string& option) {
  std::string escaped;
  for (const char c : option) {
    if (c == ',' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

class Arguments {
 public:
  Arguments() { fuse_opt_add_arg(&args_, "kvcachefs"); }
  ~Arguments() { fuse_opt_free_args(&args_); }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  void add(const std::string& option) {
    fuse_opt_add_arg(&args_, "-o");
    fuse_opt_add_arg(&args_, escape(option).c_str());
  }
  fuse_args* get() noexcept { return &args_; }

 private:
  fuse_args args_ = FUSE_ARGS_INIT(0, nullptr);
};

bool on_stacked_filesystem(int fd) noexcept {
  struct statfs filesystem {};
  return fd >= 0 && ::fstatfs(fd, &filesystem) == 0 && filesystem.f_type == kOverlayMagic;
}

// The device of what is mounted on top at `point`; the path itself, which may be dead or hang,
// is not touched.
std::optional<dev_t> device_on(const std::string& point) {
  const Result<std::vector<MountEntry>> table = read_mount_table();
  if (!table) return std::nullopt;
  const std::optional<MountEntry> top = mount_on(*table, point);
  return top.has_value() ? std::optional(top->device) : std::nullopt;
}

bool write_file(const std::string& path, std::string_view text) noexcept {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

std::string reason_of(const Error& error) {
  switch (error.code) {
    case EPERM:
      return "the kernel refuses it: it needs CAP_SYS_ADMIN in the initial user namespace";
    case ELOOP:
      return "the first device is on a filesystem that is stacked too deep (overlayfs on "
             "overlayfs)";
    case EOPNOTSUPP:
      return "the filesystem of the first device cannot be a backing filesystem";
    default:
      return std::string("the kernel refuses it: ") + std::strerror(error.code);
  }
}

}  // namespace

FuseSession::FuseSession(SessionOptions options)
    : options_(std::move(options)),
      context_(std::make_unique<OperationContext>()),
      notifier_(std::make_unique<Notifier>([this](const Notification& what) {
        // -ENOENT only says that the kernel had nothing cached.
        if (what.listing != 0) {
          const int told = fuse_lowlevel_notify_inval_inode(session_, what.inode, 0, 1);
          if (told == 0 || told == -ENOENT)
            context_->volume->listing_dropped(what.inode, what.listing);
        } else if (what.name.empty()) {
          // A length of 0 means all from there on.
          fuse_lowlevel_notify_inval_inode(session_, what.inode, what.pages ? 0 : kNoPages, 0);
        } else {
          fuse_lowlevel_notify_inval_entry(session_, what.inode, what.name.c_str(),
                                           what.name.size());
        }
      })) {
  context_->negotiate = [this](fuse_conn_info& connection) { negotiate_with(connection); };
}

FuseSession::~FuseSession() {
  shut_down();
  if (session_ == nullptr) return;
  fuse_session_unmount(session_);  // closes /dev/fuse
  fuse_session_destroy(session_);
}

void FuseSession::set_volume(Volume& volume) noexcept { context_->volume = &volume; }

const Stats& FuseSession::stats() const noexcept { return context_->stats; }

std::uint64_t FuseSession::notifications_dropped() const noexcept {
  return notifier_->dropped();
}

Result<void> FuseSession::mount(std::string& problem) {
  fuse_set_log_func(libfuse_log);
  // Also of the threads that libfuse makes at INIT.
  const SignalsBlocked blocked;
  char* canonical = ::realpath(options_.mountpoint.c_str(), nullptr);
  if (canonical == nullptr) {
    problem = fmt::format("mount point: {}: {}", options_.mountpoint, std::strerror(errno));
    return fail_errno("mount point");
  }
  mountpoint_ = canonical;
  std::free(canonical);

  TRY(create_session(problem));
  disk_requests_ = std::make_unique<DiskRequests>(context_->volume->disks());
  context_->disk_requests = disk_requests_.get();
  slow_calls_ = std::make_unique<SlowCalls>(context_->volume->disks());
  context_->slow_calls = slow_calls_.get();
  change_calls_ = std::make_unique<ChangePools>();
  context_->change_calls = change_calls_.get();
  room_calls_ = std::make_unique<FairPool>("kv-room", kRoomThread);
  context_->room_calls = room_calls_.get();
  // Without a pool nothing is posted there: they have a thread each.
  pool_calls_ = std::make_unique<FairPool>("kv-pool-call", kPoolThreads);
  context_->pool_calls = pool_calls_.get();
  lookup_calls_ = std::make_unique<FairPool>("kv-pool-look", kPoolThreads);
  context_->lookup_calls = lookup_calls_.get();
  sync_calls_ = std::make_unique<FairPool>("kv-pool-sync", kSyncThreads);
  context_->sync_calls = sync_calls_.get();
  read_calls_ = std::make_unique<FairPool>("kv-pool-read", kReadThreads);
  context_->read_calls = read_calls_.get();
  loop_ = std::make_unique<ReadLoop>(session_);

  take_complaint();
  if (fuse_session_mount(session_, mountpoint_.c_str()) != 0) {
    const int code = errno == 0 ? EIO : errno;
    const std::string complaint = take_complaint();
    problem = fmt::format("mounting: {}: {}", mountpoint_,
                          complaint.empty() ? std::strerror(code) : complaint);
    return fail(code, "mount");
  }
  device_ = device_on(mountpoint_).value_or(0);
  mounted_ = true;
  Result<void> settled = set_flags(problem);
  if (settled) settled = answer_init(problem);
  if (settled) {
    decide_data_path();
    decide_transport();
    settled = check_wishes(problem);
  }
  if (!settled) {
    shut_down();
    return settled;
  }
  raise_read_ahead();
  notifier_->accept();
  log_info(
      "mounted mountpoint={} device=0:{} data_path={} data_path_why=\"{}\" transport={} "
      "transport_why=\"{}\"",
      mountpoint_, minor(device_), data_path_.mode, data_path_.why, transport_.mode,
      transport_.why);
  return {};
}

void FuseSession::start_notifications() { notifier_->start(); }

Result<void> FuseSession::create_session(std::string& problem) {
  max_request_bytes_ = options_.max_request_bytes;
  data_path_ = {.mode = "daemon", .why = "asked for by the option data-path"};
#ifdef KVCACHEFS_HAVE_PASSTHROUGH
  wants_passthrough_ = options_.data_path != DataPathWish::kDaemon;
#else
  if (options_.data_path != DataPathWish::kDaemon) {
    data_path_.why = fmt::format("libfuse {} has no passthrough (it is there from 3.17 on)",
                                 fuse_pkgversion());
  }
#endif
  transport_ = {.mode = "dev_fuse", .why = "asked for by the option transport"};
  if (options_.transport != TransportWish::kDev) {
    const TransportPlan plan = plan_io_uring(options_.ring_depth, options_.max_request_bytes,
                                             options_.ring_memory_bytes);
    wants_uring_ = plan.io_uring;
    transport_.why = plan.why;
    if (plan.io_uring) {
      ring_depth_ = plan.shape.depth;
      max_request_bytes_ = plan.shape.payload_bytes;
    }
  }

  Arguments arguments;
  arguments.add("default_permissions");
  arguments.add("fsname=" + options_.source);
  arguments.add("subtype=kvcachefs");
  if (options_.allow_other) arguments.add("allow_other");
  for (const std::string& option : options_.mount_options) {
    // The kernel's default, and unknown to libfuse.
    if (option != "relatime") arguments.add(option);
  }
  if (wants_uring_) {
    arguments.add("io_uring");
    arguments.add(fmt::format("io_uring_q_depth={}", ring_depth_));
  }
  take_complaint();
  session_ = fuse_session_new(arguments.get(), &operation_table(), sizeof(fuse_lowlevel_ops),
                              context_.get());
  if (session_ == nullptr) {
    problem = fmt::format("starting FUSE: {}: {}: check the options given with -o", mountpoint_,
                          take_complaint());
    return fail(EINVAL, "fuse_session_new");
  }
  return {};
}

// Libfuse does not pass these on; relatime is the kernel's default.
Result<void> FuseSession::set_flags(std::string& problem) const {
  const bool is_strict = options_.access_times == AccessTimes::kAlways;
  if (!is_strict && options_.follows_symlinks) return {};
  Result<void> set = set_mount_flags(mountpoint_.c_str(),
                                     is_strict ? AccessTimes::kAlways : AccessTimes::kAsBelow,
                                     options_.follows_symlinks);
  if (!set.ok())
    problem = fmt::format(
        "-o strictatime or nosymfollow: {}: the kernel refuses it: {}: mount as root, or "
        "without",
        mountpoint_, std::strerror(set.error().code));
  return set;
}

// The first thing that the kernel asks, answered here: what it offers is known when mount()
// returns.
Result<void> FuseSession::answer_init(std::string& problem) {
  fuse_buf buffer{};
  int size = 1;
  for (int round = 0; round < kInitRounds && !init_done_ && size > 0; ++round) {
    do {
      size = fuse_session_receive_buf(session_, &buffer);
    } while (size == -EINTR);
    if (size > 0) fuse_session_process_buf(session_, &buffer);
  }
  std::free(buffer.mem);
  if (init_done_ && fuse_session_exited(session_) == 0) return {};
  problem = fmt::format("starting FUSE: {}: the kernel's greeting was not understood: {}",
                        mountpoint_, take_complaint());
  return fail(EPROTO, "INIT");
}

void FuseSession::negotiate_with(fuse_conn_info& connection) noexcept {
  // Reads that wait for the pool have places of their own (context.h); without one there are
  // none.
  const std::size_t of_ring = options_.has_pool ? ring_depth_ / 2 : ring_depth_ / 8 * 7;
  // Whether or not it comes to a ring. One user's find places (Parking::enter()).
  const std::size_t parked_limit = wants_uring_ ? of_ring : kMostParked;
  const std::size_t background =
      std::clamp<std::size_t>(parked_limit / 4 * 3, 1, kMostBackground);
  disk_requests_->set(DiskRequests::bounds(context_->volume->disks(), background));
  const Offers offers = negotiate(
      connection, Wishes{.passthrough = wants_passthrough_,
                         .io_uring = wants_uring_,
                         .idmap = options_.idmap,
                         .remembers_symlinks = options_.access_times != AccessTimes::kAlways,
                         .stacked_backing = on_stacked_filesystem(options_.trial_fd),
                         .max_write = max_request_bytes_,
                         .most_background = background});
  passthrough_offered_ = offers.passthrough;
  uring_offered_ = offers.io_uring;
  idmap_offered_ = offers.idmap;
  context_->direct_mmap = offers.direct_mmap;
  init_done_ = true;
  const long queues = std::max(::sysconf(_SC_NPROCESSORS_CONF), 1L);
  // Set before the kernel gets its answer, and with it leave to send requests.
  context_->most_parked_reads = background + static_cast<std::size_t>(queues);
  context_->is_ring = uring_offered_;
  context_->parked_limit = uring_offered_ ? of_ring : kMostParked;
  context_->beyond_limit =
      uring_offered_ ? std::max<std::size_t>(ring_depth_ / 16, 1) : kMostParked / 16;
}

void FuseSession::decide_data_path() const noexcept {
  std::call_once(data_path_decided_, [this] {
    if (!wants_passthrough_) return;
    if (!passthrough_offered_) {
      data_path_.why = "the kernel has no FUSE passthrough (it is there from 6.9 on)";
      return;
    }
    if (options_.trial_fd >= 0) {
      const Result<int> id =
          register_backing_file(fuse_session_fd(session_), options_.trial_fd);
      if (!id) {
        data_path_.why = reason_of(id.error());
        return;
      }
      unregister_backing_file(fuse_session_fd(session_), *id);
    }
    data_path_ = {.mode = "passthrough",
                  .why = "the kernel reads and writes the backing files"};
    passthrough_.store(true, std::memory_order_release);
  });
}

void FuseSession::decide_transport() {
  if (!wants_uring_) return;
  if (!uring_offered_) {
    transport_.why = "the kernel does not offer FUSE-over-io_uring (it is there from 6.14 on)";
  } else if (!ring_threads_run()) {
    transport_.why = fmt::format("the rings could not be set up: {}", take_complaint());
  } else {
    transport_.mode = "io_uring";
  }
}

Result<void> FuseSession::check_wishes(std::string& problem) const {
  if (options_.data_path == DataPathWish::kPassthrough && data_path_.mode != "passthrough") {
    problem = fmt::format(
        "data path passthrough: {}: {}: leave the option out to be served by the daemon",
        mountpoint_, data_path_.why);
    return fail(EOPNOTSUPP, "passthrough");
  }
  if (options_.transport == TransportWish::kUring && transport_.mode != "io_uring") {
    problem = fmt::format(
        "transport uring: {}: {}: leave the option out to be served through /dev/fuse",
        mountpoint_, transport_.why);
    return fail(EOPNOTSUPP, "io_uring");
  }
  if (options_.idmap && !idmap_offered_) {
    problem = fmt::format(
        "idmap: {}: {}: leave the option out", mountpoint_,
#ifdef FUSE_CAP_ALLOW_IDMAP
        "the kernel has no id-mapped mounts of FUSE filesystems (they are there from 6.12 on)"
#else
        "built with a libfuse without it (packaging/build-libfuse.sh, then build again)"
#endif
    );
    return fail(EOPNOTSUPP, "idmap");
  }
  return {};
}

// What the daemon serves through the page cache is read 8 times as fast with requests of the
// largest size. (INIT can only lower the kernel's 128 KiB.)
void FuseSession::raise_read_ahead() const noexcept {
  const std::string file =
      fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", major(device_), minor(device_));
  if (!write_file(file, kReadAheadKib)) log_debug("read_ahead file={} errno={}", file, errno);
}

Result<void> FuseSession::run() {
  // Beside the rings only FORGETs come this way: few readers find them in batches.
  const unsigned threads =
      transport_.mode == "io_uring" ? kReadersBesideRings : options_.read_threads;
  const int failure = loop_->run(threads, std::max(threads, kMostReaders));
  shut_down();
  if (failure != 0) {
    log_error("fuse_device_failed errno={} text=\"{}\"", failure, std::strerror(failure));
    return fail(failure, "reading /dev/fuse");
  }
  return {};
}

void FuseSession::request_stop() noexcept {
  if (loop_ != nullptr) loop_->stop();
}

Result<void> FuseSession::unmount(bool lazily) {
  if (!mounted_ || device_on(mountpoint_) != device_) return fail(EINVAL, "umount");
  if (::umount2(mountpoint_.c_str(), UMOUNT_NOFOLLOW | (lazily ? MNT_DETACH : 0)) != 0) {
    return fail_errno("umount");
  }
  return {};
}

bool FuseSession::connection_lives() const noexcept {
  pollfd device{.fd = fuse_session_fd(session_), .events = 0, .revents = 0};
  return device.fd >= 0 && !(::poll(&device, 1, 0) == 1 && (device.revents & POLLERR) != 0);
}

void FuseSession::abort_connection() noexcept {
  write_file(fmt::format("/sys/fs/fuse/connections/{}/abort", minor(device_)), "1");
  if (connection_lives() && device_on(mountpoint_) == device_) {
    ::umount2(mountpoint_.c_str(), MNT_FORCE | UMOUNT_NOFOLLOW);
  }
}

// In this order: nobody reads requests any more; the kernel expects no more answers (so that
// nothing in it waits, the notifier included); what was parked is answered; the rings go.
void FuseSession::shut_down() noexcept {
  if (!mounted_.exchange(false)) return;
  fuse_session_exit(session_);
  was_let_go_ = !connection_lives() && device_on(mountpoint_) != device_;
  if (connection_lives()) abort_connection();
  if (device_on(mountpoint_) == device_) {
    ::umount2(mountpoint_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  }
  context_->parked_limit = 0;
  context_->beyond_limit = 0;
  context_->most_parked_reads = 0;
  do {
    slow_calls_->drain();
    change_calls_->drain();
    room_calls_->drain();
    pool_calls_->drain();
    lookup_calls_->drain();
    sync_calls_->drain();
    read_calls_->drain();
  } while (context_->parked.load() != 0 || context_->parked_reads.load() != 0);
  // Those that are not counted any more may still be answering.
  slow_calls_->drain();
  change_calls_->drain();
  read_calls_->drain();
  notifier_->stop();
  // libfuse ends its ring threads only at the end of its own loop, which returns at once here.
  if (uring_offered_) fuse_session_loop_mt(session_, nullptr);
  log_info("unmounted mountpoint={} device=0:{}", mountpoint_, minor(device_));
}

bool FuseSession::available() const noexcept {
  if (!init_done_) return false;
  decide_data_path();
  return passthrough_.load(std::memory_order_acquire);
}

Result<int> FuseSession::open(int fd) {
  if (!available()) return fail(EPERM, "no passthrough");
  return register_backing_file(fuse_session_fd(session_), fd);
}

void FuseSession::close(int id) noexcept {
  unregister_backing_file(fuse_session_fd(session_), id);
}

void FuseSession::invalidate_entry(InodeNumber parent, std::string name) {
  notifier_->post(Notification{.inode = parent, .name = std::move(name)});
}

void FuseSession::invalidate_attributes(InodeNumber inode) {
  notifier_->post(Notification{.inode = inode, .name = {}});
}

// Without pages to drop the kernel takes no lock of the inode (fuse_reverse_inval_inode(),
// fs/fuse/inode.c).
void FuseSession::invalidate_attributes_at_once(InodeNumber inode) {
  fuse_lowlevel_notify_inval_inode(session_, inode, kNoPages, 0);
}

void FuseSession::invalidate_data(InodeNumber inode) {
  notifier_->post(Notification{.inode = inode, .name = {}, .pages = true});
}

void FuseSession::drop_listing(InodeNumber directory, std::uint64_t ticket) {
  notifier_->post(Notification{.inode = directory, .name = {}, .listing = ticket});
}

}  // namespace kvcachefs
