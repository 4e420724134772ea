#include "fs/fuse/disk_requests.h"

#include <pthread.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace kvcachefs {
namespace {

// As many as one user may have threads of a disk's workers (slow_calls.cc), and as all may
// have.
constexpr std::size_t kLeastBegun = 8;
constexpr std::size_t kMostBegun = 32;
constexpr std::chrono::milliseconds kBetweenLooks{100};
// As Devices::patience(): of a lone disk nobody else's calls wait.
constexpr std::chrono::seconds kPatience{2};
constexpr std::chrono::seconds kPatienceWithOne{10};

}  // namespace

class DiskRequests::Request {
 public:
  std::size_t place = 0;  // in disks_
  std::uint32_t user = 0;
  bool writes = false;
  Clock::time_point came;
  std::function<void()> work;
  std::function<void()> refuse;
  // Under the lock. Where it is among those that wait; nullopt: it is begun or refused.
  std::optional<Waiting::iterator> at;
  bool is_held = false;
};

DiskRequests::Bounds DiskRequests::bounds(std::size_t disks, std::size_t background) noexcept {
  disks = std::max<std::size_t>(disks, 1);
  Bounds out;
  out.begun = std::clamp(background / 2 / disks, kLeastBegun, kMostBegun);
  out.on_way = std::max(background * 3 / 4 / disks, out.begun);
  out.patience = disks == 1 ? kPatienceWithOne : kPatience;
  return out;
}

DiskRequests::DiskRequests(std::size_t disks) : disks_(disks + 1) {
  watcher_ = std::thread([this] { watch(); });
  pthread_setname_np(watcher_.native_handle(), "kv-refuse");
}

DiskRequests::~DiskRequests() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  watcher_.join();
}

void DiskRequests::set(const Bounds& bounds) {
  const std::lock_guard lock(mutex_);
  bounds_ = bounds;
}

std::size_t DiskRequests::place_of(std::optional<std::uint32_t> index) const noexcept {
  return std::min<std::size_t>(index.value_or(UINT32_MAX), disks_.size() - 1);
}

std::size_t DiskRequests::begun_of(const Disk& disk, std::uint32_t user) {
  return static_cast<std::size_t>(
      std::count_if(disk.begun.begin(), disk.begun.end(),
                    [user](const Begun& begun) { return begun.user == user; }));
}

bool DiskRequests::may_begin(const Disk& disk, std::uint32_t user) const {
  const std::size_t begun = disk.begun.size();
  const std::size_t last = bounds_.begun / 4;
  if (begun + last < bounds_.begun) return true;
  const std::size_t own = begun_of(disk, user);
  return begun < bounds_.begun && (own == 0 || 2 * own < begun);
}

bool DiskRequests::is_over(const Disk& disk) const {
  return disk.waiting.size() + disk.begun.size() > bounds_.on_way;
}

bool DiskRequests::answers(const Disk& disk) const {
  const Clock::time_point now = Clock::now();
  const auto is_old = [&](Clock::time_point since) { return now - since >= bounds_.patience; };
  const auto lacks = [&](bool writes) {
    return is_old(writes ? disk.last_write : disk.last_read) &&
           (std::any_of(disk.begun.begin(), disk.begun.end(),
                        [&](const Begun& begun) {
                          return begun.writes == writes && is_old(begun.since);
                        }) ||
            std::any_of(disk.waiting.begin(), disk.waiting.end(), [&](const auto& request) {
              return request->writes == writes && is_old(request->came);
            }));
  };
  return !lacks(false) && !lacks(true);
}

void DiskRequests::look_again() {
  if (std::exchange(is_resting_, false)) changed_.notify_one();
}

std::shared_ptr<DiskRequests::Request> DiskRequests::enter(Of disk, std::function<void()> work,
                                                           std::function<void()> refuse) {
  auto request = std::make_shared<Request>();
  request->place = place_of(disk.index);
  request->user = disk.user;
  request->writes = disk.writes;
  request->came = Clock::now();
  request->work = std::move(work);
  request->refuse = std::move(refuse);
  Waiting refused;
  bool is_in = true;
  {
    const std::lock_guard lock(mutex_);
    Disk& own = disks_[request->place];
    request->at = own.waiting.insert(own.waiting.end(), request);
    if (is_over(own)) {
      take_refused(own, refused);
      if (is_over(own)) look_again();
    }
    is_in = request->at.has_value();
  }
  for (const auto& each : refused) each->refuse();
  return is_in ? request : nullptr;
}

void DiskRequests::run(const std::shared_ptr<Request>& request) {
  Disk& disk = disks_[request->place];
  std::list<Begun>::iterator begun;
  {
    const std::lock_guard lock(mutex_);
    if (!request->at) return;
    if (!may_begin(disk, request->user)) {
      request->is_held = true;
      return;
    }
    begun = begin(disk, *request);
  }
  work_on(disk, begun, request->work);
}

bool DiskRequests::run_at_once(Of disk, const std::function<void()>& work) {
  Disk& own = disks_[place_of(disk.index)];
  std::list<Begun>::iterator begun;
  {
    const std::lock_guard lock(mutex_);
    if (!may_begin(own, disk.user)) return false;
    begun = begin(own, disk.user, disk.writes);
    if (is_over(own)) look_again();
  }
  work_on(own, begun, work);
  return true;
}

std::list<DiskRequests::Begun>::iterator DiskRequests::begin(Disk& disk, std::uint32_t user,
                                                             bool writes) {
  return disk.begun.insert(disk.begun.end(),
                           {.since = Clock::now(), .user = user, .writes = writes});
}

std::list<DiskRequests::Begun>::iterator DiskRequests::begin(Disk& disk, Request& request) {
  disk.waiting.erase(*std::exchange(request.at, std::nullopt));
  return begin(disk, request.user, request.writes);
}

// The first of the user who has fewest begun: where he may not begin one, nobody may.
std::shared_ptr<DiskRequests::Request> DiskRequests::next_held(const Disk& disk) const {
  std::shared_ptr<Request> next;
  std::size_t fewest = 0;
  for (const auto& request : disk.waiting) {
    if (!request->is_held) continue;
    const std::size_t begun = begun_of(disk, request->user);
    if (next != nullptr && begun >= fewest) continue;
    next = request;
    fewest = begun;
  }
  return next != nullptr && may_begin(disk, next->user) ? next : nullptr;
}

void DiskRequests::work_on(Disk& disk, std::list<Begun>::iterator begun,
                           const std::function<void()>& work) {
  work();
  std::shared_ptr<Request> next;
  const auto end_and_take = [&] {
    const std::lock_guard lock(mutex_);
    (begun->writes ? disk.last_write : disk.last_read) = Clock::now();
    disk.begun.erase(begun);
    next = next_held(disk);
    if (next != nullptr) begun = begin(disk, *next);
  };
  for (end_and_take(); next != nullptr; end_and_take()) next->work();
}

std::size_t DiskRequests::on_way() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const Disk& disk : disks_) count += disk.waiting.size() + disk.begun.size();
  return count;
}

void DiskRequests::take_refused(Disk& disk, Waiting& refused) const {
  if (!is_over(disk) || answers(disk)) return;
  std::unordered_map<std::uint32_t, std::size_t> waiting;
  for (const auto& request : disk.waiting) ++waiting[request->user];
  while (is_over(disk) && !disk.waiting.empty()) {
    const auto most =
        std::max_element(waiting.begin(), waiting.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    auto last = std::prev(disk.waiting.end());
    while ((*last)->user != most->first) --last;
    --most->second;
    (*last)->at.reset();
    refused.splice(refused.end(), disk.waiting, last);
  }
}

void DiskRequests::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Waiting refused;
    for (Disk& disk : disks_) take_refused(disk, refused);
    if (!refused.empty()) {
      lock.unlock();
      for (const auto& request : refused) request->refuse();
      refused.clear();
      lock.lock();
      continue;
    }
    const bool any_over = std::any_of(disks_.begin(), disks_.end(),
                                      [this](const Disk& disk) { return is_over(disk); });
    if (any_over) {
      changed_.wait_for(lock, kBetweenLooks);
    } else {
      is_resting_ = true;
      changed_.wait(lock);
    }
  }
}

}  // namespace kvcachefs
