// The mount's devices: where new objects go, and where an object's copy is.
//
// Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/base/clock.h"
#include "backend/base/fair_pool.h"
#include "backend/base/result.h"
#include "backend/base/stall_watch.h"
#include "backend/tier.h"
#include "fs/node/device_state.h"
#include "fs/node/inode.h"
#include "fs/node/timed_call.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// A new, empty backing file.
struct NewCopy {
  std::uint32_t device = 0;  // index into the catalog's device table
  UniqueFd fd;               // O_RDWR
};

// What no device says that is well, whatever was asked of it: not that descriptors or memory are short.
[[nodiscard]] bool is_device_failure(int error) noexcept;

class Devices {
 public:
  // Errors: ENODEV (the catalog names a device that is not there), EIO.
  static Result<std::unique_ptr<Devices>> create(Catalog& catalog,
                                                 std::vector<std::unique_ptr<Tier>> tiers);

  // Makes the object's backing file, on the devices in turn; those that are short of room come
  // last, and those that are full or not well are passed over. Where there are several, one
  // that does not make it within a second (StallWatch::kStalled) is left to it, and the next
  // one is asked; whoever takes writes first has it, and a lone one is waited for. Errors:
  // those of Tier::create(), EIO (no one of several has taken any for kLongestCreate).
  Result<NewCopy> create_copy(ObjectId object);
  // Tier::remove() of an object's copy; where there are several devices it gives up after a
  // second: ETIMEDOUT, it may still be removed.
  Result<void> remove_copy(std::uint32_t index, ObjectId object);
  // Tier::status() and Tier::open() of an object's copy, which give up after patience(), and
  // when the device is silent. Errors: ETIMEDOUT (nothing is known of the copy); those of
  // the Tier.
  Result<struct stat> status_of_copy(std::uint32_t index, ObjectId object);
  Result<UniqueFd> open_copy(std::uint32_t index, ObjectId object, int flags);
  // Tier::is_used() of an object's copy. Of what would have to be asked of a silent device it is
  // not known: true. Errors: EBUSY, it has to be asked again; those of the Tier.
  Result<bool> is_used(std::uint32_t index, ObjectId object);
  // Begins work that waits for the device, on a thread that holds up nobody else's.
  template <class T>
  TimedCall<T> begin_work(std::uint32_t index, std::function<Result<T>()> work,
                          std::function<void(Result<T>)> late) {
    return TimedCall<T>(threads_, kWorking | index, std::move(work), std::move(late));
  }
  // For how long a device has taken no write, if that is a second or more, in nanoseconds; else
  // 0.
  [[nodiscard]] std::int64_t stalled(std::uint32_t index) const noexcept {
    return stalls_.stalled(index);
  }
  // The same of what it was asked for, from patience() on.
  [[nodiscard]] std::int64_t silent(std::uint32_t index) const noexcept {
    const std::int64_t since = silences_.stalled(index);
    return since < patience() ? 0 : since;
  }
  // Whether any device is, for a second.
  [[nodiscard]] bool any_stalled() const noexcept { return stalls_.any(); }
  [[nodiscard]] bool any_silent() const noexcept { return silences_.any(); }
  // While one lives the device is being asked for something that is not in memory.
  class Question {
   public:
    Question(Devices& devices, std::uint32_t index) noexcept
        : wait_(devices.silences_, index) {}

   private:
    StallWatch::Wait wait_;
  };
  // Whether the catalog's table has that index: a damaged record may hold any.
  [[nodiscard]] bool has(std::uint32_t index) const noexcept {
    return index < by_index_.size();
  }
  // Precondition: has(index).
  [[nodiscard]] Tier& at(std::uint32_t index) noexcept { return *by_index_[index]; }
  [[nodiscard]] std::size_t count() const noexcept { return tiers_.size(); }
  [[nodiscard]] const std::vector<std::unique_ptr<Tier>>& tiers() const noexcept {
    return tiers_;
  }
  // The device of the inode's current object; remembered in the inode. The caller holds the
  // inode's lock. Errors: ENOENT (the catalog has no such object), EIO, EBADMSG.
  Result<Tier*> of(Inode& inode);
  // The device of any object. Errors: as of().
  Result<std::uint32_t> index_of(ObjectId object);
  // nullopt: none of these.
  [[nodiscard]] std::optional<std::uint32_t> index_of(const Tier& tier) const noexcept;
  // Indices of the catalog's table are below this.
  [[nodiscard]] std::uint32_t indices() const noexcept {
    return static_cast<std::uint32_t>(by_index_.size());
  }
  [[nodiscard]] std::uint32_t sole_index() const noexcept { return index_of_tier_.front(); }
  // Of tiers()[tier].
  [[nodiscard]] std::uint32_t index_at(std::size_t tier) const noexcept {
    return index_of_tier_[tier];
  }

  // By the index of the catalog's table.
  [[nodiscard]] DeviceState state(std::uint32_t index) const noexcept {
    return states_[index].load(std::memory_order_relaxed);
  }
  // The state before.
  DeviceState set_state(std::uint32_t index, DeviceState state) noexcept;
  // Whether any is; who asks for an inode's asks this first.
  [[nodiscard]] bool any_lost() const noexcept {
    return lost_.load(std::memory_order_relaxed) > 0;
  }
  // An operation on it failed: it is to be checked, if devices that are well do not fail like that. Never
  // waits.
  void failed(std::uint32_t index, int error) const;

  // Set once, before the first create_copy(); by the index of the catalog's table.
  std::function<bool(std::uint32_t index)> is_tight;
  std::function<bool(std::uint32_t index)> is_full;
  std::function<void(std::uint32_t index)> on_suspect;

 private:
  // How long a device may take for an answer: a busy one takes a second. Of a lone one nobody
  // else's calls wait.
  [[nodiscard]] std::int64_t patience() const noexcept {
    return (tiers_.size() == 1 ? 10 : 2) * kNanosPerSecond;
  }
  Devices(Catalog& catalog, std::vector<std::unique_ptr<Tier>> tiers)
      : catalog_(catalog), tiers_(std::move(tiers)) {}

  // A party's number has the device's index, and one of these where the device is not asked to
  // change a name.
  static constexpr std::uint64_t kAsking = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kWorking = std::uint64_t{2} << 32;
  // As long as the reset of a controller takes, and longer.
  static constexpr std::chrono::seconds kLongestCreate{120};
  static constexpr std::chrono::milliseconds kBetweenLooks{20};
  struct Attempt;
  struct Candidates {
    std::vector<std::size_t> order;  // places in tiers_, the best first
    bool any_stalled = false;        // others would be among them
  };
  [[nodiscard]] Candidates candidates(std::size_t first) const;
  // On tiers_[which]: ETIMEDOUT after a second. `attempt` becomes this one.
  Result<UniqueFd> create_on(std::size_t which, ObjectId object,
                             std::shared_ptr<Attempt>& attempt);
  Result<NewCopy> create_on_the_only_one(ObjectId object);
  // `call` on a tier, for what it says from memory, or within a second.
  template <class T>
  Result<T> ask(std::uint32_t index, std::function<Result<T>()> call);

  Catalog& catalog_;
  std::vector<std::unique_ptr<Tier>> tiers_;
  std::vector<Tier*> by_index_;
  std::vector<std::uint32_t> index_of_tier_;
  std::atomic<std::uint32_t> turn_{0};
  std::vector<std::atomic<DeviceState>> states_;  // by index
  std::atomic<std::uint32_t> lost_{0};            // devices
  StallWatch stalls_;                             // by index, as the next
  StallWatch silences_;
  // Last, as its end waits for them: calls that may not come back for long. Of each device
  // those that change names are a party, those that ask another, and work a third.
  FairPool threads_{"kv-disk", {.each = 16, .most = 128, .queue = 4096}};
};

}  // namespace kvcachefs
