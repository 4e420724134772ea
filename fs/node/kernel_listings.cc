#include "fs/node/kernel_listings.h"

#include "backend/base/clock.h"

namespace kvcachefs {
namespace {

// A second change within a tick of the clock of files has the same time.
bool is_settled(UnixNanos modified) noexcept {
  constexpr UnixNanos kTick = 10'000'000;
  const UnixNanos age = file_clock_now() - modified;
  return age > kTick || age < 0;
}

}  // namespace

void KernelListings::ask_if_due(InodeNumber directory, Listing& listing, std::int64_t now_ns) {
  if (!listing.is_stale || listing.changing > 0 || listing.filling > 0) return;
  if (listing.is_asked) {
    if (now_ns == 0) return;
    if (listing.asked_ns == 0) listing.asked_ns = now_ns;
    if (now_ns - listing.asked_ns < kLostNanos) return;
  }
  listing.is_asked = true;
  listing.asked_ns = now_ns;
  listing.has_names = false;
  listing.is_whole = false;
  notifications_->drop_listing(directory, listing.ticket);
}

void KernelListings::set_stale(Listing& listing) {
  listing.is_stale = true;
  listing.ticket = ++last_ticket_;
}

void KernelListings::erase_if_empty(Listings::iterator at) {
  const Listing& listing = at->second;
  if (listing.readers > 0 || listing.changing > 0 || listing.has_names || listing.is_stale)
    return;
  listings_.erase(at);
  size_.store(listings_.size());
}

KernelListings::Grant KernelListings::opened(ListingReader& reader, InodeNumber directory,
                                             UnixNanos modified, std::int64_t now_ns) {
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
  const bool is_unseen = listing.is_whole && listing.modified == modified;
  // An earlier reader could list unseen what this one lists, or what it still gets be added to
  // that. One that was to list unseen begins with a READDIR when a name has come since.
  const bool may_begin = listing.unread > 0 && now_ns - listing.unread_ns < kUnreadNanos;
  const bool is_sure = is_unseen && listing.is_settled;
  if (!is_sure && (may_begin || listing.filling > 0)) return {};
  reader.directory_ = directory;
  reader.remembers_ = true;
  reader.is_unread_ = true;
  reader.begins_ = listing.begins;
  ++listing.readers;
  ++listing.unread;
  listing.unread_ns = now_ns;
  return {.remembers = true, .is_unseen = is_unseen};
}

void KernelListings::reads(ListingReader& reader, std::uint64_t after_cookie,
                           UnixNanos modified) {
  if (!reader.remembers_) return;
  const std::lock_guard lock(mutex_);
  Listing& listing = listings_[reader.directory_];
  if (reader.is_unread_) --listing.unread;
  reader.is_unread_ = false;
  const std::uint32_t others = listing.filling - (reader.is_filling_ ? 1 : 0);
  if (after_cookie == 0) {
    // One that began after this one was opened may have got older names than this one's begin
    // has made the kernel believe.
    if (others > 0 || reader.begins_ != listing.begins) set_stale(listing);
    reader.begins_ = ++listing.begins;
    // The kernel has forgotten the earlier one, or would not have asked.
    listing.is_whole = false;
  }
  if (!reader.is_filling_) ++listing.filling;
  reader.is_filling_ = true;
  listing.has_names = true;
  if (after_cookie == 0) {
    listing.modified = modified;
    listing.is_settled = is_settled(modified);
  }
}

void KernelListings::ended(ListingReader& reader) {
  if (!reader.remembers_) return;
  const std::lock_guard lock(mutex_);
  Listing& listing = listings_[reader.directory_];
  if (reader.is_filling_) --listing.filling;
  reader.is_filling_ = false;
  listing.is_whole = true;
  ask_if_due(reader.directory_, listing, 0);
}

void KernelListings::closed(ListingReader& reader) {
  if (!reader.remembers_) return;
  const std::lock_guard lock(mutex_);
  const auto at = listings_.find(reader.directory_);
  if (at == listings_.end()) return;
  Listing& listing = at->second;
  --listing.readers;
  // It may have begun, and been killed before its READDIR was on its way.
  if (reader.is_unread_ && reader.begins_ != listing.begins) set_stale(listing);
  if (reader.is_unread_) --listing.unread;
  if (reader.is_filling_) --listing.filling;
  reader = {};
  ask_if_due(at->first, listing, 0);
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
  if (listing.has_names || listing.is_stale) {
    listings_.set_stale(listing);
    listings_.ask_if_due(directory_, listing, 0);
  }
  listings_.erase_if_empty(at);
}

void KernelListings::dropped(InodeNumber directory, std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  const auto at = listings_.find(directory);
  if (at == listings_.end()) return;
  Listing& listing = at->second;
  listing.is_asked = false;
  if (listing.ticket == ticket) listing.is_stale = false;
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
  listing.has_names = listing.is_whole = listing.is_stale = listing.is_asked = false;
  erase_if_empty(at);
}

}  // namespace kvcachefs
