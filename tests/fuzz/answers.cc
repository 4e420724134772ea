// Answers of the control socket, which may come from a daemon of another version: any text is
// shown, or refused.
#include "tools/answers.h"

#include <cerrno>
#include <string>
#include <string_view>

#include "fs/status.h"
#include "tests/fuzz/target.h"

namespace kvcachefs::fuzz {
namespace {

using nlohmann::json;

bool reads_status(std::string_view input) {
  const auto text = status_text(input);
  require(text.ok() || text.error().code == EBADMSG);
  return text.ok();
}

void show(const json& object) {
  for (const char* key :
       {"model", "runtime", "hash", "part", "rank", "world", "group", "next"}) {
    static_cast<void>(text_in(object, key));
    static_cast<void>(count_in(object, key));
    static_cast<void>(is_true(object, key));
    require(part_of(object, key).is_structured());
    require(!ago(number_in(object, key)).empty());
  }
  require(!rank_text(object).empty());
  require(short_hash(object, "00ff00ff00ff00ff").size() <= 18);
  static_cast<void>(series_text(object));
  require(line_of(object).find('\n') == std::string::npos);
}

bool reads_answer(std::string_view input) {
  const json answer = json::parse(input, nullptr, /*allow_exceptions=*/false);
  show(answer);
  for (const char* key : {"objects", "links", "entries", "hashes", "sessions"})
    for (const json& one : part_of(answer, key)) show(one);
  return answer.is_object();
}

}  // namespace

bool answers(std::string_view input) {
  const auto [reader, unused, rest] = choose(input, 2);
  return reader == 0 ? reads_status(rest) : reads_answer(rest);
}

}  // namespace kvcachefs::fuzz
