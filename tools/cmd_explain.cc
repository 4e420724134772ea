// kvcachefs explain [--json] PATH
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <memory>

#include "backend/base/clock.h"
#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "tools/answers.h"
#include "tools/commands.h"
#include "tools/mount_path.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

struct ExplainArguments {
  std::string path;
  bool json = false;
};

// "now" or "3 min ago".
std::string since(const json& object, const char* key) {
  const double then = number_in(object, key);
  return then > 0 ? ago(then) + " ago" : "-";
}

std::string root_or(const std::string& path) {
  return path.empty() ? "the root" : visible(path);
}

std::string_view why_dropped(const std::string& reason) {
  if (reason == "room") return "its room was needed";
  if (reason == "quota") return "its directory had more than its quota";
  if (reason == "expired") return "it had expired";
  if (reason == "asked") return "kvcachefs evict asked for it";
  if (reason == "incomplete") return "it was incomplete after a crash";
  if (reason == "poisoned")
    return "it was not written in full: the disk refused its data or was full, or it was more "
           "than its quota";
  if (reason == "abandoned") return "its writer had ended without closing it";
  if (reason == "lost") return "its backing file was missing";
  if (reason == "damaged") return "its backing file was damaged";
  if (reason == "unreadable") return "its device could not read its backing file";
  if (reason == "removed") return "it was removed or replaced on the pool";
  return "of something that this version does not know";
}

void show_gone(const json& told) {
  const json& dropped = part_of(told, "dropped");
  if (dropped.empty()) {
    print_out(
        "  not there    never seen, or removed by a user; or dropped before the daemon "
        "started\n");
    return;
  }
  print_out("  dropped      {}: {}\n", since(dropped, "when"),
            why_dropped(text_in(dropped, "reason")));
  // Of what was never whole no size is known.
  const std::uint64_t size = count_in(dropped, "size");
  print_out("  it was       {}inode {}, last use {}\n",
            size > 0 ? format_size(size) + ", " : "", count_in(dropped, "inode"),
            since(dropped, "last_use"));
}

void show_policy(const json& told) {
  const std::string policy = text_in(told, "policy");
  const std::string by = text_in(told, "policy_by");
  const std::string from = text_in(told, "policy_from");
  std::string who = "told to " + root_or(from);
  if (by == "layout") who = "as its runtime's files can bear it";
  if (by == "application") who = "it was fsynced, or changed after publication";
  if (by == "mount") who = "what the mount was told";
  if (policy.empty()) {
    print_out("  policy       none was told: each file's layout decides, then the mount\n");
  } else {
    print_out("  policy       {} ({})\n", policy, who);
  }
  if (is_true(told, "beyond_share"))
    print_out(
        "               it is cache all the same: more would stay than its quota or others' "
        "shares "
        "allow\n");
  if (const std::uint64_t ttl = count_in(told, "ttl"); ttl > 0) {
    print_out("  ttl          {} after the last use (told to {})\n",
              format_duration(std::chrono::seconds{static_cast<std::int64_t>(ttl)}),
              root_or(text_in(told, "ttl_from")));
  }
}

void show_block(const json& told) {
  const json& block = part_of(told, "block");
  if (block.empty()) return;
  print_out("  block        {}\n", series_text(block));
  if (const std::string hash = text_in(block, "hash"); !hash.empty())
    print_out("  hash         {}\n", hash);
  const json& chain = part_of(told, "chain");
  const json& parent = part_of(chain, "parent");
  std::string before = "none is known";
  if (is_true(chain, "has_parent")) before = "one that is not here";
  if (!parent.empty()) before = visible(text_in(parent, "path"));
  if (is_true(chain, "has_parent") && !is_true(chain, "firm")) before += " (not certain)";
  print_out("  before it    {}\n", before);
  print_out("  after it     {}{}\n", is_true(chain, "more_children") ? "more than " : "",
            counted(count_in(chain, "children"), "block"));
  print_out("  last use     {}\n", since(block, "last_use"));
}

std::string when_it_goes(const json& told) {
  const std::string obstacle = text_in(told, "obstacle");
  if (obstacle == "open")
    return fmt::format("stays: open {}", counted(count_in(told, "open"), "time"));
  if (obstacle == "queued")
    return "stays until it is published: the pool has an older file of its name";
  if (obstacle == "unsealed") return "stays: it is being written, or not sealed yet";
  if (obstacle == "kept") return "stays: it is kept";
  if (obstacle == "pinned") return "stays: it is pinned";
  if (obstacle == "owned") return "stays: the process that wrote it lives";
  if (obstacle == "leased") return "stays for now: somebody has just found it (--lease)";
  const json& chain = part_of(told, "chain");
  if (is_true(told, "orphan")) return "goes first: the process that wrote it has ended";
  std::string out = "may go when room is needed";
  if (chain.is_object() && chain.contains("goes_after") && chain["goes_after"].is_number())
    out += fmt::format(", after {}", counted(count_in(chain, "goes_after"), "other block"));
  const double expires = number_in(told, "expires");
  const double now = static_cast<double>(file_clock_now()) / kNanosPerSecond;
  if (expires > now) {
    out += fmt::format(
        "; expires in {}",
        format_duration(std::chrono::seconds{static_cast<std::int64_t>(expires - now)}));
  } else if (expires > 0) {
    out += "; has expired";
  }
  return out;
}

void show_file(const json& told) {
  print_out("  file         {}, {} on the disk, inode {}, {}\n",
            format_size(count_in(told, "size")), format_size(count_in(told, "allocated")),
            count_in(told, "inode"), counted(count_in(told, "links"), "name"));
  print_out("  where        {}, object {}{}\n", visible(text_in(told, "device")),
            text_in(told, "object"),
            is_true(told, "missing") ? ": its backing file is missing" : "");
  print_out("  state        {}, written {}, created {}\n", text_in(told, "state"),
            since(told, "written"), since(told, "created"));
  show_block(told);
  show_policy(told);
  print_out("  eviction     {}\n", when_it_goes(told));
}

void show(const json& told) {
  print_out("{}\n", root_or(text_in(told, "path")));
  if (!is_true(told, "found")) return show_gone(told);
  if (text_in(told, "type") == "file") return show_file(told);
  print_out("  {:<12} inode {}, created {}\n", text_in(told, "type"), count_in(told, "inode"),
            since(told, "created"));
  if (text_in(told, "type") == "directory") show_policy(told);
}

int explain(const ExplainArguments& arguments) {
  std::string problem;
  const auto place = find_mount_path(arguments.path, problem);
  if (!place) {
    complain(problem);
    return kExitFailed;
  }
  ControlRequest request;
  request.command = "explain";
  request.path = place->path;
  const auto told = ask_daemon(place->mount, request, problem);
  if (!told) {
    complain(problem);
    return kExitFailed;
  }
  if (arguments.json) {
    print_out("{}\n", line_of(*told));
  } else {
    show(*told);
  }
  return kExitOk;
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* command = app.add_subcommand(
      "explain", "Says where a file is, why it stays or when it may go, or why it is gone");
  command->add_option("PATH", arguments->path, "A name in a mount, also of a file that is gone")
      ->required()
      ->type_name("");
  command->add_flag("--json", arguments->json, "One line of JSON instead of text");
  command->callback([arguments, &exit_code] { exit_code = explain(*arguments); });
}

}  // namespace kvcachefs
