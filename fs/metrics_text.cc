#include "fs/metrics_text.h"

#include <fmt/format.h>

#include <iterator>
#include <set>
#include <utility>

namespace kvcachefs {
namespace {

using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

class Text {
 public:
  // Before the samples of a metric, once.
  void about(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(out_), "# HELP kvcachefs_{} {}\n# TYPE kvcachefs_{} {}\n",
                   name, help, name, type);
  }
  template <class Number>
  void sample(Number value, Labels labels = {}, std::string_view suffix = {}) {
    fmt::format_to(std::back_inserter(out_), "kvcachefs_{}{}", name_, suffix);
    char before = '{';
    for (const auto& [label, text] : labels) {
      fmt::format_to(std::back_inserter(out_), "{}{}=\"{}\"", before, label, label_text(text));
      before = ',';
    }
    fmt::format_to(std::back_inserter(out_), "{} {}\n", labels.size() > 0 ? "}" : "", value);
  }
  // A metric of one sample.
  template <class Number>
  void one(std::string_view name, std::string_view type, std::string_view help, Number value) {
    about(name, type, help);
    sample(value);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
  std::string_view name_;
};

void add_mount(Text& text, const StatusReport& report) {
  text.about("info", "gauge", "What serves the mount; always 1.");
  text.sample(1, {{"version", KVCACHEFS_VERSION},
                  {"mountpoint", report.mountpoint},
                  {"data_path", report.data_path},
                  {"transport", report.transport}});
  text.one("uptime_seconds", "gauge", "Time since the daemon was started.", report.uptime_s);
  text.one("read_only", "gauge", "1 when mounted read-only.", report.read_only ? 1 : 0);
  text.one("state_stalled_seconds", "gauge",
           "For how long the disk of the state directory has taken no writes, without an "
           "error; 0 while it does.",
           report.state_stalled_s);
  text.one("recovery_dropped_files", "gauge",
           "Files that the last start dropped as incomplete.", report.recovery.dropped);
}

// One metric of each device that has it.
template <class Value>
void add_tier_metric(Text& text, const StatusReport& report, std::string_view name,
                     std::string_view type, std::string_view help, const Value& value) {
  text.about(name, type, help);
  for (const TierStatus& tier : report.tiers) {
    if (const std::optional<std::uint64_t> number = value(tier))
      text.sample(*number, {{"kind", tier.kind}, {"device", tier.path}});
  }
}

void add_tiers(Text& text, const StatusReport& report) {
  add_tier_metric(text, report, "device_well", "gauge",
                  "1 while a device gives and takes bytes, 0 when it is lost or read-only.",
                  [](const TierStatus& tier) {
                    return std::optional<std::uint64_t>(tier.state == DeviceState::kWell);
                  });
  add_tier_metric(text, report, "device_stalled_seconds", "gauge",
                  "For how long it has taken no writes, without an error; 0 while it does.",
                  [](const TierStatus& tier) {
                    return std::optional(static_cast<std::uint64_t>(tier.stalled_s));
                  });
  add_tier_metric(text, report, "device_silent_seconds", "gauge",
                  "For how long it has given nothing, without an error; 0 while it does.",
                  [](const TierStatus& tier) {
                    return std::optional(static_cast<std::uint64_t>(tier.silent_s));
                  });
  add_tier_metric(text, report, "device_capacity_bytes", "gauge",
                  "Size of the filesystem below.",
                  [](const TierStatus& tier) { return tier.capacity; });
  add_tier_metric(text, report, "device_free_bytes", "gauge",
                  "Free space of the filesystem below.",
                  [](const TierStatus& tier) { return tier.free; });
  add_tier_metric(text, report, "device_limit_bytes", "gauge",
                  "How much of a device may be used; absent without a limit.",
                  [](const TierStatus& tier) {
                    return tier.size_limit > 0 ? std::optional(tier.size_limit) : std::nullopt;
                  });
  add_tier_metric(text, report, "device_objects", "gauge",
                  "Files stored; absent while they are counted.",
                  [](const TierStatus& tier) { return tier.objects; });
  add_tier_metric(text, report, "device_database_bytes", "gauge",
                  "What the metadata's database has there, of the size given.",
                  [](const TierStatus& tier) { return std::optional(tier.room.database); });
  add_tier_metric(text, report, "device_budget_bytes", "gauge",
                  "What files may have there, whether a size was given or not.",
                  [](const TierStatus& tier) { return std::optional(tier.room.room.budget); });
  const auto counted = [](const TierStatus& tier, std::uint64_t bytes) {
    return tier.room.usage.complete ? std::optional(bytes) : std::nullopt;
  };
  add_tier_metric(text, report, "device_used_bytes", "gauge",
                  "What files have of it; absent while it is counted.",
                  [&](const TierStatus& tier) { return counted(tier, tier.room.usage.all()); });
  add_tier_metric(
      text, report, "device_evictable_bytes", "gauge", "Of these, what can be evicted.",
      [&](const TierStatus& tier) { return counted(tier, tier.room.usage.evictable); });
  add_tier_metric(text, report, "device_open_bytes", "gauge",
                  "Of these, what could be evicted if nobody had it open.",
                  [&](const TierStatus& tier) { return counted(tier, tier.room.usage.open); });
  add_tier_metric(text, report, "device_kept_bytes", "gauge", "Of these, what must stay.",
                  [&](const TierStatus& tier) { return counted(tier, tier.room.usage.kept); });
  add_tier_metric(text, report, "device_written_bytes_total", "counter",
                  "Written to the block device below, by anybody, since it is there.",
                  [](const TierStatus& tier) { return tier.device_written; });
}

void add_counts(Text& text, const VolumeCounts& counts) {
  text.about("lookups_total", "counter", "Blocks and other files that were asked for.");
  text.sample(counts.lookups.hits, {{"result", "hit"}});
  text.sample(counts.lookups.misses, {{"result", "miss"}});
  text.one("open_files", "gauge", "Open descriptions of files.", counts.open_files);
  text.one("unsealed_files", "gauge", "Files written and not sealed yet.", counts.unsealed);
  text.one("sealed_files_total", "counter", "Files sealed.", counts.sealed_total);
  text.one("orphan_bytes", "gauge", "Of processes that have ended: evicted before all others.",
           counts.orphan_bytes);
  text.one("leases", "gauge", "Files that stay for now: looked up or opened a moment ago.",
           counts.leases);
  text.one("leased_bytes", "gauge", "Bytes of these files.", counts.leased_bytes);
  text.one("leases_ended_early_total", "counter",
           "Leases that ended because there were too many.", counts.leases_ended_early);
  text.one("opens_refused_total", "counter",
           "Opens that were misses because their users had too much open.",
           counts.opens_refused);
  text.one("evicted_plain_total", "counter",
           "Evicted files that were no blocks of a known layout.", counts.evicted_plain);
  text.one("slowed_closes_total", "counter", "Closes of written files that waited for room.",
           counts.slowed);
  text.one("verified_bytes_total", "counter", "Compared with their checksums at an open.",
           counts.verified_bytes);
  text.one("scrubbed_bytes_total", "counter", "Compared with their checksums by the scrub.",
           counts.scrubbed_bytes);
  text.one("staged_files_total", "counter", "Files read ahead for those who looked them up.",
           counts.staged.files);
  text.one("staged_bytes_total", "counter", "Bytes of these files.", counts.staged.bytes);
  text.one("staged_loaded_total", "counter", "Of these files, those that were loaded then.",
           counts.staged.loaded);
  text.one("staged_unused_total", "counter", "Those that were not, and left memory again.",
           counts.staged.unused);
  text.one("duplicates_total", "counter",
           "Copies given up for a prefix hash that was there already.", counts.duplicates);
  text.one("duplicates_of_other_size_total", "counter", "Of these, those of another size.",
           counts.duplicates_of_other_size);
  text.one("inodes_cached", "gauge", "Inodes in memory.", counts.inodes_cached);
  text.one("catalog_memory_bytes", "gauge", "Memory of the database.",
           counts.catalog_memory_bytes);
  text.one("blocks", "gauge", "Files that hold blocks of KV cache.", counts.blocks);
  text.one("order_memory_bytes", "gauge", "Memory of the order of blocks.", counts.order_bytes);
  text.one("order_dropped_total", "counter",
           "Calls not learned from, because of too many names at once.", counts.order_dropped);
  text.one("invisible_calls_total", "counter",
           "Calls of processes that the daemon's pid namespace does not show.",
           counts.invisible_calls);
}

void add_drops(Text& text, const DropCounts& drops) {
  text.about(
      "dropped_files_total", "counter",
      "Files dropped without a user's call: room, quota, expired and asked are evictions.");
  for (std::size_t at = 0; at < drops.size(); ++at)
    text.sample(drops[at].files, {{"reason", name_of(static_cast<DropReason>(at))}});
  text.about("dropped_bytes_total", "counter", "Bytes of these files.");
  for (std::size_t at = 0; at < drops.size(); ++at)
    text.sample(drops[at].bytes, {{"reason", name_of(static_cast<DropReason>(at))}});
}

void add_uses(Text& text, const std::vector<Use>& all) {
  // Two names can look alike as labels; the same series twice would spoil the whole text.
  std::vector<const Use*> uses;
  std::set<std::pair<std::string_view, std::string>> seen;
  for (const Use& use : all)
    if (seen.emplace(use.runtime, label_text(use.model)).second) uses.push_back(&use);
  text.about("block_lookups_total", "counter", "Lookups of blocks of KV cache.");
  for (const Use* use : uses) {
    text.sample(use->hits,
                {{"runtime", use->runtime}, {"model", use->model}, {"result", "hit"}});
    text.sample(use->misses,
                {{"runtime", use->runtime}, {"model", use->model}, {"result", "miss"}});
  }
  text.about("block_loads_total", "counter", "Opens of blocks for reading.");
  for (const Use* use : uses)
    text.sample(use->loads, {{"runtime", use->runtime}, {"model", use->model}});
  text.about("block_loaded_bytes_total", "counter", "Sizes of the blocks opened for reading.");
  for (const Use* use : uses)
    text.sample(use->loaded_bytes, {{"runtime", use->runtime}, {"model", use->model}});
}

void add_tenants(Text& text, const std::vector<TenantReport>& all) {
  // As with models: names that look alike as labels are told once.
  std::vector<const TenantReport*> tenants;
  std::set<std::string> seen;
  for (const TenantReport& tenant : all)
    if (seen.insert(label_text(tenant.path)).second) tenants.push_back(&tenant);
  text.about("tenant_bytes", "gauge", "What a directory with a share or a quota has.");
  for (const TenantReport* tenant : tenants)
    text.sample(tenant->use.all(), {{"tenant", tenant->path}});
  text.about("tenant_share_bytes", "gauge", "Its share of the budget; absent without one.");
  for (const TenantReport* tenant : tenants)
    if (tenant->share) text.sample(*tenant->share, {{"tenant", tenant->path}});
  text.about("tenant_quota_bytes", "gauge", "Its quota; absent without one.");
  for (const TenantReport* tenant : tenants)
    if (tenant->quota) text.sample(*tenant->quota, {{"tenant", tenant->path}});
  text.about("tenant_lookups_total", "counter", "Lookups of its blocks of KV cache.");
  for (const TenantReport* tenant : tenants) {
    text.sample(tenant->hits, {{"tenant", tenant->path}, {"result", "hit"}});
    text.sample(tenant->misses, {{"tenant", tenant->path}, {"result", "miss"}});
  }
}

void add_operations(Text& text, const std::vector<OperationStats>& operations) {
  text.about("operation_duration_seconds", "histogram",
             "How long the daemon took to answer the kernel.");
  for (const OperationStats& operation : operations) {
    for (std::size_t bound = 0; bound < kLatencyBounds; ++bound) {
      const std::string below = fmt::format("{}", latency_bound_s(bound));
      text.sample(operation.below[bound], {{"operation", operation.name}, {"le", below}},
                  "_bucket");
    }
    text.sample(operation.count, {{"operation", operation.name}, {"le", "+Inf"}}, "_bucket");
    text.sample(operation.seconds, {{"operation", operation.name}}, "_sum");
    text.sample(operation.count, {{"operation", operation.name}}, "_count");
  }
  text.about("operation_errors_total", "counter",
             "Answers that say that something is wrong: EIO, ENOSPC, EDQUOT, ETIMEDOUT and the "
             "like. Not ENOENT, EEXIST, EACCES and what else a request deserves.");
  for (const OperationStats& operation : operations)
    text.sample(operation.errors, {{"operation", operation.name}});
}

// Nothing of a mount without one.
void add_pool(Text& text, const PoolStatusReport& pool) {
  const PoolCounts& counts = pool.counts;
  text.one("pool_up", "gauge", "1 when the pool answers.", pool.health.up ? 1 : 0);
  text.one("pool_joined", "gauge", "1 when the mount is a member of the pool.",
           pool.service.joined ? 1 : 0);
  text.one("pool_nodes", "gauge", "Mounts that are known to use the pool, this one included.",
           pool.service.living);
  text.one("pool_stuck_threads", "gauge", "Threads that the pool does not let go.",
           pool.health.stuck);
  text.one("pool_failed_calls_total", "counter",
           "Calls that did not reach the pool in time, or were not tried.", pool.health.failed);
  text.one("pool_lookups_total", "counter", "Lookups that asked the pool.", counts.asked);
  text.one("pool_hits_total", "counter", "Lookups that found the name there.", counts.found);
  text.one("pool_loaded_files_total", "counter", "Files that came from the pool.",
           counts.loaded);
  text.one("pool_loaded_bytes_total", "counter", "Bytes of these.", counts.loaded_bytes);
  text.one("pool_missed_opens_total", "counter",
           "Opens that the pool did not answer in time, or not as it was published.",
           counts.missed);
  text.one("pool_damaged_loads_total", "counter",
           "Loads of files that were not what was published.", counts.damaged);
  text.one("pool_arriving_files", "gauge", "Large files that are read while they come.",
           counts.arriving);
  text.one("pool_read_limit_bytes", "gauge",
           "What may be under way from a pool on NFS at a time, as its link carries.",
           pool.most_read);
  text.one("pool_write_limit_bytes", "gauge", "The same of what is under way to it.",
           pool.most_written);
  text.one("pool_published_files_total", "counter", "Files published on the pool.",
           counts.published);
  text.one("pool_published_bytes_total", "counter", "Bytes of these.", counts.published_bytes);
  text.one("pool_duplicates_total", "counter", "Files that another mount had published first.",
           counts.duplicates);
  text.one("pool_removed_files_total", "counter", "Files taken away on the pool.",
           counts.removed);
  text.one("pool_trash_files", "gauge",
           "Evicted and removed files that readers on other servers may still have open.",
           counts.trash.files);
  text.one("pool_trash_bytes", "gauge", "Bytes of these.", counts.trash.bytes);
  if (counts.size > 0) {
    text.one("pool_size_bytes", "gauge", "What the pool may hold.", counts.size);
    text.one("pool_used_bytes", "gauge",
             "What it holds, its trash included, as far as this mount knows.", counts.used);
    text.one("pool_evicted_files_total", "counter", "Files this mount evicted from the pool.",
             counts.evicted);
    text.one("pool_evicted_bytes_total", "counter", "Bytes of these.", counts.evicted_bytes);
  }
  text.one("pool_dropped_files_total", "counter",
           "Files taken away here because others removed or replaced them.", counts.dropped);
  text.one("pool_publication_errors_total", "counter",
           "Publications and removals that have to be tried again.", counts.failed);
  text.one("pool_to_publish_files", "gauge",
           "Files and directories that wait for publication; 1000: or more.",
           counts.to_publish);
  text.one("pool_queued_bytes", "gauge", "Bytes of the files that wait for publication.",
           counts.queued_bytes);
  text.one("pool_skipped_files_total", "counter",
           "Files that are not published: more waited than may.", counts.skipped);
  text.one("pool_obstructed_files_total", "counter",
           "Files that are not published: the pool has something else there.",
           counts.obstructed);
  text.one("pool_to_remove_names", "gauge",
           "Names that are still to be taken away on the pool; 1000: or more.",
           counts.to_remove);
  text.one("pool_owners_to_tell", "gauge",
           "Files and directories whose owner, mode or told words are still to go to the pool; "
           "1000: or more.",
           counts.owners_to_tell);
}

}  // namespace

std::string label_text(std::string_view value) {
  std::string out;
  for (const char byte : value) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x20 || code >= 0x7f) {
      fmt::format_to(std::back_inserter(out), "%{:02X}", code);
    } else {
      if (byte == '"' || byte == '\\') out += '\\';
      out += byte;
    }
  }
  return out;
}

std::string metrics_text(const StatusReport& report) {
  Text text;
  add_mount(text, report);
  add_tiers(text, report);
  add_counts(text, report.counts);
  text.one("refused_for_room_total", "counter",
           "Calls that got ENOSPC: nothing could be evicted for what they wanted to store.",
           report.refused_calls);
  add_uses(text, report.uses);
  add_tenants(text, report.tenants);
  add_drops(text, report.drops);
  if (report.pool) add_pool(text, *report.pool);
  add_operations(text, report.operations);
  return text.take();
}

}  // namespace kvcachefs
