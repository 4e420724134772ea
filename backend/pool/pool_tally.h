// How much stands on a pool, and what of it was used longest ago.
//
// What was used within the same minute goes in the order in which it came, the last first: a chain of blocks is
// published from its begin on, and is worth nothing without it.
//
// Users and other nodes decide what a file's size and times are. A file counts by what it takes
// of the disk, so that a sparse one costs nobody else's files; a use that is yet to come (the
// server's clock was set back, or somebody has told it) counts as one of now, and is made one, so
// that it is one for no longer than others are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backend/pool/pool_session.h"

namespace kvcachefs {

struct PoolColdFile {
  std::string path;
  std::uint64_t fileid = 0;
  std::uint64_t size = 0;  // bytes that it takes
  UnixNanos used = 0;      // by the server's clock, as the next
  UnixNanos written = 0;
  UnixNanos rank = 0;  // PoolTally's: `used`, or what stands for it

  // Goes before the other.
  bool operator<(const PoolColdFile& other) const noexcept;
};

// One thread.
class PoolTally {
 public:
  static constexpr std::size_t kMostCold = 4096;
  // How far ahead a use may be, for a tally takes its time; and how many that are further ahead it
  // names: who asks for them has a call to make for each.
  static constexpr std::int64_t kAhead = 3600 * kNanosPerSecond;
  static constexpr std::size_t kMostAhead = 1024;
  // Directories within each other; deeper ones are passed over.
  static constexpr std::size_t kMostDepth = 64;

  using Numbers = std::unordered_set<std::uint64_t>;

  // `wanted`: the coldest files of so many bytes together are remembered, at most kMostCold.
  // `stay`, where given: those with these numbers are counted and not remembered. `now`: by the
  // server's clock, where it is known. `tells_taken`: an earlier tally of the pool has found
  // that its filesystem tells what files take.
  explicit PoolTally(std::uint64_t wanted, std::shared_ptr<const Numbers> stay = nullptr,
                     UnixNanos now = INT64_MAX, bool tells_taken = false)
      : wanted_(wanted), stay_(std::move(stay)), now_(now), tells_taken_(tells_taken) {}

  void add(PoolColdFile file);
  // Of the file, by what it takes.
  void add(std::string path, const PoolStatus& status);
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t files() const noexcept { return files_; }
  // Whether any file told what it takes.
  [[nodiscard]] bool tells_taken() const noexcept { return tells_taken_; }
  // Files were counted by their size before one told: another count is right.
  [[nodiscard]] bool is_doubtful() const noexcept { return tells_taken_ && guessed_; }
  // Paths of files whose use is yet to come, for use_now().
  [[nodiscard]] const std::vector<std::string>& ahead() const noexcept { return ahead_; }
  // From the coldest on.
  [[nodiscard]] const std::set<PoolColdFile>& coldest() const noexcept { return coldest_; }

 private:
  const std::uint64_t wanted_;
  const std::shared_ptr<const Numbers> stay_;
  const UnixNanos now_;
  bool tells_taken_;
  bool guessed_ = false;
  std::uint64_t bytes_ = 0;
  std::uint64_t files_ = 0;
  std::uint64_t cold_bytes_ = 0;
  std::set<PoolColdFile> coldest_;
  std::vector<std::string> ahead_;
};

// Where the file's use is later than `now` by more than PoolTally::kAhead, it becomes one of the server's time. Errors:
// those of any call.
[[nodiscard]] Result<void> use_now(PoolSession& session, const std::string& path, UnixNanos now,
                                   Deadline deadline);

// Adds the files of one directory, and gives the paths of the directories in it. Of the root only what `is_mine` says
// yes to; what kvcachefs has there of its own is left out. A directory that is gone has none. Errors: those of any call.
[[nodiscard]] Result<std::vector<std::string>> tally_directory(
    PoolSession& session, const std::string& path,
    const std::function<bool(std::string_view top)>& is_mine, PoolTally& tally,
    Deadline deadline);

}  // namespace kvcachefs
