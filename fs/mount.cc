#include "fs/mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/memory.h"
#include "backend/pool/open_session.h"
#include "backend/pool/pool_format.h"
#include "backend/superblock.h"
#include "fs/control_queries.h"
#include "fs/control_steering.h"
#include "fs/device_list.h"
#include "fs/metrics_text.h"
#include "fs/stuck_daemon.h"
#include "fs/systemd_notify.h"
#include "metadata/rocksdb_store.h"

namespace kvcachefs {
namespace {

// A mount that does not answer its first question in this time never will.
constexpr std::chrono::milliseconds kFirstAnswer = std::chrono::seconds{10};
// Who looks a name up as soon as the mount is there finds what is on the pool; one that is away does not delay it for longer.
constexpr std::chrono::milliseconds kFirstTry{500};
// A busy mount often has one file open for one moment more.
constexpr std::int64_t kDrain = 5 * kNanosPerSecond;
constexpr int kDrainPollMs = 50;
// What is told takes kGather and a round trip; the other nodes do without after a while.
constexpr std::chrono::milliseconds kLastWords{500};
// Of the last mount on a pool: its trash is some thousand files at most, of which a server removes a thousand a second.
constexpr std::chrono::seconds kLeave{5};
// How long the stop waits for the disk to take what is not sealed; the rest is sealed by the
// next start.
constexpr double kSealSeconds = 20;

// Settings that a live mount takes over.
constexpr std::array<std::string_view, 3> kLive{"log-level", "scrub", "stop-timeout"};

// Those that run() takes. All but SIGHUP ask for a stop.
sigset_t taken_signals() noexcept {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

// Their default ends a process or halts it, and nobody who sends one to a filesystem can mean
// that. A fault (SIGSEGV and its kin) and SIGABRT end it as SIGKILL does; SIGCHLD and the like
// do nothing anyway.
void ignore_other_signals() noexcept {
  for (const int signal : {SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,
                           SIGPWR, SIGSTKFLT, SIGXCPU, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU})
    ::signal(signal, SIG_IGN);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) ::signal(signal, SIG_IGN);
}

// What was said of a setting, in order.
std::vector<std::string_view> values_of(const std::vector<Assignment>& said,
                                        std::string_view name) {
  std::vector<std::string_view> values;
  for (const Assignment& each : said)
    if (each.name == name) values.push_back(each.value);
  return values;
}

void ring(const UniqueFd& event) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = ::write(event.get(), &one, sizeof one);
}

int milliseconds_until(std::int64_t deadline) noexcept {
  const std::int64_t left = deadline - monotonic_now();
  return left <= 0 ? 0 : static_cast<int>(left / kNanosPerMilli) + 1;
}

// Of the memory for the database a half is cache; a table's writes take their buffer twice.
RocksdbOptions database_options(std::uint64_t memory, const std::string& shown_as) {
  return {.cache_bytes = memory / 2, .write_buffer_bytes = memory / 4, .shown_as = shown_as};
}

template <class Choice, class Wish>
Wish to_wish(Choice choice, Wish automatic, Wish first, Wish second) {
  switch (static_cast<int>(choice)) {
    case 1:
      return first;
    case 2:
      return second;
    default:
      return automatic;
  }
}

SessionOptions session_options(const Config& config, int trial_fd) {
  SessionOptions options;
  options.mountpoint = config.mountpoint;
  // `status` and `umount` find the state directory by this name; mount(8) compares it with
  // fstab.
  options.source = config.state_is_default ? config.nvme.front().path : config.state;
  options.allow_other = config.allow_other;
  options.mount_options = kernel_option_words(config.kernel);
  options.access_times = config.kernel.access_times;
  options.follows_symlinks = config.kernel.symfollow;
  options.data_path = to_wish(config.data_path, DataPathWish::kAuto, DataPathWish::kPassthrough,
                              DataPathWish::kDaemon);
  options.transport = to_wish(config.transport, TransportWish::kAuto, TransportWish::kUring,
                              TransportWish::kDev);
  options.ring_memory_bytes = config.ring_memory;
  options.idmap = config.idmap;
  options.trial_fd = trial_fd;
  options.has_pool = config.pool.has_value();
  return options;
}

ReadTimesOptions read_times_options(const KernelOptions& kernel) {
  AccessTimes times = kernel.access_times;
  if (times == AccessTimes::kAsBelow) times = AccessTimes::kRelative;
  if (kernel.read_only) times = AccessTimes::kNever;
  return {.symlinks = times, .directories = kernel.nodiratime ? AccessTimes::kNever : times};
}

std::uint64_t stage_bytes(const Config& config) {
  return config.stage ? config.stage->of(total_memory().value_or(0)) : 0;
}

std::optional<dev_t> filesystem_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status.st_dev;
}

BudgetOptions budget_options(const Config& config,
                             const std::vector<std::unique_ptr<Tier>>& tiers) {
  BudgetOptions options{.devices = {}, .database_on = {}, .lease = config.lease};
  std::vector<std::optional<dev_t>> filesystems;
  for (const auto& tier : tiers) filesystems.push_back(filesystem_of(tier->info().path));
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    const std::uint64_t size = tiers[i]->info().size_limit_bytes;
    const auto sharers = std::count(filesystems.begin(), filesystems.end(), filesystems[i]);
    options.devices.push_back({.size = size > 0 ? std::optional(size) : std::nullopt,
                               .min_free = config.min_free,
                               .sharers = static_cast<std::uint64_t>(sharers)});
  }
  const std::optional<dev_t> database = filesystem_of(config.state);
  for (std::size_t i = 0; database && !options.database_on && i < config.nvme.size(); ++i) {
    if (filesystem_of(config.nvme[i].path) == database) options.database_on = i;
  }
  return options;
}

// glibc has taken the starter's limit for theirs (RLIMIT_STACK, pthread_attr_setstacksize(3)).
void give_threads_their_stacks() noexcept {
  constexpr std::size_t kLeast = 8 * kMiB;
  pthread_attr_t usual;
  if (::pthread_getattr_default_np(&usual) != 0) return;
  std::size_t size = 0;
  if (::pthread_attr_getstacksize(&usual, &size) == 0 && size < kLeast &&
      ::pthread_attr_setstacksize(&usual, kLeast) == 0)
    ::pthread_setattr_default_np(&usual);
  ::pthread_attr_destroy(&usual);
}

}  // namespace

void Mount::prepare_process() noexcept {
  const sigset_t taken = taken_signals();
  ::pthread_sigmask(SIG_BLOCK, &taken, nullptr);
  ignore_other_signals();
  ::umask(0);
  const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
  for (const auto limit : {RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_AS, RLIMIT_DATA})
    ::setrlimit(limit, &all);
  give_threads_their_stacks();
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    // Who starts it may allow few (1,024 in some containers): a batch of the sealer alone has 512.
    constexpr rlim_t kWanted = 65'536;
    const rlimit more{std::max(files.rlim_max, kWanted), std::max(files.rlim_max, kWanted)};
    files.rlim_cur = files.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &more) != 0) ::setrlimit(RLIMIT_NOFILE, &files);
  }
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::prctl(PR_SET_DUMPABLE, 0);
}

Mount::Mount(const Config& config)
    : config_(config),
      started_(monotonic_now()),
      said_(config.said),
      stop_timeout_(config.stop_timeout) {}

Result<std::unique_ptr<Mount>> Mount::start(const Config& config, const Note& note,
                                            std::string& problem) {
  problem = "mount: no process can be started: end some";
  AnswerProbe before = TRY(AnswerProbe::prepare());
  AnswerProbe after = TRY(AnswerProbe::prepare());
  TRY(check_privileges(config.allow_other, problem));
  log_info("mount event=starting version={} mountpoint={} state={}", KVCACHEFS_VERSION,
           config.mountpoint, config.state);
  for (const std::string& warning : config.warnings) {
    log_warn("mount event=insecure what=\"{}\"", warning);
    note(warning);
  }

  std::unique_ptr<Mount> mount{new Mount(config)};
  const auto take_state = [&]() -> Result<void> {
    mount->state_ = std::make_unique<StateDir>(
        TRY(StateDir::open(config.state, StateDir::IfMissing::kCreate, problem, note)));
    return {};
  };
  Result<void> taken = take_state();
  if (!taken.ok() && taken.error().code == EBUSY && end_stuck_daemon(config.state, note))
    taken = take_state();
  TRY(taken);
  TRY(take_mount_point(config.mountpoint, before, note, problem));
  if (!config.nonempty) TRY(refuse_nonempty(config.mountpoint, problem));
  TRY(mount->open_database(problem));
  TRY(mount->open_volume(problem));
  mount->say_what_is_reached(note);
  TRY(mount->open_control(problem));
  TRY(mount->open_metrics(problem));
  TRY(mount->mount_kernel(problem));
  TRY(mount->wait_for_answer(after, problem));
  if (mount->pool_) mount->pool_->wait_for_first_try(Deadline::clock::now() + kFirstTry);
  mount->remember_devices();
  log_info("mount event=ready seconds={:.3f}",
           static_cast<double>(monotonic_now() - mount->started_) / kNanosPerSecond);
  systemd_notify(fmt::format("READY=1\nSTATUS=serving {}", config.mountpoint));
  return mount;
}

Result<void> Mount::open_database(std::string& problem) {
  auto store = RocksdbStore::open(
      state_->database_path(),
      database_options(config_.metadata_memory, state_->shown_database_path()),
      /*create=*/true, &problem);
  if (!store) return store.error();
  std::string reason =
      fmt::format("does not read: see the log, then kvcachefs fsck --state {}", state_->path());
  auto catalog = Catalog::create(std::move(*store), &reason);
  if (!catalog) {
    problem = fmt::format("{}: {}", state_->shown_database_path(), reason);
    return catalog.error();
  }
  catalog_ = std::move(*catalog);
  return {};
}

// It need not be there yet.
Result<void> Mount::open_pool(std::string& problem) {
  if (!config_.pool) return {};
  problem = fmt::format("{}: has no UUID: see the log", state_->shown_database_path());
  static_assert(PoolService::kLeastBeats * kMaxPoolBeat <= PoolService::kDeadAfter);
  static_assert(kMaxLease <= kMostPoolLease, "others would take its heartbeat for damaged");
  static_assert(kMaxPoolSize <= kMostPoolBytes, "the same");
  const PoolService::Options options{
      .node = TRY(catalog_->uuid()),
      .lease = std::chrono::duration_cast<std::chrono::milliseconds>(config_.lease),
      .beat_every =
          std::chrono::duration_cast<std::chrono::milliseconds>(config_.pool_options.beat),
      .pool = TRY(catalog_->pool()),
      .size = config_.kernel.read_only ? 0 : config_.pool_options.size};
  pool_governor_ = std::make_shared<PoolGovernor>(config_.pool_options.in_flight);
  const NfsCommon common = make_nfs_common(pool_governor_);
  const OtherWriters others =
      config_.insecure_paths ? OtherWriters::kTaken : OtherWriters::kRefused;
  PoolClient::Open open = [uri = *config_.pool, common, others](Deadline deadline) {
    return open_pool_session(uri, deadline, common, others);
  };
  pool_ = std::make_unique<PoolService>(std::move(open), options);
  return {};
}

Result<void> Mount::open_volume(std::string& problem) {
  TRY(open_pool(problem));
  devices_ = std::make_unique<LocalDevices>();
  auto tiers = TRY(devices_->open(config_, *catalog_, problem));
  // A database that stays remembers its devices: they must stay, too.
  if (!state_->is_fresh()) devices_->keep();
  // Any regular file of the first device shows whether the kernel takes its files.
  const std::string trial = config_.nvme.front().path + "/" + kSuperblockName;
  trial_.reset(::open(trial.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  session_ = std::make_unique<FuseSession>(session_options(config_, trial_.get()));
  const VolumeOptions options{.keep_by_default = config_.keep_by_default,
                              .keepers = config_.keepers,
                              .read_only = config_.kernel.read_only,
                              .verify = config_.verify,
                              .scrub_bytes_per_second = config_.scrub,
                              .stage_bytes = stage_bytes(config_),
                              .direct_io = config_.direct_io,
                              .read_times = read_times_options(config_.kernel),
                              .budget = budget_options(config_, tiers),
                              .pool = pool_.get(),
                              .pool_options = config_.pool_options};
  volume_ = TRY(Volume::open(*catalog_, std::move(tiers), options, session_.get(),
                             session_.get(), problem));
  session_->set_volume(*volume_);
  return {};
}

// A size that others have filled the disk below: programs that believe df would never see it
// full.
void Mount::say_what_is_reached(const Note& note) const {
  for (std::size_t i = 0; i < config_.nvme.size(); ++i) {
    const DeviceSetting& device = config_.nvme[i];
    const DeviceRoom seen = volume_->room_on(i);
    if (!device.size || seen.room.budget == 0) continue;
    struct statvfs below {};
    if (::statvfs(device.path.c_str(), &below) != 0) continue;
    const std::uint64_t given = device.size->of(below.f_blocks * below.f_frsize);
    // A twentieth less is not worth a word.
    if (seen.room.budget + seen.database >= given / 20 * 19) continue;
    const std::string text = fmt::format(
        "--nvme: {}:{}: {} of it can be reached: others have the rest of its filesystem",
        device.path, device.size_text, format_size(seen.room.budget));
    log_warn("mount event=size_not_reached what=\"{}\"", text);
    note(text);
  }
}

void Mount::remember_devices() noexcept {
  std::vector<std::string> paths;
  for (const DeviceSetting& device : config_.nvme) paths.push_back(device.path);
  const auto written = write_device_list(state_->held(), paths);
  if (!written) {
    log_warn(
        "device_list event=not_written step=\"{}\" reason=\"{}\" effect=\"fsck cannot run\"",
        written.error().what, std::strerror(written.error().code));
  }
}

Result<void> Mount::mount_kernel(std::string& problem) {
  problem = "mount: no descriptors are left: raise the limit of open files";
  const sigset_t taken = taken_signals();
  signals_.reset(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_asked_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  session_ended_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signals_ || !stop_asked_ || !session_ended_) return fail_errno("eventfd");
  TRY(session_->mount(problem));
  trial_.reset();
  // From here on users may write.
  devices_->keep();
  state_->keep();
  volume_->start();
  control_->start();
  if (metrics_) metrics_->start();
  serving_ = std::thread([this] {
    session_failed_ = !session_->run().ok();
    ring(session_ended_);
  });
  return {};
}

Result<void> Mount::open_control(std::string& problem) {
  auto control = ControlServer::open(
      state_->held(), [this](const ControlRequest& request) { return answer(request); });
  if (!control) {
    problem = fmt::format("control socket: {}: {}: {}: name another directory with --state",
                          control_path_of(config_.state), control.error().what,
                          std::strerror(control.error().code));
    return control.error();
  }
  control_ = std::move(*control);
  return {};
}

Result<void> Mount::open_metrics(std::string& problem) {
  if (!config_.metrics) return {};
  auto metrics =
      MetricsServer::open(*config_.metrics, [this] { return metrics_text(report()); });
  if (!metrics) {
    problem =
        fmt::format("--metrics: {}:{}: {}: name another host or port", config_.metrics->host,
                    config_.metrics->port, std::strerror(metrics.error().code));
    return metrics.error();
  }
  metrics_ = std::move(*metrics);
  return {};
}

Result<void> Mount::wait_for_answer(AnswerProbe& probe, std::string& problem) {
  const auto answered = probe.ask(config_.mountpoint, kFirstAnswer);
  if (!answered) {
    problem = fmt::format("mount: {}: mounted, but it does not answer: {}: see the log",
                          config_.mountpoint, std::strerror(answered.error().code));
    return answered.error();
  }
  session_->start_notifications();
  return {};
}

Result<std::string> Mount::answer(const ControlRequest& request) {
  if (request.command == "status") return status_json(report());
  if (request.command == "stop") {
    ask_to_stop();
    return std::string{"{}"};
  }
  if (is_steering(request)) return answer_steering(*volume_, request);
  LearnerOrder order(*catalog_, volume_->order());
  return answer_query(*catalog_, order, request);
}

StatusReport Mount::report() {
  const std::int64_t now = monotonic_now();
  StatusReport out;
  out.pid = ::getpid();
  out.mountpoint = config_.mountpoint;
  out.state = config_.state;
  out.uptime_s = static_cast<double>(now - started_) / kNanosPerSecond;
  out.lease_s = std::chrono::duration<double>(config_.lease).count();
  out.read_only = config_.kernel.read_only;
  struct statvfs space {};
  if (::statvfs(state_->held().c_str(), &space) == 0)
    out.state_free = static_cast<std::uint64_t>(space.f_bfree) * space.f_frsize;
  out.state_stalled_s = volume_->state_stalled_seconds();
  out.phase = stopping_ ? "stopping" : "serving";
  out.data_path = session_->data_path().mode;
  out.data_path_why = session_->data_path().why;
  out.transport = session_->transport().mode;
  out.transport_why = session_->transport().why;
  out.recovery = volume_->recovery();
  const auto& tiers = volume_->devices();
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    out.tiers.push_back(tier_status(*tiers[i], config_.nvme[i].size_text));
    out.tiers.back().objects = volume_->objects_on(i);
    out.tiers.back().room = volume_->room_on(i);
    out.tiers.back().state = volume_->device_state(i);
    out.tiers.back().stalled_s = volume_->stalled_seconds(i);
    out.tiers.back().silent_s = volume_->silent_seconds(i);
  }
  out.counts = volume_->counts();
  out.operations = session_->stats().snapshot(now);
  const Refusals refusals = session_->stats().refusals();
  out.refused_calls = refusals.calls;
  if (refusals.calls > 0)
    out.refused_ago_s = static_cast<double>(now - refusals.last_ns) / kNanosPerSecond;
  out.uses = volume_->uses();
  out.tenants = volume_->tenants();
  out.drops = volume_->drop_counts();
  if (pool_) {
    out.pool = PoolStatusReport{.uri = config_.pool_text,
                                .service = pool_->report(),
                                .health = pool_->client().health(),
                                .counts = volume_->pool_counts().value_or(PoolCounts{}),
                                .most_read = pool_governor_->limit(PoolWay::kRead),
                                .most_written = pool_governor_->limit(PoolWay::kWrite)};
  }
  return out;
}

// ---- the end
// -----------------------------------------------------------------------------------

void Mount::ask_to_stop() noexcept { ring(stop_asked_); }

Mount::Event Mount::wait_for_event(int timeout_ms) noexcept {
  std::array<pollfd, 3> polls{{{session_ended_.get(), POLLIN, 0},
                               {signals_.get(), POLLIN, 0},
                               {stop_asked_.get(), POLLIN, 0}}};
  const int ready = ::poll(polls.data(), polls.size(), timeout_ms);
  if (ready <= 0) return Event::kTimeout;
  // Left readable: the session does not come back.
  if (polls[0].revents != 0) return Event::kSessionEnded;
  if (polls[1].revents != 0) {
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      log_info("mount event=signal number={} from_pid={}", info.ssi_signo, info.ssi_pid);
      if (info.ssi_signo == SIGHUP) return Event::kHangUp;
    }
  }
  if (polls[2].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(stop_asked_.get(), &count, sizeof count);
  }
  return Event::kStop;
}

int Mount::run() {
  Event event = Event::kTimeout;
  while (event == Event::kTimeout || event == Event::kHangUp) {
    event = wait_for_event(-1);
    if (event == Event::kHangUp) take_settings();
  }
  stopping_ = true;
  state_->mark_ending();
  systemd_notify("STOPPING=1\nSTATUS=stopping");
  if (event == Event::kStop) unmount_in_time();
  finish();
  return session_failed_ ? 1 : 0;
}

// What cannot be read or used leaves all as it was.
void Mount::take_settings() {
  std::string problem;
  std::optional<Config> next;
  if (read_settings_) {
    Result<Config> read = read_settings_(problem);
    if (read.ok())
      next = std::move(*read);
    else
      log_error("mount event=settings_not_read reason=\"{}\"", problem);
  }
  // As it was first named: a relative name is not the same from here.
  LogTarget log = log_target(config_);
  if (next) log.level = log_target(*next).level;
  if (const Result<void> opened = log_open(log); !opened.ok())
    log_error("mount event=log_not_opened step=\"{}\" errno={}", opened.error().what,
              opened.error().code);
  if (!next) return;
  stop_timeout_ = next->stop_timeout;
  volume_->set_scrub_rate(next->scrub);
  for (const Setting& setting : settings()) {
    const auto values = values_of(next->said, setting.name);
    if (values == values_of(said_, setting.name)) continue;
    const bool is_live = std::find(kLive.begin(), kLive.end(), setting.name) != kLive.end();
    const std::string value = fmt::format("{}", fmt::join(values, " "));
    if (is_live)
      log_info("mount event=setting_taken name={} value=\"{}\"", setting.name, value);
    else
      log_warn("mount event=setting_waits name={} value=\"{}\" for=\"the next mount\"",
               setting.name, value);
  }
  said_ = std::move(next->said);
}

// Tries until nobody uses the mount; true when it is unmounted, or was already.
bool Mount::drain(std::int64_t deadline) noexcept {
  while (true) {
    const auto unmounted = session_->unmount(/*lazily=*/false);
    if (unmounted || unmounted.error().code != EBUSY) return true;
    const int left = milliseconds_until(deadline);
    if (left == 0) return false;
    // An event is the session's end, or somebody who does not want to wait.
    const Event event = wait_for_event(std::min(left, kDrainPollMs));
    if (event == Event::kStop) impatient_ = true;
    if (event != Event::kTimeout && event != Event::kHangUp) return false;
  }
}

void Mount::unmount_in_time() noexcept {
  const std::int64_t now = monotonic_now();
  const std::int64_t deadline = now + stop_timeout_.count();
  if (!drain(std::min(deadline, now + kDrain))) {
    const auto detached = session_->unmount(/*lazily=*/true);
    log_warn("mount event=detached_busy ok={} serving_what_is_open_s={}", detached.ok(),
             milliseconds_until(deadline) / 1000);
  }
  // The last close ends the session, in whatever mount namespace it happens.
  Event event = Event::kHangUp;
  while (event == Event::kHangUp)
    event = wait_for_event(impatient_ ? 0 : milliseconds_until(deadline));
  if (event == Event::kSessionEnded) return;
  log_warn("mount event=stopped_in_use effect=\"what is open gets ENOTCONN\"");
  session_->request_stop();
}

// A stop that takes long says by its last line what it waits for.
void Mount::finish() noexcept {
  if (std::exchange(finished_, true)) return;
  const std::int64_t begin = monotonic_now();
  const auto step = [begin](const char* what) {
    log_info("mount event=stopping step={} after_s={:.3f}", what,
             static_cast<double>(monotonic_now() - begin) / kNanosPerSecond);
  };
  if (pool_) {
    step("tell_the_pool");
    // Other nodes believe what they know until they are told.
    pool_->wait_until_told(Deadline::clock::now() + kLastWords);
    step("leave_the_pool");
    pool_->leave(Deadline::clock::now() + kLeave);
    pool_->wait_until_told(Deadline::clock::now() + kLastWords);
    // What waits for it would hold the rest up; what is queued for it is queued for the next run, too.
    pool_->client().give_up();
  }
  if (serving_.joinable()) {
    step("end_the_session");
    session_->request_stop();
    serving_.join();
  }
  metrics_.reset();
  control_.reset();
  step("seal_what_was_stored");
  if (volume_) volume_->stop(kSealSeconds, session_ != nullptr && session_->was_let_go());
  step("close_the_files");
  volume_.reset();
  session_.reset();
  pool_.reset();
  step("close_the_database");
  catalog_.reset();
  devices_.reset();
  state_.reset();
  log_info("mount event=stopped seconds={:.3f}",
           static_cast<double>(monotonic_now() - begin) / kNanosPerSecond);
}

Mount::~Mount() { finish(); }

}  // namespace kvcachefs
