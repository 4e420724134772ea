// What a user says of a pool, and what a pool says of itself: a value or an error; and what decodes is exactly what
// would be written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "backend/base/crc32c.h"
#include "backend/base/wire.h"
#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"
#include "backend/pool/pool_uri.h"

namespace {

using namespace kvcachefs;

void require(bool holds) {
  if (!holds) std::abort();
}

// The first byte chooses the reader. An odd second one has what follows change a valid record, whose checksum is made
// right again.
std::string input_of(int reader, std::string bytes, bool of_valid) {
  std::string valid;
  if (reader == 2) valid = encode_pool_log_record({.sequence = 1});
  if (reader == 3) valid = encode_pool_sums({.size = 1, .chunk_crc32c = {1}});
  if (!of_valid || valid.empty()) return bytes;
  const std::size_t summed = valid.size() - 4;
  for (std::size_t i = 0; i < bytes.size() && i < summed; ++i)
    valid[i] = static_cast<char>(valid[i] ^ bytes[i]);
  valid.resize(summed);
  wire::put_le(valid, crc32c(0, std::as_bytes(std::span(valid))));
  return valid;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const int reader = data[0] % 6;
  const std::string bytes = input_of(
      reader, std::string(reinterpret_cast<const char*>(data) + 2, size - 2), data[1] % 2 != 0);
  if (reader == 0) {
    if (const auto read = decode_pool_superblock(bytes); read.ok())
      require(encode_pool_superblock(*read) == bytes);
  } else if (reader == 1) {
    // Digits may be fewer there than we write.
    static_cast<void>(decode_pool_node(bytes).ok());
  } else if (reader == 2) {
    if (const auto read = decode_pool_log_record(bytes); read.ok())
      require(encode_pool_log_record(*read) == bytes);
  } else if (reader == 3) {
    if (const auto read = decode_pool_sums(bytes); read.ok())
      require(encode_pool_sums(*read) == bytes);
  } else if (reader == 4) {
    if (const auto uri = parse_pool_uri(bytes); uri.ok()) {
      require(!uri->path.empty() && uri->path.front() == '/');
      require(uri->path == "/" || check_pool_path(uri->path.substr(1)).ok());
    }
  } else if (check_pool_path(bytes).ok() && !bytes.empty()) {
    const auto [directory, name] = split_pool_path(bytes);
    require(is_pool_name(name) && check_pool_path(directory).ok());
  }
  return 0;
}
