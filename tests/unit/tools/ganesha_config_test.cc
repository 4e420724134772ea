#include "tools/ganesha_config.h"

#include <gtest/gtest.h>

#include "tests/fakes/test_volume.h"

namespace kvcachefs {
namespace {

using testing::must;

GaneshaExport usual() {
  return {.path = "/mnt/kv",
          .name = "/kvcachefs",
          .address = "10.0.0.5",
          .clients = {},
          .work = "/run/export"};
}

std::string refused(const GaneshaExport& what) {
  std::string problem;
  const auto config = ganesha_config(what, problem);
  EXPECT_EQ(EINVAL, config.ok() ? 0 : config.error().code);
  return problem;
}

TEST(GaneshaConfig, SaysWhatIsServedAndToWhom) {
  GaneshaExport what = usual();
  std::string problem;
  std::string config = must(ganesha_config(what, problem));
  for (const char* part : {"Path = \"/mnt/kv\"", "Pseudo = \"/kvcachefs\"", "Protocols = 3, 4",
                           "Bind_addr = 10.0.0.5", "Squash = Root_Squash", "Access_Type = RW",
                           "fsid_type = Major64"})
    EXPECT_NE(std::string::npos, config.find(part)) << part;
  EXPECT_EQ(std::string::npos, config.find("CLIENT"));
  what.clients = {"10.0.0.0/24", "gpu7"};
  what.v3 = false;
  what.squash = Squash::kNone;
  config = must(ganesha_config(what, problem));
  for (const char* part : {"Clients = 10.0.0.0/24, gpu7; Access_Type = RW", "Protocols = 4;",
                           "Access_Type = None", "Squash = No_Root_Squash"})
    EXPECT_NE(std::string::npos, config.find(part)) << part;
}

TEST(GaneshaConfig, HasTheSameNumberForAPathAtEachStart) {
  std::string problem;
  GaneshaExport other = usual();
  other.port = 12049;
  const std::string one = must(ganesha_config(usual(), problem));
  const std::string two = must(ganesha_config(other, problem));
  const auto id = [](const std::string& config) {
    return config.substr(config.find("Export_Id"), 20);
  };
  EXPECT_EQ(id(one), id(two));
  other.path = "/mnt/kv2";
  EXPECT_NE(id(one), id(must(ganesha_config(other, problem))));
}

TEST(GaneshaConfig, RefusesWhatWouldReadAsSomethingElse) {
  const auto with = [](auto change) {
    GaneshaExport what = usual();
    change(what);
    return refused(what);
  };
  using E = GaneshaExport;
  EXPECT_NE("", with([](E& what) { what.path = "/mnt/a\"; Squash = none"; }));
  EXPECT_NE("", with([](E& what) { what.path = "/mnt/a\nb"; }));
  EXPECT_NE("", with([](E& what) { what.path = "/mnt/a\\b"; }));
  EXPECT_NE("", with([](E& what) { what.path = ""; }));
  EXPECT_NE("", with([](E& what) { what.name = "kv"; }));
  EXPECT_NE("", with([](E& what) { what.name = "/"; }));
  EXPECT_NE("", with([](E& what) { what.name = "/a//b"; }));
  EXPECT_NE("", with([](E& what) { what.address = "host"; }));
  EXPECT_NE("", with([](E& what) { what.clients = {"a b"}; }));
  EXPECT_NE("", with([](E& what) { what.clients = {""}; }));
  EXPECT_NE("", with([](E& what) { what.port = 0; }));
  EXPECT_NE("", with([](E& what) { what.mount_port = what.port; }));
  EXPECT_NE("", with([](E& what) { what.v3 = what.v4 = false; }));
}

TEST(GaneshaConfig, TellsHowAClientMountsIt) {
  GaneshaExport what = usual();
  EXPECT_EQ(
      "mount -t nfs -o vers=4.2,port=2049,proto=tcp,actimeo=5,lookupcache=positive "
      "10.0.0.5:/kvcachefs",
      linux_mount(what, "10.0.0.5"));
  what.v4 = false;
  EXPECT_EQ(
      "mount -t nfs -o vers=3,port=2049,mountport=20048,mountproto=tcp,nolock,proto=tcp,"
      "actimeo=5,lookupcache=positive [fd00::1]:/kvcachefs",
      linux_mount(what, "fd00::1"));
}

}  // namespace
}  // namespace kvcachefs
