// A file of an NFS server, by its handle.
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "backend/base/result.h"
#include "backend/pool/libnfs.h"
#include "backend/pool/pool_session.h"

namespace kvcachefs {

using NfsVerifier = std::array<char, NFS3_WRITEVERFSIZE>;

// An NFS file handle, as the server made it.
using NfsHandle = std::string;

inline Result<NfsHandle> handle_of(const nfs_fh3& handle) {
  if (handle.data.data_len == 0 || handle.data.data_len > NFS3_FHSIZE ||
      handle.data.data_val == nullptr)
    return fail(EBADMSG, "pool: the server gave no handle");
  return NfsHandle(handle.data.data_val, handle.data.data_len);
}

// libnfs takes what it sends as not const, and only reads it.
inline nfs_fh3 raw(const NfsHandle& handle) noexcept {
  nfs_fh3 raw{};
  raw.data.data_len = static_cast<u_int>(handle.size());
  raw.data.data_val = const_cast<char*>(handle.data());
  return raw;
}

// What stands at a path.
struct NfsFound {
  NfsHandle handle;
  PoolStatus status;
};

class NfsFile : public PoolFile {
 public:
  NfsFile(NfsHandle handle, const PoolStatus& status) : handle_(std::move(handle)) {
    status_ = status;
  }
  [[nodiscard]] const NfsHandle& handle() const noexcept { return handle_; }

  // Of a write whose bytes may still be in the server's memory: which run of the server it was.
  void wrote(const NfsVerifier& verifier) {
    const std::lock_guard lock(mutex_);
    if (verifier_ && *verifier_ != verifier) lost_ = true;
    verifier_ = verifier;
  }
  // Whether all that was written is on the disk, when a COMMIT came back with `verifier`.
  [[nodiscard]] bool is_whole(const NfsVerifier& verifier) {
    const std::lock_guard lock(mutex_);
    const bool whole = !lost_ && (!verifier_ || *verifier_ == verifier);
    lost_ = false;
    verifier_.reset();
    return whole;
  }

 private:
  const NfsHandle handle_;
  std::mutex mutex_;
  std::optional<NfsVerifier> verifier_;
  bool lost_ = false;
};

}  // namespace kvcachefs
