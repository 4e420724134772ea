// The listings that the kernel remembers, and whether they are still right.
//
// The answer to an OPENDIR allows the kernel to remember what READDIR gives (FOPEN_CACHE_DIR).
// Once a reader has come to the end, the kernel answers later listings alone: the daemon
// sees their OPENDIR and RELEASEDIR only (fs/fuse/readdir.c of the kernel).
//
// The kernel forgets a listing by itself when a name comes or goes through the kernel. A Change
// tells it of names that the daemon removes:
//
//   no names ──READDIR──> names ──Change──> stale ──message──> no names
//
// While a listing is stale or changes, no new reader remembers or reads what is remembered:
// READDIR answers them. The message is sent when no reader is between two answers, because the
// kernel may add an earlier answer to its pages after it has dropped them. It drops the first
// page alone: a reader that begins misses it, upon which the kernel forgets the listing. The
// same where a listing begins while another one is read: names may have come or gone through
// the kernel since that began, which has forgotten the earlier one, and adds what it still gets
// of it to the later. The daemon sees the first READDIR of a listing, not when the kernel began
// it: a reader may have begun at any time since it was opened. So while one may, no later one
// remembers, unless both list unseen; and where such two begin after all, because a name has
// come, the later READDIR tells of it. A listing that the kernel has in part would never be
// whole again without its last page: a directory of a single page that was read in part (the
// kernel did not ask for the end) is listed by the daemon after such a message, until the
// kernel forgets the directory.
//
// Any thread. The lock is a leaf, but for the queue of messages. Memory: some 100 bytes for
// each directory that the kernel knows and has listed, of at most kMost.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "fs/node/ports.h"
#include "metadata/record.h"

namespace kvcachefs {

// A directory while it is open. Its owner calls closed() before it ends.
class ListingReader {
 private:
  friend class KernelListings;
  InodeNumber directory_ = 0;
  bool remembers_ = false;
  bool is_unread_ = false;    // it has sent no READDIR, and may send one
  std::uint64_t begins_ = 0;  // listings that had begun when it was opened, or began itself
  bool is_filling_ = false;   // the kernel may not have taken its last answer yet
};

class KernelListings {
 public:
  // `notifications` null: the kernel cannot be told, so no reader remembers.
  explicit KernelListings(KernelNotifications* notifications) : notifications_(notifications) {}
  KernelListings(const KernelListings&) = delete;
  KernelListings& operator=(const KernelListings&) = delete;

  struct Grant {
    bool remembers =
        false;  // the kernel may remember the answers, and use those that it remembers
    bool is_unseen = false;  // it may list the directory without a READDIR
  };
  // Decides at an OPENDIR. `modified`: the directory's mtime, which shows a change through the
  // kernel.
  Grant opened(ListingReader& reader, InodeNumber directory, UnixNanos modified,
               std::int64_t now_ns);
  // Before the names of an answer are looked up.
  void reads(ListingReader& reader, std::uint64_t after_cookie, UnixNanos modified);
  // Before an answer without names: the end of the directory.
  void ended(ListingReader& reader);
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
  // A reader that has not begun for this long is not waited for: it is one that holds the
  // directory open for other calls.
  static constexpr std::int64_t kUnreadNanos = 1'000'000'000;
  // A message that was not confirmed for this long is lost.
  static constexpr std::int64_t kLostNanos = 1'000'000'000;

 private:
  struct Listing {
    std::uint32_t readers = 0;   // that remember
    std::uint32_t filling = 0;   // of them: is_filling_
    std::uint32_t unread = 0;    // of them: is_unread_
    std::uint32_t changing = 0;  // Changes
    std::int64_t unread_ns = 0;  // the last OPENDIR of one that may remember
    std::int64_t asked_ns = 0;   // 0: not known
    std::uint64_t last_open = 0;
    std::uint64_t ticket = 0;  // of what made it stale last
    std::uint64_t begins = 0;  // listings whose first READDIR has come
    UnixNanos modified = 0;    // when a listing began last
    bool is_settled = false;   // a change since then shows in `modified`
    bool has_names =
        false;              // the kernel may have names, unless the last message has reached it
    bool is_whole = false;  // up to the end, since that message
    bool is_stale = false;
    bool is_asked = false;  // a message is on its way
  };
  using Listings = std::unordered_map<InodeNumber, Listing>;

  // All of them under mutex_.
  void ask_if_due(InodeNumber directory, Listing& listing, std::int64_t now_ns);
  void set_stale(Listing& listing);
  void erase_if_empty(Listings::iterator at);

  KernelNotifications* const notifications_;
  std::mutex mutex_;
  Listings listings_;              // under mutex_
  std::uint64_t last_ticket_ = 0;  // under mutex_
  std::atomic<std::uint64_t> opens_{0};
  std::atomic<std::size_t> size_{0};
};

}  // namespace kvcachefs
