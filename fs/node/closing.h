// close(2) returns with the answer to FLUSH, and the kernel sends RELEASE later: until then a
// file that a program has closed still counts as written to. Who waits for what was closed
// waits for that RELEASE as well.
#pragma once

#include <chrono>

#include "fs/node/inode.h"

namespace kvcachefs {

// How long the kernel may take to send RELEASE. A file that is open longer is open: a program,
// or a child of the program, has closed a duplicate of its descriptor.
inline constexpr std::chrono::seconds kCloseTakes{1};

enum class WrittenBy : std::uint8_t {
  kNobody,
  kClosing,  // all who had it open for writing have closed it, as it seems
  kSomebody,
};

// The caller holds the inode's lock.
inline WrittenBy written_by(const Inode& inode) noexcept {
  if (inode.writers == 0) return WrittenBy::kNobody;
  return inode.writers == inode.closing ? WrittenBy::kClosing : WrittenBy::kSomebody;
}

}  // namespace kvcachefs
