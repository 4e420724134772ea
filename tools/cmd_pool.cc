// kvcachefs pool init|status|check|gc URI
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include "backend/base/clock.h"
#include "backend/base/log.h"
#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "backend/pool/open_session.h"
#include "backend/pool/pool_check.h"
#include "backend/pool/pool_members.h"
#include "backend/pool/pool_trash.h"
#include "fs/answer_probe.h"
#include "tools/answers.h"
#include "tools/commands.h"

namespace kvcachefs {
namespace {

// Of one operation.
constexpr std::chrono::milliseconds kEach = std::chrono::seconds{10};

Deadline soon() { return std::chrono::steady_clock::now() + kEach; }

constexpr const char* kNoPool = "no pool stands there";

const char* fix_for(int code) {
  switch (code) {
    case ENOENT:
    case ENOTDIR:
      return "name a directory that is there";
    case ETIMEDOUT:
    case ENOTCONN:
      return "see whether its server answers, and whether it is mounted";
    case EACCES:
    case EPERM:
    case EROFS:
      return "be one who may write there; of an NFS server see its export";
    case ENOSPC:
    case EDQUOT:
      return "free space there";
    default:
      return "see the server's log";
  }
}

int fail_with(const std::string& uri, const Error& error) {
  std::string_view what = error.what;
  if (what == kNoPool) {
    complain(fmt::format("pool: {}: {}: kvcachefs pool init makes one", visible(uri), what));
    return kExitFailed;
  }
  if (what.starts_with("pool: ")) what.remove_prefix(std::strlen("pool: "));
  // What these say is said already.
  const bool is_plain = error.code == ENOTCONN || error.code == ETIMEDOUT;
  complain(fmt::format("pool: {}: {}{}{}: {}", visible(uri), what, is_plain ? "" : ": ",
                       is_plain ? "" : std::strerror(error.code), fix_for(error.code)));
  return kExitFailed;
}

void show(const PoolMember& member, UnixNanos now) {
  const std::int64_t silent = std::max<std::int64_t>(now - member.beaten, 0) / kNanosPerSecond;
  const std::string state = member.node.lease.count() == 0 ? "ended"
                            : silent < kSilentAfter.count()
                                ? "alive"
                                : fmt::format("silent for {} s", silent);
  print_out("  node        {}: {}, lease {} s\n", format_uuid(member.node.node), state,
            member.node.lease.count() / 1000);
  if (member.node.size > 0)
    print_out("              evicts from {} on, has {} to look after\n",
              format_size(member.node.size), format_size(member.node.used));
}

Result<void> init(PoolSession& session) {
  // Nobody's: it makes no heartbeat.
  const PoolSuperblock pool = TRY(join_pool(session, random_uuid(), soon()));
  print_out("pool {}\n", format_uuid(pool.pool));
  return {};
}

// As read_pool(); a directory that is none says so.
Result<PoolSuperblock> find_pool(PoolSession& session) {
  Result<PoolSuperblock> pool = read_pool(session, soon());
  if (!pool.ok() && pool.error().code == ENOENT) return fail(ENOENT, kNoPool);
  return pool;
}

std::string trash_text(const PoolTrash& trash) {
  return fmt::format("{} {} ({})", trash.files, trash.files == 1 ? "file" : "files",
                     format_size(trash.bytes));
}

Result<void> show_status(PoolSession& session) {
  const PoolSuperblock pool = TRY(find_pool(session));
  const PoolSpace space = TRY(session.space(soon()));
  const UnixNanos now = TRY(pool_time(session, soon()));
  const TrashSwept trash = TRY(sweep_trash(session, TrashRule::all_stays(), 0, soon()));
  print_out("pool {}\n  space       {} free of {}\n  trash       {}\n", format_uuid(pool.pool),
            format_size(space.available), format_size(space.total), trash_text(trash.left));
  for (const PoolMember& member : TRY(list_members(session, soon()))) show(member, now);
  return {};
}

Result<void> check(PoolSession& session, bool read, bool& is_well) {
  static_cast<void>(TRY(find_pool(session)));
  const auto found = [&is_well](std::string_view path, std::string_view what) {
    is_well = false;
    complain(fmt::format("pool: {}: {}", path, what));
  };
  const PoolCheck seen = TRY(check_pool_files(session, read, found, kEach));
  print_out(
      "{} files ({}) in {} directories: {} with checksums{}, {} put there by others, {} that "
      "mounts do not show\n",
      seen.files, format_size(seen.bytes), seen.directories, seen.described,
      read || seen.damaged > 0 ? fmt::format(" ({} damaged)", seen.damaged) : "",
      seen.files - seen.described, seen.others);
  return {};
}

Result<void> collect(PoolSession& session) {
  static_cast<void>(TRY(find_pool(session)));
  const UnixNanos now = TRY(pool_time(session, soon()));
  const PoolGarbage gone = TRY(collect_pool_garbage(session, now, kEach));
  print_out(
      "removed: {} silent nodes, {} unfinished files, {} of the trash, {} checksums "
      "of files that are gone\n",
      gone.nodes, gone.temporaries, trash_text(gone.trash), gone.records);
  if (gone.trash_left.files > 0 && gone.living > 0)
    print_out("left in the trash: {}, which readers of {} {} may still have\n",
              trash_text(gone.trash_left), gone.living,
              gone.living == 1 ? "living mount" : "living mounts");
  if (gone.trash_left.files > 0 && gone.living == 0)
    print_out("left in the trash: {}, which the pool does not let go\n",
              trash_text(gone.trash_left));
  if (!gone.all_seen)
    fmt::print("not all of the pool could be looked at: its checksums were left as they are\n");
  return {};
}

struct Arguments {
  std::string uri;
  bool read = false;
};
using Act = std::function<Result<void>(PoolSession&, const Arguments&, bool& is_well)>;

// A filesystem that hangs holds whoever opens it, for ever: another process asks first.
Result<void> ask_directory(const PoolUri& uri) {
  if (uri.kind != PoolUri::Kind::kDirectory) return {};
  AnswerProbe probe = TRY(AnswerProbe::prepare());
  const Result<void> answered = probe.ask(uri.path, kAnswerPatience);
  if (!answered.ok() && answered.error().code == ETIMEDOUT)
    return fail(ETIMEDOUT, "its filesystem does not answer");
  // Whatever else is wrong says who opens it.
  return {};
}

int act_on(const Arguments& arguments, const Act& act) {
  // What matters is printed.
  [[maybe_unused]] const auto opened = log_open({.file = "", .level = LogLevel::kOff});
  const Result<PoolUri> uri = parse_pool_uri(arguments.uri);
  if (!uri.ok()) {
    complain(fmt::format("pool: '{}': {}: write dir:///PATH or nfs://HOST/EXPORT",
                         visible(arguments.uri), uri.error().what));
    return kExitUsage;
  }
  if (const Result<void> answers = ask_directory(*uri); !answers.ok())
    return fail_with(arguments.uri, answers.error());
  Result<std::unique_ptr<PoolSession>> session = open_pool_session(*uri, soon());
  if (!session.ok()) return fail_with(arguments.uri, session.error());
  bool is_well = true;
  const Result<void> done = act(**session, arguments, is_well);
  if (!done.ok()) return fail_with(arguments.uri, done.error());
  return is_well ? kExitOk : kExitFailed;
}

CLI::App* add(CLI::App& pool, const char* name, const char* help, int& exit_code,
              const std::shared_ptr<Arguments>& arguments, Act act) {
  CLI::App* command = pool.add_subcommand(name, help);
  command->add_option("URI", arguments->uri, "dir:///PATH or nfs://HOST/EXPORT[/PATH]")
      ->required();
  command->callback(
      [arguments, act = std::move(act), &exit_code] { exit_code = act_on(*arguments, act); });
  return command;
}

}  // namespace

void add_pool(CLI::App& app, int& exit_code) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* pool =
      app.add_subcommand("pool", "Makes, shows, checks and cleans up a pool that mounts share");
  pool->require_subcommand(1);
  add(*pool, "init", "Makes a pool of the directory; mounts do so by themselves", exit_code,
      arguments, [](PoolSession& session, const Arguments&, bool&) { return init(session); });
  add(*pool, "status", "Shows its space, and who uses it", exit_code, arguments,
      [](PoolSession& session, const Arguments&, bool&) { return show_status(session); });
  add(*pool, "check", "Counts its files, and compares them with their checksums", exit_code,
      arguments,
      [](PoolSession& session, const Arguments& given, bool& is_well) {
        return check(session, given.read, is_well);
      })
      ->add_flag("--read", arguments->read,
                 wrap_help("Reads all files; without it their records alone are looked at"));
  add(*pool, "gc",
      "Removes the trash that no mount can need any more, what is left of mounts that ended an "
      "hour ago or more, and checksums of files that are gone",
      exit_code, arguments,
      [](PoolSession& session, const Arguments&, bool&) { return collect(session); });
}

}  // namespace kvcachefs
