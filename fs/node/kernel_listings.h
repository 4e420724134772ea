// The listings that the kernel remembers, and whether they are still right.
//
// The answer to an OPENDIR allows the kernel to remember what READDIR gives (FOPEN_CACHE_DIR):
// the reader is granted. Once a granted reader has come to the end, the kernel answers later
// listings alone: the daemon sees their OPENDIR and RELEASEDIR only. The rules of the kernel
// (fs/fuse/readdir.c), which has one listing of a directory, from whichever reader:
//
//   - A reader that begins notes the directory's version, if the listing is empty. The version
//     counts the changes of names through the kernel.
//   - A name is added that follows the last one by its cookie, whoever asked for it.
//   - An empty answer to a reader that stands where the listing ends makes it complete.
//   - A reader that begins empties a complete listing of another version, or one whose first
//     page is gone. Nothing else empties one.
//   - A reader that goes on does so in a listing that has become complete meanwhile, of
//     whatever version.
//
// So a listing is complete only by an empty answer of ours, and it is wrong if it has an answer
// that is older than its version: one that was on its way while names changed and another
// reader began. The daemon does not see when a reader begins, so it gives an empty answer where
//
//   - no other reader's answer, and no other empty answer, may be on its way, and
//   - nothing has changed since the first answer that the kernel may have added to what it had
//     when it was complete last. Changes through the kernel do no harm while a single reader
//     was open: it began before it asked.
//
// Else the end is an answer that is shorter than a name: the kernel takes it for the end, adds
// nothing and completes nothing. Where something has changed and nothing is on its way, a
// message drops the first page before the empty answer: the next reader begins anew. Otherwise
// what is wrong in the listing would stay there.
//
// An empty answer that arrives after another reader has begun completes what that one has so
// far, or what is older than its beginning; the reader would go on in that. So a reader that
// begins while one is on its way waits until it has arrived, and one that may have begun before
// an arrival gets its first answer after such a message.
//
// A Change tells the kernel of names that the daemon removes of its own accord. Until the
// kernel has taken that message no new reader is granted.
//
// Any thread; await_begin() waits kEndingNanos and kLostNanos at most, await_end() kLostNanos.
// The lock is a leaf, but for the queue of messages. Memory: some 150 bytes for each directory
// that the kernel knows and has listed, of at most kMost.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "fs/node/listing_end.h"
#include "fs/node/ports.h"
#include "metadata/record.h"

namespace kvcachefs {

// A directory while it is open. Its owner calls closed() before it ends.
class ListingReader {
 private:
  friend class KernelListings;
  InodeNumber directory_ = 0;
  bool is_granted_ = false;
  bool is_filling_ = false;  // the kernel may not have added its last answer yet
  bool is_ending_ = false;   // nor made the listing complete by it
  // Of the complete listings the last that had arrived before this one was opened, or ended.
  std::uint64_t arrived_ = 0;
  // While it waits: for this message, since when, and what had been answered then.
  std::uint64_t ticket_ = 0;
  std::int64_t asked_ns_ = 0;
  std::uint64_t answers_ = 0;
};

class KernelListings {
 public:
  // `notifications` null: the kernel cannot be told, so no reader is granted.
  explicit KernelListings(KernelNotifications* notifications) : notifications_(notifications) {}
  KernelListings(const KernelListings&) = delete;
  KernelListings& operator=(const KernelListings&) = delete;

  struct Grant {
    // The kernel may remember the answers, and use those that it remembers.
    bool remembers = false;
    bool is_unseen = false;  // it may list the directory without a READDIR
  };
  // `changes`: how often the directory's names have changed (Inode::changes), read before the
  // call.

  // Decides at an OPENDIR.
  Grant opened(ListingReader& reader, InodeNumber directory, std::uint64_t changes,
               std::int64_t now_ns);
  // Before the names of an answer are looked up. False: not before await_begin().
  [[nodiscard]] bool reads(ListingReader& reader, std::uint64_t after_cookie,
                           std::uint64_t changes, std::int64_t now_ns);
  void await_begin(ListingReader& reader);
  // Before an answer without names.
  [[nodiscard]] ListingEnd ended(ListingReader& reader, std::uint64_t changes,
                                 std::int64_t now_ns);
  // kEmpty or kShort.
  ListingEnd await_end(ListingReader& reader);
  // The two awaits ask these until the answer is true, or not kWaits.
  [[nodiscard]] bool may_begin(ListingReader& reader, std::int64_t now_ns);
  [[nodiscard]] ListingEnd end_now(ListingReader& reader, std::int64_t now_ns);
  void closed(ListingReader& reader);

  // Lives while the daemon changes the names of a directory of its own accord, from before the
  // commit until after it.
  class Change {
   public:
    Change(KernelListings& listings, InodeNumber directory);
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    KernelListings& listings_;
    const InodeNumber directory_;
  };

  // The kernel has taken the message with this ticket (KernelNotifications::drop_listing()).
  void dropped(InodeNumber directory, std::uint64_t ticket);
  // The kernel has forgotten the directory. `opens_before`: opens() before its last lookup was
  // given back; a later OPENDIR is of a directory that the kernel has found again.
  void forgotten(InodeNumber directory, std::uint64_t opens_before);
  [[nodiscard]] std::uint64_t opens() const noexcept { return opens_.load(); }
  // Directories that something is remembered of.
  [[nodiscard]] std::size_t size() const noexcept { return size_.load(); }

  // More directories than this are listed by the daemon.
  static constexpr std::size_t kMost = 1 << 20;
  // A message that was not confirmed for this long is lost.
  static constexpr std::int64_t kLostNanos = 1'000'000'000;
  // An empty answer to a reader that asks no more, and does not close, has arrived after this
  // long.
  static constexpr std::int64_t kEndingNanos = 1'000'000'000;

 private:
  // Both numbers only grow.
  struct Version {
    std::uint64_t changes = 0;      // through the kernel
    std::uint64_t own_changes = 0;  // of the daemon
  };
  struct Listing {
    std::uint32_t readers = 0;   // that are granted
    std::uint32_t filling = 0;   // of them: is_filling_
    std::uint32_t ending = 0;    // of them: is_ending_
    std::uint32_t changing = 0;  // Changes
    std::int64_t ended_ns = 0;   // the last end that was to be empty
    std::int64_t asked_ns = 0;   // 0: not known
    std::uint64_t last_open = 0;
    std::uint64_t ticket = 0;     // of what made it stale last
    std::uint64_t confirmed = 0;  // the last ticket that the kernel has taken
    std::uint64_t answers = 0;
    std::uint64_t own_changes = 0;
    // No older answer can have been added since it was complete last; none: no answer at all.
    std::optional<Version> oldest;
    std::uint64_t completions = 0;
    // The oldest answer in what may be complete, unless the last message has reached the kernel.
    std::optional<Version> whole;
    bool is_shared = false;  // a second reader was open since it was complete last
    bool is_stale = false;
    bool is_asked = false;  // a message is on its way
  };
  using Listings = std::unordered_map<InodeNumber, Listing>;

  // All of them under mutex_.
  [[nodiscard]] static bool is_as_now(const Version& version, const Listing& listing,
                                      std::uint64_t changes) noexcept;
  [[nodiscard]] static bool is_end_on_its_way(const Listing& listing,
                                              std::int64_t now_ns) noexcept;
  [[nodiscard]] bool may_begin(ListingReader& reader, Listing& listing, std::int64_t now_ns);
  [[nodiscard]] ListingEnd end_now(ListingReader& reader, Listing& listing,
                                   std::int64_t now_ns);
  static void complete(ListingReader& reader, Listing& listing) noexcept;
  void forget_answer(ListingReader& reader, Listing& listing) noexcept;
  void ask_if_due(InodeNumber directory, Listing& listing, std::int64_t now_ns);
  void erase_if_empty(Listings::iterator at);
  void send_drop(ListingReader& reader, std::int64_t now_ns);
  [[nodiscard]] static bool is_lost(const ListingReader& reader, std::int64_t now_ns) noexcept;

  KernelNotifications* const notifications_;
  std::mutex mutex_;
  std::condition_variable news_;   // of what readers wait for
  Listings listings_;              // under mutex_
  std::uint64_t last_ticket_ = 0;  // under mutex_
  std::atomic<std::uint64_t> opens_{0};
  std::atomic<std::size_t> size_{0};
};

}  // namespace kvcachefs
