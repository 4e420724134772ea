#include "fs/status.h"

#include <nlohmann/json.hpp>

#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

using nlohmann::json;

StatusReport sample() {
  StatusReport report;
  report.pid = 4711;
  report.mountpoint = "/mnt/kv";
  report.state = "/nvme/state";
  report.uptime_s = 90;
  report.lease_s = 60;
  report.phase = "serving";
  report.data_path = "passthrough";
  report.data_path_why = "the kernel reads the files";
  report.transport = "io_uring";
  report.transport_why = "2 queues";
  report.recovery = {.kind = "clean", .dropped = 0, .seconds = 0.01};
  report.tiers = {{.kind = "nvme",
                   .path = "/nvme",
                   .uuid = "u",
                   .size_limit = 800'000'000,
                   .size_limit_text = "80%",
                   .capacity = 1'000'000'000,
                   .free = 900'000'000,
                   .objects = std::nullopt}};
  report.counts.lookups.hits = 3;
  report.counts.lookups.misses = 1;
  report.operations = {{.name = "lookup",
                        .count = 1234567,
                        .errors = 2,
                        .per_second = 10.5,
                        .p50_us = 8.5,
                        .p99_us = 1200}};
  return report;
}

TEST(Status, TextSaysHowLongLeasesLast) {
  StatusReport report = sample();
  report.counts.leased_bytes = 4096;
  const auto text = status_text(status_json(report));
  ASSERT_TRUE(text);
  EXPECT_NE(std::string::npos, text->find("looked up or opened in the last 1 min 0 s"))
      << *text;
  // A daemon of another version may not say it.
  json older = json::parse(status_json(report));
  older.erase("lease_s");
  const auto without = status_text(older.dump());
  ASSERT_TRUE(without);
  EXPECT_NE(std::string::npos, without->find("looked up or opened a moment ago")) << *without;
}

TEST(Status, JsonHasTheKeysOfItsContract) {
  const json status = json::parse(status_json(sample()));
  for (const char* key :
       {"version", "pid", "mountpoint", "state", "uptime_s", "data_path", "transport",
        "recovery", "tiers", "counts", "hit_ratio", "lookups", "operations"}) {
    EXPECT_TRUE(status.contains(key)) << key;
  }
  EXPECT_EQ("passthrough", status["data_path"]["mode"]);
  EXPECT_EQ(0.75, status["hit_ratio"]);
  EXPECT_EQ(60, status["lease_s"]);
  EXPECT_EQ(3, status["lookups"]["hit"]);
  EXPECT_EQ(1'000'000'000, status["tiers"][0]["capacity"]);
  EXPECT_EQ(1234567, status["operations"]["lookup"]["count"]);
  for (const char* key : {"inodes_cached", "open_files", "unsealed", "sealed_total", "poisoned",
                          "damaged", "lost", "duplicates", "duplicates_of_other_size"}) {
    EXPECT_TRUE(status["counts"].contains(key)) << key;
  }
}

TEST(Status, SaysHowThePoolIs) {
  StatusReport report;
  report.mountpoint = "/mnt";
  EXPECT_EQ(std::string::npos, status_text(status_json(report))->find("pool"));
  report.pool =
      PoolStatusReport{.uri = "nfs://filer/kv", .service = {}, .health = {}, .counts = {}};
  report.pool->health.last = fail(ETIMEDOUT, "pool: no answer");
  const auto says = [&](const char* what) {
    const Result<std::string> text = status_text(status_json(report));
    ASSERT_TRUE(text.ok());
    EXPECT_NE(std::string::npos, text->find(what)) << *text;
  };
  says("/mnt: the pool is down\n");
  says("nfs://filer/kv: down for ");
  says("pool: no answer");
  report.pool->health.up = true;
  says("/mnt: healthy\n");
  says("nfs://filer/kv: joining");
  report.pool->service.joining = fail(EACCES, "pool: MKDIR");
  says("nfs://filer/kv: not joined yet: pool: MKDIR: Permission denied");
  report.pool->service.joined = true;
  report.pool->service.living = 3;
  report.pool->counts.to_publish = PoolCounts::kMostCounted;
  says("nfs://filer/kv: up, 3 nodes");
  says("1,000 or more files and directories to publish, 0 names to remove");
  says("/mnt: healthy\n");
  report.pool->counts.owners_to_tell = 2;
  report.pool->counts.stopped_for = fail(EROFS, "pool: CREATE");
  says("still to tell there: owners, modes or what was told of 2 files\n");
  says("/mnt: write-back to the pool has stopped\n");
  report.pool->service.refused = fail(EPROTONOSUPPORT, "pool: of another format");
  says("/mnt: the pool is not used; write-back to the pool has stopped\n");
  says("not used: pool: of another format");
}

TEST(Status, JsonIsOneLineWhateverThePaths) {
  StatusReport report = sample();
  report.mountpoint = "/mnt/a\nb\xff";
  report.counts = {};
  const std::string text = status_json(report);
  EXPECT_EQ(std::string::npos, text.find('\n'));
  EXPECT_TRUE(json::parse(text)["hit_ratio"].is_null());
}

TEST(Status, TextBeginsWithTheHealth) {
  const auto text = status_text(status_json(sample()));
  ASSERT_OK(text);
  EXPECT_TRUE(text->starts_with("/mnt/kv: healthy\n")) << *text;
  for (const char* part : {"passthrough: the kernel reads the files", "io_uring: 2 queues",
                           "limit 762.9 MiB (80%)", "75.0 % found", "1,234,567", "1.2 ms",
                           "after a clean stop", "pid 4711"}) {
    EXPECT_NE(std::string::npos, text->find(part)) << part << "\n" << *text;
  }
}

TEST(Status, TextSaysWhatWasReadAhead) {
  StatusReport report = sample();
  EXPECT_EQ(std::string::npos, status_text(status_json(report))->find("read ahead"));
  report.counts.staged = {
      .files = 1234, .bytes = 5 << 20, .loaded = 1000, .unused = 34, .held_bytes = 4096};
  const auto text = status_text(status_json(report));
  ASSERT_OK(text);
  EXPECT_NE(std::string::npos,
            text->find("1,234 blocks that were looked up (5 MiB), 1,000 loaded then, 34 not\n"))
      << *text;
  EXPECT_EQ(4096, json::parse(status_json(report))["counts"]["staged"]["held_bytes"]);
}

TEST(Status, TextSaysWhatIsKnownOfBlocks) {
  StatusReport report = sample();
  report.counts.blocks = 12345;
  report.counts.order_bytes = 64 << 20;
  report.tiers[0].objects = 4711;
  auto text = status_text(status_json(report));
  ASSERT_OK(text);
  for (const char* part : {"12,345 of KV cache", "64 MiB of memory", "4,711 objects"})
    EXPECT_NE(std::string::npos, text->find(part)) << part << "\n" << *text;
  for (const char* part : {"hostPID", "not learned", "being read"})
    EXPECT_EQ(std::string::npos, text->find(part)) << part << "\n" << *text;
  report.counts.invisible_calls = 7;
  report.counts.order_dropped = 8;
  report.counts.blocks_behind = true;
  text = status_text(status_json(report));
  ASSERT_OK(text);
  for (const char* part : {"7 calls of processes that are not visible", "hostPID",
                           "8 calls not learned from", "names are being read"})
    EXPECT_NE(std::string::npos, text->find(part)) << part << "\n" << *text;
  const json counts = json::parse(status_json(report))["counts"];
  EXPECT_EQ(12345, counts["blocks"]);
  EXPECT_EQ(7, counts["invisible_calls"]);
  EXPECT_EQ(8, counts["order_dropped"]);
  EXPECT_EQ(true, counts["blocks_behind"]);
  // While they are being counted, and from a daemon that knows none of it.
  report.tiers[0].objects.reset();
  EXPECT_EQ(std::string::npos, status_text(status_json(report))->find("objects"));
  EXPECT_EQ(std::string::npos, status_text(R"({"mountpoint":"/m"})")->find("KV cache"));
}

TEST(Status, TextSaysWhatWasVerified) {
  StatusReport report = sample();
  report.counts.verified_opens = 1234;
  report.counts.verified_bytes = 5 << 20;
  report.counts.scrubbed_bytes = 6 << 20;
  auto text = status_text(status_json(report));
  ASSERT_OK(text);
  EXPECT_NE(std::string::npos, text->find("1,234 opens (5 MiB), 6 MiB by the scrub\n"))
      << *text;
  EXPECT_TRUE(json::parse(status_json(report))["counts"]["scrub_pass_end"].is_null());
  report.counts.scrub_pass_end_s = 1'800'000'000;
  report.counts.changed_on_purpose = 3;
  text = status_text(status_json(report));
  ASSERT_OK(text);
  for (const char* part :
       {"by the scrub, which was through at 2027-01-1", "3 sealed files changed"})
    EXPECT_NE(std::string::npos, text->find(part)) << part << "\n" << *text;
  EXPECT_EQ(std::string::npos, status_text(R"({"mountpoint":"/m"})")->find("scrub"));
}

TEST(Status, TextSaysWhatModelsFindAndWhatWasEvicted) {
  StatusReport report = sample();
  for (const std::string_view line : {"models", "evicted"})
    EXPECT_EQ(std::string::npos, status_text(status_json(report))->find(line)) << line;
  Use use;
  use.runtime = "vllm";
  use.model = "llama";
  use.hits = 9;
  use.misses = 1;
  use.loaded_bytes = 3 << 20;
  report.uses = {use};
  report.drops[static_cast<std::size_t>(DropReason::kRoom)] = {.files = 1200, .bytes = 1 << 30};
  report.drops[static_cast<std::size_t>(DropReason::kAsked)] = {.files = 1, .bytes = 0};
  report.drops[static_cast<std::size_t>(DropReason::kLost)] = {.files = 5, .bytes = 0};
  const auto text = status_text(status_json(report));
  ASSERT_OK(text);
  for (const char* part : {"models      vllm llama: 90.0 % found, 3 MiB loaded",
                           "evicted     1,201 files, 1 GiB: 1,200 room, 1 asked"})
    EXPECT_NE(std::string::npos, text->find(part)) << part << "\n" << *text;
  const json status = json::parse(status_json(report));
  EXPECT_EQ(0.9, status["models"][0]["hit_ratio"]);
  EXPECT_EQ(1200, status["dropped"]["room"]["files"]);
}

TEST(Status, TextSaysWhatIsWrong) {
  StatusReport report = sample();
  report.counts.lost = 1;
  report.counts.poisoned = 2;
  report.tiers[0].free = 1000;
  auto text = status_text(status_json(report));
  ASSERT_OK(text);
  EXPECT_TRUE(
      text->starts_with("/mnt/kv: 1 file lost; 2 files not written in full; /nvme is "
                        "nearly full (1000 B free)\n"))
      << *text;
  report = sample();
  report.tiers[0].capacity.reset();
  text = status_text(status_json(report));
  ASSERT_OK(text);
  EXPECT_TRUE(text->starts_with("/mnt/kv: /nvme does not answer\n")) << *text;
}

TEST(Status, TextReadsAStatusOfAnotherVersion) {
  EXPECT_OK(status_text(R"({"mountpoint":"/m"})"));
  EXPECT_OK(status_text(
      R"({"mountpoint":1,"pid":"x","tiers":[1,{"capacity":"a"}],"counts":[],"operations":[],
          "hit_ratio":"x","recovery":3,"lookups":null})"));
  EXPECT_ERROR(EBADMSG, status_text("{}"));
  EXPECT_ERROR(EBADMSG, status_text("not json"));
  EXPECT_ERROR(EBADMSG, status_text("[]"));
}

}  // namespace
}  // namespace kvcachefs
