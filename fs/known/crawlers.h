// Who lists directories: for a while after that, what a process looks up is no sign that it wants it
// (find, du, rsync).
//
// A READDIR says that its caller lists. Where the kernel may show a listing alone, the OPENDIR
// has to say it: the first lookup of the lister may come before its RELEASEDIR. A process that
// opens a directory to fsync it does not list it: FSYNCDIR takes back what OPENDIR has said.
//
// Any thread; the lock is a leaf, and not taken while nobody lists anything.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "fs/order/callers.h"

namespace kvcachefs {

class Crawlers {
 public:
  // A directory that is open, and may be listed unseen.
  struct Opening {
    order::Caller caller;
    std::int64_t until_ns = 0;  // until when the caller counts as one that lists
  };

  void listed(const order::Caller& caller, std::int64_t now_ns);
  // Until closed() or withdrawn() the caller counts as one that lists.
  Opening opened(const order::Caller& caller, std::int64_t now_ns);
  // The caller has listed the directory, as far as is known.
  void closed(const Opening& opening);
  // It has not. Returns until when it counts as one that lists all the same; 0: it does not.
  std::int64_t withdrawn(const Opening& opening);
  [[nodiscard]] bool has(const order::Caller& caller, std::int64_t now_ns) const;
  // Whether has() could say yes of anybody: `caller` need not be known to ask this.
  [[nodiscard]] bool any(std::int64_t now_ns) const noexcept {
    return now_ns < last_until_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t kSilence = 60'000'000'000;
  // An invisible caller may be everybody behind it (the threads of an NFS server).
  static constexpr std::int64_t kInvisibleSilence = 1'000'000'000;
  // Beyond so many those that are over are forgotten, and then the one that is over first, who
  // counts as one that lists no longer. Anybody can have thousands of processes that list.
  static constexpr std::size_t kMost = 4096;

  struct Silence {
    std::int64_t until_ns = 0;          // by what it has listed
    std::int64_t opening_until_ns = 0;  // by what it has open, as long as there is any
    std::uint32_t openings = 0;
    [[nodiscard]] std::int64_t end_ns() const noexcept;
  };
  // Under mutex_.
  Silence& silence_of(const order::Caller& caller, std::int64_t now_ns, std::int64_t until_ns);
  Silence* close(const Opening& opening);

  std::atomic<std::int64_t> last_until_{0};
  mutable std::mutex mutex_;
  // Under mutex_. By process, and for invisible ones by thread (bit 32 is set then).
  std::unordered_map<std::uint64_t, Silence> silences_;
};

}  // namespace kvcachefs
