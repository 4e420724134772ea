#include "fs/mount_options.h"

#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

struct Parsed {
  KernelOptions kernel;
  std::vector<Assignment> settings;
  std::string problem;
  int code = 0;
};

Parsed parse(std::string_view list) {
  Parsed out;
  out.code = testing::code_of(parse_mount_options(list, out.kernel, out.settings, out.problem));
  return out;
}

TEST(MountOptions, DefaultsAreSafe) {
  const KernelOptions options;
  EXPECT_EQ((std::vector<std::string>{"nosuid", "nodev", "rw"}), kernel_option_words(options));
}

TEST(MountOptions, TheLastOfAPairCounts) {
  const Parsed parsed = parse("dev,allow_suid,nodev,ro,rw,noexec");
  EXPECT_EQ(0, parsed.code) << parsed.problem;
  EXPECT_EQ((std::vector<std::string>{"suid", "nodev", "rw", "noexec"}),
            kernel_option_words(parsed.kernel));
}

// The table of man kvcachefs, under -o.
TEST(MountOptions, WordsOfMount8) {
  for (const char* word : {"lazytime", "nolazytime", "iversion", "noiversion", "mand", "nomand",
                           "silent", "loud", "norelatime", "nostrictatime", "symfollow"}) {
    const Parsed parsed = parse(word);
    EXPECT_EQ(0, parsed.code) << word << ": " << parsed.problem;
    EXPECT_EQ(KernelOptions{}, parsed.kernel) << word;
  }
  const std::pair<const char*, AccessTimes> times[] = {
      {"noatime", AccessTimes::kNever},
      {"relatime", AccessTimes::kRelative},
      {"strictatime", AccessTimes::kAlways},
      {"noatime,atime", AccessTimes::kAsBelow},
      {"strictatime,nostrictatime", AccessTimes::kAsBelow}};
  for (const auto& [words, expected] : times)
    EXPECT_EQ(expected, parse(words).kernel.access_times) << words;
  EXPECT_FALSE(parse("nosymfollow").kernel.symfollow);
  for (const char* word : {"bind", "rbind", "move", "shared", "rprivate", "unbindable"}) {
    const Parsed parsed = parse(word);
    EXPECT_EQ(EINVAL, parsed.code) << word;
    EXPECT_NE(std::string::npos, parsed.problem.find("man mount")) << parsed.problem;
  }
  EXPECT_EQ(EINVAL, parse("strictatime=1").code);
}

TEST(MountOptions, WordsOfTheMountTableMeanNothing) {
  const Parsed parsed =
      parse("defaults,_netdev,nofail,noauto,x-systemd.automount,x-foo=bar,comment=a,user");
  EXPECT_EQ(0, parsed.code) << parsed.problem;
  EXPECT_EQ(KernelOptions{}, parsed.kernel);
  EXPECT_TRUE(parsed.settings.empty());
}

TEST(MountOptions, CommasAndQuotesOfAValueAreMarked) {
  const auto words = split_options(R"(a=b\,c,"d,e",f=g\"h,i\\)");
  ASSERT_OK(words);
  EXPECT_EQ((std::vector<std::string>{"a=b,c", "d,e", "f=g\"h", "i\\"}), *words);
  EXPECT_ERROR(EINVAL, split_options("a=b\"c"));
}

TEST(MountOptions, SettingsTakeDashesAndUnderscores) {
  const Parsed parsed =
      parse("nvme=/a:2TiB,nvme=/b,allow_other,data-path=daemon,data_path=auto");
  EXPECT_EQ(0, parsed.code) << parsed.problem;
  const std::vector<Assignment> expected = {{"nvme", "/a:2TiB"},
                                            {"nvme", "/b"},
                                            {"allow-other", ""},
                                            {"data-path", "daemon"},
                                            {"data-path", "auto"}};
  EXPECT_EQ(expected, parsed.settings);
}

TEST(MountOptions, QuotesAndBackslashesKeepCommas) {
  const Parsed parsed = parse(R"(context="system_u:object_r:tmp_t:s0:c1,c2",state=/a\,b)");
  EXPECT_EQ(0, parsed.code) << parsed.problem;
  EXPECT_EQ(std::vector<std::string>{"context=system_u:object_r:tmp_t:s0:c1,c2"},
            parsed.kernel.contexts);
  EXPECT_EQ((std::vector<Assignment>{{"state", "/a,b"}}), parsed.settings);
}

TEST(MountOptions, ErrorsNameTheWord) {
  for (const char* list : {"frobnicate", "frobnicate=1", "foreground", "allow_other=1", "nvme",
                           "context", "remount,ro", "context=\"a"}) {
    const Parsed parsed = parse(list);
    EXPECT_EQ(EINVAL, parsed.code) << list;
    const std::string word = std::string(list).substr(0, std::string(list).find_first_of("=,"));
    EXPECT_NE(std::string::npos, parsed.problem.find(word)) << parsed.problem;
    EXPECT_TRUE(parsed.problem.starts_with("-o ")) << parsed.problem;
  }
}

TEST(MountOptions, EmptyWordsAreDropped) {
  const auto words = split_options(",a,,b,");
  ASSERT_OK(words);
  EXPECT_EQ((std::vector<std::string>{"a", "b"}), *words);
}

}  // namespace
}  // namespace kvcachefs
