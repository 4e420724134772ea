#include "fs/life/device_watch.h"

#include <pthread.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "backend/base/log.h"

namespace kvcachefs {
namespace {

constexpr int kRoundsBetweenReads = 10;
// Others wait for their check meanwhile.
constexpr std::chrono::seconds kLongestCheck{2};
// A path that fails over, or a part of the disk that does not read, is no loss.
constexpr int kSurelyLost = 3;

DeviceState state_after(const Result<void>& checked) noexcept {
  if (checked.ok()) return DeviceState::kWell;
  return checked.error().code == EROFS ? DeviceState::kReadOnly : DeviceState::kLost;
}

}  // namespace

void DeviceWatch::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "kv-devices");
}

void DeviceWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void DeviceWatch::suspect(std::uint32_t device) {
  const std::lock_guard lock(mutex_);
  suspected_.insert(device);
  changed_.notify_one();
}

void DeviceWatch::run() {
  for (int round = 1;; ++round) {
    std::unordered_set<std::uint32_t> suspected;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, period_, [this] { return stopping_ || !suspected_.empty(); });
      if (stopping_) return;
      suspected = std::exchange(suspected_, {});
    }
    for (std::uint32_t device = 0; device < core_.devices->indices(); ++device) {
      const bool is_ill = core_.devices->state(device) != DeviceState::kWell;
      if (is_ill || suspected.count(device) > 0) {
        check(device, TierCheck::kWriteAndRead);
      } else if (round % kRoundsBetweenReads == 0) {
        check(device, TierCheck::kRead);
      }
    }
    // A caller that fails on it over and over causes a check a period.
    if (suspected.empty()) continue;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, period_, [this] { return stopping_; })) return;
  }
}

// nullopt: it does not answer. What it says later is the answer to the next question.
std::optional<Result<void>> DeviceWatch::ask(std::uint32_t device, TierCheck how) {
  std::shared_ptr<Question>& at = asked_[device];
  if (at == nullptr) at = std::make_shared<Question>();
  const std::shared_ptr<Question> question = at;
  if (const std::lock_guard lock(question->mutex); true) {
    if (question->is_under_way) return std::nullopt;
    const std::optional<Result<void>> late = std::exchange(question->answer, std::nullopt);
    // A read that went well says nothing of writes.
    if (late && question->how == how) return late;
    question->how = how;
    question->is_under_way = true;
  }
  const auto check = [devices = core_.devices.get(), device, how, question] {
    // A disk that takes no writes may give what is there.
    std::optional<Devices::Question> asked;
    if (how == TierCheck::kRead) asked.emplace(*devices, device);
    const Result<void> answer = devices->at(device).check(how);
    const std::lock_guard lock(question->mutex);
    question->answer = answer;
    question->is_under_way = false;
    return Result<bool>(true);
  };
  const Result<bool> done =
      core_.devices->begin_work<bool>(device, check, [](const Result<bool>&) {})
          .until(std::chrono::steady_clock::now() + kLongestCheck);
  const std::lock_guard lock(question->mutex);
  if (!done.ok() && done.error().code == EAGAIN) question->is_under_way = false;
  return std::exchange(question->answer, std::nullopt);
}

void DeviceWatch::check(std::uint32_t device, TierCheck how) {
  Tier& tier = core_.devices->at(device);
  const std::optional<Result<void>> answer = ask(device, how);
  if (!answer) return;
  const Result<void>& checked = *answer;
  if (!checked.ok() && !is_device_failure(checked.error().code)) {
    log_debug("device not checked path={} errno={} step=\"{}\"", tier.info().path,
              checked.error().code, checked.error().what);
    return;
  }
  DeviceState state = state_after(checked);
  int& failures = failures_[device];
  failures = state == DeviceState::kLost ? failures + 1 : 0;
  if (failures > 0 && failures < kSurelyLost) state = DeviceState::kReadOnly;
  if (core_.devices->set_state(device, state) == state) return;
  const std::string& path = tier.info().path;
  switch (state) {
    case DeviceState::kWell:
      log_info("device event=well path={}: its files are there again", path);
      break;
    case DeviceState::kReadOnly:
      log_error(
          "device event=read_only path={} step=\"{}\": its files are read, new ones go to "
          "other devices: see dmesg, and remount its filesystem",
          path, checked.error().what);
      break;
    case DeviceState::kLost:
      log_error(
          "device event=lost path={} errno={} step=\"{}\": its files are misses, new ones go "
          "to other devices: see dmesg, and replace it",
          path, checked.error().code, checked.error().what);
      break;
  }
}

}  // namespace kvcachefs
