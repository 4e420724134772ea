// Whatever stands on the disk, reading it gives a record or an error: the catalog's records,
// superblocks of devices, the list of devices. What decodes is exactly what would be written.
#include "metadata/record.h"

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "backend/superblock.h"
#include "fs/device_list.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

template <class Record>
bool reads(const Result<Record>& record, std::string_view bytes) {
  if (!record.ok()) {
    require(record.error().code == EBADMSG);
    return false;
  }
  require(encode(*record) == bytes);
  return true;
}

// One of an older version is written as one of now.
template <class Record>
bool reads_either(Result<Record> (*decode)(std::string_view), std::string_view bytes) {
  const Result<Record> record = decode(bytes);
  if (!record.ok() || bytes[0] != 1) return reads(record, bytes);
  const Result<Record> again = decode(encode(*record));
  require(again.ok() && *again == *record);
  return true;
}

bool reads_device_superblock(std::string_view text) {
  const Result<Superblock> read = decode_superblock(text);
  if (!read.ok()) {
    require(read.error().code == EBADMSG || read.error().code == EPROTONOSUPPORT);
    return false;
  }
  // Digits may be capital, and have zeros before them.
  const Result<Superblock> again = decode_superblock(encode_superblock(*read));
  require(again.ok() && again->device == read->device && again->catalog == read->catalog);
  return true;
}

bool reads_device_list(std::string_view text) {
  const auto paths = decode_device_list(text);
  if (!paths.ok()) {
    require(paths.error().code == EBADMSG);
    return false;
  }
  for (const std::string& path : *paths) require(path.starts_with('/'));
  require(encode_device_list(*paths) == text);
  return true;
}

}  // namespace

// The flag has the checksum added.
bool record(std::string_view input) {
  const auto [reader, without_crc, rest] = choose(input, 9);
  switch (reader) {
    case 0:
      return reads(decode_inode(rest), rest);
    case 1:
      return reads(decode_object(rest), rest);
    case 2:
      return reads(decode_dentry(rest), rest);
    case 3:
      return reads(decode_block(rest), rest);
    case 4:
      return reads_device_superblock(without_crc ? with_crc_line(rest) : std::string(rest));
    case 5:
      return reads_either(decode_pool_copy, rest);
    case 6:
      return reads(decode_tombstone(rest), rest);
    case 7:
      return reads_either(decode_owner_change, rest);
    default:
      return reads_device_list(rest);
  }
}

}  // namespace kvcachefs::fuzz
