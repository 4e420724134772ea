#include "tools/helper_arguments.h"

#include <sys/mount.h>

#include "tests/fakes/expect_result.h"

namespace kvcachefs {
namespace {

using Words = std::vector<std::string>;

HelperArguments parse(const Words& words) {
  std::string problem;
  const auto parsed = parse_helper_arguments(words, problem);
  EXPECT_OK(parsed) << problem;
  return parsed ? *parsed : HelperArguments{};
}

TEST(HelperArguments, ReadsWhatMountGives) {
  const HelperArguments parsed =
      parse({"/nvme", "/mnt", "-sfnv", "-o", "rw,dev", "-N", "12", "-t", "kvcachefs", "-oro"});
  EXPECT_EQ("/nvme", parsed.source);
  EXPECT_EQ("/mnt", parsed.directory);
  EXPECT_EQ("rw,dev,ro", parsed.options);
  EXPECT_EQ("12", parsed.mount_namespace);
  EXPECT_TRUE(parsed.fake);
  EXPECT_TRUE(parsed.verbose);
}

TEST(HelperArguments, RefusesWhatItDoesNotKnow) {
  for (const Words& words :
       {Words{"/nvme"}, Words{"a", "b", "c"}, Words{"a", "b", "-x"}, Words{"a", "b", "-o"}}) {
    std::string problem;
    EXPECT_ERROR(EINVAL, parse_helper_arguments(words, problem));
    EXPECT_FALSE(problem.empty());
  }
}

TEST(HelperArguments, TheSourceIsTheFirstDevice) {
  EXPECT_EQ((Words{"mount", "-o", R"(nvme=/a\,b)", "-o", "dev", "/mnt"}),
            mount_command(parse({"/a,b", "/mnt", "-o", "dev"})));
  EXPECT_EQ((Words{"mount", "-o", R"(nvme=/a\"b\\c)", "/mnt"}),
            mount_command(parse({R"(/a"b\c)", "/mnt"})));
  for (const char* nothing : {"none", "kvcachefs"}) {
    EXPECT_EQ((Words{"mount", "-o", "nvme=/x", "/mnt"}),
              mount_command(parse({nothing, "/mnt", "-o", "nvme=/x"})));
  }
}

TEST(Remount, KeepsTheFlagsInForce) {
  std::string problem;
  const auto remount = parse_remount("remount,ro,nvme=/x,x-y,user_id=0,default_permissions",
                                     "rw,nosuid,nodev,noatime", problem);
  ASSERT_OK(remount) << problem;
  ASSERT_TRUE(remount->has_value());
  EXPECT_EQ(
      static_cast<unsigned long>(MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOATIME),
      (*remount)->flags);
  EXPECT_FALSE((*remount)->asks_write);
}

TEST(Remount, LeavesAccessTimesAlone) {
  std::string problem;
  for (const char* words :
       {"remount,noatime", "remount,strictatime", "remount,ro,nodiratime"}) {
    EXPECT_ERROR(EINVAL, parse_remount(words, "rw,relatime", problem)) << words;
    EXPECT_NE(std::string::npos, problem.find("access times")) << problem;
  }
  EXPECT_ERROR(EINVAL, parse_remount("remount,relatime", "rw,noatime", problem));
  const auto same = parse_remount("remount,ro,noatime,lazytime", "rw,noatime", problem);
  ASSERT_OK(same) << problem;
  const auto links = parse_remount("remount,nosymfollow", "rw,relatime", problem);
  ASSERT_OK(links) << problem;
  EXPECT_NE(0U, (*links)->flags & MS_NOSYMFOLLOW);
}

TEST(Remount, IsAskedForByItsWord) {
  std::string problem;
  const auto none = parse_remount("ro,dev", "", problem);
  ASSERT_OK(none);
  EXPECT_FALSE(none->has_value());
  EXPECT_ERROR(EINVAL, parse_remount("remount,frobnicate", "", problem));
  EXPECT_NE(std::string::npos, problem.find("frobnicate"));
}

}  // namespace
}  // namespace kvcachefs
