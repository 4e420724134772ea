// The native map: prefix/<hash>, one file for each prefix hash, where <hash> is 16 to 128 lower-case
// hex digits and `prefix` is a directory in the root.
//
// The first copy that is published under a hash stays, whole: what comes later is told that all went
// well, or EEXIST, and nobody writes to the file again. README.md ("prefix/ and session/") has the
// rules; rename.cc, link, make and Files::open keep them; fs/DESIGN.md says why they hold in the kernel.
// A file that was published so carries kInodeFirstWriter for ever, whatever its names become; one that
// carries it and is unpublished is being written under its final name, and a miss to others.
//
// The directories of session/ are ordinary ones.
//
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fs/node/core.h"

namespace kvcachefs {

[[nodiscard]] bool is_prefix_hash(std::string_view name) noexcept;

class NativeMap {
 public:
  // Before the mount answers: finds `prefix`. Errors: EIO, EBADMSG.
  Result<void> load(Catalog& catalog);
  // A name in `parent` has changed; `directory` is the one it names now, 0: none. The caller holds the
  // locks of both directories: while one is locked, holds() of it does not change.
  void changed(InodeNumber parent, std::string_view name, InodeNumber directory) noexcept;

  // Whether the directory is `prefix`. One comparison: most creations have nothing to do with it.
  [[nodiscard]] bool holds(InodeNumber directory) const noexcept {
    return directory == prefix_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_hash(InodeNumber parent, std::string_view name) const noexcept {
    return holds(parent) && is_prefix_hash(name);
  }

  // Whether the kernel may keep the name for a time. A temporary of prefix/ not at all: when its
  // rename comes second, the kernel has it stand for the hash until it asks again.
  [[nodiscard]] bool keeps(InodeNumber parent, std::string_view name) const noexcept {
    return !holds(parent) || is_prefix_hash(name);
  }
  [[nodiscard]] double miss_timeout(InodeNumber parent) const noexcept;

  // A copy came second. Counts it, and when the sizes differ says so in the log, not more often than
  // every ten seconds.
  void note_second(Counters& counters, std::string_view hash, std::uint64_t first_size,
                   std::uint64_t second_size) noexcept;

 private:
  std::atomic<InodeNumber> prefix_{0};  // 0: there is none
  std::atomic<std::int64_t> quiet_until_ns_{0};
};

// Published as prefix/<hash>: its data stays as it is. The caller holds the inode's lock.
[[nodiscard]] inline bool is_final(const InodeRecord& record) noexcept {
  return (record.flags & kInodeFirstWriter) != 0 && record.state != DataState::kUnpublished;
}
// The thread that is writing the file under its hash; nullopt: nobody is. Takes the inode's lock.
// Error: kMustWait.
[[nodiscard]] Result<std::optional<pid_t>> writer_under_hash(Inode& inode);

}  // namespace kvcachefs
