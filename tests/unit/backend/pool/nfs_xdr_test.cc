#include "backend/pool/nfs_xdr.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "backend/pool/libnfs.h"

namespace kvcachefs {
namespace {

void put(std::string& bytes, std::uint32_t word) {
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(word >> shift & 0xff);
}

// As libnfs decodes an answer.
template <class Value>
bool decodes(std::string bytes, std::uint32_t (*decode)(ZDR*, Value*), Value* out) {
  std::memset(static_cast<void*>(out), 0, sizeof(Value));
  ZDR xdr{};
  libnfs_zdrmem_create(&xdr, bytes.data(), static_cast<std::uint32_t>(bytes.size()),
                       ZDR_DECODE);
  const bool decoded = decode(&xdr, out) != 0;
  libnfs_zdr_destroy(&xdr);
  return decoded;
}

TEST(NfsXdr, LibnfsAsksIt) {
  bound_xdr();
  std::string handle;
  put(handle, 8);
  handle += "12345678";
  nfs_fh3 out;
  const std::uint64_t before = xdr_calls();
  EXPECT_TRUE(decodes(handle, zdr_nfs_fh3, &out));
  EXPECT_EQ(8u, out.data.data_len);
  EXPECT_GT(xdr_calls(), before) << "this libnfs calls its own: answers are not bounded";
}

TEST(NfsXdr, LengthsThatDoNotHoldAreRefused) {
  nfs_fh3 handle;
  for (const std::uint32_t length :
       {9u, 12u, 0x7fffffffu, 0x80000000u, 0xfffffff0u, 0xffffffffu}) {
    std::string bytes;
    put(bytes, length);
    bytes += "12345678";
    EXPECT_FALSE(decodes(bytes, zdr_nfs_fh3, &handle)) << length;
    diropargs3 where;
    std::string name;
    put(name, 0);
    name += bytes;
    EXPECT_FALSE(decodes(name, zdr_diropargs3, &where)) << length;
  }
  // The last unit is not whole.
  std::string cut;
  put(cut, 5);
  EXPECT_FALSE(decodes(cut + "12345", zdr_nfs_fh3, &handle));
  EXPECT_TRUE(decodes(cut + std::string("12345\0\0\0", 8), zdr_nfs_fh3, &handle));
  EXPECT_FALSE(decodes(std::string(), zdr_nfs_fh3, &handle));
}

// Reading a value of an enumeration that needs more bits than its constants is undefined.
TEST(NfsXdr, NumbersThatAnEnumerationCannotHoldAreRefused) {
  const auto expect_most = [](std::uint32_t most, auto decode, auto out) {
    for (const std::uint32_t number : {most, most + 1, 0xffffffffu}) {
      std::string bytes;
      put(bytes, number);
      EXPECT_EQ(number == most, decodes(bytes, decode, &out)) << number;
    }
  };
  expect_most(0x3fff, zdr_nfsstat3, nfsstat3{});  // NFS3ERR_JUKEBOX is 10008
  expect_most(0x3fff, zdr_mountstat3, mountstat3{});
  expect_most(7, zdr_ftype3, ftype3{});
  expect_most(3, zdr_stable_how, stable_how{});
}

TEST(NfsXdr, AListingWithoutEndIsRefused) {
  std::string bytes;
  put(bytes, NFS3_OK);
  put(bytes, 0);                  // no attributes
  bytes += std::string(8, '\0');  // the cookies' verifier
  for (int i = 0; i < 100'000; ++i) {
    put(bytes, 1);  // one more
    bytes += std::string(8 + 4 + 8, '\0');
  }
  put(bytes, 0);
  put(bytes, 1);
  READDIR3res out;
  EXPECT_FALSE(decodes(bytes, zdr_READDIR3res, &out));
}

}  // namespace
}  // namespace kvcachefs
