// Which stored files go first when room is needed.
//
// A policy orders *names* (fs/order/learner.h says what these are) by what it is told of calls. It
// does not know what a name's file costs, whether somebody has it open, or whether it may go at
// all: who evicts asks for more victims until it has enough.
//
// Pure: no clock but the notes', no I/O. The mount and the simulations run the same code. Any
// thread may call anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fs/order/learner.h"
#include "fs/order/note.h"

namespace kvcachefs {

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // As an option spells it.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  // In the order of the calls. A name is stored from kStored, or the first kHit or kLoaded, until
  // kRemoved.
  virtual void observe(const order::Note& note) = 0;

  // The stored names of a group (order::Group) that go first, at most `limit`, after `after` (nullopt: from
  // the first on).
  // Each is stored; one that was touched since `after` was taken may come again, or be passed over.
  [[nodiscard]] virtual std::vector<order::Victim> victims(
      order::Group group, std::size_t limit, const std::optional<order::Victim>& after) = 0;
  // It counts as used when one of this stamp (of key_of()) was, if that is later.
  virtual void raise(std::uint64_t name, std::uint64_t stamp) = 0;
  // Where a name stands by now; nullopt: it is not stored.
  [[nodiscard]] virtual std::optional<order::EvictionKey> key_of(std::uint64_t name) = 0;
};

}  // namespace kvcachefs
