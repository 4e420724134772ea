// The bytes of a file that is open while they come from the pool. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/base/result.h"
#include "backend/base/unique_fd.h"
#include "backend/tier.h"
#include "metadata/record.h"

namespace kvcachefs {

class Arriving {
 public:
  virtual ~Arriving() = default;
  // Whether the bytes are in the backing file; those behind the file's end are.
  [[nodiscard]] virtual bool has(std::uint64_t offset, std::uint64_t size) const = 0;
  // Returns when they are. They come next: what was asked for first comes first. Errors: EIO (they cannot be had, or
  // not in time).
  virtual Result<void> wait_for(std::uint64_t offset, std::uint64_t size) = 0;
};

// What an open of such a file gets.
struct Arrival {
  std::shared_ptr<Arriving> bytes;
  Tier* tier = nullptr;
  ObjectId object = kNoObject;  // which is not in the catalog before all is there
  UniqueFd fd;                  // of its backing file, which has its full size
};

}  // namespace kvcachefs
