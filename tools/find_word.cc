#include "tools/find_word.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "backend/base/visible.h"
#include "tools/answers.h"
#include "tools/commands.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

// Hashes that begin alike and are worth a line to the user.
constexpr std::size_t kMostBeginnings = 16;

ControlRequest about(const char* command, const std::string& word) {
  ControlRequest request;
  request.command = command;
  request.word = word;
  return request;
}

// Names have lower-case digits; who pastes others means the same.
std::string lower(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char byte) { return static_cast<char>(std::tolower(byte)); });
  return word;
}

// The line for the user about what is neither kHash nor kSession.
std::string not_found(const std::string& word, const FoundWord& found) {
  if (found.kind != FoundWord::Kind::kAmbiguous) {
    return fmt::format("{}: no file holds this hash, and no session has this name",
                       visible(word));
  }
  return fmt::format("{}: several hashes begin so: {}{}", visible(word),
                     fmt::join(found.hashes, " "), found.more ? " …" : "");
}

Result<bool> is_held(QuerySource& source, const std::string& hash, std::string& problem) {
  bool held = false;
  std::uint64_t damaged = 0;
  TRY(each_in(
      source, about("find", hash), "objects",
      [&](const json&) {
        held = true;
        return false;
      },
      damaged, problem));
  return held;
}

}  // namespace

Result<void> each_in(QuerySource& source, ControlRequest request, const char* array,
                     const std::function<bool(const json&)>& visit, std::uint64_t& damaged,
                     std::string& problem) {
  while (true) {
    const json page = TRY(source.ask(request, problem));
    damaged += count_in(page, "damaged");
    for (const json& element : part_of(page, array)) {
      if (!visit(element)) return {};
    }
    std::string next = text_in(page, "next");
    if (next.empty() || output_failed()) return {};
    if (next == request.after) {
      problem =
          fmt::format("{}: the daemon's answers do not go on: see its log", request.command);
      return fail(EBADMSG, "answer");
    }
    request.after = std::move(next);
  }
}

Result<FoundWord> find_word(QuerySource& source, const std::string& word,
                            std::string& problem) {
  using Kind = FoundWord::Kind;
  const std::string hash = lower(word);
  if (TRY(is_held(source, hash, problem)))
    return FoundWord{.kind = Kind::kHash, .word = hash, .hashes = {}};
  const json session = TRY(source.ask(about("session", word), problem));
  if (is_true(session, "found"))
    return FoundWord{.kind = Kind::kSession, .word = word, .hashes = {}};
  FoundWord found;
  std::uint64_t damaged = 0;
  TRY(each_in(
      source, about("hashes", hash), "hashes",
      [&](const json& one) {
        found.more = found.hashes.size() == kMostBeginnings;
        if (!found.more && one.is_string()) found.hashes.push_back(one.get<std::string>());
        return !found.more;
      },
      damaged, problem));
  if (found.hashes.empty()) return found;
  found.kind = found.hashes.size() == 1 && !found.more ? Kind::kHash : Kind::kAmbiguous;
  if (found.kind == Kind::kHash) found.word = found.hashes.front();
  return found;
}

int run_with_word(const char* command, const QueryPlace& place, const std::string& word,
                  const ShowWord& show) {
  std::string problem;
  if (!is_one_place(place, problem)) {
    complain(fmt::format("{}: {}", command, problem));
    return kExitUsage;
  }
  const auto source = QuerySource::open(place, problem);
  const auto look = [&]() -> Result<void> {
    if (!source) return source.error();
    const FoundWord found = TRY(find_word(**source, word, problem));
    if (found.word.empty()) {
      problem = not_found(word, found);
      return fail(ENOENT, "no such word");
    }
    return show(**source, found, problem);
  };
  if (look().ok()) return kExitOk;
  complain(problem);
  return kExitFailed;
}

}  // namespace kvcachefs
