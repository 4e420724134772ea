// kvcachefs flush [--timeout TIME] [--json] [PATH]
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/mount_path.h"

namespace kvcachefs {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAskEvery{200};
constexpr std::chrono::seconds kShowEvery{2};

struct FlushArguments {
  std::string path = ".";
  std::string timeout = "60s";
  bool json = false;
};

struct Left {
  std::uint64_t files = 0;
  std::uint64_t removed = 0;
  std::uint64_t owners = 0;
  bool more = false;
  bool up = false;
  std::string stopped_for = {};  // empty: it goes on
  // Of the whole mount, since it began.
  std::uint64_t skipped = 0;
  std::uint64_t obstructed = 0;
  [[nodiscard]] bool is_nothing() const noexcept {
    return files + removed + owners == 0 && !more;
  }
  bool operator==(const Left&) const = default;
};

std::string text_of(const Left& left) {
  std::string text;
  const auto add = [&text](std::uint64_t number, const char* noun) {
    if (number > 0) text += (text.empty() ? "" : " and ") + counted(number, noun);
  };
  add(left.files, "file");
  add(left.removed, "removed name");
  add(left.owners, "changed owner");
  if (text.empty()) text = counted(0, "file");
  return text + (left.more ? " or more" : "");
}

// Empty: nothing is known.
std::string reason_of(const Left& left) {
  if (!left.up) return ", the pool is down";
  return left.stopped_for.empty() ? "" : fmt::format(" ({})", left.stopped_for);
}

void show_progress(const Left& left) {
  static const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  if (is_terminal)
    fmt::print(stderr, "\r\033[Kto be published: {}{}", text_of(left), reason_of(left));
}

void end_progress() {
  if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");
}

// `before`: when it began.
int finish(const FlushArguments& arguments, const Left& left, const Left& before,
           std::chrono::nanoseconds patience) {
  end_progress();
  if (arguments.json)
    print_out("{}\n", line_of({{"files", left.files},
                               {"removed", left.removed},
                               {"owners", left.owners},
                               {"more", left.more},
                               {"skipped", left.skipped},
                               {"obstructed", left.obstructed},
                               {"up", left.up},
                               {"stopped_for", left.stopped_for.empty()
                                                   ? nlohmann::json(nullptr)
                                                   : nlohmann::json(left.stopped_for)}}));
  if (left.skipped > before.skipped)
    complain(fmt::format(
        "flush: {}: {} skipped, for more waited than --pool-queue allows: not on the pool",
        visible(arguments.path), counted(left.skipped - before.skipped, "file")));
  if (left.obstructed > before.obstructed)
    complain(fmt::format(
        "flush: {}: {} not on the pool, which has something else there (see the log)",
        visible(arguments.path), counted(left.obstructed - before.obstructed, "file")));
  if (left.skipped > before.skipped || left.obstructed > before.obstructed) return kExitFailed;
  if (left.is_nothing()) {
    if (arguments.json) return kExitOk;
    std::string not_there;
    if (left.skipped > 0)
      not_there = fmt::format("{} skipped (--pool-queue)", counted(left.skipped, "file"));
    if (left.obstructed > 0)
      not_there += fmt::format("{}{} obstructed (see the log)", not_there.empty() ? "" : ", ",
                               counted(left.obstructed, "file"));
    if (not_there.empty())
      print_out("all that goes to the pool is there\n");
    else
      print_out("all that waited is there; since the mount began {}\n", not_there);
    return kExitOk;
  }
  complain(fmt::format(
      "flush: {}: {} not on the pool after {} without progress{}: it goes on in the "
      "background",
      visible(arguments.path), text_of(left), format_duration(patience), reason_of(left)));
  return kExitFailed;
}

int flush(const FlushArguments& arguments) {
  const auto patience = parse_duration(arguments.timeout);
  if (!patience) {
    complain(fmt::format("flush: --timeout {}: write 30s, 5min or 1h", arguments.timeout));
    return kExitUsage;
  }
  std::string problem;
  const auto place = find_mount_path(arguments.path, problem);
  if (!place) {
    complain(problem);
    return kExitFailed;
  }
  ControlRequest request;
  request.command = "flush";
  request.path = place->path;
  Left last;
  Left first;
  auto moved = Clock::now();
  auto shown = Clock::time_point{};
  while (true) {
    const auto answer = ask_daemon(place->mount, request, problem);
    if (!answer) {
      end_progress();
      complain(problem);
      return kExitFailed;
    }
    const Left left{.files = count_in(*answer, "files"),
                    .removed = count_in(*answer, "removed"),
                    .owners = count_in(*answer, "owners"),
                    .more = is_true(*answer, "more"),
                    .up = is_true(*answer, "up"),
                    .stopped_for = text_in(*answer, "stopped_for"),
                    .skipped = count_in(*answer, "skipped"),
                    .obstructed = count_in(*answer, "obstructed")};
    if (request.after.empty()) first = left;
    const auto now = Clock::now();
    if (!(left == last)) moved = now;
    last = left;
    if (left.is_nothing() || now - moved >= *patience)
      return finish(arguments, left, first, *patience);
    if (now - shown >= kShowEvery) {
      show_progress(left);
      shown = now;
    }
    request.after = text_in(*answer, "next");
    std::this_thread::sleep_for(kAskEvery);
  }
}

}  // namespace

void add_flush(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<FlushArguments>();
  CLI::App* command = app.add_subcommand(
      "flush", "Waits until what was closed is on the pool, and what was removed is not");
  command
      ->add_option(
          "PATH", arguments->path,
          "A file in a mount, or a directory with all below it. Default: where you are")
      ->type_name("");
  command
      ->add_option("--timeout", arguments->timeout,
                   "How long to wait without progress. Default: 60s")
      ->type_name("TIME");
  command->add_flag("--json", arguments->json, "One line of JSON instead of text");
  command->callback([arguments, &exit_code] { exit_code = flush(*arguments); });
}

}  // namespace kvcachefs
