#include "backend/pool/pool_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "backend/base/crc32c.h"
#include "backend/base/wire.h"

namespace kvcachefs {
namespace {

constexpr std::string_view kSuperblockMagic = "kvcachefs pool\n";
constexpr std::string_view kNodeMagic = "kvcachefs node\n";
constexpr std::string_view kToldMagic = "kvcachefs told\n";
constexpr std::string_view kSumsMagic = "kvcfsums";
constexpr std::uint16_t kLogMagic = 0x4b4c;  // "LK"
constexpr std::size_t kSumsHead = 8 + 4 + 4 + 4 * 8 + 4 * 4 + 4;
constexpr std::uint32_t kSumsKeep = 1;     // a flag
constexpr std::uint32_t kSumsOfOwner = 2;  // another: there are no checksums

std::uint32_t checksum(std::string_view bytes) noexcept {
  return crc32c(0, std::as_bytes(std::span(bytes)));
}

template <class Number>
std::optional<Number> number_of(std::string_view text) noexcept {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return number;
}

// Lines "KEY VALUE" after a magic line and the format, closed by the checksum of all before.
std::string close(std::string text) {
  text += fmt::format("crc32c {:08x}\n", checksum(text));
  return text;
}

class Lines {
 public:
  explicit Lines(std::string_view text) noexcept : whole_(text), rest_(text) {}

  Result<void> begin(std::string_view magic) {
    if (!rest_.starts_with(magic)) return fail(EBADMSG, "pool: not one of ours");
    rest_.remove_prefix(magic.size());
    // It alone decides how the rest is read.
    const auto format = number_of<std::uint32_t>(take("format"));
    if (!format) return fail(EBADMSG, "pool: no format");
    if (*format != kPoolFormat) return fail(EPROTONOSUPPORT, "pool: another format");
    return {};
  }
  // Empty: it is not the next line's key.
  std::string_view take(std::string_view key) noexcept {
    const std::size_t end = rest_.find('\n');
    const std::string_view line = rest_.substr(0, end);
    const bool is_it = end != rest_.npos && line.starts_with(key) && line.size() > key.size() &&
                       line[key.size()] == ' ';
    if (!is_it) return {};
    rest_.remove_prefix(end + 1);
    return line.substr(key.size() + 1);
  }
  // The next line's; empty: there is none, or it has no space.
  [[nodiscard]] std::string_view next_key() const noexcept {
    const std::string_view line = rest_.substr(0, rest_.find('\n'));
    const std::size_t space = line.find(' ');
    return space == line.npos ? std::string_view{} : line.substr(0, space);
  }
  Result<void> end() {
    const std::string_view summed = whole_.substr(0, whole_.size() - rest_.size());
    if (take("crc32c") != fmt::format("{:08x}", checksum(summed)) || !rest_.empty())
      return fail(EBADMSG, "pool: checksum");
    return {};
  }

 private:
  const std::string_view whole_;
  std::string_view rest_;
};

std::uint64_t chunks_of(std::uint64_t size) noexcept {
  return size / kPoolChunk + (size % kPoolChunk != 0 ? 1 : 0);
}

std::int64_t seconds_of(UnixNanos now) noexcept {
  return std::max<std::int64_t>(now, 0) / kNanosPerSecond;
}

std::string trash_path(std::string_view directory, UnixNanos now, const Uuid& node,
                       std::uint64_t number) {
  return pool_service_path(
      fmt::format("trash/{}/{}-{}-{}", directory, seconds_of(now), format_uuid(node), number));
}

std::string record_path(std::string_view directory, std::uint64_t fileid) {
  // The low bits differ from file to file.
  return pool_service_path(
      fmt::format("{}/{:02x}/{:016x}", directory, fileid % kPoolSumsDirectories, fileid));
}

}  // namespace

std::string encode_pool_superblock(const PoolSuperblock& superblock) {
  return close(fmt::format("{}format {}\npool {}\n", kSuperblockMagic, kPoolFormat,
                           format_uuid(superblock.pool)));
}

Result<PoolSuperblock> decode_pool_superblock(std::string_view text) {
  Lines lines(text);
  TRY(lines.begin(kSuperblockMagic));
  const std::optional<Uuid> pool = parse_uuid(lines.take("pool"));
  TRY(lines.end());
  if (!pool) return fail(EBADMSG, "pool: UUID");
  return PoolSuperblock{.pool = *pool};
}

std::string encode_pool_node(const PoolNode& node) {
  // All are of one length, so that one can be written over another.
  return close(fmt::format(
      "{}format {}\nnode {}\nincarnation {}\nlease-ms {:010}\nlog {:020}\nsize {:020}\n"
      "used {:020}\nshare {:020}\n",
      kNodeMagic, kPoolFormat, format_uuid(node.node), format_uuid(node.incarnation),
      node.lease.count(), node.log, node.size, node.used, node.share));
}

Result<PoolNode> decode_pool_node(std::string_view text) {
  Lines lines(text);
  TRY(lines.begin(kNodeMagic));
  const std::optional<Uuid> node = parse_uuid(lines.take("node"));
  const std::optional<Uuid> incarnation = parse_uuid(lines.take("incarnation"));
  const auto lease = number_of<std::uint32_t>(lines.take("lease-ms"));
  const auto log = number_of<std::uint64_t>(lines.take("log"));
  const auto size = number_of<std::uint64_t>(lines.take("size"));
  const auto used = number_of<std::uint64_t>(lines.take("used"));
  const auto share = number_of<std::uint64_t>(lines.take("share"));
  TRY(lines.end());
  if (!node || !incarnation || !lease || !log || !size || !used || !share)
    return fail(EBADMSG, "pool: a node's heartbeat");
  if (std::chrono::milliseconds{*lease} > kMostPoolLease || *log > kMostPoolLogs ||
      *size > kMostPoolBytes || *used > kMostPoolBytes)
    return fail(EBADMSG, "pool: a heartbeat that no node gives");
  return PoolNode{.node = *node,
                  .incarnation = *incarnation,
                  .lease = std::chrono::milliseconds{*lease},
                  .log = *log,
                  .size = *size,
                  .used = *used,
                  .share = *share};
}

std::string encode_pool_log_record(const PoolLogRecord& record) {
  std::string bytes;
  wire::put_le(bytes, kLogMagic);
  wire::put_le(bytes, static_cast<std::uint8_t>(kPoolFormat));
  wire::put_le(bytes, static_cast<std::uint8_t>(record.change));
  wire::put_le(bytes, std::uint32_t{0});
  wire::put_le(bytes, record.path_hash);
  wire::put_le(bytes, record.fileid);
  wire::put_le(bytes, record.size);
  wire::put_le(bytes, record.sequence);
  bytes.resize(kPoolLogRecordBytes - 4, '\0');
  wire::put_le(bytes, checksum(bytes));
  return bytes;
}

Result<PoolLogRecord> decode_pool_log_record(std::string_view bytes) {
  wire::Reader reader(bytes);
  const auto magic = reader.take<std::uint16_t>();
  const auto format = reader.take<std::uint8_t>();
  const auto change = reader.take<std::uint8_t>();
  const auto zero = reader.take<std::uint32_t>();
  PoolLogRecord record;
  record.path_hash = reader.take<std::uint64_t>();
  record.fileid = reader.take<std::uint64_t>();
  record.size = reader.take<std::uint64_t>();
  record.sequence = reader.take<std::uint64_t>();
  const std::string_view padding = reader.take_bytes(kPoolLogRecordBytes - 4 - 40);
  const auto sum = reader.take<std::uint32_t>();
  if (!reader.done() || magic != kLogMagic || format != kPoolFormat || zero != 0 ||
      padding.find_first_not_of('\0') != padding.npos ||
      sum != checksum(bytes.substr(0, kPoolLogRecordBytes - 4)))
    return fail(EBADMSG, "pool: a record of a change log");
  if (change < static_cast<std::uint8_t>(PoolChange::kPublished) ||
      change > static_cast<std::uint8_t>(PoolChange::kEvicted))
    return fail(EBADMSG, "pool: a change of no kind");
  record.change = static_cast<PoolChange>(change);
  if (record.change == PoolChange::kPublished ? chunks_of(record.size) > kMostPoolChunks
                                              : record.size > INT64_MAX)
    return fail(EBADMSG, "pool: a change of a file that cannot be");
  return record;
}

std::uint64_t pool_path_hash(std::string_view path) noexcept {
  return XXH64(path.data(), path.size(), 0);
}

std::string encode_pool_sums(const PoolSums& sums) {
  std::string bytes(kSumsMagic);
  wire::put_le(bytes, kPoolFormat);
  wire::put_le(bytes, static_cast<std::uint32_t>(kPoolChunk));
  wire::put_le(bytes, sums.fileid);
  wire::put_le(bytes, sums.path_hash);
  wire::put_le(bytes, sums.size);
  wire::put_le(bytes, sums.mtime);
  wire::put_le(bytes, sums.uid);
  wire::put_le(bytes, sums.gid);
  wire::put_le(bytes, sums.mode);
  wire::put_le(bytes,
               (sums.keep ? kSumsKeep : 0U) | (sums.speaks_of_bytes() ? 0U : kSumsOfOwner));
  for (const std::uint32_t crc : sums.chunk_crc32c) wire::put_le(bytes, crc);
  wire::put_le(bytes, checksum(bytes));
  return bytes;
}

std::size_t pool_sums_bytes(std::uint64_t size) noexcept {
  return kSumsHead + 4 * static_cast<std::size_t>(chunks_of(size));
}

Result<PoolSums> decode_pool_sums(std::string_view bytes) {
  wire::Reader reader(bytes);
  if (reader.take_bytes(kSumsMagic.size()) != kSumsMagic)
    return fail(EBADMSG, "pool: no record of checksums");
  if (reader.take<std::uint32_t>() != kPoolFormat) {
    if (!reader.ok()) return fail(EBADMSG, "pool: a record of checksums");
    return fail(EPROTONOSUPPORT, "pool: checksums of another format");
  }
  const auto chunk = reader.take<std::uint32_t>();
  PoolSums sums;
  sums.fileid = reader.take<std::uint64_t>();
  sums.path_hash = reader.take<std::uint64_t>();
  sums.size = reader.take<std::uint64_t>();
  sums.mtime = reader.take<std::int64_t>();
  sums.uid = reader.take<std::uint32_t>();
  sums.gid = reader.take<std::uint32_t>();
  sums.mode = reader.take<std::uint32_t>();
  const auto flags = reader.take<std::uint32_t>();
  sums.keep = (flags & kSumsKeep) != 0;
  const bool is_of_owner = (flags & kSumsOfOwner) != 0;
  const std::uint64_t chunks = is_of_owner ? 0 : chunks_of(sums.size);
  if (!reader.ok() || chunk != kPoolChunk || sums.mode > 07777 ||
      flags > (kSumsKeep | kSumsOfOwner) || (is_of_owner && sums.size == 0) ||
      chunks > kMostPoolChunks || reader.left() != chunks * 4 + 4)
    return fail(EBADMSG, "pool: a record of checksums");
  sums.chunk_crc32c.reserve(static_cast<std::size_t>(chunks));
  for (std::uint64_t i = 0; i < chunks; ++i)
    sums.chunk_crc32c.push_back(reader.take<std::uint32_t>());
  if (reader.take<std::uint32_t>() != checksum(bytes.substr(0, bytes.size() - 4)))
    return fail(EBADMSG, "pool: the checksum of checksums");
  return sums;
}

bool is_pool_word(std::string_view text) noexcept {
  return !text.empty() && text.size() <= kLongestPoolWord &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

const std::string* PoolTold::find(std::string_view key) const noexcept {
  const auto at = std::find_if(words.begin(), words.end(),
                               [key](const PoolWord& word) { return word.key == key; });
  return at == words.end() ? nullptr : &at->value;
}

std::string encode_pool_told(const PoolTold& told) {
  std::string text = fmt::format("{}format {}\ndirectory {}\npath {}\n", kToldMagic,
                                 kPoolFormat, told.fileid, told.path_hash);
  for (const PoolWord& word : told.words) text += fmt::format("{} {}\n", word.key, word.value);
  return close(std::move(text));
}

Result<PoolTold> decode_pool_told(std::string_view text) {
  Lines lines(text);
  TRY(lines.begin(kToldMagic));
  const auto fileid = number_of<std::uint64_t>(lines.take("directory"));
  const auto path_hash = number_of<std::uint64_t>(lines.take("path"));
  if (!fileid || !path_hash) return fail(EBADMSG, "pool: of which directory");
  PoolTold told{.fileid = *fileid, .path_hash = *path_hash};
  for (std::string_view key = lines.next_key(); key != "crc32c"; key = lines.next_key()) {
    const std::string_view value = lines.take(key);
    if (!is_pool_word(key) || !is_pool_word(value) || told.find(key) != nullptr ||
        told.words.size() == kMostPoolWords)
      return fail(EBADMSG, "pool: what a directory was told");
    told.words.push_back({.key = std::string(key), .value = std::string(value)});
  }
  TRY(lines.end());
  return told;
}

std::string pool_service_path(std::string_view path) {
  return fmt::format("{}/{}", kPoolService, path);
}

std::string pool_superblock_path() { return pool_service_path("pool"); }

std::string pool_node_path(const Uuid& node) {
  return pool_service_path(fmt::format("nodes/{}", format_uuid(node)));
}

std::string pool_temporary_path(const Uuid& node, std::uint64_t number) {
  return pool_service_path(fmt::format("tmp/{}/{}", format_uuid(node), number));
}

std::string pool_log_path(const Uuid& node, std::uint64_t log) {
  return pool_service_path(fmt::format("log/{}.{}", format_uuid(node), log));
}

std::optional<std::uint64_t> parse_pool_log_name(std::string_view name, const Uuid& node) {
  const std::string mine = format_uuid(node) + ".";
  if (!name.starts_with(mine)) return std::nullopt;
  return number_of<std::uint64_t>(name.substr(mine.size()));
}

std::string pool_sums_path(std::uint64_t fileid) { return record_path("sums", fileid); }

std::string pool_told_path(std::uint64_t fileid) { return record_path("told", fileid); }

std::string pool_trash_path(UnixNanos now, const Uuid& node, std::uint64_t number) {
  return trash_path(std::to_string(seconds_of(now) / 3600), now, node, number);
}

std::string pool_spare_trash_path(UnixNanos now, const Uuid& node, std::uint64_t number) {
  return trash_path("spare", now, node, number);
}

std::optional<std::uint64_t> parse_pool_trash_hour(std::string_view name) noexcept {
  return number_of<std::uint64_t>(name);
}

std::optional<std::uint64_t> parse_pool_trash_name(std::string_view name) noexcept {
  const std::size_t dash = name.find('-');
  return dash == name.npos ? std::nullopt : number_of<std::uint64_t>(name.substr(0, dash));
}

}  // namespace kvcachefs
