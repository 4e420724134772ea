#include "fs/control_request.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

namespace kvcachefs {
namespace {

using nlohmann::json;

struct Field {
  const char* name;
  std::string ControlRequest::*text;
  std::size_t longest = kLongestRequestText;  // bytes
};
constexpr Field kFields[] = {{"command", &ControlRequest::command},
                             {"word", &ControlRequest::word},
                             {"after", &ControlRequest::after},
                             {"model", &ControlRequest::model},
                             {"runtime", &ControlRequest::runtime},
                             {"path", &ControlRequest::path, kLongestRequestPath}};

// Instead of "path".
constexpr const char* kPathHex = "path_hex";

// Leaves `out` alone when there is no such field.
Result<void> read_text(const json& request, const char* name, std::size_t longest,
                       std::string& out, std::string& problem) {
  const auto value = request.find(name);
  if (value == request.end()) return {};
  if (!value->is_string()) {
    problem = fmt::format("\"{}\" is not a string", name);
    return fail(EINVAL, "request");
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > longest) {
    problem = fmt::format("\"{}\" is longer than {} bytes", name, longest);
    return fail(EINVAL, "request");
  }
  out = text;
  return {};
}

// JSON is UTF-8, and names of files are any bytes.
std::string hex_of(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return out;
}

std::optional<std::string> bytes_of(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    unsigned char byte = 0;
    const std::string_view digits = hex.substr(i, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, /*base=*/16);
    if (digits.size() != 2 || error != std::errc{} || end != digits.data() + 2)
      return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

}  // namespace

std::string block_text(std::uint64_t block) { return fmt::format("{:016x}", block); }

std::optional<std::uint64_t> parse_block(std::string_view text) noexcept {
  std::uint64_t block = 0;
  if (text.size() != 16) return std::nullopt;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), block, /*base=*/16);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return block;
}

Result<ControlRequest> parse_control_request(std::string_view line, std::string& problem) {
  const json request = json::parse(line, nullptr, /*allow_exceptions=*/false);
  ControlRequest out;
  if (request.is_object()) {
    for (const Field& field : kFields)
      TRY(read_text(request, field.name, field.longest, out.*field.text, problem));
  }
  if (out.command.empty()) {
    problem = "the request is not {\"command\": \"…\"}";
    return fail(EINVAL, "request");
  }
  std::string hex;
  TRY(read_text(request, kPathHex, 2 * kLongestRequestPath, hex, problem));
  if (!hex.empty()) {
    const std::optional<std::string> path = bytes_of(hex);
    if (!path) {
      problem = "\"path_hex\" is not pairs of hex digits";
      return fail(EINVAL, "request");
    }
    out.path = *path;
  }
  std::string block;
  TRY(read_text(request, "block", kLongestRequestText, block, problem));
  if (request.contains("block")) {
    out.block = parse_block(block);
    if (!out.block) {
      problem = "\"block\" is not 16 hex digits";
      return fail(EINVAL, "request");
    }
  }
  return out;
}

std::string encode(const ControlRequest& request) {
  json out = json::object();
  for (const Field& field : kFields) {
    if (!(request.*field.text).empty()) out[field.name] = request.*field.text;
  }
  if (!is_ascii(request.path)) {
    out.erase("path");
    out[kPathHex] = hex_of(request.path);
  }
  if (request.block) out["block"] = block_text(*request.block);
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace kvcachefs
