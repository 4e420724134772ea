// The answers of an NFS server that a pool reads, by the first byte of an input.
#pragma once

#include <cstdint>
#include <string>

#include "backend/pool/libnfs.h"

namespace kvcachefs::fuzz {

enum class NfsReply : std::uint8_t {
  kGetattr,
  kLookup,
  kRead,
  kWrite,
  kCreate,
  kMkdir,
  kRemove,
  kRename,
  kLink,
  kReaddir,
  kReaddirplus,
  kFsstat,
  kFsinfo,
  kCommit,
  kSetattr,
  kMount,
  kHeader,  // of any answer (RFC 5531)
};
inline constexpr unsigned kNfsReplies = 17;

// What libnfs makes of the value; empty: it does not fit into `room` bytes.
template <class Value>
std::string encode_xdr(std::uint32_t (*code)(ZDR*, Value*), Value& value, std::size_t room) {
  std::string bytes(room, '\0');
  ZDR xdr{};
  libnfs_zdrmem_create(&xdr, bytes.data(), static_cast<std::uint32_t>(bytes.size()),
                       ZDR_ENCODE);
  bytes.resize(code(&xdr, &value) != 0 ? libnfs_zdr_getpos(&xdr) : 0);
  libnfs_zdr_destroy(&xdr);
  return bytes;
}

}  // namespace kvcachefs::fuzz
