#include "fs/status.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "backend/base/clock.h"
#include "backend/base/random.h"
#include "backend/base/units.h"
#include "backend/base/visible.h"
#include "backend/device_writes.h"
#include "fs/control_json.h"
#include "metadata/free_space.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

// A store that was refused is worth a word for so long.
constexpr double kRefusalTold = 60;  // seconds
// Below this share of free space a tier is worth a word.
constexpr double kLowSpace = 0.05;

// On a device that is not well nothing goes, and what is there is all it holds.
json budget_json(const DeviceRoom& room, bool is_well) {
  UsageSums usage = room.usage;
  if (!is_well) usage.kept += std::exchange(usage.evictable, 0) + std::exchange(usage.open, 0);
  return {{"bytes", room.room.budget},
          {"min_free", room.room.min_free},
          {"room", room.room.bytes},
          {"headroom", room.marks.headroom},
          {"used", usage.complete ? json(usage.all()) : json(nullptr)},
          {"evictable", usage.complete ? json(usage.evictable) : json(nullptr)},
          {"open", usage.complete ? json(usage.open) : json(nullptr)},
          {"kept", usage.complete ? json(usage.kept) : json(nullptr)},
          {"settling", usage.settling},
          {"live", usage.live},
          {"leaving", usage.leaving},
          {"database", room.database},
          {"written", usage.written}};
}

json tier_json(const TierStatus& tier) {
  return {{"kind", tier.kind},
          {"path", tier.path},
          {"uuid", tier.uuid},
          {"size_limit", tier.size_limit == 0 ? json(nullptr) : json(tier.size_limit)},
          {"size_limit_given", tier.size_limit_text},
          {"capacity", or_null(tier.capacity)},
          {"free", or_null(tier.free)},
          {"objects", or_null(tier.objects)},
          {"state", name_of(tier.state)},
          {"stalled_s", tier.stalled_s},
          {"silent_s", tier.silent_s},
          {"budget", budget_json(tier.room, tier.state == DeviceState::kWell)},
          {"device_written", or_null(tier.device_written)}};
}

json counts_json(const VolumeCounts& counts) {
  return {{"inodes_cached", counts.inodes_cached},
          {"open_files", counts.open_files},
          {"unsealed", counts.unsealed},
          {"sealed_total", counts.sealed_total},
          {"poisoned", counts.poisoned},
          {"damaged", counts.damaged},
          {"lost", counts.lost},
          {"leases", counts.leases},
          {"leased_bytes", counts.leased_bytes},
          {"leases_ended_early", counts.leases_ended_early},
          {"opens_refused", counts.opens_refused},
          {"slowed", counts.slowed},
          {"evicted_plain", counts.evicted_plain},
          {"orphan_bytes", counts.orphan_bytes},
          {"unreadable", counts.unreadable},
          {"changed_on_purpose", counts.changed_on_purpose},
          {"verified_opens", counts.verified_opens},
          {"verified_bytes", counts.verified_bytes},
          {"scrubbed_bytes", counts.scrubbed_bytes},
          {"scrub_pass_end",
           counts.scrub_pass_end_s == 0 ? json(nullptr) : json(counts.scrub_pass_end_s)},
          {"staged",
           {{"files", counts.staged.files},
            {"bytes", counts.staged.bytes},
            {"loaded", counts.staged.loaded},
            {"unused", counts.staged.unused},
            {"held_bytes", counts.staged.held_bytes}}},
          {"duplicates", counts.duplicates},
          {"duplicates_of_other_size", counts.duplicates_of_other_size},
          {"catalog_memory_bytes", counts.catalog_memory_bytes},
          {"blocks", counts.blocks},
          {"blocks_behind", counts.blocks_behind},
          {"order_bytes", counts.order_bytes},
          {"order_dropped", counts.order_dropped},
          {"invisible_calls", counts.invisible_calls}};
}

json hit_ratio(std::uint64_t hits, std::uint64_t misses) {
  if (hits + misses == 0) return nullptr;
  return static_cast<double>(hits) / static_cast<double>(hits + misses);
}

json uses_json(const std::vector<Use>& uses) {
  json out = json::array();
  for (const Use& use : uses) {
    out.push_back({{"runtime", use.runtime},
                   {"model", use.model.empty() ? json() : json(use.model)},
                   {"hits", use.hits},
                   {"misses", use.misses},
                   {"hit_ratio", hit_ratio(use.hits, use.misses)},
                   {"loads", use.loads},
                   {"loaded_bytes", use.loaded_bytes}});
  }
  return out;
}

json tenants_json(const std::vector<TenantReport>& tenants) {
  json out = json::array();
  for (const TenantReport& tenant : tenants) {
    out.push_back({{"path", tenant.path},
                   {"share", or_null(tenant.share)},
                   {"quota", or_null(tenant.quota)},
                   {"used", tenant.use.all()},
                   {"counted", tenant.is_counted},
                   {"evictable", tenant.use.evictable},
                   {"open", tenant.use.open},
                   {"kept", tenant.use.kept},
                   {"hits", tenant.hits},
                   {"misses", tenant.misses},
                   {"hit_ratio", hit_ratio(tenant.hits, tenant.misses)}});
  }
  return out;
}

json drops_json(const DropCounts& drops) {
  json out = json::object();
  for (std::size_t at = 0; at < drops.size(); ++at)
    out[std::string(name_of(static_cast<DropReason>(at)))] = {{"files", drops[at].files},
                                                              {"bytes", drops[at].bytes}};
  return out;
}

json pool_json(const PoolStatusReport& pool) {
  const auto refused = pool.service.refused;
  return {
      {"uri", pool.uri},
      {"up", pool.health.up},
      {"since_s",
       static_cast<double>(monotonic_now() - pool.health.since_ns) / kNanosPerSecond},
      {"joined", pool.service.joined},
      {"refused", refused.code == 0 ? json(nullptr) : json(refused.what)},
      {"last_error", pool.health.last.code == 0 ? json(nullptr) : json(pool.health.last.what)},
      {"not_joined_for", reason_json(pool.service.joining)},
      {"nodes", pool.service.living},
      {"stuck_threads", pool.health.stuck},
      {"waiting_calls", pool.health.waiting},
      {"failed_calls", pool.health.failed},
      {"untold", pool.service.untold},
      {"asked", pool.counts.asked},
      {"found", pool.counts.found},
      {"loaded", pool.counts.loaded},
      {"loaded_bytes", pool.counts.loaded_bytes},
      {"missed", pool.counts.missed},
      {"damaged", pool.counts.damaged},
      {"arriving", pool.counts.arriving},
      {"most_read_in_flight", pool.most_read},
      {"most_written_in_flight", pool.most_written},
      {"published", pool.counts.published},
      {"published_bytes", pool.counts.published_bytes},
      {"duplicates", pool.counts.duplicates},
      {"removed", pool.counts.removed},
      {"dropped", pool.counts.dropped},
      {"failed_publications", pool.counts.failed},
      {"size", pool.counts.size},
      {"used", pool.counts.used},
      {"trash_files", pool.counts.trash.files},
      {"trash_bytes", pool.counts.trash.bytes},
      {"evicted", pool.counts.evicted},
      {"evicted_bytes", pool.counts.evicted_bytes},
      {"stopped_for", reason_json(pool.counts.stopped_for)},
      {"to_publish", pool.counts.to_publish},
      {"to_remove", pool.counts.to_remove},
      {"owners_to_tell", pool.counts.owners_to_tell},
      {"queued", pool.counts.queued},
      {"queued_bytes", pool.counts.queued_bytes},
      {"skipped", pool.counts.skipped},
      {"obstructed", pool.counts.obstructed}};
}

// ---- text
// --------------------------------------------------------------------------------------

// Reads a status that may be of another version: what is absent, or of another type, is empty. Names of models and
// directories are given by whoever may write there.
std::string text_of(const json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? visible(value->get<std::string>())
                                                     : std::string{};
}
double number_of(const json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_number() ? value->get<double>() : 0;
}
// Of a size or count: negative and fractional ones are not ours.
std::uint64_t count_of(const json& object, const char* key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
}
const json& object_of(const json& object, const char* key) {
  static const json kEmpty = json::object();
  const auto value = object.find(key);
  return value != object.end() && value->is_structured() ? *value : kEmpty;
}

std::string seconds_text(double seconds) {
  const double bounded = std::clamp(seconds, 0.0, 1e9);
  return format_duration(std::chrono::nanoseconds{static_cast<std::int64_t>(bounded * 1e9)});
}

// 1234567 -> 1,234,567
std::string grouped(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string micros(double us) {
  if (us <= 0) return "-";
  if (us < 1000) return fmt::format("{:.3g} us", us);
  if (us < 1e6) return fmt::format("{:.3g} ms", us / 1e3);
  return fmt::format("{:.3g} s", us / 1e6);
}

// When the last pass of the scrub has ended; empty: none has.
std::string pass_text(std::uint64_t end_s) {
  if (end_s == 0) return {};
  const auto end = static_cast<std::time_t>(end_s);
  std::tm local{};
  char text[32];
  if (::localtime_r(&end, &local) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local) == 0)
    return {};
  return fmt::format(", which was through at {}", text);
}

void complain(std::vector<std::string>& complaints, std::uint64_t count,
              std::string_view what) {
  if (count > 0) {
    complaints.push_back(
        fmt::format("{} {} {}", grouped(count), count == 1 ? "file" : "files", what));
  }
}

bool is_told(double seconds) { return seconds * kNanosPerSecond >= StallWatch::kTold; }

void complain_of_stall(std::vector<std::string>& complaints, const json& of, const char* key,
                       const std::string& disk) {
  if (const double seconds = number_of(of, key); is_told(seconds))
    complaints.push_back(
        fmt::format("{} has taken no writes for {}: what changes something there waits", disk,
                    seconds_text(seconds)));
}

void complain_of_silence(std::vector<std::string>& complaints, const json& tier) {
  if (const double seconds = number_of(tier, "silent_s"); is_told(seconds))
    complaints.push_back(
        fmt::format("{} has given nothing for {}: what is not in memory waits, or is a miss",
                    text_of(tier, "path"), seconds_text(seconds)));
}

// The lines of the budgets say what stays.
void complain_of_refusals(std::vector<std::string>& complaints, const json& refused) {
  const auto ago = refused.find("ago_s");
  if (ago == refused.end() || !ago->is_number() || ago->get<double>() >= kRefusalTold) return;
  complaints.push_back(
      fmt::format("nothing could be evicted for a store {} ago, which got ENOSPC",
                  seconds_text(ago->get<double>())));
}

// The line of the pool says why.
void complain_of_pool(std::vector<std::string>& complaints, const json& pool) {
  if (pool.empty()) return;
  if (!text_of(pool, "refused").empty()) {
    complaints.push_back("the pool is not used");
  } else if (pool.value("up", json()) != true) {
    complaints.push_back("the pool is down");
  } else if (pool.value("joined", json()) != true && !text_of(pool, "not_joined_for").empty()) {
    complaints.push_back("the pool is not joined");
  }
  if (!text_of(pool, "stopped_for").empty())
    complaints.push_back("write-back to the pool has stopped");
}

// What a person should know first.
std::vector<std::string> complaints_of(const json& status) {
  std::vector<std::string> complaints;
  const json& counts = object_of(status, "counts");
  complain(complaints, count_of(counts, "lost"), "lost");
  complain(complaints, count_of(counts, "damaged"), "damaged (see quarantine/ on the device)");
  complain(complaints, count_of(counts, "poisoned"), "not written in full");
  for (const json& tier : object_of(status, "tiers")) {
    if (text_of(tier, "state") == "lost") {
      complaints.push_back(
          fmt::format("{} is lost: its files are misses", text_of(tier, "path")));
      continue;
    }
    if (text_of(tier, "state") == "read_only")
      complaints.push_back(fmt::format("{} is read-only", text_of(tier, "path")));
    complain_of_stall(complaints, tier, "stalled_s", text_of(tier, "path"));
    complain_of_silence(complaints, tier);
    const double capacity = number_of(tier, "capacity");
    const double left = number_of(tier, "free");
    if (capacity <= 0) {
      complaints.push_back(fmt::format("{} does not answer", text_of(tier, "path")));
    } else if (left < capacity * kLowSpace) {
      complaints.push_back(fmt::format("{} is nearly full ({} free)", text_of(tier, "path"),
                                       format_size(count_of(tier, "free"))));
    }
  }
  complain_of_stall(complaints, status, "state_stalled_s", "the disk of the state directory");
  if (status.contains("state_free") && status["state_free"].is_number_unsigned() &&
      count_of(status, "state_free") < FreeSpace::kFloor)
    complaints.push_back(
        fmt::format("the disk of the state directory is full ({} free): only removals work",
                    format_size(count_of(status, "state_free"))));
  complain_of_refusals(complaints, object_of(status, "refused_for_room"));
  complain_of_pool(complaints, object_of(status, "pool"));
  if (text_of(status, "phase") == "stopping") complaints.push_back("stopping");
  return complaints;
}

void add_head(std::string& out, const json& status) {
  const auto complaints = complaints_of(status);
  out += fmt::format(
      "{}: {}\n", text_of(status, "mountpoint"),
      complaints.empty() ? "healthy" : fmt::format("{}", fmt::join(complaints, "; ")));
  out += fmt::format("  kvcachefs {}, pid {}, up {}{}\n", text_of(status, "version"),
                     count_of(status, "pid"), seconds_text(number_of(status, "uptime_s")),
                     status.value("read_only", json()) == true ? ", read-only" : "");
  const json& data_path = object_of(status, "data_path");
  const json& transport = object_of(status, "transport");
  out += fmt::format("  data path   {}: {}\n", text_of(data_path, "mode"),
                     text_of(data_path, "why"));
  out += fmt::format("  transport   {}: {}\n", text_of(transport, "mode"),
                     text_of(transport, "why"));
  out += fmt::format("  state       {}\n", text_of(status, "state"));
  const json& recovery = object_of(status, "recovery");
  const std::string kind = text_of(recovery, "kind");
  const std::string_view told = kind == "new"       ? "a new volume"
                                : kind == "clean"   ? "after a clean stop"
                                : kind == "daemon"  ? "after the daemon had crashed"
                                : kind == "machine" ? "after the machine had crashed"
                                                    : std::string_view{kind};
  out += fmt::format("  last start  {}, {} dropped, took {}\n", told,
                     grouped(count_of(recovery, "dropped")),
                     seconds_text(number_of(recovery, "seconds")));
}

void add_budget(std::string& out, const json& budget) {
  if (count_of(budget, "bytes") == 0) return;
  out += fmt::format("  budget      {}", format_size(count_of(budget, "bytes")));
  if (budget.contains("used") && budget["used"].is_number_unsigned()) {
    out += fmt::format(": {} used, of these {} can be evicted and {} must stay",
                       format_size(count_of(budget, "used")),
                       format_size(count_of(budget, "evictable")),
                       format_size(count_of(budget, "kept")));
    if (const std::uint64_t open = count_of(budget, "open"); open > 0)
      out += fmt::format(", {} are open", format_size(open));
    const std::uint64_t coming = count_of(budget, "settling") + count_of(budget, "live");
    if (coming > 0) out += fmt::format(", {} are new", format_size(coming));
    if (const std::uint64_t database = count_of(budget, "database"); database > 0)
      out += fmt::format(", beside {} of the database", format_size(database));
  } else {
    out += ": what is used is being counted";
  }
  out += '\n';
}

void add_tiers(std::string& out, const json& status) {
  for (const json& tier : object_of(status, "tiers")) {
    const std::uint64_t limit = count_of(tier, "size_limit");
    const std::string given = text_of(tier, "size_limit_given");
    out += fmt::format("  {:<11} {}: {} free of {}", text_of(tier, "kind"),
                       text_of(tier, "path"), format_size(count_of(tier, "free")),
                       format_size(count_of(tier, "capacity")));
    if (limit > 0) out += fmt::format(", limit {} ({})", format_size(limit), given);
    if (tier.contains("objects") && tier["objects"].is_number_unsigned()) {
      out += fmt::format(", {} objects", grouped(count_of(tier, "objects")));
    }
    out += '\n';
    add_budget(out, object_of(tier, "budget"));
  }
}

void add_counts(std::string& out, const json& status) {
  const json& counts = object_of(status, "counts");
  const json& lookups = object_of(status, "lookups");
  const auto ratio = status.find("hit_ratio");
  out += fmt::format("  lookups     {} ({} hits, {} misses)\n",
                     ratio != status.end() && ratio->is_number()
                         ? fmt::format("{:.1f} % found", ratio->get<double>() * 100)
                         : "none yet",
                     grouped(count_of(lookups, "hit")), grouped(count_of(lookups, "miss")));
  out += fmt::format(
      "  files       {} open, {} waiting for their seal, {} sealed since the start\n",
      grouped(count_of(counts, "open_files")), grouped(count_of(counts, "unsealed")),
      grouped(count_of(counts, "sealed_total")));
  if (const std::uint64_t slowed = count_of(counts, "slowed"); slowed > 0)
    out += fmt::format("  slowed      {} closes of written files waited for room\n",
                       grouped(slowed));
  if (const std::uint64_t plain = count_of(counts, "evicted_plain"); plain > 0)
    out += fmt::format(
        "  plain       {} evicted files were no blocks: kvcachefs set DIR policy=keep keeps "
        "such\n",
        grouped(plain));
  if (const std::uint64_t orphans = count_of(counts, "orphan_bytes"); orphans > 0)
    out += fmt::format("  orphans     {} of processes that have ended: go first\n",
                       format_size(orphans));
  if (const std::uint64_t leased = count_of(counts, "leased_bytes"); leased > 0)
    out += fmt::format(
        "  leases      {} stay for now: looked up or opened {}\n", format_size(leased),
        status.contains("lease_s") ? "in the last " + seconds_text(number_of(status, "lease_s"))
                                   : "a moment ago");
  if (const std::uint64_t refused = count_of(counts, "opens_refused"); refused > 0)
    out += fmt::format("  too much    {} opens were misses: their users had too much open\n",
                       grouped(refused));
  if (const std::uint64_t early = count_of(counts, "leases_ended_early"); early > 0) {
    out += fmt::format("  leases      {} ended early: too much was looked up at once\n",
                       grouped(early));
  }
  if (const std::uint64_t duplicates = count_of(counts, "duplicates"); duplicates > 0) {
    out += fmt::format(
        "  prefix/     {} copies given up for one that was there, {} of another size\n",
        grouped(duplicates), grouped(count_of(counts, "duplicates_of_other_size")));
  }
  out += fmt::format("  memory      {} inodes, {} in the database\n",
                     grouped(count_of(counts, "inodes_cached")),
                     format_size(count_of(counts, "catalog_memory_bytes")));
}

// Of a daemon of another version there may be nothing to say.
void add_blocks(std::string& out, const json& status) {
  const json& counts = object_of(status, "counts");
  if (!counts.contains("blocks")) return;
  const bool behind = counts.value("blocks_behind", json()) == true;
  out += fmt::format("  blocks      {} of KV cache, {} of memory for their order{}\n",
                     grouped(count_of(counts, "blocks")),
                     format_size(count_of(counts, "order_bytes")),
                     behind ? "; names are being read" : "");
  if (const std::uint64_t dropped = count_of(counts, "order_dropped"); dropped > 0) {
    out += fmt::format("              {} calls not learned from: too many names at once\n",
                       grouped(dropped));
  }
  if (const std::uint64_t invisible = count_of(counts, "invisible_calls"); invisible > 0) {
    out += fmt::format(
        "              {} calls of processes that are not visible here: only when their "
        "blocks\n"
        "              were used is learned, not their order (containers: share the host's\n"
        "              pid namespace, hostPID)\n",
        grouped(invisible));
  }
}

std::string found_text(const json& use) {
  const auto ratio = use.find("hit_ratio");
  if (ratio == use.end() || !ratio->is_number()) return "not looked up";
  return fmt::format("{:.1f} % found", ratio->get<double>() * 100);
}

// The share of a model's blocks that lookups found.
void add_models(std::string& out, const json& status) {
  constexpr std::size_t kMostShown = 16;
  std::string_view title = "models";
  std::size_t shown = 0;
  const json& models = object_of(status, "models");
  for (const json& use : models) {
    if (!use.is_object() || shown++ == kMostShown) break;
    const std::string model = text_of(use, "model");
    out += fmt::format("  {:<11} {}{}: {}, {} loaded\n", title, text_of(use, "runtime"),
                       model.empty() || model == "other" ? "" : " " + model, found_text(use),
                       format_size(count_of(use, "loaded_bytes")));
    title = "";
  }
  if (models.size() > kMostShown)
    out += fmt::format("              {} more: see --json\n", models.size() - kMostShown);
}

void add_tenants(std::string& out, const json& status) {
  std::string_view title = "tenants";
  for (const json& tenant : object_of(status, "tenants")) {
    if (!tenant.is_object()) continue;
    out += fmt::format("  {:<11} /{}: {} used{}", title, text_of(tenant, "path"),
                       format_size(count_of(tenant, "used")),
                       tenant.value("counted", json(true)) == true ? "" : " (being counted)");
    if (const std::uint64_t share = count_of(tenant, "share"); share > 0)
      out += fmt::format(", share {}", format_size(share));
    if (const std::uint64_t quota = count_of(tenant, "quota"); quota > 0)
      out += fmt::format(", quota {}", format_size(quota));
    out += fmt::format(", {}\n", found_text(tenant));
    title = "";
  }
}

void add_pool(std::string& out, const json& status) {
  const auto at = status.find("pool");
  if (at == status.end() || !at->is_object()) return;
  const json& pool = *at;
  const bool is_up = pool.value("up", json()) == true;
  const std::string refused = text_of(pool, "refused");
  const std::string state =
      !refused.empty() ? fmt::format("not used: {}", refused)
      : !is_up ? fmt::format("down for {}: {}", seconds_text(number_of(pool, "since_s")),
                             text_of(pool, "last_error"))
      : pool.value("joined", json()) == true
          ? fmt::format("up, {} {}", grouped(count_of(pool, "nodes")),
                        count_of(pool, "nodes") == 1 ? "node" : "nodes")
      : text_of(pool, "not_joined_for").empty()
          ? "joining"
          : fmt::format("not joined yet: {}", text_of(pool, "not_joined_for"));
  out += fmt::format("  pool        {}: {}\n", text_of(pool, "uri"), state);
  out += fmt::format(
      "              {} files published ({}), {} loaded ({}), {} of {} lookups found\n",
      grouped(count_of(pool, "published")), format_size(count_of(pool, "published_bytes")),
      grouped(count_of(pool, "loaded")), format_size(count_of(pool, "loaded_bytes")),
      grouped(count_of(pool, "found")), grouped(count_of(pool, "asked")));
  if (const std::uint64_t damaged = count_of(pool, "damaged"); damaged > 0)
    out += fmt::format("              {} {} not what was published (see the log)\n",
                       grouped(damaged), damaged == 1 ? "load was" : "loads were");
  if (const std::uint64_t arriving = count_of(pool, "arriving"); arriving > 0)
    out += fmt::format("              {} large {} on {} way\n", grouped(arriving),
                       arriving == 1 ? "file" : "files", arriving == 1 ? "its" : "their");
  if (count_of(pool, "size") > 0)
    out += fmt::format("              holds {} of {}, {} files evicted there ({})\n",
                       format_size(count_of(pool, "used")), format_size(count_of(pool, "size")),
                       grouped(count_of(pool, "evicted")),
                       format_size(count_of(pool, "evicted_bytes")));
  if (const std::uint64_t files = count_of(pool, "trash_files"); files > 0)
    out +=
        fmt::format("              {} {} in its trash ({})\n", grouped(files),
                    files == 1 ? "file" : "files", format_size(count_of(pool, "trash_bytes")));
  const auto bounded = [](std::uint64_t count) {
    return grouped(count) + (count == PoolCounts::kMostCounted ? " or more" : "");
  };
  const std::uint64_t files = count_of(pool, "to_publish");
  const std::uint64_t names = count_of(pool, "to_remove");
  if (files + names > 0)
    out += fmt::format(
        "              still to do there: {} files and directories to publish, {} names to "
        "remove\n",
        bounded(files), bounded(names));
  if (const std::uint64_t owners = count_of(pool, "owners_to_tell"); owners > 0)
    out += fmt::format(
        "              still to tell there: owners, modes or what was told of {} {}\n",
        bounded(owners), owners == 1 ? "file" : "files");
  if (const std::string why = text_of(pool, "stopped_for"); !why.empty())
    out += fmt::format("              write-back has stopped: {}\n", why);
  if (const std::uint64_t skipped = count_of(pool, "skipped"); skipped > 0)
    out +=
        fmt::format("              {} {} not published: more waited than --pool-queue allows\n",
                    grouped(skipped), skipped == 1 ? "file" : "files");
  if (const std::uint64_t obstructed = count_of(pool, "obstructed"); obstructed > 0)
    out += fmt::format(
        "              {} {} not published since the mount began: something else was there "
        "(see the log)\n",
        grouped(obstructed), obstructed == 1 ? "file" : "files");
}

void add_drops(std::string& out, const json& status) {
  std::string reasons;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
  const json& dropped = object_of(status, "dropped");
  for (const char* reason : {"room", "quota", "expired", "asked"}) {
    const json& count = object_of(dropped, reason);
    if (count_of(count, "files") == 0) continue;
    files += count_of(count, "files");
    bytes += count_of(count, "bytes");
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ",
                           grouped(count_of(count, "files")), reason);
  }
  if (files > 0)
    out += fmt::format("  evicted     {} {}, {}: {}\n", grouped(files),
                       files == 1 ? "file" : "files", format_size(bytes), reasons);
}

// The same.
void add_integrity(std::string& out, const json& status) {
  const json& counts = object_of(status, "counts");
  if (!counts.contains("verified_opens")) return;
  out += fmt::format("  verified    {} opens ({}), {} by the scrub{}\n",
                     grouped(count_of(counts, "verified_opens")),
                     format_size(count_of(counts, "verified_bytes")),
                     format_size(count_of(counts, "scrubbed_bytes")),
                     pass_text(count_of(counts, "scrub_pass_end")));
  if (const std::uint64_t changed = count_of(counts, "changed_on_purpose"); changed > 0) {
    out += fmt::format("              {} sealed files changed by their users, sealed anew\n",
                       grouped(changed));
  }
}

void add_staged(std::string& out, const json& status) {
  const json& staged = object_of(object_of(status, "counts"), "staged");
  if (count_of(staged, "files") == 0) return;
  out +=
      fmt::format("  read ahead  {} blocks that were looked up ({}), {} loaded then, {} not\n",
                  grouped(count_of(staged, "files")), format_size(count_of(staged, "bytes")),
                  grouped(count_of(staged, "loaded")), grouped(count_of(staged, "unused")));
}

void add_operations(std::string& out, const json& status) {
  const json& operations = object_of(status, "operations");
  if (operations.empty() || !operations.is_object()) return;
  out += fmt::format("\n  {:<16}{:>12}{:>10}{:>14}{:>11}{:>11}\n", "operation", "per second",
                     "errors", "count", "p50", "p99");
  for (const auto& [name, operation] : operations.items()) {
    out += fmt::format(
        "  {:<16}{:>12.1f}{:>10}{:>14}{:>11}{:>11}\n", name, number_of(operation, "per_second"),
        grouped(count_of(operation, "errors")), grouped(count_of(operation, "count")),
        micros(number_of(operation, "p50_us")), micros(number_of(operation, "p99_us")));
  }
}

}  // namespace

TierStatus tier_status(Tier& tier, std::string size_limit_text) {
  const TierInfo& info = tier.info();
  TierStatus out{.kind = info.kind,
                 .path = info.path,
                 .uuid = format_uuid(info.uuid),
                 .size_limit = info.size_limit_bytes,
                 .size_limit_text = std::move(size_limit_text),
                 .capacity = std::nullopt,
                 .free = std::nullopt,
                 .objects = std::nullopt,
                 .room = {}};
  if (const auto space = tier.space()) {
    out.capacity = space->f_blocks * space->f_frsize;
    out.free = space->f_bavail * space->f_frsize;
  }
  out.device_written = written_below(info.path);
  return out;
}

std::string status_json(const StatusReport& report) {
  json tiers = json::array();
  for (const TierStatus& tier : report.tiers) tiers.push_back(tier_json(tier));
  json operations = json::object();
  for (const OperationStats& operation : report.operations) {
    operations[std::string(operation.name)] = {{"count", operation.count},
                                               {"errors", operation.errors},
                                               {"per_second", operation.per_second},
                                               {"p50_us", operation.p50_us},
                                               {"p99_us", operation.p99_us}};
  }
  const json status = {
      {"version", KVCACHEFS_VERSION},
      {"pid", report.pid},
      {"mountpoint", report.mountpoint},
      {"state", report.state},
      {"state_free", or_null(report.state_free)},
      {"state_stalled_s", report.state_stalled_s},
      {"uptime_s", report.uptime_s},
      {"lease_s", report.lease_s},
      {"read_only", report.read_only},
      {"phase", report.phase},
      {"data_path", {{"mode", report.data_path}, {"why", report.data_path_why}}},
      {"transport", {{"mode", report.transport}, {"why", report.transport_why}}},
      {"recovery",
       {{"kind", report.recovery.kind},
        {"dropped", report.recovery.dropped},
        {"seconds", report.recovery.seconds}}},
      {"tiers", tiers},
      {"counts", counts_json(report.counts)},
      {"refused_for_room",
       {{"calls", report.refused_calls}, {"ago_s", or_null(report.refused_ago_s)}}},
      {"hit_ratio", hit_ratio(report.counts.lookups.hits, report.counts.lookups.misses)},
      {"lookups",
       {{"hit", report.counts.lookups.hits}, {"miss", report.counts.lookups.misses}}},
      {"models", uses_json(report.uses)},
      {"tenants", tenants_json(report.tenants)},
      {"dropped", drops_json(report.drops)},
      {"pool", report.pool ? pool_json(*report.pool) : json(nullptr)},
      {"operations", operations}};
  // A path need not be UTF-8; JSON must be.
  return status.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<std::string> status_text(std::string_view text) {
  const json status = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object() || !status.contains("mountpoint")) {
    return fail(EBADMSG, "the answer is not a status");
  }
  std::string out;
  add_head(out, status);
  add_tiers(out, status);
  add_counts(out, status);
  add_integrity(out, status);
  add_staged(out, status);
  add_blocks(out, status);
  add_models(out, status);
  add_tenants(out, status);
  add_pool(out, status);
  add_drops(out, status);
  add_operations(out, status);
  return out;
}

}  // namespace kvcachefs
