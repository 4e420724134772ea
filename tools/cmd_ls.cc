// kvcachefs ls [--by WHAT] [--model MODEL] [--runtime RUNTIME] [--json] MOUNTPOINT|--state DIR
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "fs/layout/layout.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/find_word.h"
#include "tools/mount_path.h"
#include "tools/query_source.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

// Names of more groups than these are counted together.
constexpr std::size_t kMostGroups = 65'536;
constexpr const char* kOtherGroups = "(others)";
constexpr const char* kUnnamed = "-";

struct LsArguments {
  QueryPlace place;
  std::string by;
  std::string model;
  std::string runtime;
  bool json = false;
  std::string below;  // a directory of the mount, from its root; empty: all of it
};

struct Group {
  std::uint64_t objects = 0;
  std::uint64_t bytes = 0;
  void add(const json& object) {
    ++objects;
    bytes += count_in(object, "size");
  }
};

class Groups {
 public:
  Group& of(const std::string& name) {
    const auto found = groups_.find(name);
    if (found != groups_.end()) return found->second;
    return groups_[groups_.size() < kMostGroups ? name : kOtherGroups];
  }
  // The largest first.
  void show(const std::string& by, bool as_json) const {
    std::vector<std::pair<std::string, Group>> sorted(groups_.begin(), groups_.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return a.second.bytes > b.second.bytes;
    });
    if (!as_json && !sorted.empty())
      print_out("{:>12}  {:>10}  {}\n", "OBJECTS", "SIZE",
                by == "model"     ? "MODEL"
                : by == "runtime" ? "RUNTIME"
                                  : "SESSION");
    for (const auto& [name, group] : sorted) {
      if (as_json) {
        print_out("{}\n", line_of({{by, name == kUnnamed ? json() : json(name)},
                                   {"objects", group.objects},
                                   {"bytes", group.bytes}}));
      } else {
        print_out("{:>12}  {:>10}  {}\n", group.objects, format_size(group.bytes),
                  visible(name));
      }
    }
  }

 private:
  std::map<std::string, Group> groups_;
};

void show_heading() {
  print_out("{:>10}  {:>7}  {:>8}  {:<15} {:<10} {:<24} {}\n", "SIZE", "AGE", "LAST USE",
            "RUNTIME", "RANK", "MODEL", "PATH");
}

void show_object(const json& object) {
  const std::string model = text_in(object, "model");
  print_out("{:>10}  {:>7}  {:>8}  {:<15} {:<10} {:<24} {}\n",
            format_size(count_in(object, "size")), ago(number_in(object, "created")),
            ago(number_in(object, "last_use")), text_in(object, "runtime"), rank_text(object),
            model.empty() ? "-" : visible(model), visible(text_in(object, "path")));
}

bool is_below(const json& object, const std::string& directory) {
  if (directory.empty()) return true;
  const std::string path = text_in(object, "path");
  return path == directory || path.starts_with(directory + "/");
}

bool passes(const LsArguments& arguments, const json& object) {
  return object.is_object() && is_below(object, arguments.below) &&
         (arguments.model.empty() || arguments.model == text_in(object, "model")) &&
         (arguments.runtime.empty() || arguments.runtime == text_in(object, "runtime"));
}

Result<void> list_sessions(QuerySource& source, const LsArguments& arguments, Groups& groups,
                           std::uint64_t& damaged, std::string& problem) {
  ControlRequest all;
  all.command = "sessions";
  Result<void> done;
  const auto one = [&](const json& name) {
    if (!name.is_string()) return true;
    ControlRequest request;
    request.command = "session";
    request.word = name.get<std::string>();
    Group session;
    done = each_in(
        source, request, "entries",
        [&](const json& entry) {
          if (passes(arguments, part_of(entry, "object")))
            session.add(part_of(entry, "object"));
          return true;
        },
        damaged, problem);
    if (session.objects > 0) {
      Group& group = groups.of(request.word);
      group.objects += session.objects;
      group.bytes += session.bytes;
    }
    return done.ok();
  };
  TRY(each_in(source, all, "sessions", one, damaged, problem));
  return done;
}

Result<void> list(QuerySource& source, const LsArguments& arguments, std::uint64_t& damaged,
                  std::string& problem) {
  Groups groups;
  if (arguments.by == "session") {
    TRY(list_sessions(source, arguments, groups, damaged, problem));
    groups.show(arguments.by, arguments.json);
    return {};
  }
  ControlRequest request;
  request.command = "objects";
  request.model = arguments.model;
  request.runtime = arguments.runtime;
  bool is_first = true;
  TRY(each_in(
      source, request, "objects",
      [&](const json& object) {
        if (!passes(arguments, object)) return true;
        if (!arguments.by.empty()) {
          const std::string name = text_in(object, arguments.by.c_str());
          groups.of(name.empty() ? kUnnamed : name).add(object);
        } else if (arguments.json) {
          print_out("{}\n", line_of(object));
        } else {
          if (std::exchange(is_first, false)) show_heading();
          show_object(object);
        }
        return true;
      },
      damaged, problem));
  if (!arguments.by.empty()) groups.show(arguments.by, arguments.json);
  return {};
}

Result<void> find_below(LsArguments& arguments, std::string& problem) {
  if (arguments.place.mountpoint.empty()) return {};
  arguments.below = TRY(find_mount_path(arguments.place.mountpoint, problem)).path;
  while (arguments.below.ends_with('/')) arguments.below.pop_back();
  return {};
}

int ls(LsArguments arguments) {
  std::string problem;
  if (!is_one_place(arguments.place, problem)) {
    complain("ls: " + problem);
    return kExitUsage;
  }
  if (!arguments.runtime.empty() && !parse_runtime(arguments.runtime)) {
    complain(
        fmt::format("ls: --runtime {}: no such runtime: vllm, lmcache_fs, sglang_file, "
                    "native, …: see kvcachefs(1)",
                    visible(arguments.runtime)));
    return kExitUsage;
  }
  const auto source = QuerySource::open(arguments.place, problem);
  std::uint64_t damaged = 0;
  if (!source || !find_below(arguments, problem).ok() ||
      !list(**source, arguments, damaged, problem).ok()) {
    complain(problem);
    return kExitFailed;
  }
  complain_damaged(damaged);
  return kExitOk;
}

}  // namespace

void add_ls(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<LsArguments>();
  CLI::App* command = app.add_subcommand(
      "ls",
      "Lists the files that hold blocks of KV cache, all or those below a path, in no order");
  add_place(*command, arguments->place);
  command
      ->add_option("--by", arguments->by,
                   "Counts and bytes by model, session or runtime instead")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"model", "session", "runtime"}));
  command->add_option("--model", arguments->model, "Only those of this model")
      ->type_name("MODEL");
  command->add_option("--runtime", arguments->runtime, "Only those of this runtime")
      ->type_name("RUNTIME");
  command->add_flag("--json", arguments->json, "One line of JSON for each");
  command->callback([arguments, &exit_code] { exit_code = ls(*arguments); });
}

}  // namespace kvcachefs
