// What the word of `kvcachefs find` and `tree` means: a hash that some file holds, else a session,
// else the beginning (8 digits or more) of a hash, like a commit's of git.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tools/query_source.h"

namespace kvcachefs {

struct FoundWord {
  enum class Kind { kNothing, kHash, kSession, kAmbiguous } kind = Kind::kNothing;
  std::string word;                 // the whole hash, or the session
  std::vector<std::string> hashes;  // kAmbiguous: of these
  bool more = false;                // and of others
};

// `problem` as of QuerySource::ask().
Result<FoundWord> find_word(QuerySource& source, const std::string& word, std::string& problem);
// What a command about a word does: asks `place` what the word means, and has `show` print a kHash or
// a kSession. The exit code; what went wrong was said.
using ShowWord =
    std::function<Result<void>(QuerySource&, const FoundWord&, std::string& problem)>;
[[nodiscard]] int run_with_word(const char* command, const QueryPlace& place,
                                const std::string& word, const ShowWord& show);

// Page after page: `array` of each answer, an element at a time, until `visit` returns false.
// `damaged` becomes the number of records that do not read.
Result<void> each_in(QuerySource& source, ControlRequest request, const char* array,
                     const std::function<bool(const nlohmann::json&)>& visit,
                     std::uint64_t& damaged, std::string& problem);

}  // namespace kvcachefs
