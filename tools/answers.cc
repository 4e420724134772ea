#include "tools/answers.h"

#include <fmt/format.h>

#include "backend/base/clock.h"
#include "backend/base/visible.h"

namespace kvcachefs {

using nlohmann::json;

std::string text_in(const json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? value->get<std::string>()
                                                     : std::string{};
}

std::uint64_t count_in(const json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto value = object.find(key);
  return value != object.end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
}

double number_in(const json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto value = object.find(key);
  return value != object.end() && value->is_number() ? value->get<double>() : 0;
}

bool is_true(const json& object, const char* key) {
  return object.is_object() && object.value(key, json()) == true;
}

const json& part_of(const json& object, const char* key) {
  static const json kEmpty = json::array();
  if (!object.is_object()) return kEmpty;
  const auto value = object.find(key);
  return value != object.end() && value->is_structured() ? *value : kEmpty;
}

std::string ago(double then) {
  if (then <= 0) return "-";
  const double now = static_cast<double>(file_clock_now()) / kNanosPerSecond;
  const double seconds = now > then ? now - then : 0;
  if (seconds < 60) return fmt::format("{} s", static_cast<int>(seconds));
  if (seconds < 3600) return fmt::format("{} min", static_cast<int>(seconds / 60));
  if (seconds < 86'400) return fmt::format("{} h", static_cast<int>(seconds / 3600));
  return fmt::format("{} d", static_cast<std::uint64_t>(seconds / 86'400));
}

std::string counted(std::uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string rank_text(const json& object) {
  if (!object.is_object() || !object.contains("rank") || !object["rank"].is_number())
    return "-";
  const std::uint64_t rank = count_in(object, "rank");
  const std::uint64_t world = count_in(object, "world");
  return world > 0 ? fmt::format("{} of {}", rank, world) : std::to_string(rank);
}

std::string series_text(const json& object) {
  std::string out = text_in(object, "runtime");
  if (const std::string model = text_in(object, "model"); !model.empty())
    out += ", model " + visible(model);
  if (const std::string rank = rank_text(object); rank != "-") out += ", rank " + rank;
  if (object.contains("group") && object["group"].is_number())
    out += fmt::format(", group {}", count_in(object, "group"));
  if (const std::string part = text_in(object, "part"); !part.empty())
    out += ", part " + visible(part);
  return out;
}

std::string short_hash(const json& object, std::string_view block) {
  constexpr std::size_t kShown = 16;
  const std::string hash = text_in(object, "hash");
  return hash.empty() ? fmt::format("[{}]", block) : hash.substr(0, kShown);
}

std::string line_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace kvcachefs
