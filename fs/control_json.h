// Parts of answers of the control socket, as JSON: null is what is not known, times are seconds since
// 1970.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

#include "backend/base/result.h"
#include "fs/known/describe.h"

namespace kvcachefs {

[[nodiscard]] nlohmann::json text_or_null(std::string_view text);
// To the millisecond.
[[nodiscard]] nlohmann::json seconds_json(UnixNanos time);
// OBJECT of control_queries.h.
[[nodiscard]] nlohmann::json object_json(const ObjectInfo& info);
// What an error says; null where its code is 0.
[[nodiscard]] nlohmann::json reason_json(const Error& error);
// One line. A path need not be UTF-8; JSON must be.
[[nodiscard]] std::string line_of_json(const nlohmann::json& value);

template <class T>
[[nodiscard]] nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace kvcachefs
