// Reading the answers of control_queries.h, which may come from a daemon of another version: what
// is absent, or of another type, is empty. And how their parts are shown to people.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace kvcachefs {

[[nodiscard]] std::string text_in(const nlohmann::json& object, const char* key);
[[nodiscard]] std::uint64_t count_in(const nlohmann::json& object, const char* key);
// 0 for null.
[[nodiscard]] double number_in(const nlohmann::json& object, const char* key);
[[nodiscard]] bool is_true(const nlohmann::json& object, const char* key);
// An array or an object; an empty one where there is none.
[[nodiscard]] const nlohmann::json& part_of(const nlohmann::json& object, const char* key);

// "-", "5 s", "3 min", "7 h", "12 d": how long ago a time (in seconds since 1970) was.
[[nodiscard]] std::string ago(double then);
// "1 file", "2 files".
[[nodiscard]] std::string counted(std::uint64_t number, std::string_view noun);
// "3 of 8", "3", "-".
[[nodiscard]] std::string rank_text(const nlohmann::json& object);
// "sglang_file, model llama, rank 0 of 2, part k".
[[nodiscard]] std::string series_text(const nlohmann::json& object);
// The first 16 digits; of a block without a hash its number in brackets.
[[nodiscard]] std::string short_hash(const nlohmann::json& object, std::string_view block);
// One line of JSON.
[[nodiscard]] std::string line_of(const nlohmann::json& value);

}  // namespace kvcachefs
