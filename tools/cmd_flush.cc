// kvcachefs flush [--timeout TIME] [--json] [PATH]
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "fs/node/closing.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/mount_path.h"

namespace kvcachefs {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// Between two looks: short at first, for a flush of a few files ends at once.
constexpr std::chrono::milliseconds kFirstPause{2};
constexpr std::chrono::milliseconds kLongestPause{200};
constexpr std::chrono::seconds kShowEvery{2};

struct FlushArguments {
  std::string path = ".";
  std::string timeout = "60s";
  bool json = false;
};

struct Left {
  // Files that are not on the disk yet, and whether the names of what was closed are not either.
  std::uint64_t unsealed = 0;
  std::uint64_t closing = 0;
  bool more_unsealed = false;
  bool syncing = false;
  bool has_pool = false;
  bool publishes = false;
  std::uint64_t files = 0;
  std::uint64_t directories = 0;
  std::uint64_t removed = 0;
  std::uint64_t owners = 0;
  bool more = false;
  bool up = false;
  std::string stopped_for = {};  // empty: it goes on
  // Of the whole mount, since it began.
  std::uint64_t skipped = 0;
  std::uint64_t obstructed = 0;
  std::uint64_t poisoned = 0;
  [[nodiscard]] bool is_on_disk() const noexcept {
    return unsealed + closing == 0 && !more_unsealed && !syncing;
  }
  [[nodiscard]] bool is_nothing() const noexcept {
    return is_on_disk() && files + directories + removed + owners == 0 && !more;
  }
  bool operator==(const Left&) const = default;
};

std::string text_of(const Left& left) {
  std::string text;
  const auto add_text = [&text](const std::string& more) {
    text += (text.empty() ? "" : " and ") + more;
  };
  const auto add = [&add_text](std::uint64_t number, const char* noun) {
    if (number > 0) add_text(counted(number, noun));
  };
  if (!left.is_on_disk()) {
    const std::uint64_t files = left.unsealed + left.closing;
    if (files == 0 && !left.more_unsealed) return "what was closed last";
    return counted(files, "file") + (left.more_unsealed ? " or more" : "");
  }
  add(left.files, "file");
  if (left.directories == 1) add_text("1 directory");
  if (left.directories > 1) add_text(fmt::format("{} directories", left.directories));
  add(left.removed, "removed name");
  add(left.owners, "changed attribute");
  if (text.empty()) text = counted(0, "file");
  return text + (left.more ? " or more" : "");
}

// Empty: nothing is known.
std::string reason_of(const Left& left) {
  if (!left.is_on_disk()) return ": see the log";
  if (!left.up) return ", the pool is down";
  return left.stopped_for.empty() ? "" : fmt::format(" ({})", left.stopped_for);
}

void show_progress(const Left& left) {
  static const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  if (is_terminal)
    fmt::print(stderr, "\r\033[K{}: {}{}",
               left.is_on_disk() ? "to be published" : "to be brought to the disk",
               text_of(left), left.is_on_disk() ? reason_of(left) : "");
}

void end_progress() {
  if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");
}

std::string without_progress(const FlushArguments& arguments, const Left& left,
                             std::chrono::nanoseconds patience) {
  return fmt::format(
      "flush: {}: {} not on the {} after {} without progress{}: it goes on in the "
      "background",
      visible(arguments.path), text_of(left), left.is_on_disk() ? "pool" : "disk",
      format_duration(patience), reason_of(left));
}

// `open`: files that a program writes to.
int succeed(const Left& left, std::uint64_t open) {
  std::string not_there;
  if (left.skipped > 0)
    not_there = fmt::format("{} skipped (--pool-queue)", counted(left.skipped, "file"));
  if (left.obstructed > 0)
    not_there += fmt::format("{}{} obstructed (see the log)", not_there.empty() ? "" : ", ",
                             counted(left.obstructed, "file"));
  if (!left.has_pool) {
    print_out("all that was closed is on the disk\n");
  } else if (not_there.empty()) {
    print_out("all that goes to the pool is there\n");
  } else {
    print_out("all that waited is there; since the mount began {}\n", not_there);
  }
  if (open > 0)
    print_out("not waited for: {} that a program writes to\n", counted(open, "file"));
  return kExitOk;
}

// `before`: when it began. `open`: files that a program writes to, now or again.
int finish(const FlushArguments& arguments, const Left& left, const Left& before,
           std::uint64_t open, std::chrono::nanoseconds patience) {
  end_progress();
  if (arguments.json)
    print_out("{}\n", line_of({{"unsealed", left.unsealed},
                               {"more_unsealed", left.more_unsealed},
                               {"open", open},
                               {"pool", left.has_pool},
                               {"files", left.files},
                               {"directories", left.directories},
                               {"removed", left.removed},
                               {"owners", left.owners},
                               {"more", left.more},
                               {"skipped", left.skipped},
                               {"obstructed", left.obstructed},
                               {"up", left.up},
                               {"stopped_for", left.stopped_for.empty()
                                                   ? nlohmann::json(nullptr)
                                                   : nlohmann::json(left.stopped_for)}}));
  const bool is_refused = left.poisoned > before.poisoned;
  if (is_refused)
    complain(fmt::format("flush: {}: {} lost, as they were not written in full (see the log)",
                         visible(arguments.path),
                         counted(left.poisoned - before.poisoned, "file")));
  if (left.skipped > before.skipped)
    complain(fmt::format(
        "flush: {}: {} skipped, for more waited than --pool-queue allows: not on the pool",
        visible(arguments.path), counted(left.skipped - before.skipped, "file")));
  if (left.obstructed > before.obstructed)
    complain(fmt::format(
        "flush: {}: {} not on the pool, which has something else there (see the log)",
        visible(arguments.path), counted(left.obstructed - before.obstructed, "file")));
  if (is_refused || left.skipped > before.skipped || left.obstructed > before.obstructed)
    return kExitFailed;
  if (!left.is_nothing()) {
    complain(without_progress(arguments, left, patience));
    return kExitFailed;
  }
  if (left.has_pool && !left.publishes) {
    complain(
        fmt::format("flush: {}: the mount publishes nothing on its pool: all that was "
                    "closed is on the disk alone",
                    visible(arguments.path)));
    return kExitFailed;
  }
  return arguments.json ? kExitOk : succeed(left, open);
}

Left left_of(const json& answer) {
  return {.unsealed = count_in(answer, "unsealed"),
          .closing = count_in(answer, "closing"),
          .more_unsealed = is_true(answer, "more_unsealed"),
          .syncing = is_true(answer, "syncing"),
          .has_pool = is_true(answer, "pool"),
          .publishes = is_true(answer, "publishes"),
          .files = count_in(answer, "files"),
          .directories = count_in(answer, "directories"),
          .removed = count_in(answer, "removed"),
          .owners = count_in(answer, "owners"),
          .more = is_true(answer, "more"),
          .up = is_true(answer, "up"),
          .stopped_for = text_in(answer, "stopped_for"),
          .skipped = count_in(answer, "skipped"),
          .obstructed = count_in(answer, "obstructed"),
          .poisoned = count_in(answer, "poisoned")};
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
  const auto began = Clock::now();
  auto moved = began;
  auto shown = Clock::time_point{};
  std::chrono::milliseconds pause = kFirstPause;
  while (true) {
    const auto answer = ask_daemon(place->mount, request, problem);
    if (!answer) {
      end_progress();
      complain(problem);
      return kExitFailed;
    }
    Left left = left_of(*answer);
    std::uint64_t open = count_in(*answer, "open");
    if (request.after.empty()) first = left;
    const auto now = Clock::now();
    if (now - began >= kCloseTakes) open += std::exchange(left.closing, 0);
    if (!(left == last)) moved = now;
    last = left;
    if (left.is_nothing() || now - moved >= *patience)
      return finish(arguments, left, first, open, *patience);
    if (now - shown >= kShowEvery) {
      show_progress(left);
      shown = now;
    }
    request.after = text_in(*answer, "next");
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace

void add_flush(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<FlushArguments>();
  CLI::App* command = app.add_subcommand(
      "flush", "Brings what was closed to the disk and, with a pool, to the pool");
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
