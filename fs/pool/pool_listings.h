// What a listing of a directory shows beside the names that are here: those that are on the pool alone.
//
// They are asked for when a listing begins, and kept for those who go on with it; nothing of it is recorded. A name has
// the same cookie in each listing, so that who goes on after another listing has begun misses nothing.
//
// Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/pool/pool_service.h"
#include "fs/node/core.h"
#include "fs/pool/shared_name.h"

namespace kvcachefs {

class PoolListings {
 public:
  // Cookies of names that are here are below.
  static constexpr std::uint64_t kFirstCookie = std::uint64_t{1} << 62;
  static constexpr std::chrono::seconds kDeadline{5};
  // A listing ends after so long without a name.
  static constexpr std::chrono::milliseconds kNoProgress{2000};
  // Of one directory; more are not shown. The same of names that were taken away and are still to be there.
  static constexpr std::size_t kMostNames = std::size_t{1} << 20;
  static constexpr std::size_t kMostKept =
      32;  // listings; with kMostNames in all, but for the newest

  PoolListings(Core& core, PoolService& service) : core_(core), service_(service) {}

  // Whether a listing that begins should ask the pool.
  [[nodiscard]] bool is_wanted(InodeNumber directory);
  // Asks. Waits for the pool; what goes wrong shows nothing.
  void begin(InodeNumber directory);
  // Whether the pool has names in it that a listing would show, and are not here. *Slow*, as begin(). False where the
  // pool does not say; errors are those of the catalog.
  Result<bool> has_names(InodeNumber directory);
  // The directory of that name, which may have names on the pool; nullopt: there is none, a listing of it would not ask, or
  // it has to be empty here and is not.
  enum class Here : std::uint8_t { kEmpty, kAny };
  [[nodiscard]] std::optional<InodeNumber> directory_at(InodeNumber parent,
                                                        std::string_view name, Here here);
  // Asks whether the pool has anything in the directories of these names, of which one is to take the other's place, and notes
  // in their inodes where it has nothing. *Slow*, as begin().
  void look_before_move(InodeNumber parent, std::string_view name, InodeNumber new_parent,
                        std::string_view new_name);
  // Another listing begins, and does not ask.
  void forget(InodeNumber directory);
  // Names that are here are shown up to this cookie; UINT64_MAX: all.
  [[nodiscard]] std::uint64_t end_of(InodeNumber directory);
  // Names that are not here, or were not when the listing began, after the cookie; false from `visit` ends it.
  // Errors: those of the catalog.
  Result<void> list(InodeNumber directory, std::uint64_t after,
                    const std::function<bool(const ListedEntry&)>& visit);

 private:
  struct Name {
    std::uint64_t cookie = 0;
    std::uint64_t fileid = 0;
    std::string name;
  };
  struct Listing {
    InodeNumber directory = 0;
    std::string path;              // on the pool
    std::set<std::string> hidden;  // were taken away before it began
    std::vector<Name> names;       // by cookie
    std::uint64_t end =
        0;  // names that are here with this cookie and later ones came after it began
  };

  [[nodiscard]] std::optional<std::string> path_of(InodeNumber directory);
  Result<std::optional<Listing>> ask_for(InodeNumber directory);
  [[nodiscard]] std::shared_ptr<const Listing> find(InodeNumber directory);
  struct Asked;
  Result<std::vector<Name>> ask(const std::string& path);
  static Result<std::vector<Name>> list_once(PoolSession& session, const std::string& path,
                                             Asked& asked, Deadline deadline);
  void look_whether_empty(InodeNumber parent, std::string_view name);
  Result<std::set<std::string>> hidden_in(const std::string& path);
  Result<bool> is_shown(const Listing& listing, const Name& name);

  Core& core_;
  PoolService& service_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<const Listing>> kept_;  // the newest last; under mutex_
};

}  // namespace kvcachefs
