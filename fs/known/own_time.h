// The mount's own time: what the ages of files are judged by. It begins with the wall clock when the mount is new, and
// goes on by the machine's monotonic clock from then on, also from one run of the daemon to the next. So it says how long
// a file has not been used, whatever becomes of the wall clock: one that was wrong (no battery, before NTP), and is set
// right, makes no file old, and none young. Time in which the machine was off or suspended does not count.
//
// The kernel gives backing files times of the wall clock. This knows by how much that was ahead when an object was made,
// and since then, and translates them. Of several it takes the one that makes the file youngest: a file may be kept for too
// long, and never goes too early.
//
// Any thread, once begin() has returned; the lock is a leaf.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "backend/base/clock.h"
#include "metadata/catalog.h"

namespace kvcachefs {

class OwnTime {
 public:
  // The wall clock is said to have been set when it has moved by more than this against the own time. Corrections by NTP
  // are smaller.
  static constexpr std::int64_t kSet = 10 * kNanosPerSecond;

  explicit OwnTime(Clocks clocks);

  // Goes on from where the last run was. `last`: what record() gave it; nullopt: there was none. `boot_id`: of the
  // machine now. `next`: the id of the next object.
  void begin(const std::optional<ClockRecord>& last, std::string boot_id, std::uint64_t next);
  // What the next run goes on from. `next`: as of begin().
  [[nodiscard]] ClockRecord record(std::uint64_t next);
  // Whether the wall clock was set since the last record() or call. Asked once a minute or so.
  [[nodiscard]] bool was_set(std::uint64_t next);

  [[nodiscard]] std::int64_t now() const noexcept {
    return began_ + (clocks_.monotonic() - began_monotonic_);
  }
  // When an object was written, by the own time; `wall`: by the kernel. A time that is yet to come is now.
  [[nodiscard]] std::int64_t of_wall(UnixNanos wall, std::uint64_t object) const;
  // What the wall clock showed, or would have shown had it been right as it is now: for people.
  [[nodiscard]] UnixNanos to_wall(std::int64_t own) const noexcept {
    return own <= 0 ? own : own + ahead();
  }

 private:
  [[nodiscard]] std::int64_t ahead() const noexcept { return clocks_.files() - now(); }
  bool note_set(std::uint64_t next);

  const Clocks clocks_;
  std::int64_t began_;  // own time; not changed after begin(), as the next
  std::int64_t began_monotonic_;
  mutable std::mutex mutex_;
  ClockRecord record_;  // under mutex_
};

}  // namespace kvcachefs
