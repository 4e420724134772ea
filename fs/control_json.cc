#include "fs/control_json.h"

#include <fmt/format.h>

#include <cstring>

#include "fs/control_request.h"

namespace kvcachefs {

using nlohmann::json;

json text_or_null(std::string_view text) { return text.empty() ? json() : json(text); }

json seconds_json(UnixNanos time) { return static_cast<double>(time / 1'000'000) / 1000; }

json object_json(const ObjectInfo& info) {
  return {{"path", info.path},
          {"runtime", info.runtime},
          {"model", text_or_null(info.model)},
          {"world", or_null(info.world)},
          {"rank", or_null(info.rank)},
          {"group", or_null(info.group)},
          {"part", text_or_null(info.part)},
          {"hash", text_or_null(info.hash)},
          {"block", block_text(info.block)},
          {"inode", info.inode},
          {"size", info.size},
          {"created", seconds_json(info.created)},
          {"last_use", info.last_use ? seconds_json(*info.last_use) : json()}};
}

json reason_json(const Error& error) {
  if (error.code == 0) return nullptr;
  return fmt::format("{}: {}", error.what, std::strerror(error.code));
}

std::string line_of_json(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace kvcachefs
