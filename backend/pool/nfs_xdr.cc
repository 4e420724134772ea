#include "backend/pool/nfs_xdr.h"

#include <bit>
#include <cstring>

#include "backend/pool/libnfs.h"
#include "backend/pool/libnfs_own.h"

namespace kvcachefs {
namespace {

// A listing is decoded by a call in a call for each of its entries. A READDIR of ours (64 KiB) has some 3,000 at most.
constexpr int kMostNested = 8192;
// XDR's unit: everything that is encoded at all takes one at least.
constexpr std::size_t kUnit = 4;

thread_local std::uint64_t calls = 0;
thread_local int nested = 0;

std::size_t left_in(const ZDR& xdr) noexcept {
  if (xdr.pos < 0 || xdr.size < xdr.pos) return 0;
  return static_cast<std::size_t>(xdr.size - xdr.pos);
}

bool is_read(const ZDR& xdr) noexcept {
  ++calls;
  return xdr.x_op == ZDR_DECODE;
}

// Whether `size` bytes are there, and the rest of their last unit: reading goes on behind it.
bool has(const ZDR& xdr, std::size_t size) noexcept {
  return size <= left_in(xdr) && (size + kUnit - 1) / kUnit * kUnit <= left_in(xdr);
}

// The length or the count that comes next; `after` is what is left behind it.
bool peek(const ZDR& xdr, std::uint32_t& length, std::size_t& after) noexcept {
  if (!has(xdr, kUnit)) return false;
  const auto* const at = reinterpret_cast<const unsigned char*>(xdr.buf + xdr.pos);
  length = static_cast<std::uint32_t>(at[0]) << 24 | static_cast<std::uint32_t>(at[1]) << 16 |
           static_cast<std::uint32_t>(at[2]) << 8 | static_cast<std::uint32_t>(at[3]);
  after = left_in(xdr) - kUnit;
  return true;
}

bool has_counted(const ZDR& xdr, std::uint32_t most) noexcept {
  std::uint32_t length = 0;
  std::size_t after = 0;
  return peek(xdr, length, after) && length <= most &&
         (std::size_t{length} + kUnit - 1) / kUnit * kUnit <= after;
}

// Whether the number that comes next needs no more bits than the largest constant of its enumeration: reading another one
// is undefined in C++ ([dcl.enum]).
bool has_constant(const ZDR& xdr, std::uint32_t largest) noexcept {
  std::uint32_t number = 0;
  std::size_t after = 0;
  return peek(xdr, number, after) && number < std::bit_ceil(largest + 1);
}

// libnfs does not align what it allocates for lists.
void set_null(char** pointer) noexcept {
  std::memset(static_cast<void*>(pointer), 0, sizeof *pointer);
}

}  // namespace

void bound_xdr() noexcept {}
std::uint64_t xdr_calls() noexcept { return calls; }

}  // namespace kvcachefs

using namespace kvcachefs;

extern "C" {

bool_t libnfs_zdr_u_int(ZDR* xdr, std::uint32_t* value) {
  static const auto own = libnfs_own<decltype(&libnfs_zdr_u_int)>("libnfs_zdr_u_int");
  if (is_read(*xdr) && !has(*xdr, kUnit)) return FALSE;
  return own(xdr, value);
}

bool_t libnfs_zdr_uint64_t(ZDR* xdr, std::uint64_t* value) {
  static const auto own = libnfs_own<decltype(&libnfs_zdr_uint64_t)>("libnfs_zdr_uint64_t");
  if (is_read(*xdr) && !has(*xdr, 2 * kUnit)) return FALSE;
  return own(xdr, value);
}

bool_t libnfs_zdr_bytes(ZDR* xdr, char** bytes, std::uint32_t* size, std::uint32_t most) {
  static const auto own = libnfs_own<decltype(&libnfs_zdr_bytes)>("libnfs_zdr_bytes");
  if (is_read(*xdr)) {
    // Of a verifier libnfs gives a length that nobody has set as the most there may be.
    if (!has_counted(*xdr, UINT32_MAX)) return FALSE;
    // Nor is this set there; libnfs then makes the room itself.
    set_null(bytes);
  }
  return own(xdr, bytes, size, most);
}

bool_t libnfs_zdr_opaque(ZDR* xdr, char* bytes, std::uint32_t size) {
  static const auto own = libnfs_own<decltype(&libnfs_zdr_opaque)>("libnfs_zdr_opaque");
  if (is_read(*xdr) && !has(*xdr, size)) return FALSE;
  return own(xdr, bytes, size);
}

bool_t libnfs_zdr_string(ZDR* xdr, char** text, std::uint32_t most) {
  static const auto own = libnfs_own<decltype(&libnfs_zdr_string)>("libnfs_zdr_string");
  if (is_read(*xdr) && !has_counted(*xdr, most)) return FALSE;
  return own(xdr, text, most);
}

bool_t libnfs_zdr_array(ZDR* xdr, char** items, std::uint32_t* count, std::uint32_t most,
                        std::uint32_t item_size, zdrproc_t decode) {
  static const auto own = libnfs_own<decltype(&libnfs_zdr_array)>("libnfs_zdr_array");
  if (is_read(*xdr)) {
    std::uint32_t items_told = 0;
    std::size_t after = 0;
    if (!peek(*xdr, items_told, after) || items_told > most || items_told > after / kUnit)
      return FALSE;
  }
  return own(xdr, items, count, most, item_size, decode);
}

bool_t libnfs_zdr_pointer(ZDR* xdr, char** item, std::uint32_t size, zdrproc_t decode) {
  static const auto own = libnfs_own<decltype(&libnfs_zdr_pointer)>("libnfs_zdr_pointer");
  if (is_read(*xdr)) {
    if (!has(*xdr, kUnit) || nested >= kMostNested) return FALSE;
    // Whether there is one; not what was in its place.
    set_null(item);
  }
  ++nested;
  const bool_t decoded = own(xdr, item, size, decode);
  --nested;
  return decoded;
}

std::uint32_t zdr_nfsstat3(ZDR* xdr, nfsstat3* status) {
  static const auto own = libnfs_own<decltype(&zdr_nfsstat3)>("zdr_nfsstat3");
  if (is_read(*xdr) && !has_constant(*xdr, NFS3ERR_JUKEBOX)) return FALSE;
  return own(xdr, status);
}

std::uint32_t zdr_mountstat3(ZDR* xdr, mountstat3* status) {
  static const auto own = libnfs_own<decltype(&zdr_mountstat3)>("zdr_mountstat3");
  if (is_read(*xdr) && !has_constant(*xdr, MNT3ERR_SERVERFAULT)) return FALSE;
  return own(xdr, status);
}

std::uint32_t zdr_ftype3(ZDR* xdr, ftype3* type) {
  static const auto own = libnfs_own<decltype(&zdr_ftype3)>("zdr_ftype3");
  if (is_read(*xdr) && !has_constant(*xdr, NF3FIFO)) return FALSE;
  return own(xdr, type);
}

std::uint32_t zdr_stable_how(ZDR* xdr, stable_how* how) {
  static const auto own = libnfs_own<decltype(&zdr_stable_how)>("zdr_stable_how");
  if (is_read(*xdr) && !has_constant(*xdr, FILE_SYNC)) return FALSE;
  return own(xdr, how);
}

}  // extern "C"
