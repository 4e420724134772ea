// What is known not to be on a pool, so that runtimes who probe for it do not ask the server each time.
//
// Any thread. Bounded: when it is full, older entries make room.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace kvcachefs {

class PoolMisses {
 public:
  // 16 bytes each.
  explicit PoolMisses(std::size_t entries = std::size_t{1} << 18);

  // Before the server is asked; to be given back with its answer.
  [[nodiscard]] std::uint64_t before_asking(std::uint64_t path_hash) const;
  // The server said, to who asked with this ticket, that there is none. Not remembered when something was told of the
  // path (or of one of a thousandth of all others) since.
  void missed(std::uint64_t path_hash, std::uint64_t ticket, std::int64_t until_ns);
  // Whether nothing was told of the path since, as above: what the server said then may be adopted.
  [[nodiscard]] bool is_current(std::uint64_t path_hash, std::uint64_t ticket) const;
  [[nodiscard]] bool holds(std::uint64_t path_hash, std::int64_t now_ns) const;
  // Something was published there, or taken away.
  void forget(std::uint64_t path_hash);
  void forget_all();

 private:
  struct Entry {
    std::uint64_t path_hash = 0;
    std::int64_t until_ns = 0;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::uint64_t changes = 0;
    std::vector<Entry> entries;  // two places for each hash
  };
  static constexpr std::size_t kShards = 1024;

  [[nodiscard]] const Shard& shard_of(std::uint64_t path_hash) const;
  [[nodiscard]] Shard& shard_of(std::uint64_t path_hash);

  std::array<Shard, kShards> shards_;
};

}  // namespace kvcachefs
