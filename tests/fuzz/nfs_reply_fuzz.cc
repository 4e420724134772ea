// Answers of an NFS server, as libnfs decodes them behind backend/pool/nfs_xdr.h: a value or none.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "backend/pool/libnfs.h"
#include "backend/pool/nfs_xdr.h"

namespace {

using Bytes = std::string;

template <class Value>
void decode(Bytes bytes, std::uint32_t (*decoder)(ZDR*, Value*)) {
  const auto out = std::make_unique<Value>();
  std::memset(static_cast<void*>(out.get()), 0, sizeof(Value));
  ZDR xdr{};
  libnfs_zdrmem_create(&xdr, bytes.data(), static_cast<std::uint32_t>(bytes.size()),
                       ZDR_DECODE);
  static_cast<void>(decoder(&xdr, out.get()));
  libnfs_zdr_destroy(&xdr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  kvcachefs::bound_xdr();
  const Bytes bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 16) {
    case 0:
      decode(bytes, zdr_GETATTR3res);
      break;
    case 1:
      decode(bytes, zdr_LOOKUP3res);
      break;
    case 2:
      decode(bytes, zdr_READ3res);
      break;
    case 3:
      decode(bytes, zdr_WRITE3res);
      break;
    case 4:
      decode(bytes, zdr_CREATE3res);
      break;
    case 5:
      decode(bytes, zdr_MKDIR3res);
      break;
    case 6:
      decode(bytes, zdr_REMOVE3res);
      break;
    case 7:
      decode(bytes, zdr_RENAME3res);
      break;
    case 8:
      decode(bytes, zdr_LINK3res);
      break;
    case 9:
      decode(bytes, zdr_READDIR3res);
      break;
    case 10:
      decode(bytes, zdr_READDIRPLUS3res);
      break;
    case 11:
      decode(bytes, zdr_FSSTAT3res);
      break;
    case 12:
      decode(bytes, zdr_FSINFO3res);
      break;
    case 13:
      decode(bytes, zdr_COMMIT3res);
      break;
    case 14:
      decode(bytes, zdr_SETATTR3res);
      break;
    default:
      decode(bytes, zdr_mountres3);
      break;
  }
  return 0;
}
