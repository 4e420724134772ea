#include "fs/node/kernel_listings.h"

#include <chrono>

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

// A thread that waits looks at the clock this often.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

bool KernelListings::is_as_now(const Version& version, const Listing& listing,
                               std::uint64_t changes) noexcept {
  return version.changes == changes && version.own_changes == listing.own_changes;
}

bool KernelListings::is_end_on_its_way(const Listing& listing, std::int64_t now_ns) noexcept {
  return listing.ending > 0 && now_ns - listing.ended_ns < kEndingNanos;
}

// Names that are added from now on belong to the next listing.
void KernelListings::complete(ListingReader& reader, Listing& listing) noexcept {
  reader.arrived_ = ++listing.completions;
  listing.oldest.reset();
  listing.is_shared = listing.readers > 1;
}

// A reader that asks again, or closes, has taken its last answer.
void KernelListings::forget_answer(ListingReader& reader, Listing& listing) noexcept {
  if (reader.is_filling_) --listing.filling;
  if (reader.is_ending_) {
    --listing.ending;
    news_.notify_all();
  }
  reader.is_filling_ = reader.is_ending_ = false;
}

void KernelListings::ask_if_due(InodeNumber directory, Listing& listing, std::int64_t now_ns) {
  if (!listing.is_stale || listing.changing > 0) return;
  if (listing.is_asked) {
    if (now_ns == 0) return;
    if (listing.asked_ns == 0) listing.asked_ns = now_ns;
    if (now_ns - listing.asked_ns < kLostNanos) return;
  }
  listing.is_asked = true;
  listing.asked_ns = now_ns;
  listing.whole.reset();
  notifications_->drop_listing(directory, listing.ticket);
}

void KernelListings::erase_if_empty(Listings::iterator at) {
  const Listing& listing = at->second;
  if (listing.readers > 0 || listing.changing > 0 || listing.is_stale) return;
  if (listing.whole || listing.oldest) return;
  listings_.erase(at);
  size_.store(listings_.size());
}

void KernelListings::send_drop(ListingReader& reader, std::int64_t now_ns) {
  reader.ticket_ = ++last_ticket_;
  reader.asked_ns_ = now_ns;
  notifications_->drop_listing(reader.directory_, reader.ticket_);
}

bool KernelListings::is_lost(const ListingReader& reader, std::int64_t now_ns) noexcept {
  return now_ns - reader.asked_ns_ >= kLostNanos;
}

KernelListings::Grant KernelListings::opened(ListingReader& reader, InodeNumber directory,
                                             std::uint64_t changes, std::int64_t now_ns) {
  if (notifications_ == nullptr) return {};
  const std::lock_guard lock(mutex_);
  if (listings_.size() >= kMost && listings_.count(directory) == 0) return {};
  Listing& listing = listings_[directory];
  size_.store(listings_.size());
  listing.last_open = opens_.fetch_add(1) + 1;
  if (listing.changing > 0 || listing.is_stale) {
    ask_if_due(directory, listing, now_ns);
    return {};
  }
  // While another one fills the listing the daemon would be asked anyway, and neither end
  // complete it.
  const bool is_unseen = listing.whole && is_as_now(*listing.whole, listing, changes);
  const bool is_end_missing = is_end_on_its_way(listing, now_ns);
  if (!is_unseen && (listing.filling > 0 || is_end_missing)) return {};
  if (listing.readers > 0) {
    listing.is_shared = true;
  } else if (!listing.oldest) {
    listing.is_shared = false;
  }
  reader.directory_ = directory;
  reader.is_granted_ = true;
  reader.arrived_ = listing.completions - (is_end_missing ? 1 : 0);
  ++listing.readers;
  return {.remembers = true, .is_unseen = is_unseen};
}

bool KernelListings::reads(ListingReader& reader, std::uint64_t after_cookie,
                           std::uint64_t changes, std::int64_t now_ns) {
  if (!reader.is_granted_) return true;
  const std::lock_guard lock(mutex_);
  Listing& listing = listings_[reader.directory_];
  forget_answer(reader, listing);
  ++listing.filling;
  reader.is_filling_ = true;
  ++listing.answers;
  if (!listing.oldest)
    listing.oldest = Version{.changes = changes, .own_changes = listing.own_changes};
  if (after_cookie != 0) return true;
  reader.ticket_ = 0;
  return may_begin(reader, listing, now_ns);
}

bool KernelListings::may_begin(ListingReader& reader, Listing& listing, std::int64_t now_ns) {
  if (is_end_on_its_way(listing, now_ns)) return false;
  if (reader.ticket_ == 0 && reader.arrived_ != listing.completions) {
    reader.arrived_ = listing.completions;
    send_drop(reader, now_ns);
  }
  if (listing.confirmed < reader.ticket_ && !is_lost(reader, now_ns)) return false;
  // The kernel has emptied what was complete when it arrived, or would not have asked; and what
  // has become so since then has no first page.
  listing.whole.reset();
  return true;
}

ListingEnd KernelListings::ended(ListingReader& reader, std::uint64_t changes,
                                 std::int64_t now_ns) {
  if (!reader.is_granted_) return ListingEnd::kEmpty;
  const std::lock_guard lock(mutex_);
  Listing& listing = listings_[reader.directory_];
  forget_answer(reader, listing);
  if (listing.filling > 0 || is_end_on_its_way(listing, now_ns)) return ListingEnd::kShort;
  listing.ended_ns = now_ns;
  ++listing.ending;
  reader.is_ending_ = true;
  const Version oldest = listing.oldest.value_or(Version{});
  if (oldest.own_changes != listing.own_changes ||
      (listing.is_shared && oldest.changes != changes)) {
    reader.answers_ = listing.answers;
    send_drop(reader, now_ns);
    return ListingEnd::kWaits;
  }
  listing.whole = oldest;
  complete(reader, listing);
  return ListingEnd::kEmpty;
}

ListingEnd KernelListings::end_now(ListingReader& reader, Listing& listing,
                                   std::int64_t now_ns) {
  // An answer since then may be added after the kernel has dropped the page.
  if (listing.answers != reader.answers_ || is_lost(reader, now_ns)) {
    forget_answer(reader, listing);
    return ListingEnd::kShort;
  }
  if (listing.confirmed < reader.ticket_) return ListingEnd::kWaits;
  listing.ended_ns = now_ns;
  complete(reader, listing);
  return ListingEnd::kEmpty;
}

bool KernelListings::may_begin(ListingReader& reader, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  return may_begin(reader, listings_[reader.directory_], now_ns);
}

ListingEnd KernelListings::end_now(ListingReader& reader, std::int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  return end_now(reader, listings_[reader.directory_], now_ns);
}

void KernelListings::await_begin(ListingReader& reader) {
  std::unique_lock lock(mutex_);
  Listing& listing = listings_[reader.directory_];
  while (!may_begin(reader, listing, monotonic_now())) news_.wait_for(lock, kLook);
}

ListingEnd KernelListings::await_end(ListingReader& reader) {
  std::unique_lock lock(mutex_);
  Listing& listing = listings_[reader.directory_];
  while (true) {
    const ListingEnd end = end_now(reader, listing, monotonic_now());
    if (end != ListingEnd::kWaits) return end;
    news_.wait_for(lock, kLook);
  }
}

void KernelListings::closed(ListingReader& reader) {
  if (!reader.is_granted_) return;
  const std::lock_guard lock(mutex_);
  const auto at = listings_.find(reader.directory_);
  if (at == listings_.end()) return;
  forget_answer(reader, at->second);
  --at->second.readers;
  reader = {};
  erase_if_empty(at);
}

KernelListings::Change::Change(KernelListings& listings, InodeNumber directory)
    : listings_(listings), directory_(directory) {
  if (listings_.notifications_ == nullptr) return;
  const std::lock_guard lock(listings_.mutex_);
  ++listings_.listings_[directory_].changing;
  listings_.size_.store(listings_.listings_.size());
}

KernelListings::Change::~Change() {
  if (listings_.notifications_ == nullptr) return;
  const std::lock_guard lock(listings_.mutex_);
  const auto at = listings_.listings_.find(directory_);
  if (at == listings_.listings_.end()) return;
  Listing& listing = at->second;
  --listing.changing;
  ++listing.own_changes;
  if (listing.whole || listing.is_stale) {
    listing.is_stale = true;
    listing.ticket = ++listings_.last_ticket_;
    listings_.ask_if_due(directory_, listing, 0);
  }
  listings_.erase_if_empty(at);
}

void KernelListings::dropped(InodeNumber directory, std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  const auto at = listings_.find(directory);
  if (at == listings_.end()) return;
  Listing& listing = at->second;
  listing.confirmed = ticket;
  news_.notify_all();
  listing.is_asked = false;
  if (ticket >= listing.ticket) listing.is_stale = false;
  ask_if_due(directory, listing, 0);
  erase_if_empty(at);
}

void KernelListings::forgotten(InodeNumber directory, std::uint64_t opens_before) {
  if (size() == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = listings_.find(directory);
  if (at == listings_.end()) return;
  Listing& listing = at->second;
  if (listing.readers > 0 || listing.last_open > opens_before) return;
  listing.is_stale = listing.is_asked = false;
  listing.oldest.reset();
  listing.whole.reset();
  erase_if_empty(at);
}

}  // namespace kvcachefs
