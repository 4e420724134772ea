// Verification: the bytes of a sealed file are compared with the checksums of its seal before somebody
// reads them from the disk.
//
//     open ── pages all in the cache? ──yes──► served
//              │ no: one reader compares, who comes meanwhile waits for the outcome
//              ├── equal ─────────────────────► served, from the pages that the comparison brought in
//              ├── differ, and the file was changed through the filesystem since ──► sealed anew
//              └── differ, or unreadable ─────► names dropped, copy in quarantine, ESTALE
//
// The kernel tells whether an open will read from the disk (cachestat(2)). Where that says nothing (an
// older kernel, O_DIRECT) or too much (without passthrough the kernel has pages of its own, and those of
// the backing file may go early) a file is verified at most once in kHoldsFor and mount.
//
// A change through the filesystem moves the modification time: a store through a mapping does so before
// its page can be written. A ctime that moved alone proves nothing (chmod, or a copy of the device
// directory made with its times): then the bytes decide.
//
// Not verified: what is not sealed; files over kMostAtOpen, by opens; pages that are read again while a
// file stays open.
//
// Any thread. The lock is a leaf and never held while bytes are read.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "fs/life/checksum.h"
#include "fs/node/core.h"

namespace kvcachefs {

class Verifier {
 public:
  // Larger files are read for longer than an open may take: 0.1 s from a fast disk.
  static constexpr std::uint64_t kMostAtOpen = 256ull << 20;

  explicit Verifier(Core& core) : core_(core) {}
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;

  // Whether an open with these flags must verify first. Some microseconds; reads no data.
  [[nodiscard]] bool is_wanted(Inode& inode, int flags);
  // Reads the file and compares it. Success: it may be opened, or others judge it (it is not sealed any
  // more, or it was changed through the filesystem: look at its status again). *slow*. Errors: ESTALE
  // (damaged; it is a miss now), those of opening a backing file (EMFILE, ENOMEM), EIO and EBADMSG of
  // the catalog.
  Result<void> verify(const InodePtr& inode, int flags);
  // Brings the file into the page cache before somebody opens it, verified where an open would verify.
  // False: it is there, somebody else reads it, it is too large, or not this sealed object any more. *slow*.
  // Errors: as verify().
  Result<bool> stage(const InodePtr& inode, ObjectId object);

  // The same for the scrub: of any size, from the disk. Nothing, when the inode is not sealed or has
  // another object by now. `go_on` is asked before each read, with its bytes; false ends it.
  Result<void> scrub(const InodePtr& inode, ObjectId object,
                     const std::function<bool(std::uint64_t bytes)>& go_on);

  // Of an object found damaged: returns when its names are gone (or after kLongestDrop). A caller that is
  // told ESTALE before that would find the name once more, and the kernel does not try a third time.
  void wait_until_dropped(ObjectId object);

  // Opens are being verified.
  [[nodiscard]] bool is_busy() const noexcept {
    return opens_under_way_.load(std::memory_order_relaxed) > 0;
  }
  [[nodiscard]] std::uint64_t verified_opens() const noexcept {
    return verified_opens_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t verified_bytes() const noexcept {
    return verified_bytes_.load(std::memory_order_relaxed);
  }

 private:
  // How long an outcome holds where the page cache does not tell, and how many are remembered.
  static constexpr std::int64_t kHoldsFor = 3600ll * 1'000'000'000;
  static constexpr std::size_t kMostRemembered = 1 << 16;
  // Some commits; a file may have many names.
  static constexpr std::chrono::seconds kLongestDrop{2};

  // A sealed file as it was found, to be compared.
  struct Subject {
    ObjectId object = kNoObject;
    std::uint32_t device = 0;
    DataStamp stamp;  // of its seal
    DataStamp now;
    std::uint64_t write_opens = 0;
    UniqueFd fd;
    ReadWay asked = ReadWay::kThroughCache;
    ReadWay way =
        ReadWay::kThroughCache;  // another one where the device does not read past the cache
  };
  enum class Asker : std::uint8_t { kOpen, kStage };
  // A comparison under way.
  struct Flight {
    bool done = false;
    Result<void> outcome;
  };
  using FlightKey = std::pair<ObjectId, ReadWay>;
  enum class Verdict : std::uint8_t { kNotJudged, kDamaged, kFoundBefore };

  // nullopt: nothing to verify. Errors: those of Tier::open(); ENOENT.
  Result<std::optional<Subject>> find_subject(Inode& inode, ReadWay way);
  // One comparison at a time; who comes second gets the outcome of the first.
  Result<void> compare_once(const InodePtr& inode, Subject&& subject, Asker asker);
  Result<void> compare(const InodePtr& inode, Subject&& subject,
                       const std::function<bool(std::uint64_t bytes)>& go_on);
  Result<Compared> compare_bytes(Inode& inode, Subject& subject, const ObjectRecord& record,
                                 const std::function<bool(std::uint64_t bytes)>& go_on);
  Result<void> adopt_ctime(Inode& inode, const Subject& subject, ObjectRecord&& record);
  Verdict judge(Inode& inode, const Subject& subject);
  // By a comparison of the same way: pages that were read once say nothing of what the disk gives next.
  [[nodiscard]] bool holds(const FlightKey& compared);
  // Whether an earlier outcome stands for a file whose pages are not all in the cache, as is_cached() said.
  [[nodiscard]] bool is_trusted(ObjectId object, std::optional<bool> cached);
  void remember(const FlightKey& compared);
  [[nodiscard]] bool is_under_way(ObjectId object);

  Core& core_;
  std::atomic<int> opens_under_way_{0};
  std::atomic<std::uint64_t> verified_opens_{0};
  std::atomic<std::uint64_t> verified_bytes_{0};
  std::mutex mutex_;
  std::condition_variable landed_;
  // Under mutex_.
  std::map<FlightKey, std::shared_ptr<Flight>> flights_;
  std::set<ObjectId> dropping_;                    // damaged, and their names not gone yet
  std::map<FlightKey, std::int64_t> verified_at_;  // monotonic nanoseconds
  std::deque<std::pair<FlightKey, std::int64_t>> verified_in_order_;  // the oldest first
};

}  // namespace kvcachefs
