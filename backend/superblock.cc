#include "backend/superblock.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "backend/base/crc32c.h"

namespace kvcachefs {
namespace {

constexpr std::string_view kMagic = "kvcachefs device\n";

std::uint32_t checksum_of(std::string_view text) noexcept {
  return crc32c(0, std::as_bytes(std::span(text)));
}

// Takes "<key> <value>\n" from the front of `text`.
std::optional<std::string_view> take_line(std::string_view& text,
                                          std::string_view key) noexcept {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view line = text.substr(0, end);
  if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') {
    return std::nullopt;
  }
  text.remove_prefix(end + 1);
  return line.substr(key.size() + 1);
}

}  // namespace

std::string encode_superblock(const Superblock& superblock) {
  std::string text =
      fmt::format("{}format {}\ndevice {}\ncatalog {}\n", kMagic, kDeviceFormat,
                  format_uuid(superblock.device), format_uuid(superblock.catalog));
  text += fmt::format("crc32c {:08x}\n", checksum_of(text));
  return text;
}

Result<Superblock> decode_superblock(std::string_view text) {
  const std::string_view whole = text;
  if (!text.starts_with(kMagic)) return fail(EBADMSG, "superblock: not one of ours");
  text.remove_prefix(kMagic.size());

  // The version comes first and alone decides how the rest is read.
  const std::optional<std::string_view> format = take_line(text, "format");
  if (!format) return fail(EBADMSG, "superblock: no format line");
  std::uint32_t version = 0;
  const char* format_end = format->data() + format->size();
  const auto [end, error] = std::from_chars(format->data(), format_end, version);
  if (error != std::errc{} || end != format_end) {
    return fail(EBADMSG, "superblock: no format version");
  }
  if (version != kDeviceFormat) return fail(EPROTONOSUPPORT, "superblock: format version");

  const std::optional<std::string_view> device = take_line(text, "device");
  const std::optional<std::string_view> catalog = take_line(text, "catalog");
  const std::size_t summed = whole.size() - text.size();
  const std::optional<std::string_view> crc = take_line(text, "crc32c");
  if (!device || !catalog || !crc || !text.empty()) {
    return fail(EBADMSG, "superblock: lines missing");
  }
  if (*crc != fmt::format("{:08x}", checksum_of(whole.substr(0, summed)))) {
    return fail(EBADMSG, "superblock: checksum");
  }
  const std::optional<Uuid> device_uuid = parse_uuid(*device);
  const std::optional<Uuid> catalog_uuid = parse_uuid(*catalog);
  if (!device_uuid || !catalog_uuid) return fail(EBADMSG, "superblock: UUID");
  return Superblock{.device = *device_uuid, .catalog = *catalog_uuid};
}

}  // namespace kvcachefs
