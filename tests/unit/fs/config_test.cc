#include "fs/config.h"

#include <unistd.h>

#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

using testing::TempDir;
using testing::write_file;

// A mount point, two devices, and what load_config() makes of the sources.
class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    for (const char* name : {"mnt", "nvme0", "nvme1"}) {
      std::filesystem::create_directory(dir_ / name);
    }
  }
  void give(std::string name, std::string value = "") {
    sources_.command_line.push_back({std::move(name), std::move(value)});
  }
  void give_device() { give("nvme", dir_ / "nvme0"); }
  Result<Config> load() {
    if (sources_.mountpoint.empty()) sources_.mountpoint = dir_ / "mnt";
    problem_.clear();
    return load_config(sources_, problem_);
  }
  void expect_problem(int code, std::initializer_list<std::string_view> parts) {
    EXPECT_ERROR(code, load());
    for (const std::string_view part : parts) {
      EXPECT_NE(std::string::npos, problem_.find(part)) << problem_ << "\nlacks: " << part;
    }
  }

  TempDir dir_;
  ConfigSources sources_;
  std::string problem_;
};

TEST_F(ConfigTest, AFewBytesAreNoRoomToLeaveFree) {
  give_device();
  for (const char* free : {"5", "1023KiB", "51%", "1.5%"}) {
    sources_.command_line.resize(1);
    give("min-free", free);
    EXPECT_FALSE(load().ok()) << free;
  }
  for (const char* free : {"0", "1MiB", "50%"}) {
    sources_.command_line.resize(1);
    give("min-free", free);
    EXPECT_OK(load()) << free << problem_;
  }
}

TEST_F(ConfigTest, DevicesInAnotherOrderDoNotBeginAnotherState) {
  std::filesystem::create_directory(dir_ / "nvme1/state");
  give_device();
  give("nvme", dir_ / "nvme1");
  expect_problem(EINVAL, {"--nvme", "nvme1", "name it first", "--state"});
  give("state", dir_ / "nvme1/state");
  ASSERT_OK(load()) << problem_;
}

TEST_F(ConfigTest, DefaultsAreThoseOfTheHelp) {
  give_device();
  const auto config = load();
  ASSERT_OK(config) << problem_;
  EXPECT_EQ(dir_ / "nvme0/state", config->state);
  EXPECT_TRUE(config->state_is_default);
  EXPECT_FALSE(config->allow_other);
  EXPECT_EQ(DataPathChoice::kAuto, config->data_path);
  EXPECT_EQ(TransportChoice::kAuto, config->transport);
  EXPECT_FALSE(config->keep_by_default);
  EXPECT_FALSE(config->nvme[0].size.has_value());
  EXPECT_EQ(VerifyMode::kOpen, config->verify);
  EXPECT_EQ(8 * kMiB, config->scrub);
  ASSERT_TRUE(config->stage.has_value());
  EXPECT_EQ(5u, config->stage->percent);
  EXPECT_EQ(DirectIo::kPass, config->direct_io);
  EXPECT_EQ(256 * kMiB, config->metadata_memory);
  EXPECT_EQ(256 * kMiB, config->ring_memory);
  EXPECT_EQ(std::chrono::seconds{20}, config->stop_timeout);
}

TEST_F(ConfigTest, VerificationAndTheScrubCanBeTurnedOff) {
  give_device();
  give("verify", "off");
  give("scrub", "off");
  give("stage", "2GiB");
  give("odirect", "refuse");
  const auto config = load();
  ASSERT_OK(config) << problem_;
  EXPECT_EQ(VerifyMode::kOff, config->verify);
  EXPECT_EQ(0u, config->scrub);
  ASSERT_TRUE(config->stage.has_value());
  EXPECT_EQ(2 * kGiB, config->stage->bytes);
  EXPECT_EQ(DirectIo::kRefuse, config->direct_io);
}

TEST_F(ConfigTest, APoolHasAnAddressAndAnOwner) {
  give_device();
  EXPECT_FALSE(load()->pool.has_value());
  give("pool", "nfs://filer/export/kv?nfsport=2050");
  give("pool-writes", "reused");
  give("pool-size", "2TiB");
  give("stage-whole", "64MiB");
  give("pool-queue", "8GiB:5000");
  give("pool-sync", "pool");
  give("pool-in-flight", "8MiB");
  give("pool-beat", "250ms");
  give("pool-owner", "1000:1001");
  auto config = load();
  ASSERT_OK(config) << problem_;
  ASSERT_TRUE(config->pool.has_value());
  EXPECT_EQ(PoolUri::Kind::kNfs, config->pool->kind);
  EXPECT_EQ("filer", config->pool->host);
  EXPECT_EQ(2050, config->pool->nfs_port);
  EXPECT_EQ(PoolWrites::kReused, config->pool_options.writes);
  EXPECT_EQ(std::chrono::milliseconds{250}, config->pool_options.beat);
  EXPECT_EQ(64 * kMiB, config->pool_options.stage_whole);
  EXPECT_EQ(8 * kGiB, config->pool_options.queue_bytes);
  EXPECT_EQ(5000u, config->pool_options.queue_files);
  EXPECT_TRUE(config->pool_options.syncs);
  EXPECT_EQ(8 * kMiB, config->pool_options.in_flight);
  EXPECT_EQ(1000u, config->pool_options.owner_uid);
  EXPECT_EQ(1001u, config->pool_options.owner_gid);
  give("pool-owner", "7");
  config = load();
  ASSERT_OK(config) << problem_;
  EXPECT_EQ(7u, config->pool_options.owner_gid);
}

TEST_F(ConfigTest, APoolIsBesideTheMountTheDevicesAndTheState) {
  std::filesystem::create_directories(dir_ / "above/mnt");
  std::filesystem::create_directories(dir_ / "pool/inner");
  std::filesystem::create_directory_symlink("mnt", dir_ / "to-mnt");
  std::filesystem::create_directory_symlink("nvme0", dir_ / "to-nvme");
  std::filesystem::create_directory_symlink("to-mnt/not/../there", dir_ / "to-later");
  struct Case {
    const char* pool;
    const char* said;
  };
  for (const Case& each :
       std::initializer_list<Case>{{"mnt", "inside the mount point"},
                                   {"mnt/pool", "inside the mount point"},
                                   {"to-mnt", "inside the mount point"},
                                   {"to-mnt/not/there", "inside the mount point"},
                                   {"to-later/pool", "inside the mount point"},
                                   {"above", "has the mount point"},
                                   {"", "has the mount point"},
                                   {"nvme0", "one is inside the other"},
                                   {"to-nvme/pool", "one is inside the other"},
                                   {"pool", "one is inside the other"},
                                   {"pool/inner/state/pool", "one is inside the other"}}) {
    SCOPED_TRACE(each.pool);
    sources_.command_line.clear();
    sources_.mountpoint = dir_ / (std::string_view(each.pool) == "above" ? "above/mnt" : "mnt");
    give_device();
    give("state", dir_ / "pool/inner/state");
    give("pool", "dir://" + dir_.path() + "/" + each.pool);
    expect_problem(EINVAL, {"--pool", each.said});
  }
}

TEST_F(ConfigTest, APoolsDirectoryMayBeNamedByASymlinkOrNotBeThereYet) {
  std::filesystem::create_directory(dir_ / "plain");
  std::filesystem::create_directory_symlink("plain", dir_ / "link");
  give_device();
  give("pool", "dir://" + dir_.path() + "/link");
  auto config = load();
  ASSERT_OK(config) << problem_;
  EXPECT_EQ(dir_ / "plain", config->pool->path);
  EXPECT_EQ("dir://" + dir_.path() + "/link", config->pool_text);
  give("pool", "dir://" + dir_.path() + "/link/later/a%20b");
  config = load();
  ASSERT_OK(config) << problem_;
  EXPECT_EQ(dir_ / "plain/later/a b", config->pool->path);
}

TEST_F(ConfigTest, WhatSaysHowAPoolIsUsedNeedsOne) {
  struct Case {
    const char* name;
    const char* value;
  };
  for (const Case& each : std::initializer_list<Case>{
           {"pool-writes", "all"}, {"pool-size", "2TiB"}, {"pool-owner", "0:0"}}) {
    SCOPED_TRACE(each.name);
    sources_ = {};
    give_device();
    give(each.name, each.value);
    expect_problem(EINVAL, {std::string("--") + each.name, "no --pool"});
    sources_ = {};
    give_device();
    sources_.option_lists = {std::string(each.name) + "=" + each.value};
    expect_problem(EINVAL, {std::string("-o ") + each.name, "no --pool"});
    sources_ = {};
    give_device();
    const std::string file = dir_ / "mount.toml";
    write_file(file, std::string(each.name) + " = \"" + each.value + "\"\n");
    give("config", file);
    expect_problem(EINVAL, {file, each.name, "no --pool"});
    give("pool", "nfs://filer/export");
    EXPECT_OK(load()) << problem_;
  }
}

TEST_F(ConfigTest, AFileWithoutANameIsNone) {
  give_device();
  give("config", "");
  expect_problem(EINVAL, {"--config", "names no file"});
}

TEST_F(ConfigTest, AFlagIsWhatTheLastSourceSays) {
  const std::string file = dir_ / "mount.toml";
  write_file(file, "allow-other = true\n");
  give_device();
  give("config", file);
  EXPECT_TRUE(load()->allow_other);
  give("allow-other", "false");
  EXPECT_FALSE(load()->allow_other);
  give("allow-other", "true");
  EXPECT_TRUE(load()->allow_other);
  give("allow-other", "maybe");
  expect_problem(EINVAL, {"--allow-other", "maybe", "true or false"});
}

TEST_F(ConfigTest, SizesTakeBothUnitsAndShares) {
  give("nvme", dir_ / "nvme0:2TiB");
  give("nvme", dir_ / "nvme1:80%");
  const auto config = load();
  ASSERT_OK(config) << problem_;
  ASSERT_EQ(2u, config->nvme.size());
  EXPECT_EQ(2 * kTiB, config->nvme[0].size->bytes);
  EXPECT_EQ("2TiB", config->nvme[0].size_text);
  EXPECT_EQ(80u, config->nvme[1].size->percent);

  sources_.command_line.clear();
  give("nvme", dir_ / "nvme0:500GB");
  EXPECT_EQ(500'000'000'000u, load()->nvme[0].size->bytes);
}

TEST_F(ConfigTest, AColonBelongsToTheNameUnlessADigitFollows) {
  std::filesystem::create_directory(dir_ / "a:b");
  std::filesystem::create_directory(dir_ / "a:1x");
  give("nvme", dir_ / "a:b");
  give("nvme", dir_ / "a:1x/");
  const auto config = load();
  ASSERT_OK(config) << problem_;
  EXPECT_EQ(dir_ / "a:b", config->nvme[0].path);
  EXPECT_EQ(dir_ / "a:1x", config->nvme[1].path);
}

TEST_F(ConfigTest, EveryValueThatIsRefusedIsNamedWithAFix) {
  struct Case {
    const char* name;
    const char* value;
    int code;
    const char* fix;
  };
  constexpr Case kCases[] = {{"nvme", "/x:12q", EINVAL, "2TiB"},
                             {"nvme", "/x:0", ERANGE, "64MiB"},
                             {"nvme", "/x:101%", ERANGE, "100%"},
                             {"nvme", ":2TiB", EINVAL, "DIR"},
                             {"data-path", "fast", EINVAL, "passthrough"},
                             {"transport", "tcp", EINVAL, "uring"},
                             {"policy", "pin", EINVAL, "keep"},
                             {"keep-by", "nobody", EINVAL, "anyone"},
                             {"keep-by", "group:", EINVAL, "group"},
                             {"keep-by", "group:no-such-group", EINVAL, "group"},
                             {"verify", "always", EINVAL, "open"},
                             {"scrub", "slowly", EINVAL, "off"},
                             {"scrub", "1", ERANGE, "64 KiB"},
                             {"stage", "much", EINVAL, "5%"},
                             {"stage", "1KiB", ERANGE, "1MiB"},
                             {"stage", "51%", ERANGE, "50%"},
                             {"odirect", "maybe", EINVAL, "refuse"},
                             {"pool", "/mnt/pool", EINVAL, "dir:///PATH"},
                             {"pool", "nfs://", EINVAL, "nfs://HOST"},
                             {"pool-writes", "some", EINVAL, "off"},
                             {"pool-size", "1KiB", ERANGE, "1 MiB"},
                             {"pool-size", "much", EINVAL, "not a size"},
                             {"pool-in-flight", "1KiB", ERANGE, "2 MiB"},
                             {"pool-beat", "49ms", ERANGE, "50ms to 5s"},
                             {"pool-beat", "6s", ERANGE, "50ms to 5s"},
                             {"pool-beat", "often", EINVAL, "500ms or 2s"},
                             {"pool-queue", "1KiB", ERANGE, "1 MiB"},
                             {"pool-queue", "8GiB:", EINVAL, "64GiB:100000"},
                             {"pool-queue", "8GiB:1k", EINVAL, "64GiB:100000"},
                             {"pool-queue", "8GiB:0", ERANGE, "1 to"},
                             {"pool-queue", ":5", EINVAL, "not a size"},
                             {"pool-sync", "both", EINVAL, "neither"},
                             {"stage-whole", "1KiB", ERANGE, "1 MiB"},
                             {"stage-whole", "all", EINVAL, "not a size"},
                             {"pool-owner", "root", EINVAL, "UID:GID"},
                             {"pool-owner", "1:4294967295", EINVAL, "UID:GID"},
                             {"log-level", "loud", EINVAL, "debug"},
                             {"metadata-memory", "much", EINVAL, "256MiB"},
                             {"metadata-memory", "1TiB", ERANGE, "512"},
                             {"ring-memory", "1", ERANGE, "4 MiB"},
                             {"stop-timeout", "1d", ERANGE, "10min"},
                             {"stop-timeout", "soon", EINVAL, "20s"},
                             {"allow-other", "maybe", EINVAL, "true"},
                             {"state", "", EINVAL, "DIR"},
                             {"log", "", EINVAL, "FILE"}};
  for (const Case& bad : kCases) {
    sources_.command_line.clear();
    give_device();
    give(bad.name, bad.value);
    const std::string value = bad.value;
    const std::string shown = value.starts_with("/x:") ? value.substr(3) : value;
    expect_problem(bad.code, {"--" + std::string(bad.name), "'" + shown + "'", bad.fix});
  }
}

TEST_F(ConfigTest, WhatIsMissingIsNamed) {
  expect_problem(EINVAL, {"--nvme", "missing"});
  give("nvme", dir_ / "absent");
  expect_problem(ENOENT, {"--nvme", "absent", "mkdir"});
  sources_.command_line.clear();
  give_device();
  sources_.mountpoint = dir_ / "no/where";
  expect_problem(ENOENT, {"MOUNTPOINT", "no/where"});
}

TEST_F(ConfigTest, NothingMayLieInTheMountPoint) {
  std::filesystem::create_directories(dir_ / "mnt/inner");
  give("nvme", dir_ / "mnt/inner");
  expect_problem(EINVAL, {"--nvme", "inside the mount point"});
  sources_.command_line.clear();
  give_device();
  give("state", dir_ / "mnt/state");
  expect_problem(EINVAL, {"--state", "inside the mount point"});
  sources_.mountpoint = dir_ / "nvme0";
  expect_problem(EINVAL, {"--nvme", "inside the mount point"});
}

TEST_F(ConfigTest, TheLogIsNotWhereItsDaemonWouldWaitForItself) {
  std::filesystem::create_directories(dir_ / "mnt/inner");
  std::filesystem::create_directories(dir_ / "nvme0/objects");
  std::filesystem::create_directories(dir_ / "nvme0/state/db");
  std::filesystem::create_directory_symlink(dir_ / "mnt/inner", dir_ / "link");
  write_file(dir_ / "mnt/inner/log", "");
  std::filesystem::create_symlink(dir_ / "mnt/inner/log", dir_ / "log");
  struct Case {
    const char* log;
    const char* said;
  };
  for (const Case& each :
       std::initializer_list<Case>{{"mnt/kv.log", "inside the mount point"},
                                   {"mnt/inner/kv.log", "inside the mount point"},
                                   // Nobody looks there: a dead mount may be on it.
                                   {"mnt/not/there/kv.log", "inside the mount point"},
                                   {"nvme1/../mnt/kv.log", "inside the mount point"},
                                   {"link/kv.log", "inside the mount point"},
                                   {"log", "a symlink"},
                                   {"nvme0/state/kv.log", "inside the state directory"},
                                   {"nvme0/state/db/kv.log", "inside the state directory"},
                                   {"nvme0/objects/kv.log", "keeps to itself"},
                                   {"nvme0/kvcachefs-device", "keeps to itself"}}) {
    SCOPED_TRACE(each.log);
    sources_.command_line.clear();
    give_device();
    give("log", dir_ / each.log);
    expect_problem(EINVAL, {"--log", each.said});
  }
  sources_.command_line.clear();
  give_device();
  give("log", dir_ / "nvme1/../kv.log");
  const auto config = load();
  ASSERT_OK(config) << problem_;
  EXPECT_EQ(dir_ / "kv.log", config->log_file);
}

TEST_F(ConfigTest, AMountPointIsNotInWhatTheDaemonKeeps) {
  for (const char* place : {"nvme0/objects/00", "nvme0/quarantine", "nvme0/state/mnt"}) {
    SCOPED_TRACE(place);
    std::filesystem::create_directories(dir_ / place);
    sources_.command_line.clear();
    give_device();
    sources_.mountpoint = dir_ / place;
    expect_problem(EINVAL, {"MOUNTPOINT", place});
  }
  sources_.mountpoint.clear();
  sources_.command_line.clear();
  give_device();
  give("state", dir_ / "nvme0/objects/state");
  expect_problem(EINVAL, {"--state", "keeps to itself"});
}

TEST_F(ConfigTest, ADeviceIsGivenOnce) {
  give_device();
  give("nvme", dir_ / "nvme1/../nvme0");
  expect_problem(EINVAL, {"twice"});
}

TEST_F(ConfigTest, LaterSourcesWinAndReplaceLists) {
  const std::string file = dir_ / "mount.toml";
  write_file(file, "nvme = ['" + (dir_ / "nvme1") + R"(:1TiB']
policy = "keep"
data_path = "daemon"
allow-other = true
stop_timeout = "3s"
options = "ro,noexec,transport=dev"
)");
  sources_.option_lists = {"config=" + file + ",data_path=auto,exec"};
  give("transport", "uring");
  auto config = load();
  ASSERT_OK(config) << problem_;
  EXPECT_EQ(dir_ / "nvme1", config->nvme[0].path);
  EXPECT_TRUE(config->keep_by_default);
  EXPECT_TRUE(config->allow_other);
  EXPECT_EQ(DataPathChoice::kAuto, config->data_path);
  EXPECT_EQ(TransportChoice::kUring, config->transport);
  EXPECT_EQ(std::chrono::seconds{3}, config->stop_timeout);
  EXPECT_TRUE(config->kernel.read_only);
  EXPECT_TRUE(config->kernel.exec);

  give_device();
  config = load();
  ASSERT_OK(config) << problem_;
  ASSERT_EQ(1u, config->nvme.size());
  EXPECT_EQ(dir_ / "nvme0", config->nvme[0].path);
}

TEST_F(ConfigTest, ErrorsOfAFileNameTheFileAndTheLine) {
  const std::string file = dir_ / "mount.toml";
  give_device();
  give("config", file);
  expect_problem(ENOENT, {"--config", file});
  for (const char* text :
       {"policy = 1.5", "frobnicate = 1", "nvme = 3", "allow-other = \"yes\"", "= broken",
        "options = \"frobnicate\"", "nvme = [1]", "[table]\na = 1", "foreground = true",
        "options = \"config=/x\""}) {
    write_file(file, std::string("\n") + text + "\n");
    expect_problem(EINVAL, {file, "line 2"});
  }
  write_file(file, "policy = \"pin\"\n");
  expect_problem(EINVAL, {file, "policy", "'pin'"});
}

TEST_F(ConfigTest, EverySettingSaysItsDefault) {
  for (const Setting& setting : settings()) {
    const bool needed = setting.name == "nvme";
    EXPECT_TRUE(needed || setting.help.find("Default: ") != std::string_view::npos)
        << setting.name;
    EXPECT_EQ(setting.kind == SettingKind::kFlag, setting.value_name.empty()) << setting.name;
  }
}

TEST(CanonicalPath, KeepsTheLastComponentThatIsNotThere) {
  const TempDir dir;
  ASSERT_EQ(0, ::symlink(dir.path().c_str(), (dir / "link").c_str()));
  EXPECT_EQ(dir / "new", *canonical_path(dir / "link/./new//"));
  EXPECT_EQ(dir.path(), *canonical_path(dir / "link"));
  EXPECT_EQ(dir.path(), *canonical_path(dir / "link/."));
  EXPECT_EQ("/", *canonical_path("///"));
  EXPECT_EQ("/tmp", *canonical_path("/../tmp"));
  EXPECT_ERROR(ENOENT, canonical_path(dir / "no/where"));
  EXPECT_ERROR(ENOENT, canonical_path(""));
}

}  // namespace
}  // namespace kvcachefs
