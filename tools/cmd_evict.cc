// kvcachefs evict [--recursive] [--json] PATH
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/mount_path.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

constexpr std::size_t kMostShown = 16;  // of the files that were left
constexpr const char* kReasons[] = {"open", "unsealed", "kept", "pinned", "owned", "queued"};

struct EvictArguments {
  std::string path;
  bool recursive = false;
  bool json = false;
};

// Pages put together.
class EvictTotal {
 public:
  void add(const json& page) {
    files_ += count_in(page, "files");
    bytes_ += count_in(page, "bytes");
    for (std::size_t at = 0; at < left_.size(); ++at)
      left_[at] += count_in(part_of(page, "left"), kReasons[at]);
    for (const json& example : part_of(page, "examples"))
      if (examples_.size() < kMostShown) examples_.push_back(example);
  }
  [[nodiscard]] std::uint64_t files() const noexcept { return files_; }
  [[nodiscard]] std::uint64_t left() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t count : left_) sum += count;
    return sum;
  }
  void show(bool as_json) const {
    if (as_json) {
      json by_reason = json::object();
      for (std::size_t at = 0; at < left_.size(); ++at) by_reason[kReasons[at]] = left_[at];
      print_out("{}\n", line_of({{"files", files_},
                                 {"bytes", bytes_},
                                 {"left", std::move(by_reason)},
                                 {"examples", examples_}}));
      return;
    }
    print_out("evicted {}, {}\n", counted(files_, "file"), format_size(bytes_));
    if (left() == 0) return;
    std::string reasons;
    for (std::size_t at = 0; at < left_.size(); ++at)
      if (left_[at] > 0)
        reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", left_[at], kReasons[at]);
    print_out("left {}: {}\n", left(), reasons);
    for (const json& example : examples_)
      print_out("  {}: {}\n", visible(text_in(example, "path")), text_in(example, "why"));
    if (left() > examples_.size()) print_out("  …\n");
  }

 private:
  std::uint64_t files_ = 0;
  std::uint64_t bytes_ = 0;
  std::array<std::uint64_t, std::size(kReasons)> left_{};
  std::vector<json> examples_;
};

// All below a directory, page after page; which directories are still to do is kept here.
Result<void> evict_below(const FoundMount& mount, const std::string& top, EvictTotal& total,
                         std::string& problem) {
  std::vector<std::string> directories = {top};
  while (!directories.empty()) {
    ControlRequest request;
    request.command = "evict";
    request.block = parse_block(directories.back());
    directories.pop_back();
    if (!request.block) {
      problem = "evict: the daemon's answer is of another version: use its kvcachefs";
      return fail(EBADMSG, "answer");
    }
    do {
      const json page = TRY(ask_daemon(mount, request, problem));
      total.add(page);
      for (const json& below : part_of(page, "directories"))
        if (below.is_string()) directories.push_back(below.get<std::string>());
      request.after = text_in(page, "next");
    } while (!request.after.empty());
  }
  return {};
}

int evict(const EvictArguments& arguments) {
  std::string problem;
  const auto place = find_mount_path(arguments.path, problem);
  if (!place) {
    complain(problem);
    return kExitFailed;
  }
  ControlRequest request;
  request.command = "evict";
  request.path = place->path;
  const auto first = ask_daemon(place->mount, request, problem);
  if (!first) {
    complain(problem);
    return kExitFailed;
  }
  EvictTotal total;
  total.add(*first);
  const std::string directory = text_in(*first, "directory");
  if (!directory.empty()) {
    if (!arguments.recursive) {
      complain(fmt::format("evict: {}: a directory: --recursive evicts all files below it",
                           visible(arguments.path)));
      return kExitFailed;
    }
    if (!evict_below(place->mount, directory, total, problem).ok()) {
      total.show(arguments.json);
      complain(problem);
      return kExitFailed;
    }
  }
  total.show(arguments.json);
  return directory.empty() && total.files() == 0 ? kExitFailed : kExitOk;
}

}  // namespace

void add_evict(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<EvictArguments>();
  CLI::App* command = app.add_subcommand(
      "evict", "Drops files at once that nobody has open and whose policy lets them go");
  command->add_option("PATH", arguments->path, "A file in a mount, or a directory")
      ->required()
      ->type_name("");
  command->add_flag("--recursive", arguments->recursive, "All files below a directory");
  command->add_flag("--json", arguments->json, "One line of JSON instead of text");
  command->callback([arguments, &exit_code] { exit_code = evict(*arguments); });
}

}  // namespace kvcachefs
