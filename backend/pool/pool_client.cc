#include "backend/pool/pool_client.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/priority.h"

namespace kvcachefs {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::array<PoolClass, kPoolClasses> kClasses = {PoolClass::kDemand, PoolClass::kLoad,
                                                          PoolClass::kBackground};
constexpr std::array<const char*, kPoolClasses> kSuffixes = {"-want", "-load",
                                                             "-back"};  // of threads

// The server or the way to it, rather than the file that was asked for.
bool is_of_pool(int code) { return code == ETIMEDOUT || code == ENOTCONN; }

}  // namespace

struct PoolClient::State : std::enable_shared_from_this<State> {
  struct Worker {
    std::shared_ptr<Job> job;  // what it does now; null: nothing
    bool stuck = false;
  };
  struct Group {
    std::deque<std::shared_ptr<Job>> queue;
    std::condition_variable posted;
    std::vector<std::shared_ptr<Worker>> workers;
  };

  State(const std::string& thread_name, Open open_session)
      : name(thread_name.substr(0, 9)), open(std::move(open_session)) {}

  Group& of(PoolClass group) { return groups[static_cast<std::size_t>(group)]; }

  // ---- the caller holds the mutex

  void start_worker(PoolClass group) {
    auto worker = std::make_shared<Worker>();
    of(group).workers.push_back(worker);
    ++threads;
    std::thread([self = shared_from_this(), group, worker] {
      self->work(group, worker);
    }).detach();
  }
  // Calls that nobody answers by their deadline.
  void watch(const std::shared_ptr<Job>& job) {
    const bool first = deadlines.empty() || job->deadline < deadlines.begin()->first;
    deadlines.emplace(job->deadline, job);
    if (first) timer_changed.notify_one();
  }
  void set_up(bool now_up) {
    if (up == now_up) return;
    up = now_up;
    since_ns = monotonic_now();
    if (up) failures = 0;
    if (up) ++age;
    probe_at = SteadyClock::now() + kProbeEvery;
    timer_changed.notify_one();
  }
  std::vector<std::shared_ptr<Job>> take_all() {
    std::vector<std::shared_ptr<Job>> all;
    for (Group& group : groups) {
      all.insert(all.end(), group.queue.begin(), group.queue.end());
      group.queue.clear();
    }
    return all;
  }

  // ---- without it

  void fail_all(const std::vector<std::shared_ptr<Job>>& jobs, Error error) {
    for (const auto& job : jobs) {
      failed.fetch_add(1, std::memory_order_relaxed);
      if (job->claim()) job->fail(error);
    }
  }
  void came_to(Error error) {
    std::vector<std::shared_ptr<Job>> hopeless;
    if (is_of_pool(error.code)) failed.fetch_add(1, std::memory_order_relaxed);
    {
      const std::lock_guard lock(mutex);
      if (!is_of_pool(error.code)) {
        failures = 0;
        return;
      }
      last = error;
      if (error.code == ENOTCONN) ++age;
      if (++failures < kFailures || !up) return;
      set_up(false);
      hopeless = take_all();
    }
    log_warn("pool is down: step=\"{}\" errno={}", error.what, error.code);
    fail_all(hopeless, fail_down());
  }
  static Error fail_down() { return fail(ENOTCONN, "pool: down"); }

  void work(PoolClass group, const std::shared_ptr<Worker>& worker);
  // A worker's; one whose age is not the current one leads nowhere any more.
  struct OwnSession {
    std::unique_ptr<PoolSession> session;
    std::uint64_t age = 0;
  };
  void do_job(Job& job, OwnSession& own);
  void run_timer();
  void expire(std::unique_lock<std::mutex>& lock);
  SteadyClock::time_point replace_stuck();
  void probe();

  const std::string name;
  const Open open;
  mutable std::mutex mutex;
  std::array<Group, kPoolClasses> groups;
  std::condition_variable timer_changed;
  std::condition_variable ended;
  std::multimap<Deadline, std::shared_ptr<Job>> deadlines;
  bool ending = false;
  SteadyClock::time_point end_by{};  // when `ending`
  std::atomic<bool> up{false};       // written under the mutex
  // A server that was away has forgotten all connections, not only that of who notices.
  std::atomic<std::uint64_t> age{0};
  bool probing = false;
  std::int64_t since_ns = 0;
  int failures = 0;
  Error last{0, ""};
  SteadyClock::time_point probe_at{};
  std::size_t threads = 0;  // that run, stuck ones and the timer's included
  std::size_t stuck = 0;
  std::atomic<std::uint64_t> failed{0};
};

void PoolClient::State::do_job(Job& job, OwnSession& own) {
  if (job.answered.load()) return;  // it waited for too long
  std::unique_ptr<PoolSession>& session = own.session;
  Error error{0, ""};
  // Nobody's failure: servers close what is not used.
  if (own.age != age.load() || (session != nullptr && !session->is_alive())) session.reset();
  if (session == nullptr) {
    own.age = age.load();
    Result<std::unique_ptr<PoolSession>> opened = open(job.deadline);
    if (opened.ok()) {
      session = std::move(opened).value();
    } else {
      error = opened.error();
      job.worked = job.claim();
      if (job.worked) {
        came_to(error);
        job.fail(error);
      }
    }
  }
  if (session != nullptr) error = job.run(*session, [this](Error came) { came_to(came); });
  if (is_of_pool(error.code)) session.reset();
  // Until its deadline it is only remembered.
  if (job.worked) job.fail = nullptr;
}

void PoolClient::State::work(PoolClass group, const std::shared_ptr<Worker>& worker) {
  pthread_setname_np(pthread_self(),
                     (name + kSuffixes[static_cast<std::size_t>(group)]).c_str());
  if (group == PoolClass::kBackground) yield_cpus();
  OwnSession session;
  std::unique_lock lock(mutex);
  Group& own = of(group);
  while (!worker->stuck) {  // if it was, another is in its place
    own.posted.wait(lock, [&] { return ending || !own.queue.empty(); });
    if (own.queue.empty()) break;
    std::shared_ptr<Job> job = std::move(own.queue.front());
    own.queue.pop_front();
    worker->job = job;
    lock.unlock();
    do_job(*job, session);
    job->run = nullptr;
    job.reset();
    lock.lock();
    worker->job.reset();
  }
  if (worker->stuck) --stuck;
  own.workers.erase(std::remove(own.workers.begin(), own.workers.end(), worker),
                    own.workers.end());
  lock.unlock();
  session.session.reset();
  lock.lock();
  --threads;
  ended.notify_all();
}

// Answers those whose deadline is over.
void PoolClient::State::expire(std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<Job>> late;
  const auto now = SteadyClock::now();
  while (!deadlines.empty() && deadlines.begin()->first <= now) {
    late.push_back(std::move(deadlines.begin()->second));
    deadlines.erase(deadlines.begin());
  }
  lock.unlock();
  for (const auto& job : late) {
    if (!job->claim()) continue;
    const Error error = fail(ETIMEDOUT, "pool: no answer by the deadline");
    came_to(error);
    job->fail(error);
  }
  late.clear();
  lock.lock();
}

// Returns when somebody may be stuck next.
SteadyClock::time_point PoolClient::State::replace_stuck() {
  const auto now = SteadyClock::now();
  auto next = SteadyClock::time_point::max();
  for (const PoolClass group : kClasses) {
    std::size_t missing = 0;
    for (const auto& worker : of(group).workers) {
      if (worker->stuck || worker->job == nullptr) continue;
      const auto by = worker->job->deadline;
      const auto stuck_from = (ending ? std::min(by, end_by) : by) + kGrace;
      if (now < stuck_from) {
        next = std::min(next, stuck_from);
      } else if (ending || stuck < kMostStuck) {
        worker->stuck = true;
        ++stuck;
        ++missing;
      }
    }
    for (std::size_t i = 0; i < missing && !ending; ++i) start_worker(group);
  }
  return next;
}

void PoolClient::State::run_timer() {
  pthread_setname_np(pthread_self(), (name + "-time").c_str());
  std::unique_lock lock(mutex);
  while (!ending) {
    expire(lock);
    auto next = replace_stuck();
    if (!up && !probing && SteadyClock::now() >= probe_at) probe();
    if (!up && !probing) next = std::min(next, probe_at);
    if (!deadlines.empty()) next = std::min(next, deadlines.begin()->first);
    if (ending) break;
    if (next == SteadyClock::time_point::max()) {
      timer_changed.wait(lock);
    } else {
      timer_changed.wait_until(lock, next);
    }
  }
  --threads;
  ended.notify_all();
}

// On a thread of the demand class, with a session of its own.
void PoolClient::State::probe() {
  // Those that nobody took.
  auto& queue = of(PoolClass::kDemand).queue;
  queue.erase(std::remove_if(queue.begin(), queue.end(),
                             [](const auto& job) { return job->answered.load(); }),
              queue.end());
  probing = true;
  probe_at = SteadyClock::now() + kProbeEvery;
  auto job = std::make_shared<Job>();
  job->deadline = SteadyClock::now() + kProbeDeadline;
  const auto finish = [self = weak_from_this()](Error error) {
    const std::shared_ptr<State> state = self.lock();
    if (state == nullptr) return;
    const std::lock_guard own(state->mutex);
    state->probing = false;
    if (error.code != 0) state->last = error;
    if (error.code == 0) state->set_up(true);
    state->timer_changed.notify_one();
  };
  job->run = [finish, own = job.get()](PoolSession& session, const Count& count) {
    const Result<PoolStatus> status = session.status("", own->deadline);
    const Error error = status.ok() ? Error{0, ""} : status.error();
    own->worked = own->claim();
    if (!own->worked) return error;
    count(error);
    finish(error);
    return error;
  };
  job->fail = finish;
  watch(job);
  queue.push_back(std::move(job));
  of(PoolClass::kDemand).posted.notify_one();
}

PoolClient::PoolClient(const std::string& thread_name, Open open)
    : state_(std::make_shared<State>(thread_name, std::move(open))) {
  const std::lock_guard lock(state_->mutex);
  state_->since_ns = monotonic_now();
  for (const PoolClass group : kClasses) {
    const std::size_t threads = group == PoolClass::kBackground ? kBackgroundThreads : kThreads;
    for (std::size_t i = 0; i < threads; ++i) state_->start_worker(group);
  }
  ++state_->threads;
  std::thread([state = state_] { state->run_timer(); }).detach();
}

void PoolClient::give_up() {
  std::vector<std::shared_ptr<Job>> left;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->ending) return;
    state_->ending = true;
    state_->end_by = SteadyClock::now() + kEnd;
    left = state_->take_all();
    for (State::Group& group : state_->groups) {
      for (const auto& worker : group.workers)
        if (worker->job != nullptr) left.push_back(worker->job);
      group.posted.notify_all();
    }
    state_->timer_changed.notify_all();
  }
  state_->fail_all(left, State::fail_down());
}

PoolClient::~PoolClient() {
  give_up();
  std::unique_lock lock(state_->mutex);
  const auto ended = [this] { return state_->threads <= state_->stuck; };
  while (!ended()) {
    static_cast<void>(state_->replace_stuck());
    state_->ended.wait_for(lock, kGrace, ended);
  }
  std::multimap<Deadline, std::shared_ptr<Job>> unanswered;
  unanswered.swap(state_->deadlines);
  lock.unlock();
  for (const auto& [deadline, job] : unanswered)
    if (job->claim()) job->fail(State::fail_down());
}

void PoolClient::take(PoolClass group, std::shared_ptr<Job> job) {
  Error refused{0, ""};
  {
    const std::lock_guard lock(state_->mutex);
    State::Group& own = state_->of(group);
    if (state_->ending || !state_->up) {
      refused = State::fail_down();
    } else if (own.queue.size() >= kMostWaiting) {
      refused = fail(EBUSY, "pool: too many calls wait");
    } else {
      state_->watch(job);
      own.queue.push_back(job);
      own.posted.notify_one();
    }
  }
  if (refused.code == 0) return;
  state_->failed.fetch_add(1, std::memory_order_relaxed);
  if (job->claim()) job->fail(refused);
}

bool PoolClient::is_up() const noexcept { return state_->up.load(std::memory_order_relaxed); }

PoolHealth PoolClient::health() const {
  const std::lock_guard lock(state_->mutex);
  PoolHealth health{.up = state_->up,
                    .since_ns = state_->since_ns,
                    .last = state_->last,
                    .stuck = state_->stuck,
                    .waiting = 0,
                    .failed = state_->failed.load(std::memory_order_relaxed)};
  for (const State::Group& group : state_->groups) health.waiting += group.queue.size();
  return health;
}

}  // namespace kvcachefs
