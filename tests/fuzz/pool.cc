// What a user says of a pool, and what a pool says of itself: a value or an error; and what
// decodes means the same when it is written again.
#include <cerrno>
#include <string>
#include <string_view>

#include "backend/pool/pool_format.h"
#include "backend/pool/pool_path.h"
#include "backend/pool/pool_uri.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

template <class Value>
bool is_read(const Result<Value>& value) {
  require(value.ok() || value.error().code == EBADMSG || value.error().code == EPROTONOSUPPORT);
  return value.ok();
}

bool reads_superblock(std::string_view text) {
  const auto read = decode_pool_superblock(text);
  if (!is_read(read)) return false;
  // Digits may be capital, and have zeros before them.
  const auto again = decode_pool_superblock(encode_pool_superblock(*read));
  require(again.ok() && again->pool == read->pool);
  return true;
}

bool reads_node(std::string_view text) {
  const auto read = decode_pool_node(text);
  if (!is_read(read)) return false;
  const auto again = decode_pool_node(encode_pool_node(*read));
  require(again.ok() && again->node == read->node && again->incarnation == read->incarnation);
  require(again->lease == read->lease && again->log == read->log && again->size == read->size);
  require(again->used == read->used && again->share == read->share);
  require(read->lease.count() >= 0);
  return true;
}

bool reads_log_record(std::string_view bytes) {
  const auto read = decode_pool_log_record(bytes);
  if (!is_read(read)) return false;
  require(bytes.size() == kPoolLogRecordBytes && encode_pool_log_record(*read) == bytes);
  return true;
}

bool reads_sums(std::string_view bytes) {
  const auto read = decode_pool_sums(bytes);
  if (!is_read(read)) return false;
  require(encode_pool_sums(*read) == bytes && read->mode <= 07777);
  require(!read->speaks_of_bytes() || pool_sums_bytes(read->size) == bytes.size());
  return true;
}

bool reads_told(std::string_view text) {
  const auto read = decode_pool_told(text);
  if (!is_read(read)) return false;
  const auto again = decode_pool_told(encode_pool_told(*read));
  require(again.ok() && *again == *read);
  require(read->words.size() <= kMostPoolWords);
  return true;
}

bool reads_uri(std::string_view text) {
  const auto uri = parse_pool_uri(text);
  if (!uri.ok()) {
    require(uri.error().code == EINVAL);
    return false;
  }
  require(!uri->path.empty() && uri->path.front() == '/');
  require(uri->path == "/" || check_pool_path(uri->path.substr(1)).ok());
  require((uri->kind == PoolUri::Kind::kNfs) == !uri->host.empty());
  return true;
}

bool reads_path(std::string_view text) {
  if (!check_pool_path(text).ok()) return false;
  if (text.empty()) return true;
  const auto [directory, name] = split_pool_path(text);
  require(is_pool_name(name) && check_pool_path(directory).ok());
  require(directory.empty() ? name == text
                            : std::string(directory) + '/' + std::string(name) == text);
  return true;
}

// Names below .kvcachefs/, which anybody may make who can write there.
bool reads_name(std::string_view name) {
  const Uuid node = *parse_uuid("01234567-89ab-cdef-0123-456789abcdef");
  bool accepted = false;
  if (const auto log = parse_pool_log_name(name, node)) {
    accepted = true;
    const std::string path = pool_log_path(node, *log);
    require(parse_pool_log_name(split_pool_path(path).second, node) == log);
  }
  if (const auto hour = parse_pool_trash_hour(name)) {
    accepted = true;
    require(parse_pool_trash_hour(std::to_string(*hour)) == hour);
  }
  if (const auto seconds = parse_pool_trash_name(name)) {
    accepted = true;
    if (*seconds < std::uint64_t{1} << 33) {
      const std::string path =
          pool_trash_path(static_cast<UnixNanos>(*seconds) * kNanosPerSecond, node, 1);
      require(parse_pool_trash_name(split_pool_path(path).second) == seconds);
    }
  }
  return accepted;
}

}  // namespace

// The flag has the checksum added.
bool pool(std::string_view input) {
  const auto [reader, without_crc, rest] = choose(input, 8);
  switch (reader) {
    case 0:
      return reads_superblock(without_crc ? with_crc_line(rest) : std::string(rest));
    case 1:
      return reads_node(without_crc ? with_crc_line(rest) : std::string(rest));
    case 2:
      return reads_log_record(without_crc ? with_crc(rest) : std::string(rest));
    case 3:
      return reads_sums(without_crc ? with_crc(rest) : std::string(rest));
    case 4:
      return reads_uri(rest);
    case 5:
      return reads_path(rest);
    case 6:
      return reads_name(rest);
    default:
      return reads_told(without_crc ? with_crc_line(rest) : std::string(rest));
  }
}

}  // namespace kvcachefs::fuzz
