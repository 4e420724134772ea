#include "fs/mount_table.h"

#include <sys/sysmacros.h>

#include "fs/state_dir.h"
#include "tests/fakes/expect_result.h"
#include "tests/fakes/temp_dir.h"

namespace kvcachefs {
namespace {

constexpr const char* kTable =
    "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 21 0:57 / /mnt/kv rw,nosuid,nodev shared:7 master:2 - fuse.kvcachefs /nvme/a\\040b rw\n"
    "31 21 0:58 / /mnt/kv/in\\134ner ro - tmpfs none ro\n"
    "a line that does not read\n"
    "32 21 0:59 / /mnt/other rw - fuse.sshfs host: rw\n";

TEST(MountTable, ReadsEscapesAndOptionalFields) {
  const auto table = parse_mount_table(kTable);
  ASSERT_EQ(4u, table.size());
  const MountEntry& ours = table[1];
  EXPECT_TRUE(ours.is_ours());
  EXPECT_EQ(makedev(0, 57), ours.device);
  EXPECT_EQ("/nvme/a b", ours.source);
  EXPECT_EQ("rw,nosuid,nodev", ours.options);
  EXPECT_EQ("/mnt/kv/in\\ner", table[2].point);
}

TEST(MountTable, FindsTheMountThatHoldsAPath) {
  const auto table = parse_mount_table(kTable);
  EXPECT_EQ("/mnt/kv", mount_of(table, "/mnt/kv/dir/file")->point);
  EXPECT_EQ("/mnt/kv", mount_of(table, "/mnt/kv")->point);
  EXPECT_EQ("/", mount_of(table, "/mnt/kvnot")->point);
  EXPECT_EQ("/mnt/kv/in\\ner", mount_of(table, "/mnt/kv/in\\ner/x")->point);
  EXPECT_FALSE(mount_on(table, "/mnt").has_value());
}

TEST(MountTable, TheTopmostOfAStackCounts) {
  const auto table = parse_mount_table(
      "1 0 0:1 / /m rw - fuse.kvcachefs a rw\n2 1 0:2 / /m rw - fuse.kvcachefs b rw\n");
  EXPECT_EQ("b", mount_on(table, "/m")->source);
  EXPECT_EQ("b", mount_of(table, "/m/x")->source);
}

TEST(MountTable, TellsWhereAPathLiesWhateverLeadsThere) {
  const auto table = parse_mount_table(
      "1 0 8:1 / / rw - ext4 /dev/a rw\n"
      "2 1 8:1 /data/x /bind rw - ext4 /dev/a rw\n"
      "3 1 8:2 / /other rw - ext4 /dev/b rw\n");
  const auto place = [&](std::string_view path) { return path_on_filesystem(table, path); };
  EXPECT_EQ("/data/x/y", place("/data/x/y")->path);
  EXPECT_EQ("/data/x/y", place("/bind/y")->path);
  EXPECT_EQ("/data/x", place("/bind")->path);
  EXPECT_EQ(makedev(8, 1), place("/bind")->device);
  EXPECT_EQ("/", place("/")->path);
  EXPECT_EQ("/", place("/other")->path);
  EXPECT_EQ(makedev(8, 2), place("/other")->device);
  EXPECT_FALSE(path_on_filesystem({}, "/x").has_value());
}

TEST(MountTable, OurOwnReads) {
  const auto table = read_mount_table();
  ASSERT_OK(table);
  EXPECT_TRUE(mount_on(*table, "/").has_value());
}

TEST(MountTable, TheSourceLeadsToTheStateDirectory) {
  const testing::TempDir dir;
  MountEntry entry;
  entry.source = dir.path();
  EXPECT_EQ(dir.path(), state_of(entry));
  std::filesystem::create_directory(dir / "state");
  testing::write_file(lock_path_of(dir / "state"), "1\n");
  EXPECT_EQ(dir / "state", state_of(entry));
}

}  // namespace
}  // namespace kvcachefs
