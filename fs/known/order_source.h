// Where a query reads the order of blocks from: the learner of a live mount, or what the last run
// wrote into the table of blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "fs/order/learner.h"
#include "metadata/catalog.h"

namespace kvcachefs {

// Of a stamp of the learner; 0: none.
[[nodiscard]] UnixNanos time_of_stamp(std::uint64_t stamp) noexcept;

class OrderSource {
 public:
  virtual ~OrderSource() = default;

  // Of each: errors EIO, EBADMSG.
  virtual Result<std::optional<order::Parent>> parent(std::uint64_t block) = 0;
  // At most `limit`, in no order.
  virtual Result<std::vector<std::uint64_t>> children(std::uint64_t block,
                                                      std::size_t limit) = 0;
  // When the block was used last, in the learner's steps of 10 ms since 1970; 0: not known.
  // `recorded`: the row, where the caller has it.
  virtual Result<std::uint64_t> last_use(std::uint64_t block, const BlockRecord* recorded) = 0;
  // Whether children() may lack some.
  [[nodiscard]] virtual bool is_partial() const noexcept { return false; }
};

// Any thread; a call takes the learner's lock for a moment.
class LearnerOrder : public OrderSource {
 public:
  LearnerOrder(Catalog& catalog, const order::Learner& learner)
      : catalog_(catalog), learner_(learner) {}

  Result<std::optional<order::Parent>> parent(std::uint64_t block) override {
    return learner_.parent(block);
  }
  Result<std::vector<std::uint64_t>> children(std::uint64_t block, std::size_t limit) override {
    return learner_.children(block, limit);
  }
  Result<std::uint64_t> last_use(std::uint64_t block, const BlockRecord* recorded) override;

 private:
  Catalog& catalog_;
  const order::Learner& learner_;
};

// What is on the disk: up to a minute old after a crash. A parent stands there only if it was seen
// more than once, or told: it counts as firm. One thread.
class RecordedOrder : public OrderSource {
 public:
  // The first call of children() reads the whole table and keeps 16 bytes for each block with a
  // parent, for so many blocks at the most (256 MiB).
  static constexpr std::size_t kMostLinks = std::size_t{1} << 24;

  explicit RecordedOrder(Catalog& catalog, std::size_t most_links = kMostLinks)
      : catalog_(catalog), most_links_(most_links) {}

  Result<std::optional<order::Parent>> parent(std::uint64_t block) override;
  Result<std::vector<std::uint64_t>> children(std::uint64_t block, std::size_t limit) override;
  Result<std::uint64_t> last_use(std::uint64_t block, const BlockRecord* recorded) override;
  [[nodiscard]] bool is_partial() const noexcept override { return partial_; }

 private:
  Result<void> read_links();

  Catalog& catalog_;
  const std::size_t most_links_;
  bool read_ = false;
  bool partial_ = false;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> links_;  // (parent, child), sorted
};

}  // namespace kvcachefs
