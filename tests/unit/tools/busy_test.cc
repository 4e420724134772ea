#include "tools/busy.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>

#include "backend/base/unique_fd.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

TEST(Busy, FindsOurselvesOnAFilesystemThatWeUse) {
  const testing::TempMount mount{"size=1m"};
  const std::string path = mount.path() + "/file";
  const UniqueFd fd{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  ASSERT_TRUE(fd);
  struct stat status {};
  ASSERT_EQ(0, ::fstat(fd.get(), &status));
  const auto processes = processes_on(status.st_dev);
  const auto own = std::find_if(processes.begin(), processes.end(),
                                [](const BusyProcess& p) { return p.pid == ::getpid(); });
  ASSERT_NE(processes.end(), own);
  EXPECT_EQ(std::vector<std::string>{"open file"}, own->how);
  EXPECT_NE(std::string::npos, describe(processes).find("open file"));
}

TEST(Busy, ReadsTheDeviceOfMappings) {
  constexpr const char* kMaps =
      "7f00-7f10 r--p 00000000 00:39 42                         /mnt/kv/a file\n"
      "7f10-7f20 rw-p 00000000 00:00 0 \n";
  EXPECT_TRUE(maps_device(kMaps, makedev(0, 0x39)));
  EXPECT_FALSE(maps_device(kMaps, makedev(0, 0x3)));
  EXPECT_FALSE(maps_device("", makedev(0, 0x39)));
}

}  // namespace
}  // namespace kvcachefs
