// The dentries that were asked for last, present or not, in front of the database.
//
// The kernel looks a name up and then creates, renames or unlinks it, and each of these looks
// again under its lock: of the three to five looks one goes to the database. Fixed size, newest
// wins. Any thread; the locks are leaves, held for a comparison.
//
// A change forgets its keys before the database has it, and again afterwards: an answer that was
// read from the database is kept only if nothing of its part of the cache has changed since the
// reading began.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcachefs {

class DentryCache {
 public:
  struct Found {
    bool known = false;
    std::optional<std::string> value;  // of a known one: the row, nullopt: there is none
    std::uint64_t version = 0;         // for remember()
  };
  // `key`: of the table of dentries.
  Found find(std::string_view key);
  // What the database said of a key that was not known; `version` is from find().
  void remember(std::string_view key, const std::optional<std::string>& value,
                std::uint64_t version);

  // Held from before a change until the database has it, or has refused it.
  class Changing {
   public:
    Changing(DentryCache& cache, std::vector<std::string_view> keys);
    ~Changing();
    Changing(const Changing&) = delete;
    Changing& operator=(const Changing&) = delete;

   private:
    void forget_all();
    DentryCache& cache_;
    const std::vector<std::string_view> keys_;
  };

 private:
  static constexpr std::size_t kShards = 16;
  static constexpr std::size_t kSlots = 512;  // a shard: in all about 1.5 MiB

  struct Slot {
    bool used = false;
    std::string key;
    std::optional<std::string> value;
  };
  struct Shard {
    std::mutex mutex;
    std::uint64_t version = 0;
    std::array<Slot, kSlots> slots;
  };
  struct Place {
    Shard& shard;
    Slot& slot;
  };
  Place place_of(std::string_view key);

  std::array<Shard, kShards> shards_;
};

}  // namespace kvcachefs
