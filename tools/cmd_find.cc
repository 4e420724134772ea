// kvcachefs find [--json] HASH|SESSION MOUNTPOINT|--state DIR
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/find_word.h"
#include "tools/query_source.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

// Entries of a session that are put in order; those of a longer one come as they were made.
constexpr std::size_t kMostSorted = 131'072;

struct FindArguments {
  std::string word;
  QueryPlace place;
  bool json = false;
};

void show_found(const json& object) {
  print_out("{}\n  {}\n  {}, inode {}, {} old, last use {}\n", visible(text_in(object, "path")),
            series_text(object), format_size(count_in(object, "size")),
            count_in(object, "inode"), ago(number_in(object, "created")),
            ago(number_in(object, "last_use")));
}

void show_entry(const json& entry) {
  const json& object = part_of(entry, "object");
  const std::string hash = text_in(object, "hash");
  const std::string path = text_in(object, "path");
  print_out("{:>8}  {:>10}  {}  {}\n", count_in(entry, "position"),
            path.empty() ? "-" : format_size(count_in(object, "size")),
            hash.empty() ? "-" : hash, visible(path.empty() ? text_in(entry, "path") : path));
}

class SessionLister {
 public:
  explicit SessionLister(bool as_json) : json_(as_json) {}
  ~SessionLister() { flush(); }
  SessionLister(const SessionLister&) = delete;
  SessionLister& operator=(const SessionLister&) = delete;

  void add(const json& entry) {
    entries_.push_back(entry);
    if (entries_.size() == kMostSorted) flush();
  }

 private:
  void flush() {
    std::stable_sort(entries_.begin(), entries_.end(), [](const json& a, const json& b) {
      return count_in(a, "position") < count_in(b, "position");
    });
    for (const json& entry : entries_) {
      if (json_) {
        print_out("{}\n", line_of(entry));
      } else {
        show_entry(entry);
      }
    }
    entries_.clear();
  }

  const bool json_;
  std::vector<json> entries_;
};

Result<void> show(QuerySource& source, const FoundWord& found, bool as_json,
                  std::uint64_t& damaged, std::string& problem) {
  ControlRequest request;
  request.word = found.word;
  if (found.kind == FoundWord::Kind::kSession) {
    request.command = "session";
    SessionLister lister(as_json);
    return each_in(
        source, request, "entries",
        [&](const json& entry) {
          lister.add(entry);
          return true;
        },
        damaged, problem);
  }
  request.command = "find";
  if (!as_json) print_out("prefix {}\n", found.word);
  return each_in(
      source, request, "objects",
      [&](const json& object) {
        if (as_json) {
          print_out("{}\n", line_of(object));
        } else {
          show_found(object);
        }
        return true;
      },
      damaged, problem);
}

int find(const FindArguments& arguments) {
  return run_with_word(
      "find", arguments.place, arguments.word,
      [&](QuerySource& source, const FoundWord& found, std::string& problem) -> Result<void> {
        std::uint64_t damaged = 0;
        TRY(show(source, found, arguments.json, damaged, problem));
        complain_damaged(damaged);
        return {};
      });
}

}  // namespace

void add_find(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<FindArguments>();
  CLI::App* command = app.add_subcommand(
      "find", "Shows which files hold a prefix hash, or what a session consists of");
  command
      ->add_option("HASH|SESSION", arguments->word,
                   wrap_help("A prefix hash, its beginning (8 digits or more), or the name of "
                             "a session"))
      ->required()
      ->type_name("");
  add_place(*command, arguments->place);
  command->add_flag("--json", arguments->json, "One line of JSON for each file");
  command->callback([arguments, &exit_code] { exit_code = find(*arguments); });
}

}  // namespace kvcachefs
