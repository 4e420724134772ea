#include "fs/control_steering.h"

#include <sys/stat.h>

#include <array>

#include "fs/control_json.h"
#include "fs/explain/evict.h"
#include "fs/explain/explain.h"
#include "fs/flush.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

std::string_view type_name(std::uint32_t mode) noexcept {
  if (S_ISREG(mode)) return "file";
  if (S_ISDIR(mode)) return "directory";
  return S_ISLNK(mode) ? "symlink" : "other";
}

std::string_view state_name(DataState state) noexcept {
  constexpr std::array<std::string_view, 6> kNames = {"none",   "unpublished", "published",
                                                      "sealed", "mutable",     "remote"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view by_name(PolicyBy by) noexcept {
  constexpr std::array<std::string_view, 5> kNames = {"mount", "layout", "application",
                                                      "directory", "file"};
  return kNames[static_cast<std::size_t>(by)];
}

json time_or_null(const std::optional<UnixNanos>& time) {
  return time && *time > 0 ? seconds_json(*time) : json();
}

json dropped_json(const std::optional<Dropped>& dropped) {
  if (!dropped) return {};
  return {{"reason", name_of(dropped->reason)},
          {"when", seconds_json(dropped->when)},
          {"size", dropped->size},
          {"inode", dropped->inode},
          {"last_use", time_or_null(dropped->last_use)}};
}

json chain_json(const std::optional<BlockPlace>& place) {
  if (!place) return {};
  return {{"parent", place->parent ? object_json(*place->parent) : json()},
          {"has_parent", place->has_parent},
          {"firm", place->is_firm},
          {"children", place->children},
          {"more_children", place->more_children},
          {"goes_after", or_null(place->goes_after)}};
}

void add_file(json& out, const Explanation& told) {
  out["device"] = told.device;
  out["object"] = block_text(told.record.object);
  out["size"] = told.size;
  out["allocated"] = told.allocated;
  out["written"] = time_or_null(told.written);
  out["state"] = state_name(told.record.state);
  out["missing"] = told.is_missing;
  out["open"] = told.opens;
  out["open_for_writing"] = told.writers;
  out["orphan"] = told.treatment.is_orphan();
  out["obstacle"] = told.obstacle == Obstacle::kNone ? json() : json(name_of(told.obstacle));
  out["expires"] = time_or_null(told.expires);
  out["block"] = told.block ? object_json(*told.block) : json();
  out["chain"] = chain_json(told.place);
}

Result<json> explain(Volume& volume, const ControlRequest& request) {
  const Explanation told = TRY(volume.explain(request.path));
  json out = {{"path", told.path}, {"found", told.found}};
  if (!told.found) {
    out["dropped"] = dropped_json(told.dropped);
    return out;
  }
  out["inode"] = told.inode;
  out["type"] = type_name(told.record.mode);
  out["links"] = told.record.nlink;
  out["created"] = seconds_json(told.record.btime);
  out["policy"] = told.policy ? json(name_of(*told.policy)) : json();
  if (told.is_beyond_share) out["beyond_share"] = true;
  out["policy_by"] = told.by ? json(by_name(*told.by)) : json();
  out["policy_from"] = or_null(told.policy_from);
  out["ttl"] = told.ttl ? json(told.ttl->count()) : json();
  out["ttl_from"] = or_null(told.ttl_from);
  if (S_ISREG(told.record.mode)) add_file(out, told);
  return out;
}

json page_json(const EvictPage& page) {
  json left = json::object();
  for (std::size_t at = 1; at < kObstacles; ++at)
    left[std::string(name_of(static_cast<Obstacle>(at)))] = page.left[at];
  json examples = json::array();
  for (const LeftFile& file : page.examples)
    examples.push_back({{"path", file.path}, {"why", name_of(file.why)}});
  json directories = json::array();
  for (const InodeNumber inode : page.directories) directories.push_back(block_text(inode));
  json out = {{"directory", page.directory != 0 ? json(block_text(page.directory)) : json()},
              {"files", page.files},
              {"bytes", page.bytes},
              {"left", std::move(left)},
              {"examples", std::move(examples)},
              {"directories", std::move(directories)}};
  if (page.next) out["next"] = block_text(*page.next);
  return out;
}

Result<json> evict(Volume& volume, const ControlRequest& request) {
  if (!request.block) return page_json(TRY(volume.evict(request.path)));
  std::uint64_t after = 0;
  if (!request.after.empty()) {
    const auto cookie = parse_block(request.after);
    if (!cookie) return fail(EINVAL, "\"after\" is none of our \"next\"");
    after = *cookie;
  }
  return page_json(TRY(volume.evict_in(*request.block, after)));
}

// Three numbers of 16 hex digits each.
std::string text_of(const FlushPoint& point) {
  return block_text(point.before) + block_text(point.opened) + block_text(point.sync);
}

std::optional<FlushPoint> parse_flush_point(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  if (text.size() != 3 * kDigits) return std::nullopt;
  const auto before = parse_block(text.substr(0, kDigits));
  const auto opened = parse_block(text.substr(kDigits, kDigits));
  const auto sync = parse_block(text.substr(2 * kDigits));
  if (!before || *before == 0 || !opened || !sync) return std::nullopt;
  return FlushPoint{.before = *before, .opened = *opened, .sync = *sync};
}

Result<json> flush(Volume& volume, const ControlRequest& request) {
  FlushPoint since;
  if (!request.after.empty()) {
    const std::optional<FlushPoint> point = parse_flush_point(request.after);
    if (!point) return fail(EINVAL, "\"after\" is none of our \"next\"");
    since = *point;
  }
  const Flush told = TRY(volume.flush(request.path, since));
  const Unflushed& left = told.unflushed;
  return json{{"unsealed", told.unsealed.files},
              {"closing", told.unsealed.closing},
              {"open", told.unsealed.open},
              {"more_unsealed", told.unsealed.more},
              {"syncing", told.is_syncing},
              {"poisoned", told.poisoned},
              {"pool", told.has_pool},
              {"publishes", told.publishes},
              {"files", left.files},
              {"directories", left.directories},
              {"removed", left.removed},
              {"owners", left.owners},
              {"more", left.more},
              {"skipped", left.skipped},
              {"obstructed", left.obstructed},
              {"up", volume.is_pool_up()},
              {"stopped_for", reason_json(left.stopped_for)},
              {"next", text_of(told.since)}};
}

}  // namespace

bool is_steering(const ControlRequest& request) noexcept {
  return request.command == "explain" || request.command == "evict" ||
         request.command == "flush";
}

Result<std::string> answer_steering(Volume& volume, const ControlRequest& request) {
  if (request.command == "explain") return line_of_json(TRY(explain(volume, request)));
  if (request.command == "flush") return line_of_json(TRY(flush(volume, request)));
  return line_of_json(TRY(evict(volume, request)));
}

}  // namespace kvcachefs
