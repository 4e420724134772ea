// What comes over the control socket: a command and its words, as one line of JSON.
//
//   {"command":"objects","after":"00ff00ff00ff00ff","model":"llama"}
//
// Pure. Any bytes are legal input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backend/base/result.h"

namespace kvcachefs {

// Empty, and nullopt: not given.
struct ControlRequest {
  std::string command;
  std::string word;     // a hash, its beginning, or a session's id
  std::string after;    // where a page begins: what the page before gave as "next"
  std::string model;    // only objects of this model,
  std::string runtime;  // and of this runtime
  std::string path;     // relative to the root of the filesystem
  std::optional<std::uint64_t> block;  // 16 hex digits: a JSON number would lose some
  bool operator==(const ControlRequest&) const = default;
};

// Of each text, in bytes. A name has 255.
inline constexpr std::size_t kLongestRequestText = 1024;
inline constexpr std::size_t kLongestRequestPath = 4096;

// Fields of other names are passed over. EINVAL: `problem` says what is wrong with which field.
Result<ControlRequest> parse_control_request(std::string_view line, std::string& problem);
// Without a line break. What is not UTF-8 becomes a replacement character.
[[nodiscard]] std::string encode(const ControlRequest& request);

// The number of a block as it is written in requests and answers: 16 lower-case hex digits.
[[nodiscard]] std::string block_text(std::uint64_t block);
std::optional<std::uint64_t> parse_block(std::string_view text) noexcept;

}  // namespace kvcachefs
